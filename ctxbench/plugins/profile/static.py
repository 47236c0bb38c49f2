"""Costs of a pass that need no hardware: multiply-accumulates, bytes, the roofline and the predicted time, by place."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import nn

from ctxbench.base.call_sites import CallSite
from ctxbench.base.dtypes import DTYPES
from ctxbench.base.errors import text_of
from ctxbench.base.mode import Mode
from ctxbench.meta.autocast import Autocast
from ctxbench.meta.calls import RecordedCall
from ctxbench.meta.recorder import Recorder
from ctxbench.meta.without_compiler import without_compiler
from ctxbench.plugins.macs.counter import count_macs, counted, recorded
from ctxbench.plugins.macs.training import count_training_macs
from ctxbench.plugins.macs.watch import UncountableError, repeatable
from ctxbench.plugins.memory.convention import UnpredictableError
from ctxbench.plugins.memory.kernels import MemoryDevice
from ctxbench.plugins.memory.one_pass import prepared, run_pass
from ctxbench.plugins.memory.predict import predict_peak
from ctxbench.plugins.memory.profile import MemoryProfile, Phase
from ctxbench.plugins.predict.operators import Operator, operators_in, started
from ctxbench.plugins.predict.passes import time_of
from ctxbench.plugins.predict.sheet import DeviceSpec
from ctxbench.plugins.predict.work import Work, itemsize
from ctxbench.plugins.profile.costs import Costs, Roof, Span
from ctxbench.plugins.profile.profile import Pass

# A kernel that computes nothing: what it takes is saved if its line needs no copy.
_COPY = "copy"


@dataclass
class Known:
    """Known facts of a pass without hardware; `missing` has the reasons for the others.

    `on_data` is the reason why they are of a pass on numbers, "" of those of meta.
    """

    costs: Costs = field(default_factory=Costs)
    operators: Sequence[Operator] = ()
    memory: MemoryProfile | None = None
    on_data: str = ""
    missing: list[str] = field(default_factory=list)


def known(
    module: nn.Module,
    *inputs: Any,
    mode: Mode,
    device: MemoryDevice,
    dtype: str,
    autocast: torch.dtype | None,
    roof: Roof,
) -> Known:
    """The costs of one pass of `module` on `inputs`, which may be on meta, on a kind of device; without times."""
    found = Known()
    try:
        found.memory = predict_peak(module, *inputs, mode=mode, device=device, autocast=autocast)
    except UnpredictableError as error:
        seen = None if inputs[0].is_meta else _seen_on_data(found, module, *inputs, mode=mode, autocast=autocast)
        if seen is not None:
            phases: list[Phase] = ["forward" if each.node is None else "backward" for each in seen]
            pairs = zip(seen, phases, strict=True)
            found.operators = [each for call, phase in pairs for each in started(call.operation, phase, call.place)]
            found.on_data = str(error).partition("; ")[0]
            _add_works(found.costs, found.operators, dtype, roof)
            _add_macs(found.costs, counted(seen).by_place)
            return found
        found.missing.append(f"no bytes and no roofline: {error}")
    else:
        found.operators = operators_in(found.memory)
        _add_works(found.costs, found.operators, dtype, roof)
        _add_memory(found.costs, found.memory)
    try:
        count_in = count_training_macs if mode == "train" else count_macs
        count = found.memory and recorded(found.memory)
        count = count or count_in(module, *inputs, autocast=Autocast(device, autocast))
    except UncountableError as error:
        found.missing.append(f"no MACs: {error}")
    else:
        _add_macs(found.costs, count.by_place)
    return found


@without_compiler()
def _seen_on_data(
    found: Known, module: nn.Module, *inputs: Any, mode: Mode, autocast: torch.dtype | None
) -> list[RecordedCall] | None:
    """The calls of a pass of a copy of the module on its own device, composites by their parts.

    None, with the reason in `missing`, where there can be no such pass.
    """
    try:
        duplicate = copy.deepcopy(module)
        recorder = Recorder(duplicate)
        casts = torch.autocast(inputs[0].device.type, autocast, autocast is not None)
        with repeatable(), prepared(duplicate, mode), casts, recorder:
            run_pass(duplicate, inputs, mode)
    except Exception as error:
        found.missing.append(f"no counts of a pass on numbers: {type(error).__name__}: {text_of(error)}")
        return None
    return recorder.calls


def _add_macs(costs: Costs, macs: Mapping[tuple[CallSite, str], int]) -> None:
    for (place, operator), each in macs.items():
        costs.of("backward" if place.node else "forward", place, operator).macs += each


def _add_works(costs: Costs, operators: Sequence[Operator], dtype: str, roof: Roof) -> None:
    for operator in (each for each in operators if each.works):
        cost = costs.of(operator.phase, operator.place, operator.name)
        cost.calls += 1
        cost.is_wide = cost.is_wide or operator.dtype == "float64" != DTYPES[dtype].parameters
        for work in operator.works:
            cost.moved_bytes += work.bytes
            cost.flops += _flops(work)
            cost.ideal_ms += _ideal_s(work, operator.dtype, dtype, roof) * 1e3


def _add_memory(costs: Costs, memory: MemoryProfile) -> None:
    """The blocks that are saved for the backward pass, and those in memory at the peak, which the weights are, too."""
    for block in memory.allocations:
        if block.category == "saved for backward":
            costs.of(memory.timeline[block.born].phase, block.place, block.op).saved_bytes += block.bytes
    for block in memory.alive:
        place = CallSite(block.place.module, node="weights") if block.category == "weights" else block.place
        costs.of(memory.timeline[block.born].phase, place, block.op).peak_bytes += block.bytes


def _flops(work: Work) -> float:
    return work.flops + (2.0 * work.product.macs if work.product else 0.0)


def _ideal_s(work: Work, own: str, dtype: str, roof: Roof) -> float:
    """Seconds at the roofline, in the dtype of the pass where the kernel's is wider; a copy need not be made."""
    if work.kind == _COPY:
        return 0.0
    narrowed = min(1.0, itemsize(DTYPES[dtype].parameters) / itemsize(own))
    return max(_flops(work) / roof.flops, work.bytes * narrowed / roof.bandwidth)


def predicted(
    module: nn.Module, *inputs: Any, mode: Mode, sheet: DeviceSpec, dtype: str, autocast: torch.dtype | None
) -> tuple[Pass, Known, list[Span]]:
    """A pass on the device of a data sheet: its costs with predicted times, and its calls one after another.

    Raises UnpredictableError, with the reason, for a module that the meta device cannot run.
    """
    roof = Roof(sheet.peak(DTYPES[dtype].autocast or dtype), sheet.bandwidth, sheet.launch_s)
    found = known(module, *inputs, mode=mode, device=sheet.backend, dtype=dtype, autocast=autocast, roof=roof)
    if found.memory is None:
        raise UnpredictableError(found.missing[0].partition(": ")[2])
    time, spans, now = time_of(found.operators, sheet, dtype), [], 0
    for operator, ms in zip(found.operators, time.operators_ms, strict=True):
        if not ms:  # kept gradients, where the kernels' time counts
            continue
        cost = found.costs.of(operator.phase, operator.place, operator.name)
        cost.ms = [sum(cost.ms) + ms]
        ns = round(ms * 1e6)
        spans.append(Span(operator.phase, operator.place, operator.name, now, now + ns, ns))
        now += ns
    told, notes = time.time, [str(note) for note in time.notes()]
    taken = Pass(
        mode,
        found.costs.all,
        replace(roof, call_s=time.call_us / 1e6),
        (told.value, told.low, told.high),
        notes=[*notes, *found.missing],
        unknown=told.unknown,
        kernels=told.kernels,
    )
    return taken, found, spans
