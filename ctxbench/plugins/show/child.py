"""What `ctxbench show` and `memory` print of a case, built on the meta device: its costs, and what fills its memory."""

import inspect
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from torch import nn

from ctxbench.base.errors import UsageError
from ctxbench.base.notes import Note
from ctxbench.base.number import Number
from ctxbench.metrics.params import count_params
from ctxbench.model.case import Case
from ctxbench.plugins.macs.counter import MacCount, UncountableError, count_macs
from ctxbench.plugins.macs.training import count_training_macs
from ctxbench.plugins.memory.convention import CONVENTION, UnpredictableError
from ctxbench.plugins.memory.explain import explain
from ctxbench.plugins.memory.kernels import Device
from ctxbench.plugins.memory.predict import predict_peak
from ctxbench.plugins.memory.profile import MemoryProfile
from ctxbench.plugins.memory.remedy import remedies
from ctxbench.worker.protocol import Held, TellCosts, TellMemory, Told

Emit = Callable[[Told], object]
# Groups of blocks beyond these are summed up in one line.
LISTED_GROUPS, LEAST_SHARE = 12, 0.01


def costs(task: TellCosts, emit: Emit) -> None:
    """Params and MACs of a module, counted, beside the closed forms; if asked for, by operator.

    UsageError if the module cannot be counted without data.
    """
    case = task.case
    model, x = case.on_meta()
    why = ""
    try:
        counts = {"macs": count_macs(model, x)}
    except UncountableError as error:
        raise UsageError(str(error)) from None
    try:
        counts["macs_train"] = count_training_macs(model, x)
    except UncountableError as error:
        why = f"no macs_train: {error}"
    rows = []
    for name, counted in (("params", count_params(model)), *((name, count.macs) for name, count in counts.items())):
        formula = case.entry.closed_form(name, case.shape, case.hparams) if name != "macs_train" else None
        rows.append((name, f"{counted:,}", "" if formula is None else f"{formula:,}"))
    rows.append(("macs_matmul", f"{counts['macs'].macs_matmul:,}", ""))
    shape = f"{'x'.join(map(str, case.shape))} {case.computed_in}"
    emit(Told(columns={shape: "label", "counted": "counted", "closed form": "counted"}, rows=rows))
    if why:
        emit(Told(why))
    if task.by_operator:
        emit(_by_operator(counts))


def _by_operator(counts: Mapping[str, MacCount]) -> Told:
    """What each operator costs, the largest first, in each of the counts."""
    costs = sum((Counter(count.by_operator) for count in counts.values()), Counter())
    rows = []
    for operator, _ in costs.most_common():
        cells = []
        for count in counts.values():
            macs = count.by_operator.get(operator)
            cells += ["", ""] if macs is None else [f"{macs:,}", f"{macs / count.macs:.1%}"]
        rows.append((operator.removeprefix("aten::"), *cells))
    columns: dict[str, Held] = {title: "counted" for name in counts for title in (name, f"of {name}")}
    return Told(columns={"operator": "label", **columns}, rows=rows)


def memory(task: TellMemory, emit: Emit) -> None:
    """What is alive at the predicted peak, in sentences and a table, and what each remedy would leave."""
    case, mode = task.case, task.mode
    target: Device = task.target  # type: ignore[assignment]  # the command has checked it
    predict = partial(predict_peak, mode=mode, device=target, autocast=case.autocast_dtype)
    model, x = case.on_meta()
    try:
        profile = predict(model, x)
        lower = remedies(model, x, mode=mode, device=target, autocast=case.autocast_dtype)
    except UnpredictableError as error:
        raise UsageError(str(error)) from None
    about = f"{case.title} {list(case.shape)} {case.computed_in}, {mode}"
    peak = Number(profile.peak_bytes, origin="predicted")
    emit(Told(f"{about}: predicted peak on {target} {_mib(profile.peak_bytes)} MiB", value=peak))
    emit(_at_the_peak(profile))
    for sentence in explain(profile):
        emit(Told(f"- {sentence}"))
    if case.network:
        without = predict(*case.without().on_meta())
        emit(Told(f"- {_share_of_module(case, profile, without.peak_bytes)}"))
    if lower:
        rows = [(_mib(remedy.peak_bytes), remedy.change) for remedy in lower]
        emit(Told(columns={"MiB": "predicted", "what would lower the peak": "text"}, rows=rows))
    if case.autocast_dtype:
        emit(Told(f"- {Note('autocast_cuda')}"))
    emit(Told(f"Convention: {CONVENTION}."))
    if task.plot is not None:
        _draw(profile, Path(task.plot))


def _at_the_peak(profile: MemoryProfile) -> Told:
    """The blocks in memory at the peak, alike ones together, the largest first."""
    rows: list[tuple[str, ...]] = []
    large = [group for group in profile.groups() if group.bytes >= LEAST_SHARE * profile.peak_bytes][:LISTED_GROUPS]
    for group in large:
        size = "x".join(map(str, group.shape))
        operator = group.op.removeprefix("aten.").removesuffix(".default")
        rows.append((_mib(group.bytes), group.category, operator, group.where, size, str(group.count)))
    if rest := profile.groups()[len(large) :]:
        rows.append((_mib(sum(group.bytes for group in rest)), f"{len(rest)} smaller", "", "", "", ""))
    columns: dict[str, Held] = dict.fromkeys(("MiB", "what", "made by", "at", "shape", "blocks"), "text")
    return Told(columns=columns | {"MiB": "predicted", "blocks": "counted"}, rows=rows)


def _draw(profile: MemoryProfile, path: Path) -> None:
    from ctxbench.plugins.memory.plot import plot

    try:
        plot(profile, path)
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot draw into {path}: {error}") from None


def _share_of_module(case: Case, profile: MemoryProfile, without: int) -> str:
    """How much of a network's peak its module holds, and the peak without it."""
    classes = case.entry.load().mro()
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
