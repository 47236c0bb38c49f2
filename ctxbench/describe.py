"""What `ctxbench show` prints of a module, and `ctxbench run --dry-run` of the cases ahead."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ctxbench.registry import Entry
from ctxbench.suite import Shape

if TYPE_CHECKING:
    from rich.table import Table

    from ctxbench.api import Planned


def module(entry: Entry) -> Iterator["Table"]:
    """Facts and hyper-parameters of a module, without importing it."""
    facts = _table("", "")
    for name, value in (
        ("key", entry.key),
        ("title", entry.title),
        ("paper", entry.paper),
        ("year", entry.year),
        ("family", entry.family),
        ("output channels", entry.out_channels),
        ("params", entry.params),
        ("MACs", entry.macs),
        ("file", entry.file),
        ("broken", entry.broken),
    ):
        if value:
            facts.add_row(name, str(value))
    yield facts
    if entry.hyperparameters:
        table = _table("hyper-parameter", "type", "default")
        for parameter in entry.hyperparameters:
            table.add_row(parameter.name, parameter.annotation.replace("[", "\\["), repr(parameter.default))
        yield table


def costs(entry: Entry, shape: Shape, hparams: Mapping[str, Any]) -> "Table":
    """Params and MACs for a shape, counted on the meta device, beside the closed forms."""
    import torch

    from ctxbench.metrics.macs import count_macs
    from ctxbench.metrics.params import count_params

    with torch.device("meta"):
        model = entry.build(shape[1], hparams)
    count = count_macs(model, torch.empty(shape, device="meta"))
    table = _table("x".join(map(str, shape)), "counted", "closed form")
    rows = (
        ("params", count_params(model), entry.closed_form("params", shape, hparams)),
        ("macs", count.macs, entry.closed_form("macs", shape, hparams)),
        ("macs_matmul", count.macs_matmul, None),
    )
    for name, counted, formula in rows:
        table.add_row(name, f"{counted:,}", "" if formula is None else f"{formula:,}")
    return table


def plan(planned: "Sequence[Planned]") -> "Table":
    """The cases of a dry run with their predicted memory and estimated time."""
    table = _table("case", "predicted CUDA peak", "about", "note")
    for item in planned:
        memory = "" if item.memory_bytes is None else f"{item.memory_bytes / 2**20:,.0f} MiB"
        table.add_row(item.case.id, memory, "" if item.seconds is None else f"{item.seconds:.0f} s", item.note)
    total = sum(item.seconds or 0 for item in planned)
    table.add_row(f"{len(planned)} cases", "", f"{total:.0f} s" if total else "", "")
    return table


def _table(*columns: str) -> "Table":
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=any(columns))
    for index, column in enumerate(columns):
        table.add_column(column, style="bold" if index == 0 else None, overflow="fold")
    return table
