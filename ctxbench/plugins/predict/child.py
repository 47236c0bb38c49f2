"""Output of `ctxbench predict`: the time of a pass on a device that is not here, and its bounds by operator."""

import math
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from ctxbench.base.errors import UsageError
from ctxbench.base.mode import Mode
from ctxbench.base.notes import Note
from ctxbench.base.number import CONFIDENCE_SDS, significant
from ctxbench.base.texts import counted
from ctxbench.model.case import Case
from ctxbench.plugins.memory.cards import Card
from ctxbench.plugins.memory.convention import UnpredictableError
from ctxbench.plugins.memory.predict import on_card, predict_peak
from ctxbench.plugins.memory.profile import MIB, MemoryProfile
from ctxbench.plugins.memory.step import described
from ctxbench.plugins.memory.training import with_loss
from ctxbench.plugins.predict.operators import operators_in
from ctxbench.plugins.predict.passes import PassTime, PredictedKernel, time_of
from ctxbench.plugins.predict.sheet import DeviceSpec
from ctxbench.table.shown import CellKind, Shown

# Groups of kernels beyond these, and those with less than this share of the time, are summed up in one line.
LISTED_GROUPS, LEAST_SHARE = 15, 0.01


def time(case: Case, mode: Mode, name: str, sheet: DeviceSpec, loss: str, optimizer: str) -> list[Shown]:
    """The predicted time with its band, where it goes by operator, whether it fits, and what a reader must know."""
    try:
        module, *inputs = case.on_meta()
        options: dict[str, Any] = {"device": sheet.backend, "autocast": case.autocast_dtype, "optimizer": optimizer}
        memory = predict_peak(with_loss(module, loss), *inputs, mode=mode, **options)
        found = time_of(operators_in(memory), sheet, case.dtype)
    except UnpredictableError as error:
        raise UsageError(str(error)) from None
    parts = [
        Shown(
            f"{case.title} {list(case.shape)} {case.computed_in}, {described(mode, loss, optimizer)}: "
            f"predicted for {sheet.title}, not measured: {found.time.told('ms [80 % band]')}",
            value=found.time,
        ),
        Shown(_parts(found, sheet)),
        _by_operator(found),
    ]
    if not found.is_launch_bound:
        parts.append(Shown(_safe_order(found)))
    scans = () if found.time.unknown else _fused_scans(memory, found, sheet)
    for sentence in (*_room(memory, name, sheet, case.dtype), *scans):
        parts.append(Shown(f"- {sentence}"))
    for note in [*found.notes(), *[Note("autocast_cuda")] * (case.autocast_dtype is not None)]:
        parts.append(Shown(f"- {note}"))
    return parts


def _room(memory: MemoryProfile, name: str, sheet: DeviceSpec, dtype: str) -> Iterator[str]:
    """The peak on a card with what libraries take there, and whether the pass fits."""
    if sheet.backend != "cuda":
        return
    memory = on_card(memory, name, dtype)
    yield f"Its predicted peak is {memory.allocated_bytes / MIB:,.1f} MiB (ctxbench memory --for {name} explains it)."
    yield Card(name, sheet.title, sheet.backend, sheet.memory_gib).fits(memory.allocated_bytes, memory.needed_bytes)
    yield from map(str, memory.told)


def _parts(found: PassTime, sheet: DeviceSpec) -> str:
    """The time of the kernels and that of the host; of a pass whose time is not known, what may be told instead."""
    on_cpu, kernels_ms = sheet.backend == "cpu", math.fsum(kernel.ms for kernel in found.kernels)
    if not found.time.unknown:
        if on_cpu:
            calls = significant(found.device_ms - kernels_ms)
            return f"kernels {significant(kernels_ms)} ms, what calls take beside them {calls} ms"
        kernels, host = significant(found.device_ms), significant(found.host_ms)
        return f"kernels and the gaps between them {kernels} ms, launching them {host} ms; the longer one counts"
    launched = f"The host launches {counted(round(found.host_ms * 1e3 / found.host_us), 'operator')}. "
    bound = "What the kernels alone take is a lower bound, near the time of a CUDA graph. " * bool(found.time.kernels)
    return (
        f"{(launched + bound) * (not on_cpu)}Below are shares of the kernels' time. Beside another block, the order "
        "of the two may be known nevertheless: ctxbench choose."
    )


def _by_operator(found: PassTime) -> Shown:
    """The kernels, alike ones together, the longest time first."""
    groups: dict[tuple[str, ...], list[PredictedKernel]] = defaultdict(list)
    for kernel in found.kernels:
        operator = kernel.operator
        key = (operator.name, operator.phase, str(operator.place), kernel.work.kind, kernel.bound)
        groups[key].append(kernel)
    order = sorted(groups.items(), key=lambda item: -sum(kernel.ms for kernel in item[1]))
    total = sum(kernel.ms for kernel in found.kernels)
    large = [each for each in order if sum(kernel.ms for kernel in each[1]) >= LEAST_SHARE * total][:LISTED_GROUPS]
    rows = []
    for (name, _, where, kind, bound), kernels in large:
        ms = sum(kernel.ms for kernel in kernels)
        rows.append((f"{ms / total:.0%}", name, where, str(len(kernels)), kind, bound, significant(ms)))
    if rest := [kernel for _, kernels in order[len(large) :] for kernel in kernels]:
        ms = sum(kernel.ms for kernel in rest)
        rows.append((f"{ms / total:.0%}", "others", "", str(len(rest)), "", "", significant(ms)))
    columns: dict[str, CellKind] = dict.fromkeys(("share", "operator", "at", "kernels", "class", "bound by"), "text")
    columns |= {"share": "predicted", "kernels": "counted"}
    if found.time.unknown:
        return Shown(columns=columns, rows=[row[:-1] for row in rows])
    return Shown(columns={"ms": "predicted", **columns}, rows=[(row[-1], *row[:-1]) for row in rows])


def _fused_scans(memory: MemoryProfile, found: PassTime, sheet: DeviceSpec) -> Iterator[str]:
    """At most what a kernel for each scan would save: it must move its arguments and results once."""
    for line, moved in memory.scans.items():
        ms = math.fsum(kernel.ms for kernel in found.kernels if memory.in_scan(str(kernel.operator.place)) == line)
        least = moved / sheet.bandwidth * 1e3
        told, told_least, saved = (significant(each) for each in (ms, least, max(0.0, ms - least)))
        yield (
            f"The kernels of the scan at {line} take {told} ms; a fused scan takes {told_least} ms or more, for the "
            f"bytes that it must move, so that it saves {saved} ms at most."
        )


def _safe_order(found: PassTime) -> str:
    """Ratio of two passes from which their order is safe: the device's error is the same in both, the rest is not."""
    rest = math.hypot(*(sd for source, sd in found.time.errors.items() if source != "device"))
    factor = math.exp(CONFIDENCE_SDS * math.sqrt(2) * rest)
    return (
        f"The order of two passes on this device is safe from a ratio of {factor:.2f} on, if the kernels of the other "
        "are known as well; ctxbench choose tells how many orders are."
    )
