"""What `ctxbench show` and `memory` print of a module, and `ctxbench run --dry-run` of the cases ahead."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ctxbench.case import Case, Shape
from ctxbench.errors import UsageError, unknown
from ctxbench.mode import MODES
from ctxbench.registry.entry import Entry

# Groups of blocks beyond these are summed up in one line.
LISTED_GROUPS, LEAST_SHARE = 12, 0.01

if TYPE_CHECKING:
    from rich.table import Table

    from ctxbench.case import Measure
    from ctxbench.choose import Candidate
    from ctxbench.engine.plan import Planned
    from ctxbench.macs.counter import MacCount
    from ctxbench.memory.profile import MemoryProfile


def module(entry: Entry) -> Iterator["Table | str"]:
    """Facts and hyper-parameters of a module, and its class's docstring, without importing it."""
    facts = plain_table("", "")
    for name, value in (
        ("key", entry.key),
        ("title", entry.title),
        ("what", entry.about),
        ("paper", entry.paper),
        ("year", entry.year),
        ("family", entry.family),
        ("output channels", entry.out_channels),
        ("params", entry.params),
        ("MACs", entry.macs),
        ("growth", entry.complexity),
        ("position mixing", str(entry.position_mixing)),
        ("public code", entry.public_code),
        ("file", entry.file),
        ("broken", entry.broken),
    ):
        if value:
            facts.add_row(name, str(value))
    yield facts
    if entry.hyperparameters:
        table = plain_table("hyper-parameter", "type", "default")
        for parameter in entry.hyperparameters:
            annotation = parameter.annotation.removeprefix("typing.")
            table.add_row(parameter.name, annotation, repr(parameter.default))
        yield table
    if entry.details:
        yield entry.details


def costs(entry: Entry, shape: Shape, hparams: Mapping[str, Any], by_operator: bool = False) -> Iterator["Table | str"]:
    """Params and MACs for a shape, counted on the meta device, beside the closed forms; if asked for, by operator.

    UsageError if the module cannot be counted without data.
    """
    import torch

    from ctxbench.macs.counter import UncountableError, count_macs
    from ctxbench.macs.training import count_training_macs
    from ctxbench.metrics.params import count_params

    with torch.device("meta"):
        model, x = entry.build(shape[1], hparams), torch.empty(shape)
    why = ""
    try:
        counts = {"macs": count_macs(model, x)}
    except UncountableError as error:
        raise UsageError(str(error)) from None
    try:
        counts["macs_train"] = count_training_macs(model, x)
    except UncountableError as error:
        why = f"no macs_train: {error}"
    table = plain_table("x".join(map(str, shape)), "counted", "closed form")
    for name, counted in (("params", count_params(model)), *((name, count.macs) for name, count in counts.items())):
        formula = entry.closed_form(name, shape, hparams) if name != "macs_train" else None
        table.add_row(name, f"{counted:,}", "" if formula is None else f"{formula:,}")
    table.add_row("macs_matmul", f"{counts['macs'].macs_matmul:,}", "")
    yield table
    if why:
        yield why
    if by_operator:
        yield _by_operator(counts)


def _by_operator(counts: "Mapping[str, MacCount]") -> "Table":
    """What each operator costs, the largest first, in each of the counts."""
    table = plain_table("operator", *(title for name in counts for title in (name, "share")))
    costs = sum((Counter(count.by_operator) for count in counts.values()), Counter())
    for operator, _ in costs.most_common():
        cells = []
        for count in counts.values():
            macs = count.by_operator.get(operator)
            cells += ["", ""] if macs is None else [f"{macs:,}", f"{macs / count.macs:.1%}"]
        table.add_row(operator.removeprefix("aten::"), *cells)
    return table


def memory(case: Case, mode: str, device: str, dtype: str, plot: Path | None) -> Iterator["Table | str"]:
    """What is alive at the predicted peak, in sentences and a table, and what each remedy would leave."""
    import torch

    from ctxbench.memory import CONVENTION, UnpredictableError, predict_peak, remedies
    from ctxbench.memory.explain import explain

    for name, value, allowed in (
        ("mode", mode, MODES),
        ("device", device, ("cuda", "cuda-2020", "cpu")),
        ("dtype", dtype, ("float32", "bfloat16", "float16", "float64")),
    ):
        if value not in allowed:
            raise unknown(name, value, allowed)
    with torch.device("meta"):
        model = case.build().to(getattr(torch, dtype))
        x = torch.empty(case.shape, dtype=getattr(torch, dtype))
    try:
        profile = predict_peak(model, x, mode=mode, device=device)  # type: ignore[arg-type]  # checked above
        lower = remedies(model, x, mode=mode, device=device)  # type: ignore[arg-type]  # checked above
    except UnpredictableError as error:
        raise UsageError(str(error)) from None
    yield f"{case.title} {list(case.shape)} {dtype}, {mode}: predicted peak on {device} {_mib(profile.peak_bytes)} MiB"
    table = plain_table("MiB", "what", "made by", "at", "shape", "blocks")
    large = [group for group in profile.groups() if group.bytes >= LEAST_SHARE * profile.peak_bytes][:LISTED_GROUPS]
    for group in large:
        size = "x".join(map(str, group.shape))
        operator = group.op.removeprefix("aten.").removesuffix(".default")
        table.add_row(_mib(group.bytes), group.category, operator, group.where, size, str(group.count))
    if rest := profile.groups()[len(large) :]:
        table.add_row(_mib(sum(group.bytes for group in rest)), f"{len(rest)} smaller", "", "", "", "")
    yield table
    for sentence in explain(profile):
        yield f"- {sentence}"
    if case.network:
        with torch.device("meta"):
            empty = case.without().build().to(x)
        without = predict_peak(empty, x, mode=mode, device=device)  # type: ignore[arg-type]  # checked above
        yield f"- {_share_of_module(case, profile, without.peak_bytes)}"
    if lower:
        table = plain_table("MiB", "what would lower the peak")
        for remedy in lower:
            table.add_row(_mib(remedy.peak_bytes), remedy.change)
        yield table
    yield f"Convention: {CONVENTION}."
    if plot is not None:
        from ctxbench.memory.plot import plot as draw

        draw(profile, plot)
        yield f"drawn: {plot}"


def _share_of_module(case: Case, profile: "MemoryProfile", without: int) -> str:
    """How much of a network's peak its module holds, and the peak without it."""
    file = Path(case.entry.file).name
    held = [each for each in profile.allocations if each.alive_at(profile.peak_step) and each.where.startswith(file)]
    size = sum(each.bytes for each in held)
    added = profile.peak_bytes - without
    return (
        f"Made in {file} and in memory at the peak: {_mib(size)} MiB ({size / profile.peak_bytes:.1%}). Without the "
        f"module the peak of {case.network} is {_mib(without)} MiB: the module adds {_mib(added)} MiB "
        f"({added / without:+.1%})."
    )


def _mib(size: int) -> str:
    return f"{size / 2**20:,.2f}"


def plan(planned: "list[Planned]", measure: "Measure") -> "Table":
    """The cases of a dry run with their predicted memory and estimated time."""
    from ctxbench.engine.plan import total_s

    table = plain_table("case", "predicted CUDA peak", "about", "note")
    for item in planned:
        memory = "" if item.memory_bytes is None else f"{item.memory_bytes / 2**20:,.0f} MiB"
        table.add_row(item.case.id, memory, "" if item.seconds is None else f"{item.seconds:.0f} s", item.note)
    timed = any(item.seconds for item in planned)
    table.add_row(f"{len(planned)} cases", "", f"{total_s(planned, measure):.0f} s" if timed else "", "")
    return table


def chosen_modules(
    found: "Sequence[Candidate]", limit: int, devices: Sequence[str], mode: str, shape: Shape
) -> Iterator["Table | str"]:
    """What fits, the fastest on the first device first; then what does not; then what does not mix positions."""
    from ctxbench.choose import is_tied, ordered

    yield f"{mode} at {list(shape)}: predicted peak of at most {_mib(limit)} MiB on CUDA, predicted ms [80 % band]"
    for title, part in (
        ("", [each for each in found if each.mixes]),
        ("every position gets the same context", [each for each in found if not each.mixes]),
    ):
        if not part:
            continue
        fits, rest = ordered(part, limit, devices[0])
        has_batch = any(each.batch is not None for each in part)
        table = plain_table("module", "MiB", *devices, *["largest batch"] * has_batch, "")
        table.title, table.title_justify, table.title_style = title or None, "left", "bold"
        for place, each in enumerate((*fits, *rest)):
            if place == len(fits):
                table.add_section()
            cells = [_predicted(each, fits, device, is_tied) for device in devices]
            over = each.excess(limit)
            why = f"{_mib(over)} MiB too much" if over else each.reason
            memory = "" if each.memory is None else _mib(each.memory)
            table.add_row(each.case.title, memory, *cells, *[str(each.batch)] * has_batch, why)
        yield table
    yield "=: not told apart from the fastest one that fits on this device."


def _predicted(candidate: "Candidate", fits: "Sequence[Candidate]", device: str, is_tied: "Callable[..., bool]") -> str:
    """A predicted time with its band, and whether it is tied with the fastest."""
    time = candidate.times.get(device)
    if time is None:
        return ""
    mark = " =" if candidate in fits and is_tied(candidate, fits, device) else ""
    return f"{time.value:.3g} [{time.low:.3g}, {time.high:.3g}]{mark}"


def plain_table(*columns: str) -> "Table":
    """An empty table without lines, its first column bold."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=any(columns))
    for index, column in enumerate(columns):
        table.add_column(column, style="bold" if index == 0 else None, overflow="fold")
    return table
