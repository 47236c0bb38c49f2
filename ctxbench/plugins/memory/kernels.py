"""The table of the memory that kernels allocate beside their outputs: operator, device, bytes, why, source.

An operator allocates its outputs, which the tracker sees. Some operators allocate more and free it before they return:
only this table knows that. The CPU's rows come from `torch.profiler`, and tests check them to the byte (one thread).
CUDA's rows come from PyTorch's sources, below aten/src/ATen/native. An operator that is not here, is no view, is not
pointwise (by PyTorch's own tags) and is not in `FREE` is marked by name.

Devices: `cuda` is the PyTorch that is installed, with cuDNN. `cuda-2020` is the convention that gives the figures of
that year's papers: the sum of two gradients is a new block (since 2.0 the engine adds in place if it has the only
reference), batch norm reads the gradient of a sum without a copy, as PyTorch's own kernel does, log-softmax and ReLU
keep their inputs (`INPUT_KEPT`), and cuDNN takes its workspace for wide 3x3 convolutions.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch

from ctxbench.devices.cuda import Cuda
from ctxbench.plugins.memory import attention_rules as attention
from ctxbench.plugins.memory import convolution_rules as convolutions
from ctxbench.plugins.memory import kernel_rules as rules
from ctxbench.plugins.memory import norm_rules as norms
from ctxbench.plugins.memory import reduction_rules as reductions
from ctxbench.plugins.memory import transform_rules as transforms
from ctxbench.plugins.memory.convolution_rules import winograd
from ctxbench.plugins.memory.kernel_rules import Call, Sizes

MemoryDevice = Literal["cuda", "cuda-2020", "cpu"]
_CUDA = ("cuda", "cuda-2020")
_CPU = ("cpu",)
_EVERY = get_args(MemoryDevice)
_POOLING = "avg_pool2d max_pool2d_with_indices"
_POOLING_BACKWARD = "avg_pool2d_backward max_pool2d_with_indices_backward"


@dataclass(frozen=True)
class Kernel:
    """One row; `inner_bytes` gives the bytes of each inner block, or the reason why they are not known."""

    operators: str
    devices: tuple[str, ...]
    inner_bytes: Callable[[Call], Sizes | str]
    why: str
    source: str


_PROFILER = "torch.profiler, tests/plugins/memory/test_memory_cpu.py"

KERNELS = (
    Kernel("_softmax _log_softmax", _EVERY, rules.copies(0),
           "reads a contiguous input", "cuda/SoftMax.cu, host_softmax; " + _PROFILER),
    Kernel("_softmax_backward_data", _CUDA, rules.softmax_backward_cuda,
           "forms grad * output, one more map, and copies what is strided",
           "cuda/SoftMax.cu, softmax_backward_cuda_out and host_softmax_backward"),
    Kernel("_softmax_backward_data", _CPU, rules.copies(0, 1),
           "reads contiguous arguments", _PROFILER),
    Kernel("_log_softmax_backward_data", _EVERY, rules.copies(0, 1),
           "reads contiguous arguments", "cuda/SoftMax.cu, host_softmax_backward; " + _PROFILER),
    Kernel("mm addmm", _CUDA, rules.product,
           "BLAS needs one unit stride", "cuda/Blas.cpp, prepare_matrix_for_cublas"),
    Kernel("mm addmm", _CPU, rules.unless_onednn(rules.product),
           "BLAS needs one unit stride", "LinearAlgebra.cpp, addmm_impl_cpu_; " + _PROFILER),
    Kernel("mv addmv", _CUDA, rules.matrix_times_vector_cuda,
           "BLAS needs one unit stride, and a vector's stride above 0", "cuda/Blas.cpp, addmv_out_cuda"),
    Kernel("mv addmv", _CPU, rules.unless_onednn(rules.matrix_times_vector_cpu),
           "BLAS needs one unit stride", "Blas.cpp, addmv_out_cpu; " + _PROFILER),
    Kernel("bmm baddbmm", _CUDA, rules.product,
           "BLAS needs one unit stride", "cuda/Blas.cpp, prepare_batch_matrix_for_cublas"),
    Kernel("bmm baddbmm", _CPU, rules.unless_onednn(rules.batched_product_cpu),
           "copies one image's matrix at a time", "LinearAlgebra.cpp, bmm_out_or_baddbmm_; " + _PROFILER),
    Kernel("convolution", ("cuda",), convolutions.convolution_cuda,
           "cuDNN reads arguments of one format; without its workspace", "Convolution.cpp, _convolution"),
    Kernel("convolution_backward", ("cuda",), convolutions.convolution_backward_cuda,
           "cuDNN reads arguments of one format; without its workspace", "Convolution.cpp, convolution_backward"),
    Kernel("convolution", ("cuda-2020",), lambda call: [*convolutions.convolution_cuda(call), winograd(call)],
           "cuDNN reads arguments of one format; wide 3x3 convolutions have a workspace",
           "Convolution.cpp, _convolution; that it is taken, mmsegmentation's published peaks show "
           "(docs/plugins/memory.md)"),
    Kernel("convolution_backward", ("cuda-2020",),
           lambda call: [*convolutions.convolution_backward_cuda(call), winograd(call)],
           "cuDNN reads arguments of one format; wide 3x3 convolutions have a workspace",
           "Convolution.cpp, convolution_backward; as above"),
    Kernel("convolution", _CPU, convolutions.convolution_cpu,
           "unfolds its input; oneDNN is not predicted", _PROFILER),
    Kernel("convolution_backward", _CPU, convolutions.convolution_backward_cpu,
           "unfolds its input; oneDNN is not predicted", _PROFILER),
    Kernel("native_batch_norm", _CUDA, norms.batch_norm_cuda,
           "cuDNN (float32, float64) reads a dense input; PyTorch's own kernel (half, bfloat16) any",
           "Normalization.cpp, _select_batch_norm_backend; cudnn/BatchNorm.cpp, cudnn_batch_norm; "
           "cuda/Normalization.cu, batch_norm_cuda_out"),
    Kernel("native_batch_norm_backward", ("cuda",), norms.batch_norm_backward_cuda,
           "cuDNN (float32, float64) reads a gradient of the input's format; PyTorch's own kernel reads strides",
           "Normalization.cpp, _select_batch_norm_backend; cudnn/BatchNorm.cpp, cudnn_batch_norm_backward; "
           "cuda/Normalization.cuh, batch_norm_backward_cuda_template"),
    Kernel("native_batch_norm_backward", ("cuda-2020",), norms.batch_norm_backward_native,
           "PyTorch's own kernel reads the gradient of a sum by its strides",
           "cuda/Normalization.cuh, batch_norm_backward_cuda_template"),
    Kernel("native_batch_norm", _CPU, norms.batch_norm_cpu,
           "scale and shift of each channel", _PROFILER),
    Kernel("native_batch_norm_backward", _CPU, norms.batch_norm_backward_cpu,
           "a map of x - mean on dense arguments", _PROFILER),
    Kernel("native_layer_norm", _EVERY, rules.copies(0),
           "reads a contiguous input", "layer_norm.cpp; " + _PROFILER),
    Kernel("_fused_rms_norm", _CUDA, rules.copies(0),
           "reads a contiguous input", "layer_norm.cpp; cuda/layer_norm_kernel.cu, _fused_rms_norm_cuda"),
    Kernel("native_layer_norm_backward _fused_rms_norm_backward", _CUDA, norms.layer_norm_backward_cuda,
           "reads contiguous arguments; sums many rows in parts",
           "cuda/layer_norm_kernel.cu, LayerNormBackwardKernelImpl, LaunchGammaBetaBackwardCUDAKernel"),
    Kernel("native_layer_norm_backward", _CPU, norms.layer_norm_backward_cpu,
           "a buffer for the parameters' gradients", _PROFILER),
    Kernel("native_group_norm", ("cuda",), norms.group_norm_cuda,
           "a factor and a shift of each image and channel", "cuda/group_norm_kernel.cu, GroupNormKernelImplInternal"),
    Kernel("native_group_norm_backward", ("cuda",), norms.group_norm_backward_cuda,
           "reads contiguous arguments, copied here since PyTorch 2.14; sums by channel and group",
           "group_norm.cpp; cuda/group_norm_kernel.cu, GroupNormBackwardKernelImplInternal"),
    Kernel("native_group_norm", _CPU, lambda _: (),
           "none: its input is made contiguous before", _PROFILER),
    Kernel("native_group_norm_backward", _CPU, norms.group_norm_backward_cpu,
           "reads dense arguments, copied here since PyTorch 2.14; two sums for each image and channel", _PROFILER),
    Kernel("_adaptive_avg_pool2d", _CUDA, rules.adaptive_pooling_cuda,
           "reads channels last by its strides, else a contiguous input",
           "cuda/AdaptiveAveragePooling.cu, adaptive_avg_pool2d_out_cuda_template"),
    Kernel("_adaptive_avg_pool2d_backward", _CUDA, rules.adaptive_pooling_backward_cuda,
           "reads the gradient by its strides if the input is channels last, else a contiguous one",
           "cuda/AdaptiveAveragePooling.cu, adaptive_avg_pool2d_backward_out_cuda_template"),
    Kernel(_POOLING, _CUDA, rules.copy_in_its_format,
           "reads a dense input", "cuda/AveragePool2d.cu, avg_pool2d_out_cuda; DilatedMaxPool2d.cu"),
    Kernel(_POOLING_BACKWARD, _CUDA, rules.pooling_backward_cuda,
           "reads input and gradient in the input's format",
           "cuda/AveragePool2d.cu, avg_pool2d_backward_out_cuda; DilatedMaxPool2d.cu"),
    Kernel("_adaptive_avg_pool2d " + _POOLING, _CPU, rules.copy_in_its_format,
           "reads a dense input", _PROFILER),
    Kernel("_adaptive_avg_pool2d_backward " + _POOLING_BACKWARD, _CPU, rules.pooling_backward_cpu,
           "works in the gradient's format", _PROFILER),
    Kernel("_fft_r2c _fft_c2c", _EVERY, transforms.fourier,
           "joins the batch dimensions; on CUDA without cuFFT's workspace",
           "mkl/SpectralOps.cpp, cuda/SpectralOps.cpp, _exec_fft; " + _PROFILER),
    Kernel("abs angle", _EVERY, transforms.of_complex,
           "computes in complex numbers", "UnaryOps.cpp, unary_op_impl_with_complex_to_float_out; " + _PROFILER),
    Kernel("_fft_c2r", _CUDA, transforms.fourier_to_real_cuda,
           "cuFFT may overwrite its input; without its workspace", "cuda/SpectralOps.cpp, _fft_c2r_cufft"),
    Kernel("_fft_c2r", _CPU, transforms.fourier_to_real_cpu,
           "joins the batch dimensions, after all transforms but the last",
           "mkl/SpectralOps.cpp, _fft_c2r_mkl; " + _PROFILER),
    Kernel("upsample_bilinear2d", _CPU, transforms.resize_cpu,
           "works in channels last, or from tables of rows and columns", "cpu/UpSampleKernel.cpp; " + _PROFILER),
    Kernel("upsample_bilinear2d", _CUDA, transforms.resize_cuda,
           "reads a dense input if it is channels last",
           "cuda/UpSampleBilinear2d.cu, upsample_bilinear2d_out_cuda_template"),
    Kernel("upsample_bilinear2d_backward", _EVERY, rules.copy_in_its_format,
           "reads a dense gradient",
           "cuda/UpSampleBilinear2d.cu, upsample_bilinear2d_backward_out_cuda_template; " + _PROFILER),
    Kernel("linalg_inv_ex", _CUDA, rules.inverse,
           "LU factors and pivots; without the solver's workspace", "BatchLinearAlgebra.cpp, linalg_inv_ex_out"),
    Kernel("linalg_inv_ex", _CPU, rules.inverse_cpu,
           "LU factors, pivots and their check", _PROFILER),
    Kernel("_linalg_check_errors", _CPU, rules.check_errors_cpu,
           "a boolean for each matrix, and one for all", _PROFILER),
    Kernel("_safe_softmax", _EVERY, attention.safe_softmax,
           "rows that are masked in full become zeros", "transformers/attention.cpp, _safe_softmax; " + _PROFILER),
    Kernel("_scaled_dot_product_flash_attention", ("cuda",), attention.flash_cuda,
           "none, unless it splits the keys",
           "transformers/cuda/flash_attn/flash_api.cpp, mha_fwd, set_params_splitkv, num_splits_heuristic"),
    Kernel("_scaled_dot_product_flash_attention_backward", ("cuda",), attention.flash_backward_cuda,
           "reads contiguous arguments; sums and the query's gradient in float32, rows in 128s, channels in 32s or 64s",
           "transformers/cuda/attention_backward.cu, _flash_attention_backward; flash_attn/flash_api.cpp, mha_bwd"),
    Kernel("_scaled_dot_product_efficient_attention", ("cuda",), attention.efficient_cuda,
           "an output in float32, if it does not fit into the registers",
           "transformers/cuda/attention.cu, _efficient_attention_forward"),
    Kernel("_scaled_dot_product_efficient_attention_backward", ("cuda",), attention.efficient_backward_cuda,
           "reads a contiguous gradient; its sums and a workspace of tiles in float32",
           "transformers/cuda/attention_backward.cu, _efficient_attention_backward; "
           "mem_eff_attention/kernel_backward.h, workspace_size"),
    Kernel("_scaled_dot_product_flash_attention_for_cpu", _CPU, attention.flash_cpu,
           "one tile for each thread", "cpu/FlashAttentionKernel.cpp, cpu_flash_attention; " + _PROFILER),
    Kernel("_scaled_dot_product_flash_attention_for_cpu_backward", _CPU, attention.flash_backward_cpu,
           "two tiles for each thread, and a contiguous gradient",
           "cpu/FlashAttentionKernel.cpp, cpu_flash_attention_backward; " + _PROFILER),
    Kernel("index", _EVERY, rules.index,
           "indices become int64", "TensorAdvancedIndexing.cpp, make_info; " + _PROFILER),
    Kernel("index_put", _CPU, rules.index,
           "indices become int64", "TensorAdvancedIndexing.cpp, make_info; " + _PROFILER),
    Kernel("index_put", _CUDA, rules.index_put_cuda,
           "sorts the places of what is added; without CUB's workspace",
           "cuda/Indexing.cu, computeLinearIndex, index_put_with_sort_kernel"),
    Kernel("repeat", _CPU, rules.repeat_cpu,
           "index vectors", _PROFILER),
    Kernel("repeat", _CUDA, lambda _: (),
           "none that grows with the input", "TensorShape.cpp, repeat"),
    Kernel("roll", _CPU, rules.roll_cpu,
           "a map for each dimension but the last", "TensorTransformations.h, roll_common; " + _PROFILER),
    Kernel("roll", _CUDA, rules.roll_cuda,
           "a map for each dimension but the last; reads a contiguous input",
           "TensorTransformations.h, roll_common; cuda/TensorTransformations.cu, roll_cuda"),
    Kernel("cumsum", _CUDA, rules.copies(0),
           "reads a contiguous input; of one row without CUB's workspace", "cuda/ScanUtils.cuh, scan_dim"),
    Kernel("cumsum", _CPU, lambda _: (),
           "none: it reads strides", _PROFILER),
    Kernel("grid_sampler_2d", _EVERY, lambda _: (),
           "none: it reads strides", "cuda/GridSampler.cu; " + _PROFILER),
    Kernel("grid_sampler_2d_backward", _CUDA, lambda _: (),
           "none: it reads strides", "cuda/GridSampler.cu, launch_grid_sampler_2d_backward_kernel"),
    Kernel("grid_sampler_2d_backward", _CPU, rules.copies(0),
           "reads a contiguous gradient", _PROFILER),
    Kernel("bernoulli", _CUDA, rules.dropout_mask_cuda,
           "another path on meta", "Dropout.cpp, is_fused_kernel_acceptable, _feature_dropout"),
    Kernel("topk", _CUDA, rules.topk_cuda,
           "short slices are searched in place", "cuda/TensorTopK.cu, gatherTopK, should_use_sort"),
    Kernel("topk", _CPU, lambda _: (),
           "none: its queue is no tensor", "cpu/SortingKernel.cpp, topk_kernel; " + _PROFILER),
    Kernel("nll_loss2d_forward nll_loss2d_backward scatter", _CUDA, lambda _: (),
           "none that grows with the input", "cuda/NLLLoss2d.cu, cuda/ScatterGatherKernel.cu"),
    Kernel("scatter", _CPU, rules.scatter_cpu,
           "computes half types in float32", "cpu/ScatterGatherKernel.cpp; " + _PROFILER),
    Kernel("max min", _CPU, rules.extreme_cpu,
           "another gradient than on meta", "FunctionsManual.cpp, evenly_distribute_backward"),
    Kernel("masked_fill", _EVERY, rules.unless_trained(2, "the gradient of the value depends on the mask's data"),
           "none, but for the value's gradient", "FunctionsManual.cpp, masked_fill_backward"),
    Kernel("xlogy special_xlog1py", _CPU, rules.unless_trained(0, "its gradient takes other operators than on meta"),
           "none, but for its gradient", _PROFILER),
    Kernel("clamp", _CUDA, rules.unless_bound_is_trained,
           "none, but for a bound's gradient", "FunctionsManual.cpp, clamp_backward_min_max"),
    Kernel("clamp", _CPU, rules.clamp_cpu,
           "casts its bounds", _PROFILER),
    Kernel("ldexp", _EVERY, rules.ldexp,
           "forms the power of two", "BinaryOps.cpp, ldexp; " + _PROFILER),
    Kernel("pow", _CPU, rules.power_cpu,
           "a base that is a number becomes a tensor", _PROFILER),
    Kernel("normal", _CPU, rules.normal_cpu,
           "adds mean and deviation to standard numbers", _PROFILER),
    Kernel("tril triu", _CPU, rules.triangle_cpu,
           "reads matrices that follow each other in memory", "TriangularOps.cpp; " + _PROFILER),
    Kernel("pixel_shuffle pixel_unshuffle", _CPU, rules.copy_in_its_format,
           "reads a dense input", _PROFILER),
    Kernel("native_dropout_backward", _CPU, rules.dropout_backward_cpu,
           "multiplies by the mask first", _PROFILER),
    Kernel("mvlgamma", _CPU, lambda _: "it is made of other operators, which meta does not run",
           "made of other operators", _PROFILER),
    Kernel("deg2rad rad2deg", _CPU, rules.degrees_cpu,
           "the factor becomes a tensor", _PROFILER),
    Kernel("std var", _CPU, rules.deviation_cpu,
           "two sums, where all is reduced", _PROFILER),
    Kernel("mean", _CPU, rules.mean_cpu,
           "divides the sum by a number; sums half types in float32", _PROFILER),
    Kernel("sum", _CPU, rules.sum_cpu,
           "sums a copy in the sum's dtype", _PROFILER),
    Kernel("sum mean amax amin max min argmax argmin linalg_vector_norm norm var std var_mean any all prod", _CUDA,
           reductions.reduction_cuda,
           "few outputs: partial results of the thread blocks of each", "cuda/Reduce.cuh, setReduceConfig"),
    Kernel("amax amin argmax argmin linalg_vector_norm norm any all prod", _CPU, rules.whole_cpu,
           "one number of a large tensor: with several threads a partial result for each", _PROFILER),
    Kernel("add sub rsub mul div eq ne lt le gt ge maximum minimum remainder fmod copysign", _CPU, rules.binary_cpu,
           "numbers become tensors, other dtypes are cast", "TensorIterator.cpp, compute_types; " + _PROFILER),
)  # fmt: skip

# Reviewed: these allocate only their outputs, and nothing else that grows with the input, on any of the devices
# without a row above.
_FREE_NAMES = """
    sum mean amax amin max min argmax argmin linalg_vector_norm norm var std var_mean any all prod
    cat stack clone copy _to_copy _unsafe_view constant_pad_nd slice_backward select_backward tril triu flip
    pixel_shuffle pixel_unshuffle masked_fill unsqueeze squeeze transpose t as_strided resize set
    empty empty_like empty_strided new_empty new_empty_strided zeros zeros_like new_zeros ones ones_like new_ones
    full full_like new_full fill zero eye arange linspace scalar_tensor lift_fresh
    rand rand_like randn randn_like uniform normal bernoulli native_dropout
    dot _linalg_check_errors _local_scalar_dense promote_types complex
    hardswish leaky_relu glu hardtanh_backward leaky_relu_backward elu_backward softplus_backward hardswish_backward
    mish_backward
"""
FREE = frozenset(_FREE_NAMES.split())

# Operators whose outputs on meta differ from the real ones: in their layout, or in a block that is empty.
OUTPUTS: dict[str, Callable[[Call, Any], Any]] = {
    "convolution": convolutions.convolution_outputs,
    "native_batch_norm": norms.batch_norm_outputs,
    "native_batch_norm_backward": norms.batch_norm_backward_outputs,
    "_scaled_dot_product_efficient_attention": attention.efficient_outputs,
}
OUTPUTS_CPU = {
    **OUTPUTS,
    "convolution_backward": convolutions.convolution_backward_outputs_cpu,
    "native_batch_norm": norms.batch_norm_outputs_cpu,
    "native_group_norm": norms.group_norm_outputs_cpu,
    "native_layer_norm": norms.layer_norm_outputs_cpu,
    "_scaled_dot_product_flash_attention_for_cpu": attention.flash_outputs_cpu,
}

# Forward and backward of what kept its input beside its output until PyTorch 1.10 (issues 63027, 64000 of pytorch).
# Softmax did so too and is left out: the modules' products, channel-first, hold a map more instead
# (docs/plugins/memory.md).
INPUT_KEPT = {"aten._log_softmax": "aten._log_softmax_backward_data", "aten.relu": "aten.threshold_backward"}

# What CUDA's libraries allocate, not included in the peak: operators, name, size and when.
WORKSPACES = (
    ("mm addmm bmm baddbmm mv addmv dot", "cuBLAS",
     "one for each thread that multiplies, the forward pass's and autograd's: 8,519,680 bytes by default, 32 MiB on "
     "compute capability 9.0; from the thread's first product on"),
    ("convolution convolution_backward", "cuDNN convolution",
     "chosen by the algorithm it picks, from nothing to more than the maps; freed after each call"),
    ("native_batch_norm native_batch_norm_backward", "cuDNN batch norm",
     "float32, float64: a workspace a call and a reserve kept for the backward pass, small compared with a map"),
    ("_fft_r2c _fft_c2c _fft_c2r", "cuFFT", "chosen by the plan for each length; freed after each call"),
    ("index_put", "CUB", "sorts the places of what is added, 16 bytes or less for each; freed after each call"),
    ("linalg_inv_ex", "cuSOLVER", "about one batch of matrices; freed after each call"),
)  # fmt: skip


@dataclass(frozen=True)
class MemoryRules:
    """Memory rules of one device: kernels, block size, counting of host numbers."""

    device: MemoryDevice

    def __post_init__(self) -> None:
        if self.device not in _EVERY:
            raise ValueError(f"device is {self.device!r}; a prediction is for one of {', '.join(_EVERY)}")

    @property
    def counts_host(self) -> bool:
        """Return whether tensors on the host are on the device."""
        return self.device == "cpu"

    def round(self, size: int) -> int:
        """The block that a request takes: CUDA's caching allocator gives multiples of a block."""
        return size if self.device == "cpu" else Cuda.in_blocks(size)

    def workspaces(self, operators: set[str]) -> dict[str, str]:
        """The libraries that these operators call, and their memory that is not in the predicted peak."""
        if self.device == "cpu":
            return {}
        return {name: size for names, name, size in WORKSPACES if operators & set(names.split())}

    def workspace_limit(self, call: Call) -> int:
        """Bytes that cuDNN may take while this call runs, beside what the table counts."""
        is_convolution = call.operator in ("convolution", "convolution_backward")
        return winograd(call) if self.device == "cuda" and is_convolution else 0

    def outputs(self, call: Call, out: Any) -> Any:
        """The outputs with the layouts that the device's kernels give them."""
        correct = (OUTPUTS_CPU if self.device == "cpu" else OUTPUTS).get(call.operator)
        return correct(call, out) if correct is not None else out

    def inner(self, call: Call) -> tuple[Sizes, str]:
        """The bytes of each block that the kernel allocates for itself, and the reason if they are not known."""
        row = _ROWS.get((call.operator, self.device))
        if row is not None and call.packet.startswith("aten."):
            sizes = row.inner_bytes(call)
            return ((), sizes) if isinstance(sizes, str) else (sizes, "")
        if not call.packet.startswith(("aten.", "prims.")):
            return (), "a custom operator: what its kernel allocates is not known"
        is_free = call.operator in FREE or call.operator.startswith("_foreach_")  # what an optimizer runs on lists
        if call.func.is_view or torch.Tag.pointwise in call.func.tags or is_free:
            return (), ""
        return (), "what its kernel allocates inside itself is not in the table"


_ROWS = {(name, device): row for row in KERNELS for name in row.operators.split() for device in row.devices}
THEN = MemoryRules("cuda-2020")
# Operators whose kernels allocate other blocks inside themselves than those of 2020.
CHANGED = frozenset(name for name, _ in _ROWS if _ROWS.get((name, "cuda")) is not _ROWS.get((name, THEN.device)))
