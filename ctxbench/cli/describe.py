"""What `ctxbench show` prints of a module, `run --dry-run` of the cases ahead, and `choose` of those that fit."""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from ctxbench.numbers import with_interval
from ctxbench.registry.entry import Entry

if TYPE_CHECKING:
    from rich.table import Table

    from ctxbench.case import Measure
    from ctxbench.choose import Candidate
    from ctxbench.engine.plan import Planned


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
    found: "Sequence[Candidate]", limit: int, devices: Sequence[str], what: str
) -> Iterator["Table | str"]:
    """What fits, the fastest on the first device first; then what does not; then what does not mix positions."""
    from ctxbench.choose import is_tied, ordered

    yield f"{what}: predicted peak of at most {_mib(limit)} MiB on CUDA, predicted ms [80 % band]"
    for title, part in (
        ("", [each for each in found if each.mixes]),
        ("of what is far away, every position gets the same context", [each for each in found if not each.mixes]),
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
    yield "=: statistically tied with the fastest one that fits on this device."


def _predicted(candidate: "Candidate", fits: "Sequence[Candidate]", device: str, is_tied: "Callable[..., bool]") -> str:
    """A predicted time with its band, and whether it is tied with the fastest."""
    time = candidate.times.get(device)
    if time is None:
        return ""
    mark = " =" if candidate in fits and is_tied(candidate, fits, device) else ""
    return with_interval(time.value, time.low, time.high) + mark


def plain_table(*columns: str) -> "Table":
    """An empty table without lines, its first column bold."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=any(columns))
    for index, column in enumerate(columns):
        table.add_column(column, style="bold" if index == 0 else None, overflow="fold")
    return table
