"""What modules add to a network: the cost of each alone, and that of the network with it less that without it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pandas as pd

from ctxbench.case import EMPTY
from ctxbench.comparison import known
from ctxbench.conditions import CONDITIONS
from ctxbench.metrics import quantity
from ctxbench.metrics.base import RecordRow, Unit
from ctxbench.mode import MODES
from ctxbench.numbers import is_prefix, scaled_unit, significant, with_interval
from ctxbench.results.csv_file import rows_of

from ..run_data import RunData
from .caption import convention_lines, setup, values_in
from .cells import Filled, failed_cell, heading, put_together
from .table import Cell, Column, Origin, Table

HOW = (
    "alone: on the inputs that the network's slots get, all uses together, of memory the largest; added: (the "
    "network with the module) - (the network without it); share: added over the network without it. Added times are "
    "differences of neighbouring passes in one process [95 % interval over processes]."
)


@dataclass(frozen=True)
class Amount:
    """A number and its interval; NaN for none."""

    value: float
    low: float = math.nan
    high: float = math.nan

    def over(self, unit: float) -> "Amount":
        return Amount(self.value / unit, self.low / unit, self.high / unit)

    def text(self, sign: str = "") -> str:
        """As few digits as the interval justifies; `+` in front of what is above 0."""
        plus = sign if self.value > 0 else ""
        if math.isnan(self.low):
            return plus + (significant(self.value) if self.value >= 0 else f"-{significant(-self.value)}")
        return plus + with_interval(self.value, self.low, self.high)


def network_tables(run: RunData) -> list[Table]:
    """A table for each network, input and set of conditions, a row a module; none where no module was counted."""
    frame = run.frame[run.frame["network"] != ""]
    found: list[Table] = []
    for _, rows in frame.groupby(list(CONDITIONS), sort=False, dropna=False):
        inside = rows[rows["module"] != EMPTY]
        if (inside["slots"] != "").any():
            found.append(_network_table(run, rows, len(found) + 1))
    return found


def _network_table(run: RunData, frame: pd.DataFrame, number: int) -> Table:
    """What modules add to one network under the same conditions."""
    rows = [row for row in rows_of(frame) if row["module"] != EMPTY]
    empty = next((row for row in rows_of(frame) if row["module"] == EMPTY), None)
    filled: list[Filled] = [(Column("module", "", "Module", "label"), [Cell(str(row["name"])) for row in rows])]
    if any(row["settings"] for row in rows):
        settings = [Cell(str(row["settings"])) for row in rows]
        filled.append((Column("settings", "", "Settings", "label"), settings))
    data: dict[str, list[object]] = {name: [row[name] for row in rows] for name in ("module", "network", "shape")}
    units: dict[str, Unit] = {}
    for key, part in PARTS.items():
        found = [_costs(key, row, empty) for row in rows]
        if not any(found):
            continue
        units[key] = _unit(quantity(key).unit, found)
        same = all(each.get("alone") == each.get("added") for each in found)
        for what in ("added", "share") if same else ("alone", "added", "share"):
            amounts = [each.get(what) for each in found]
            if any(amounts):
                filled.append(_column(key, what, amounts, rows, units[key], part))
                data |= {f"{key}_{what}{end}": [_end(each, name) for each in amounts] for end, name in _ENDS.items()}
    network = str(frame["network"].iloc[0]).rpartition(":")[2]
    title = f"What a module adds to {network} at [{str(frame['shape'].iloc[0]).replace('x', ', ')}]"
    about = [(str(row["module"]), str(row["family"]), str(row["status"])) for row in rows]
    own = replace(run, frame=frame)
    caption = (f"here: {setup(own)}.", HOW, *_slots(rows), *convention_lines(units, values_in(frame)))
    return put_together(f"{run.suite}-network-{number}", title, filled, about, caption, (), pd.DataFrame(data))


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


def _end(amount: Amount | None, name: str) -> float:
    return math.nan if amount is None else getattr(amount, name)


def _slots(rows: Sequence[RecordRow]) -> list[str]:
    """The inputs of the network's slots."""
    texts = dict.fromkeys(str(row["slots"]) for row in rows if row["slots"])
    return [f"Slots, uses x input: {'; '.join(texts)}."] if texts else []


def _costs(key: str, row: RecordRow, empty: RecordRow | None) -> Mapping[str, Amount]:
    """What is known of one cost of a module: alone, added, and its share of the network without it, in percent."""
    mode = next((mode for mode in MODES if key.endswith(mode)), "")
    found: dict[str, Amount] = {}
    is_time = key.startswith("latency")
    alone = f"alone_{mode}_ms" if is_time else f"alone_{key}_bytes" if mode else f"alone_{key}"
    if known(row, alone) is not None:
        found["alone"] = _amount(row, alone)
    column = quantity(key).column
    with_it, without = known(row, column), known(empty, column) if empty else None
    if is_time and known(row, f"added_{mode}_ms") is not None:
        found["added"] = _amount(row, f"added_{mode}_ms")
    elif with_it is not None and without is not None:
        found["added"] = Amount(with_it - without)
    if "added" in found and without:
        found["share"] = found["added"].over(without / 100)
    return found


def _unit(unit: Unit, found: Sequence[Mapping[str, Amount]]) -> Unit:
    """The unit in which the largest of these has one to three digits before the point, if it is a bare prefix."""
    values = [abs(each[part].value) for each in found for part in ("alone", "added") if part in each]
    return scaled_unit(values) if is_prefix(unit) and unit.base == 10 else unit


def _amount(row: RecordRow, column: str) -> Amount:
    ends = [
        known(row, column.replace("_ms", f"_{end}_ms")) if column.endswith("_ms") else None for end in ("low", "high")
    ]
    return Amount(float(row[column]), *(math.nan if end is None else float(end) for end in ends))


def _column(
    key: str, part: str, amounts: Sequence[Amount | None], rows: Sequence[RecordRow], own: Unit, together: str
) -> Filled:
    cost = quantity(key)
    origin: Origin = cost.origin_of(rows[0]) if cost.origin_column else cost.origin
    unit = 1.0 if part == "share" else float(own.factor)
    sign = "" if part == "alone" else "+"
    header = "share (%)" if part == "share" else part
    shown = [None if each is None else each.over(unit) for each in amounts]
    cells = [
        Cell(each.text(sign), each.value) if each else failed_cell(row) if row["status"] != "ok" else Cell()
        for each, row in zip(shown, rows, strict=True)
    ]
    return Column(f"{key}_{part}", heading(cost.title, own), header, origin, together), cells
