"""Costs added by modules to a network: the cost of each alone, and that of the network with it less that without it."""

import math
from collections.abc import Mapping, Sequence

from ctxbench.base.mode import MODES
from ctxbench.base.number import Number
from ctxbench.model.case import EMPTY
from ctxbench.model.conditions import CONDITIONS
from ctxbench.model.metric import RecordRow, Unit
from ctxbench.model.metrics import quantity
from ctxbench.registry.reference import Reference
from ctxbench.report.published import is_prefix, scaled_unit
from ctxbench.report.run_data import RunData
from ctxbench.report.tables.caption import convention_lines, setup, values_in
from ctxbench.report.tables.cells import Filled, failed_cell, heading, put_together
from ctxbench.table.numbers import Numbers
from ctxbench.table.table import Cell, Origin, Table, TableColumn

HOW = (
    "alone: on the inputs that the network's slots get, all uses together, of memory the largest; added: (the "
    "network with the module) - (the network without it); share: added over the network without it. Added times are "
    "differences of neighbouring passes in one process [95 % interval over processes]."
)


def network_tables(run: RunData) -> list[Table]:
    """A table for each network, input and set of conditions, a row a module; none where no module was counted."""
    groups: dict[tuple[object, ...], list[RecordRow]] = {}
    for row in run.rows:
        if row["network"]:
            groups.setdefault(tuple(row[name] for name in CONDITIONS), []).append(row)
    found: list[Table] = []
    for rows in groups.values():
        if any(row["slots"] for row in rows if row["module"] != EMPTY):
            found.append(_network_table(run, rows, len(found) + 1))
    return found


def _network_table(run: RunData, every: Sequence[RecordRow], number: int) -> Table:
    """Table of the costs added by modules to one network under the same conditions."""
    rows = [row for row in every if row["module"] != EMPTY]
    empty = next((row for row in every if row["module"] == EMPTY), None)
    filled: list[Filled] = [(TableColumn("module", "", "Module", "label"), [Cell(str(row["name"])) for row in rows])]
    if any(row["settings"] for row in rows):
        settings = [Cell(str(row["settings"])) for row in rows]
        filled.append((TableColumn("settings", "", "Settings", "label"), settings))
    data: dict[str, list[object]] = {name: [row[name] for row in rows] for name in ("module", "network", "shape")}
    units: dict[str, Unit] = {}
    for key, part in PARTS.items():
        found = [_costs(key, row, empty) for row in rows]
        if not any(found):
            continue
        units[key] = _unit(quantity(key).unit, found)
        same = all(each.get("alone") == each.get("added") for each in found)
        for what in ("added", "share") if same else ("alone", "added", "share"):
            numbers = [each.get(what) for each in found]
            if any(numbers):
                filled.append(_column(key, what, numbers, rows, units[key], part))
                data |= {f"{key}_{what}{end}": [_end(each, name) for each in numbers] for end, name in _ENDS.items()}
    network = Reference.parse(str(every[0]["network"])).name
    title = f"What a module adds to {network} at [{str(every[0]['shape']).replace('x', ', ')}]"
    about = [(str(row["module"]), str(row["family"]), str(row["status"])) for row in rows]
    caption = (f"here: {setup(run, every)}.", HOW, *_slots(rows), *convention_lines(units, values_in(every)))
    table: Table = put_together(
        f"{run.suite}-network-{number}", title, filled, about, caption, (), lambda: Numbers(data)
    )
    return table


# The costs that are shown, and which stand together where there is little room.
PARTS = {
    "params": "counts",
    "macs": "counts",
    "memory_train": "memory",
    "memory_infer": "memory",
    "latency_train": "time",
    "latency_infer": "time",
}
_ENDS = {"": "value", "_low": "low", "_high": "high"}


def _end(number: Number | None, name: str) -> float:
    return math.nan if number is None else getattr(number, name)


def _slots(rows: Sequence[RecordRow]) -> list[str]:
    """The inputs of the network's slots."""
    texts = dict.fromkeys(str(row["slots"]) for row in rows if row["slots"])
    return [f"Slots, uses x input: {'; '.join(texts)}."] if texts else []


def _costs(key: str, row: RecordRow, empty: RecordRow | None) -> Mapping[str, Number]:
    """Known numbers of one cost of a module: alone, added, and its share of the network without it, in percent."""
    mode = next((mode for mode in MODES if key.endswith(mode)), "")
    found: dict[str, Number] = {}
    is_time = key.startswith("latency")
    alone = f"alone_{mode}_ms" if is_time else f"alone_{key}_bytes" if mode else f"alone_{key}"
    if row[alone] is not None:
        found["alone"] = _number(row, alone)
    column = quantity(key).column
    with_it, without = row[column], empty[column] if empty else None
    if is_time and row[f"added_{mode}_ms"] is not None:
        found["added"] = _number(row, f"added_{mode}_ms")
    elif with_it is not None and without is not None:
        found["added"] = Number(with_it - without)
    if "added" in found and without:
        found["share"] = found["added"].over(without / 100)
    return found


def _unit(unit: Unit, found: Sequence[Mapping[str, Number]]) -> Unit:
    """The unit in which the largest of these has one to three digits before the point, if it is a bare prefix."""
    values = [abs(each[part].value) for each in found for part in ("alone", "added") if part in each]
    return scaled_unit(values) if is_prefix(unit) and unit.base == 10 else unit


def _number(row: RecordRow, column: str) -> Number:
    ends = [row[column.replace("_ms", f"_{end}_ms")] if column.endswith("_ms") else None for end in ("low", "high")]
    return Number(float(row[column]), *(math.nan if end is None else float(end) for end in ends))


def _column(
    key: str, part: str, numbers: Sequence[Number | None], rows: Sequence[RecordRow], own: Unit, together: str
) -> Filled:
    cost = quantity(key)
    origin: Origin = cost.origin_of(rows[0]) if cost.origin_column else cost.origin
    unit = 1.0 if part == "share" else float(own.factor)
    sign = "" if part == "alone" else "+"
    header = "share (%)" if part == "share" else part
    shown = [None if each is None else each.over(unit) for each in numbers]
    cells = [
        Cell(each.text(sign=sign), each.value) if each else failed_cell(row) if row["status"] != "ok" else Cell()
        for each, row in zip(shown, rows, strict=True)
    ]
    return TableColumn(f"{key}_{part}", heading(cost.title, own), header, origin, together), cells
