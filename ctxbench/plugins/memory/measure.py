"""Measured peak memory on the tensors' own device, under the same convention as the prediction."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from ctxbench import devices
from ctxbench.base.garbage import collector_off
from ctxbench.base.mode import Mode
from ctxbench.plugins.memory.convention import UnpredictableError
from ctxbench.plugins.memory.one_pass import check_mode, prepared, run_pass, weight_tensors


@dataclass(frozen=True, slots=True)
class MeasuredPeak:
    """The peak of a pass in bytes: of the blocks that were allocated, and of what was requested for them.

    `requested_bytes` is None where the device's allocator does not count requests (the CPU).
    """

    allocated_bytes: int
    requested_bytes: int | None


def measure_peak(module: nn.Module, *inputs: Any, mode: Mode) -> int:
    """Peak bytes of one forward (infer) or forward and backward (train) under `CONVENTION`, on the inputs' device.

    On a GPU the second of two passes is measured: libraries allocate workspaces in the first, one for each thread, and
    the backward pass has a thread of its own. The device says how (`Device.peak_bytes`); measure in a fresh process.
    Drops the module's gradients; in train it updates running statistics as any step does. Raises UnpredictableError
    for what the convention does not cover.
    """
    return measure_allocation(module, *inputs, mode=mode).allocated_bytes


def measure_allocation(module: nn.Module, *inputs: Any, mode: Mode) -> MeasuredPeak:
    """As `measure_peak`, with the peak of what was requested beside that of what was allocated."""
    check_mode(mode)
    found = {tensor.device for tensor in _tensors(inputs)}
    found |= {tensor.device for _, tensor in weight_tensors(module)}
    if len(found) != 1 or next(iter(found)).type not in devices.KINDS:
        named = ", ".join(sorted(str(device) for device in found)) or "no device"
        raise UnpredictableError(
            f"module and inputs are on {named}; measure with all of them on cpu or on one cuda device"
        )
    device = devices.device(str(found.pop()))
    requested: list[tuple[int, int] | None] = []

    def measured_pass() -> object:
        requested.append(device.requested_bytes())
        return run_pass(module, inputs, mode)

    with prepared(module, mode):
        if device.keeps_workspaces:
            run_pass(module, inputs, mode)
            for each in (*module.parameters(), *_tensors(inputs)):
                each.grad = None
        with collector_off(collect_first=True):  # two measurements see the same frees
            allocated = device.peak_bytes(measured_pass)
        before, after = requested[0], device.requested_bytes()
    requests = after[1] - before[0] if before and after else None
    return MeasuredPeak(
        _weight_bytes(module, device.in_blocks) + allocated,
        None if requests is None else _weight_bytes(module) + requests,
    )


def _tensors(inputs: Sequence[Any]) -> list[torch.Tensor]:
    return [each for each in inputs if isinstance(each, torch.Tensor)]


def _weight_bytes(module: nn.Module, taken: Callable[[int], int] = int) -> int:
    storages = {tensor.untyped_storage()._cdata: tensor.untyped_storage() for _, tensor in weight_tensors(module)}
    return sum(taken(storage.nbytes()) for storage in storages.values())
