"""Measured peak memory on the tensors' own device, under the same convention as the prediction."""

import gc
from typing import Any

import torch
from torch import nn

from ctxbench.memory.convention import Mode, UnpredictableError, backward, check_mode, forward, prepared, weight_tensors


def measure_peak(module: nn.Module, *inputs: Any, mode: Mode) -> int:
    """Peak bytes of one forward (infer) or one forward and backward (train) under `CONVENTION`, on the inputs' device.

    CPU: the allocation events of `torch.profiler` in time order; what libraries allocate past PyTorch's allocator is not
    in them. CUDA: `torch.cuda.max_memory_allocated` minus what was live before, cuBLAS warmed first; measure in a fresh
    process. Drops the module's gradients; in train it updates running statistics as any step does. Raises
    UnpredictableError for what the convention does not cover.
    """
    check_mode(mode)
    devices = {tensor.device.type for tensor in inputs if isinstance(tensor, torch.Tensor)}
    devices |= {tensor.device.type for _, tensor in weight_tensors(module)}
    if devices not in ({"cpu"}, {"cuda"}):
        raise UnpredictableError(f"module and inputs are on {', '.join(sorted(devices))}; measure on cpu or on cuda alone")
    weights = sum({t.untyped_storage()._cdata: t.untyped_storage().nbytes() for _, t in weight_tensors(module)}.values())
    measure = _measure_cuda if devices == {"cuda"} else _measure_cpu
    with prepared(module, mode):
        return weights + measure(module, inputs, mode)


def _run(module: nn.Module, inputs: tuple[Any, ...], mode: Mode) -> torch.Tensor:
    output = forward(module, inputs, mode)
    if mode == "train":
        backward(output)
    return output


def _measure_cpu(module: nn.Module, inputs: tuple[Any, ...], mode: Mode) -> int:
    gc.collect()
    with torch.autograd.profiler.profile(profile_memory=True) as profiler:
        output = _run(module, inputs, mode)
    del output
    events = profiler.kineto_results.events()  # the only place where the events stand one by one
    changes = sorted((event.start_ns(), order, event.nbytes()) for order, event in enumerate(events) if event.name() == "[memory]")
    live = peak = 0
    for _, _, size in changes:
        live += size
        peak = max(peak, live)
    return peak


def _measure_cuda(module: nn.Module, inputs: tuple[Any, ...], mode: Mode) -> int:
    device = next(tensor.device for tensor in inputs if isinstance(tensor, torch.Tensor))
    warm = torch.ones(1, 8, 8, device=device)
    del_me = warm @ warm  # cuBLAS keeps the workspace that its first product allocates
    del warm, del_me
    gc.collect()
    torch.cuda.synchronize(device)
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    output = _run(module, inputs, mode)
    torch.cuda.synchronize(device)
    peak = torch.cuda.max_memory_allocated(device)
    del output
    return peak - before
