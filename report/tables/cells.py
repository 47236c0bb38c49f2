"""Cells shared by the tables: a number in its unit, a time with its interval, a ratio, a failed row, whole tables."""

import math
from collections.abc import Callable, Sequence

from ctxbench.base.limits import FEWEST_PROCESSES
from ctxbench.base.load import doubt
from ctxbench.base.number import NOT_KNOWN, Number, significant
from ctxbench.model.metric import Quantity, RecordRow, Unit
from ctxbench.model.metrics import read_number
from ctxbench.model.record import columns
from ctxbench.table.numbers import Numbers
from ctxbench.table.table import Cell, Row, Table, TableColumn

# A column with its cells, in the order of the rows.
Filled = tuple[TableColumn, list[Cell]]


def value_of(row: RecordRow | None, column: str) -> float | None:
    """A number of a record; None without the record or the number."""
    return None if row is None or row[column] is None else float(row[column])


def interval_of(row: RecordRow, quantity: Quantity) -> tuple[float, float] | None:
    """The confidence interval of a record's number; None if it has none."""
    if not quantity.has_interval:
        return quantity.interval(row)
    found = read_number(row, quantity)
    return found.ends if found and found.has_interval else None


def doubts(time: Number, over: str = "") -> list[str]:
    """The footnotes of a time, or of a ratio of times (`over` " of the ratio"), that no verdict rests on."""
    found: list[str] = []
    found += map(str, doubt(time.others_share))
    found += [f"{NOT_KNOWN.capitalize()}: {time.unknown}."] * bool(time.unknown)
    if time.high == math.inf:
        found.append(f"Fewer than {FEWEST_PROCESSES} processes: no interval{over}.")
    return found


def amount(row: RecordRow, quantity: Quantity, unit: Unit, column: str = "", digits: int = 3) -> str:
    """A known number of a record as text in `unit`, without the unit's symbol, with its interval if it has one."""
    if _unknown(row, quantity):
        return NOT_KNOWN
    value = float(row[column or quantity.column])
    interval = interval_of(row, quantity) or ()
    return f"{text_of(Number(value, *interval), quantity, unit, digits)} {quantity.beside(row)}".rstrip()


def _unknown(row: RecordRow, quantity: Quantity) -> str:
    """Reason to tell no number of a predicted time; empty for none."""
    found = read_number(row, quantity) if quantity.has_interval else None
    return found.why if found else ""


def text_of(number: Number, quantity: Quantity, unit: Unit, digits: int = 3) -> str:
    """A number as text in `unit`: a count whole, a time of unknown interval in two digits."""
    decimals = quantity.decimals
    if unit.factor == 1 and quantity.column in columns() and columns()[quantity.column].type is int:
        decimals = 0
    return number.over(unit.factor).text(2 if quantity.has_interval else digits, decimals)


def detail(row: RecordRow, quantity: Quantity, column: str = "") -> str:
    """Details of a known number: all its digits, and its uncertainty."""
    value = row[column or quantity.column]
    if why := _unknown(row, quantity):
        return f"{NOT_KNOWN}: {why}"
    if quantity.has_interval and quantity.origin_of(row) == "predicted":
        low, high = interval_of(row, quantity) or (math.nan, math.nan)
        middle, least, most = (significant(each, 4) for each in (value, low, high))
        return f"predicted: {middle} ms, {row[quantity.detail('confidence')]:.0%} band {least} to {most} ms"
    if not quantity.has_interval:
        return f"{int(value):,}" if quantity.unit.factor > 1 else f"{value:.6g} {quantity.unit.symbol}".strip()
    samples, outliers, stop = (row[quantity.detail(name)] for name in ("samples", "outliers", "stop"))
    count = row["processes"]
    text = f"{value:.6g} ms, " + (f"{count} process{'es' * (count > 1)}, " if count else "")
    text += f"{samples} samples, {outliers} outliers kept, ended by {stop}"
    if interval := interval_of(row, quantity):
        text += f", {row[quantity.detail('confidence')]:.1%} interval [{interval[0]:.6g}, {interval[1]:.6g}]"
    between, within, drift = (row[quantity.detail(n)] for n in ("spread_between", "spread_within", "drift"))
    if between is not None and within is not None:
        text += f", spread between processes {between:.1%}, within {within:.1%}"
    text += "" if drift is None else f", drift {drift:+.1%}"
    others = row["others_share"]
    return text if others is None else f"{text}, other work on up to {others:.0%} of the cores"


def quantity_cell(row: RecordRow | None, quantity: Quantity, unit: Unit, column: str = "", digits: int = 3) -> Cell:
    """A number of a record; the status of a failed one without it."""
    value = value_of(row, column or quantity.column)
    if row is None or value is None:
        return failed_cell(row) if row and row["status"] != "ok" else Cell()
    text = amount(row, quantity, unit, column, digits)
    origin = quantity.origin_of(row) if quantity.origin_column else None
    return Cell(text, value / unit.factor, detail=detail(row, quantity, column), origin=origin)


def basis(row: RecordRow, quantity: Quantity) -> str:
    """Basis of a known time, in short: `31 samples`, or `predicted`."""
    origin = quantity.origin_of(row)
    return origin if origin == "predicted" else f"{row[quantity.detail('samples')]} samples"


def failed_cell(row: RecordRow, notes: tuple[int, ...] = ()) -> Cell:
    """The status of a record that did not end ok."""
    return Cell(str(row["status"]), notes=notes, detail=str(row["message"]), failed=True)


def ratio_cell(ratio: Number, best: bool = False, notes: tuple[int, ...] = ()) -> Cell:
    return Cell(ratio.text(), ratio.value, best, notes, detail=f"{ratio.value:.4f}")


def heading(title: str, unit: Unit) -> str:
    """Heading of the columns of a quantity: `Params (M)`."""
    return f"{title} ({unit.symbol})" if unit.symbol else title


def put_together(
    name: str,
    title: str,
    filled: Sequence[Filled],
    about: Sequence[tuple[str, str, str]],
    caption: Sequence[str],
    notes: Sequence[str],
    numbers: Callable[[], Numbers] | None = None,
) -> Table:
    """The table of these columns; `about` is each row's module, family and status, `numbers` makes its plain data."""
    by_row = zip(*(cells for _, cells in filled), strict=True)
    rows = tuple(Row(cells, *who) for cells, who in zip(by_row, about, strict=True))
    return Table(name, title, tuple(column for column, _ in filled), rows, tuple(caption), tuple(notes), numbers)
