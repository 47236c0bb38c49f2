"""Descriptions of a module for `ctxbench show`, and of the cases ahead for `run --dry-run`."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ctxbench.registry.entry import Entry
from ctxbench.registry.reference import Reference
from ctxbench.table.table import Cell, Row, Table, TableColumn, plain_table

if TYPE_CHECKING:
    from ctxbench.engine.plan import Planned
    from ctxbench.model.case import Measure


def module(entry: Entry) -> Iterator[Table | str]:
    """Facts and hyper-parameters of a module, and its class's docstring, without importing it."""
    facts = {
        "key": entry.key,
        "title": entry.title,
        "what": entry.about,
        "paper": entry.paper,
        "year": entry.year,
        "built with": _width(entry),
        "family": entry.family,
        "output channels": entry.out_channels,
        "params": entry.params,
        "MACs": entry.macs,
        "growth": entry.complexity,
        "position mixing": str(entry.position_mixing),
        "reach": entry.reach,
        "public code": entry.public_code,
        "file": "an object of this session" if Reference.parse(entry.reference).is_object else entry.file,
        "broken": entry.broken,
    }
    if not entry.declared:
        facts = {name: facts[name] for name in ("key", "built with", "file")}
    columns = TableColumn("fact", "", "", "label"), TableColumn("value", "", "", "text", "value")
    yield Table("", "", columns, tuple(Row((Cell(name), Cell(str(value)))) for name, value in facts.items() if value))
    if entry.hyperparameters:
        rows = [
            (each.name, each.annotation.removeprefix("typing."), repr(each.default)) for each in entry.hyperparameters
        ]
        yield plain_table({"hyper-parameter": "label", "type": "text", "default": "text"}, rows)
    if entry.details:
        yield entry.details


def _width(entry: Entry) -> str:
    """The arguments that a constructor gets besides its hyper-parameters."""
    if entry.given == "module":
        return "what makes a module of so many channels"
    if entry.given == "channels" or entry.made_for:
        name = entry.width.name if entry.width else ""
        kept = " unless its default takes the input" if entry.width and entry.width.default is not None else ""
        return "" if entry.declared or not name else f"{name}: the input's number of channels{kept}"
    return "its hyper-parameters alone, whatever the input"


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
