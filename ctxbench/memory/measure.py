"""Measured peak memory on the tensors' own device, under the same convention as the prediction."""

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from ctxbench.memory.convention import (
    Mode,
    UnpredictableError,
    backward,
    check_mode,
    forward,
    prepared,
    weight_tensors,
)


def measure_peak(module: nn.Module, *inputs: Any, mode: Mode) -> int:
    """Peak bytes of one forward (infer) or forward and backward (train) under `CONVENTION`, on the inputs' device.

    CPU: the allocation events of `torch.profiler` in time order; what libraries take past PyTorch's allocator is not in
    them. CUDA: `torch.cuda.max_memory_allocated` minus what was live before, cuBLAS warmed first; measure in a fresh
    process. Drops the module's gradients; in train it updates running statistics as any step does. Raises
    UnpredictableError for what the convention does not cover.
    """
    check_mode(mode)
    devices = {tensor.device for tensor in inputs if isinstance(tensor, torch.Tensor)}
    devices |= {tensor.device for _, tensor in weight_tensors(module)}
    if len(devices) != 1 or next(iter(devices)).type not in ("cpu", "cuda"):
        named = ", ".join(sorted(str(device) for device in devices)) or "no device"
        raise UnpredictableError(
            f"module and inputs are on {named}; measure with all of them on cpu or on one cuda device"
        )
    device = devices.pop()
    storages = {tensor.untyped_storage()._cdata: tensor.untyped_storage() for _, tensor in weight_tensors(module)}
    weights = sum(storage.nbytes() for storage in storages.values())
    with prepared(module, mode), _no_collection():
        if device.type == "cpu":
            return weights + _measure_cpu(module, inputs, mode)
        return weights + _measure_cuda(module, inputs, mode, device)


def run_pass(module: nn.Module, inputs: tuple[Any, ...], mode: Mode) -> torch.Tensor:
    """One pass under the convention; the caller keeps the output."""
    output = forward(module, inputs, mode)
    if mode == "train":
        backward(output)
    return output


def _measure_cpu(module: nn.Module, inputs: tuple[Any, ...], mode: Mode) -> int:
    with _quiet_kineto(), torch.autograd.profiler.profile(profile_memory=True) as profiler:
        output = run_pass(module, inputs, mode)
    del output
    events = profiler.kineto_results.events()  # the only place where the events stand one by one
    changes = [(event.start_ns(), event.nbytes()) for event in events if event.name() == "[memory]"]
    live = peak = 0
    for _, size in sorted(changes, key=lambda change: change[0]):
        live += size
        peak = max(peak, live)
    return peak


def _measure_cuda(module: nn.Module, inputs: tuple[Any, ...], mode: Mode, device: torch.device) -> int:
    square = torch.ones(1, 8, 8, device=device)
    torch.bmm(square, square)  # cuBLAS keeps the workspace that its first product allocates
    del square
    torch.cuda.synchronize(device)
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    output = run_pass(module, inputs, mode)
    torch.cuda.synchronize(device)
    peak = torch.cuda.max_memory_allocated(device)
    del output
    return peak - before


@contextmanager
def _no_collection() -> Iterator[None]:
    """Collect cycles before the pass and not during it, so that two measurements see the same frees."""
    was_on = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@contextmanager
def _quiet_kineto() -> Iterator[None]:
    """Keep the profiler's library from printing its start and stop to the terminal."""
    level = os.environ.get("KINETO_LOG_LEVEL")
    os.environ["KINETO_LOG_LEVEL"] = "99"
    try:
        yield
    finally:
        if level is None:
            del os.environ["KINETO_LOG_LEVEL"]
        else:
            os.environ["KINETO_LOG_LEVEL"] = level
