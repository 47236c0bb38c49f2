"""Output of `ctxbench memory` for a case, built on the meta device: the contents of its memory."""

import inspect
import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from torch import nn

from ctxbench.base.errors import UsageError
from ctxbench.base.mode import Mode
from ctxbench.base.notes import Note
from ctxbench.base.number import Number
from ctxbench.model.case import Case
from ctxbench.plugins.memory.cards import Card
from ctxbench.plugins.memory.convention import UnpredictableError, convention
from ctxbench.plugins.memory.explain import explain
from ctxbench.plugins.memory.kernels import MemoryDevice
from ctxbench.plugins.memory.predict import on_card, predict_peak
from ctxbench.plugins.memory.profile import MemoryProfile
from ctxbench.plugins.memory.remedy import remedies
from ctxbench.plugins.memory.step import MOST_IMAGES, described, largest_batch
from ctxbench.plugins.memory.training import with_loss
from ctxbench.registry.layout import OfMap
from ctxbench.registry.slot import Slot
from ctxbench.table.shown import CellKind, Shown

# Groups of blocks beyond these are summed up in one line.
LISTED_GROUPS, LEAST_SHARE = 12, 0.01


def memory(
    case: Case,
    mode: Mode,
    target: MemoryDevice,
    plot: str | None,
    loss: str,
    optimizer: str,
    room: float | None,
    card: Card | None,
) -> list[Shown]:
    """Live blocks at the predicted peak, in sentences and a table, and the peak under each remedy.

    The pass is drawn into the file `plot`. With `room`, in bytes, the case has the largest batch that fits into it. On
    a `card` the peak has the workspaces that plugins know of.
    """
    name = card.name if card else ""
    options: dict[str, Any] = {"mode": mode, "device": target, "autocast": case.autocast_dtype, "optimizer": optimizer}

    def plain(of: Case) -> MemoryProfile:
        model, *inputs = of.on_meta()
        return predict_peak(with_loss(model, loss), *inputs, **options)

    def predict(of: Case) -> MemoryProfile:
        return on_card(plain(of), name, case.dtype)

    try:
        limit: list[Shown] = []
        if room is not None:
            case, limit = _with_largest_batch(case, plain, predict, room)
        model, x = case.on_meta()
        profile = predict(case)
        allocated = profile.allocated_bytes
        lower = remedies(with_loss(model, loss), x, profile=profile, card=name, dtype=case.dtype, **options)
    except UnpredictableError as error:
        raise UsageError(str(error)) from None
    about = f"{case.title} {list(case.shape)} {case.computed_in}, {described(mode, loss, optimizer)}"
    parts = [
        Shown(
            f"{about}: predicted peak on {target} {_mib(allocated)} MiB",
            value=Number(allocated, origin="predicted"),
        ),
        *_held(profile),
        *(
            Shown(f"- {each}")
            for each in ((card.fits(allocated, profile.needed_bytes), *card.beside(optimizer)) if card else ())
        ),
        *limit,
        _at_the_peak(profile),
    ]
    for sentence in explain(profile):
        parts.append(Shown(f"- {sentence}"))
    if case.network:
        without = predict(case.without())
        parts.append(Shown(f"- {_share_of_module(case, profile, without.peak_bytes)}"))
    if lower:
        rows = [(_mib(each.peak_bytes), _mib(profile.peak_bytes - each.peak_bytes), each.change) for each in lower]
        columns: dict[str, CellKind] = {"peak then (MiB)": "predicted", "saves (MiB)": "predicted"}
        parts.append(Shown(columns={**columns, "what would lower the peak": "text"}, rows=rows))
    if case.autocast_dtype and target != "cpu":
        parts.append(Shown(f"- {Note('autocast_cuda')}"))
    parts.append(Shown(f"Convention: {convention(loss, optimizer, x.requires_grad)}."))
    if plot is not None:
        _draw(profile, Path(plot))
    return parts


def largest(case: Case, mode: Mode, device: MemoryDevice, room: int, cards: Sequence[str]) -> int:
    """The largest batch that needs at most `room` bytes, as predicted; one without a prediction does not fit.

    The libraries of each of the `cards` are asked.
    """

    def peak_of(batch: int, *names: str) -> float:
        with suppress(Exception):
            model, *inputs = replace(case, shape=(batch, *case.shape[1:])).on_meta()
            plain = predict_peak(model, *inputs, mode=mode, device=device, autocast=case.autocast_dtype)
            return max(on_card(plain, name, case.dtype).needed_bytes for name in names or [""])
        return math.inf

    return largest_batch(peak_of, lambda batch: peak_of(batch, *cards), room)


def _with_largest_batch(
    case: Case, plain: Callable[[Case], MemoryProfile], predict: Callable[[Case], MemoryProfile], room: float
) -> tuple[Case, list[Shown]]:
    """The case with the largest batch that needs at most `room` bytes, and a sentence on it and the next one.

    `plain` predicts without the workspaces of a card.
    """

    def of(batch: int) -> Case:
        return replace(case, shape=(batch, *case.shape[1:]))

    peak_of = cache(lambda batch: predict(of(batch)).needed_bytes)
    found = largest_batch(lambda batch: plain(of(batch)).needed_bytes, peak_of, room)
    if not found:
        raise UsageError(f"a batch of one takes {_mib(peak_of(1))} MiB, and {_mib(int(room))} MiB are there for it")
    more = f"; {found + 1} would take {_mib(peak_of(found + 1))} MiB" if found < MOST_IMAGES else ", the most tried"
    return of(found), [Shown(f"- The largest batch within {_mib(int(room))} MiB: {found}{more}.")]


def _held(profile: MemoryProfile) -> list[Shown]:
    """Lines on what CUDA's allocator makes of the blocks: what the process reserves, what is given beyond requests."""
    if profile.device != "cuda":
        return []
    lines = []
    if (reserved := profile.held.reserved) is not None:
        lines.append(Shown(f"- For it and its input the process reserves {_mib(reserved)} MiB of the device."))
    else:
        lines.append(
            Shown(
                "- With expandable segments the process reserves no less than this peak and its input, in pages of 2 "
                "and 20 MiB; how much more is not predicted."
            )
        )
    if more := profile.allocated_bytes - profile.peak_bytes:
        lines.append(
            Shown(
                f"- {_mib(more)} MiB of the peak are rests of blocks that CUDA's allocator gives whole. What follows "
                f"is about the {_mib(profile.peak_bytes)} MiB that are requested."
            )
        )
    return lines


def _at_the_peak(profile: MemoryProfile) -> Shown:
    """The blocks in memory at the peak, alike ones together, the largest first."""
    rows: list[tuple[str, ...]] = []
    large = [group for group in profile.groups() if group.bytes >= LEAST_SHARE * profile.peak_bytes][:LISTED_GROUPS]
    for group in large:
        size = "x".join(map(str, group.shape))
        operator = group.op.removeprefix("aten.").removesuffix(".default")
        rows.append((_mib(group.bytes), group.category, operator, group.where, size, str(group.count)))
    if rest := profile.groups()[len(large) :]:
        rows.append((_mib(sum(group.bytes for group in rest)), f"{len(rest)} smaller", "", "", "", ""))
    columns: dict[str, CellKind] = dict.fromkeys(("MiB", "what", "made by", "at", "shape", "blocks"), "text")
    return Shown(columns=columns | {"MiB": "predicted", "blocks": "counted"}, rows=rows)


def _draw(profile: MemoryProfile, path: Path) -> None:
    from ctxbench.plugins.memory.plot import plot

    try:
        plot(profile, path)
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot draw into {path}: {error}") from None


def _share_of_module(case: Case, profile: MemoryProfile, without: int) -> str:
    """Module's share of a network's peak, and the peak without it."""
    made = next(each.module for each in case.on_meta()[0].modules() if isinstance(each, Slot))
    classes = type(made.block if isinstance(made, OfMap) else made).mro()
    files = tuple(dict.fromkeys(Path(inspect.getfile(each)).name for each in classes[: classes.index(nn.Module)]))
    held = [each for each in profile.allocations if each.alive_at(profile.peak_step) and each.where.startswith(files)]
    size = sum(each.bytes for each in held)
    added = profile.peak_bytes - without
    return (
        f"Made in {' and '.join(files)} and in memory at the peak: {_mib(size)} MiB ({size / profile.peak_bytes:.1%}). "
        f"Without the module the peak of {case.network} is {_mib(without)} MiB: the module adds {_mib(added)} MiB "
        f"({added / without:+.1%})."
    )


def _mib(size: int) -> str:
    return f"{size / 2**20:,.2f}"
