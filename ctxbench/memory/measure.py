"""Measured peak memory on the tensors' own device, under the same convention as the prediction."""

from typing import Any

import torch
from torch import nn

from ctxbench import devices
from ctxbench.garbage import collector_off
from ctxbench.memory.convention import UnpredictableError
from ctxbench.memory.one_pass import check_mode, prepared, run_pass, weight_tensors
from ctxbench.mode import Mode


def measure_peak(module: nn.Module, *inputs: Any, mode: Mode) -> int:
    """Peak bytes of one forward (infer) or forward and backward (train) under `CONVENTION`, on the inputs' device.

    The device says how (`Device.peak_bytes`); measure in a fresh process. Drops the module's gradients; in train it
    updates running statistics as any step does. Raises UnpredictableError for what the convention does not cover.
    """
    check_mode(mode)
    found = {tensor.device for tensor in inputs if isinstance(tensor, torch.Tensor)}
    found |= {tensor.device for _, tensor in weight_tensors(module)}
    if len(found) != 1 or next(iter(found)).type not in devices.KINDS:
        named = ", ".join(sorted(str(device) for device in found)) or "no device"
        raise UnpredictableError(
            f"module and inputs are on {named}; measure with all of them on cpu or on one cuda device"
        )
    device = found.pop()
    storages = {tensor.untyped_storage()._cdata: tensor.untyped_storage() for _, tensor in weight_tensors(module)}
    weights = sum(storage.nbytes() for storage in storages.values())
    with prepared(module, mode), collector_off(collect_first=True):  # two measurements see the same frees
        return weights + devices.device(str(device)).peak_bytes(lambda: run_pass(module, inputs, mode))
