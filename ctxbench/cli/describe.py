"""What `ctxbench show` prints of a module, `run --dry-run` of the cases ahead, and `choose` of those that fit."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ctxbench.registry.entry import Entry
from ctxbench.report.tables.table import Cell, Column, Origin, Row, Table, plain_table

if TYPE_CHECKING:
    from ctxbench.case import Measure
    from ctxbench.choose import Candidate
    from ctxbench.engine.plan import Planned


def module(entry: Entry) -> Iterator[Table | str]:
    """Facts and hyper-parameters of a module, and its class's docstring, without importing it."""
    facts = {
        "key": entry.key,
        "title": entry.title,
        "what": entry.about,
        "paper": entry.paper,
        "year": entry.year,
        "family": entry.family,
        "output channels": entry.out_channels,
        "params": entry.params,
        "MACs": entry.macs,
        "growth": entry.complexity,
        "position mixing": str(entry.position_mixing),
        "reach": entry.reach,
        "public code": entry.public_code,
        "file": entry.file,
        "broken": entry.broken,
    }
    columns = Column("fact", "", "", "label"), Column("value", "", "", "text", "value")
    yield Table("", "", columns, tuple(Row((Cell(name), Cell(str(value)))) for name, value in facts.items() if value))
    if entry.hyperparameters:
        rows = [
            (each.name, each.annotation.removeprefix("typing."), repr(each.default)) for each in entry.hyperparameters
        ]
        yield plain_table({"hyper-parameter": "label", "type": "text", "default": "text"}, rows)
    if entry.details:
        yield entry.details


def _mib(size: int) -> str:
    return f"{size / 2**20:,.2f}"


def plan(planned: "list[Planned]", measure: "Measure") -> Table:
    """The cases of a dry run with their predicted memory and estimated time."""
    from ctxbench.engine.plan import total_s

    rows = [
        (
            item.case.id,
            "" if item.memory_bytes is None else f"{item.memory_bytes / 2**20:,.0f} MiB",
            "" if item.seconds is None else f"{item.seconds:.0f} s",
            item.note,
        )
        for item in planned
    ]
    timed = any(item.seconds for item in planned)
    rows.append((f"{len(planned)} cases", "", f"{total_s(planned, measure):.0f} s" if timed else "", ""))
    return plain_table(
        {"case": "label", "predicted CUDA peak": "predicted", "about": "predicted", "note": "text"}, rows
    )


def chosen_modules(
    found: "Sequence[Candidate]", limit: int, devices: Sequence[str], what: str
) -> Iterator[Table | str]:
    """What fits, the fastest on the first device first, then what does not; then the same of other kinds of module."""
    yield f"{what}: predicted peak of at most {_mib(limit)} MiB on CUDA, predicted ms [80 % band]"
    others = [each for each in found if not each.mixes]
    for title, part in (
        ("", [each for each in found if each.mixes]),
        (
            "of what is far away, every position gets the same context, or none",
            [each for each in others if not each.is_empty],
        ),
        ("without a module, for comparison", [each for each in others if each.is_empty]),
    ):
        if part:
            yield _chosen(part, limit, devices, title)
    yield "=: statistically tied with the fastest one that fits on this device."


def _chosen(found: "Sequence[Candidate]", limit: int, devices: Sequence[str], title: str) -> Table:
    """Those that fit, with a mark on times that are tied with the fastest; then the others, and why they do not."""
    from ctxbench.choose import is_tied, ordered

    fits, rest = ordered(found, limit, devices[0])
    has_batch = any(each.batch is not None for each in found)
    rows = []
    for each in (*fits, *rest):
        times = {device: own.text() for device, own in each.times.items()}
        tied = [device for device in times if each in fits and is_tied(each, fits, device)]
        cells = [times.get(device, "") + " =" * (device in tied) for device in devices]
        over = each.excess(limit)
        why = f"{_mib(over)} MiB too much" if over else each.reason
        memory = "" if each.memory is None else _mib(each.memory)
        rows.append((each.case.title, memory, *cells, *[str(each.batch)] * has_batch, why))
    numbers: dict[str, Origin] = dict.fromkeys(("MiB", *devices, *["largest batch"] * has_batch), "predicted")
    return plain_table({"module": "label", **numbers, "": "text"}, rows, title)
