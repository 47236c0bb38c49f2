"""The byte rules of Fourier transforms and of bilinear resizing, for the table in `kernels.py`."""

import torch
from torch import Tensor
from torch._prims_common import suggest_memory_format

from ctxbench.plugins.memory.kernel_rules import Call, Sizes, copy_in_its_format, is_view, size_of


def fourier(call: Call) -> Sizes:
    """A copy of the input, if its batch dimensions cannot be joined into one before the transformed ones."""
    return _joined(call.args[0], call.args[1])


def fourier_to_real_cpu(call: Call) -> Sizes:
    """As `fourier` for the last dimension, after a spectrum in which the others are transformed back."""
    spectrum, transformed = call.args[:2]
    if len(transformed) == 1:
        return _joined(spectrum, transformed)
    halfway = torch.ops.aten._fft_c2c(spectrum, transformed[:-1], 0, False)  # on meta; its strides are what counts
    before, after = (sum(_joined(*each)) for each in ((spectrum, transformed[:-1]), (halfway, transformed[-1:])))
    return [size_of(halfway), max(after, before - size_of(call.out[0]))]  # the output does not exist before


def fourier_to_real_cuda(call: Call) -> Sizes:
    """As `fourier`, and a copy that cuFFT may overwrite."""
    spectrum = call.args[0]
    own = torch.empty_like(spectrum, memory_format=torch.contiguous_format)
    return [size_of(spectrum), *_joined(own, call.args[1])]


def _joined(tensor: Tensor, transformed: list[int]) -> Sizes:
    """aten/src/ATen/native/mkl/SpectralOps.cpp and cuda/SpectralOps.cpp, _exec_fft."""
    batch = sorted(set(range(tensor.dim())) - set(transformed), key=tensor.stride, reverse=True)
    signals = tensor.permute(*batch, *transformed)
    together = signals.reshape(-1, *signals.shape[len(batch) :])
    return [] if is_view(together, tensor) else [size_of(tensor)]


def of_complex(call: Call) -> Sizes:
    """A complex result, of which the real part is kept."""
    return [size_of(call.args[0])] if call.args[0].is_complex() else []


def resize_cpu(call: Call) -> Sizes:
    """Small outputs are made in channels last, from a copy and into one; others from tables of the axes.

    Of large ones those in channels last, or on one thread those of up to three channels
    (aten/src/ATen/native/cpu/UpSampleKernel.cpp, _use_vectorized_kernel_cond_2d).
    """
    data, out = call.args[0], call.out[0]
    height, width = out.shape[2:]
    in_channels_last = data.is_contiguous(memory_format=torch.channels_last)
    if height + width <= 128 or (in_channels_last if out.shape[1] > 3 else torch.get_num_threads() == 1):
        return [size_of(t) for t in (data, out) if not t.is_contiguous(memory_format=torch.channels_last)]
    return [2 * (8 + data.element_size()) * (height + width)]  # two positions and their weights for each row and column


def resize_cuda(call: Call) -> Sizes:
    """A dense copy of an input in channels last; any other is read by its strides."""
    channels_last = suggest_memory_format(call.args[0]) is torch.channels_last
    return copy_in_its_format(call) if channels_last else []
