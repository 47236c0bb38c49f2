"""Runs of one suite side by side: each quantity run by run, with ratios, and why a row cannot be compared."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from ctxbench.base.errors import UsageError
from ctxbench.base.number import NumberOrigin, ratio_of_runs, rough_ratio
from ctxbench.base.texts import listed
from ctxbench.model.conditions import CONDITIONS
from ctxbench.model.metric import Quantity, RecordRow
from ctxbench.model.metrics import read_number, stored_quantities
from ctxbench.results.rows import is_filled
from ctxbench.table.numbers import Numbers
from ctxbench.table.table import ROW_LIMIT, Cell, Footnotes, Table, TableColumn

from ..run_data import SURE, RunData, heading_of, marks, settings_text
from .caption import convention_lines, setup, values_in
from .cells import Filled, doubts, heading, put_together, quantity_cell, ratio_cell, value_of

Key = tuple[str, ...]
# What a run has for each key.
RecordsByKey = Mapping[Key, RecordRow]
# Two runs may differ in a digit that one run's table does not show.
DIGITS = 4


@dataclass(frozen=True)
class Compared:
    """One column of the records that is set side by side: a quantity as counted, predicted or measured."""

    quantity: Quantity
    column: str
    origin: NumberOrigin

    @property
    def title(self) -> str:
        twice = self.quantity.measured_column
        return f"{self.quantity.title}, {self.origin}" if twice else self.quantity.title

    @property
    def method(self) -> str:
        """The column with the method by which the numbers were obtained; empty where there is only one."""
        return self.quantity.method_column if self.column == self.quantity.column else ""

    @property
    def has_interval(self) -> bool:
        return self.quantity.has_interval


def compared() -> Iterator[Compared]:
    """All columns that can be set side by side, in the order of tables."""
    for quantity in stored_quantities():
        yield Compared(quantity, quantity.column, quantity.origin)
        if quantity.measured_column:
            yield Compared(quantity, quantity.measured_column, "measured")


def compare_runs(runs: Sequence[RunData]) -> Table:
    """The rows of all runs, each quantity run by run and over the first run.

    Of runs of different suites, the rows that two of them share; UsageError if there is none. Exact quantities are
    shown only if a run disagrees.
    """
    suites = list(dict.fromkeys(run.suite for run in runs))
    names = key_names(runs)
    found = [{key_of(row, names): row for row in run.rows} for run in runs]
    keys = list(dict.fromkeys(key for rows in found for key in rows))
    if len(suites) > 1:
        keys = [key for key in keys if sum(key in rows for rows in found) > 1]
        if not keys:
            raise UsageError(f"the runs of {listed(suites)} share no case; make one report for each")
    shown, notes = keys[:ROW_LIMIT], Footnotes()
    filled = _label_columns(names, shown, found, notes)
    every = [each for each in compared() if any(is_filled(run.rows, each.column) for run in runs)]
    same = [each for each in every if each.quantity.exact and _agree(each, keys, found)]
    different = [each for each in every if each not in same]
    for each in different:
        filled += _quantity_columns(each, found, shown, notes)
    caption = _caption(runs, same, different, len(keys) - len(shown))
    if len(suites) > 1:
        caption += ("The suites differ: the rows are those that two runs share.",)
    about = [_about(key, found) for key in shown]
    return put_together(
        f"{'-'.join(suites)}-compared",
        f"{len(runs)} runs of {listed(suites)}",
        filled,
        about,
        caption,
        notes.texts,
        lambda: _data(names, keys, found, every),
    )


def ratio_key(column: str, number: int) -> str:
    """The key of the column with the ratio of a later run to the first."""
    return f"{column}_ratio_{number}"


def _agree(each: Compared, keys: Sequence[Key], found: Sequence[RecordsByKey]) -> bool:
    """Return whether all runs that have a row's number have the same."""
    values = [{value_of(rows.get(key), each.column) for rows in found} - {None} for key in keys]
    return all(len(row) <= 1 for row in values)


def key_names(runs: Sequence[RunData]) -> list[str]:
    """Key of a row in every run; the device only where a run has several."""
    several = any(len(run.devices()) > 1 for run in runs)
    return ["module", "settings", *(name for name in CONDITIONS if name != "device" or several)]


def key_of(row: RecordRow, names: Sequence[str]) -> tuple[str, ...]:
    """Of the hyper-parameters those that differ from the defaults, whatever other rows of the run have."""
    settings = settings_text({name: row["every"][name] for name in row["changed"].split()})
    return tuple("" if row[n] is None else settings if n == "settings" else str(row[n]) for n in names)


def _label_columns(
    names: Sequence[str], keys: Sequence[Key], found: Sequence[RecordsByKey], notes: Footnotes
) -> list[Filled]:
    """Labels of a row; its module carries the notes on the whole row in a run."""
    titles = {key[0]: f"{row['title'] or key[0]}{marks(row['notes'])}" for rows in found for key, row in rows.items()}
    modules = []
    for key in keys:
        reasons = (_row_reason(rows.get(key), f"run {number}") for number, rows in enumerate(found, 1))
        numbers = tuple(notes.number(reason) for reason in reasons if reason)
        modules.append(Cell(titles[key[0]], notes=numbers, detail=key[0], short=key[0]))
    filled = [(TableColumn("module", "", "Module", "label"), modules)]
    for place, name in enumerate(names[1:], 1):
        if len({key[place] for key in keys}) > 1:
            filled.append((TableColumn(name, "", heading_of(name), "label"), [Cell(key[place]) for key in keys]))
    return filled


def _quantity_columns(
    each: Compared, found: Sequence[RecordsByKey], keys: Sequence[Key], notes: Footnotes
) -> list[Filled]:
    """One column a run, then one ratio for each run but the first."""
    quantity = each.quantity
    group = heading(each.title, quantity.unit)
    part = quantity.key if each.has_interval else f"{quantity.part} {each.origin}"
    filled: list[Filled] = []
    for number, rows in enumerate(found, 1):
        cells = [quantity_cell(rows.get(key), quantity, quantity.unit, each.column, DIGITS) for key in keys]
        filled.append((TableColumn(f"{each.column}_{number}", group, f"run {number}", each.origin, part), cells))
    for number, rows in enumerate(found[1:], 2) if quantity.better else ():
        cells = [_ratio_cell(found[0].get(key), rows.get(key), each, number, notes) for key in keys]
        filled.append((TableColumn(ratio_key(each.column, number), group, f"{number} / 1", "ratio", part), cells))
    return filled


def _ratio_cell(
    first: RecordRow | None, other: RecordRow | None, each: Compared, number: int, notes: Footnotes
) -> Cell:
    reason = reason_against(first, other, each, number)
    if reason:
        return Cell("–", notes=(notes.number(reason),), detail=reason)  # noqa: RUF001  # a dash for "none"
    one, two = (None if row is None else read_number(row, each.quantity, each.column) for row in (first, other))
    if first is None or other is None or one is None or two is None or not one.value:
        return Cell()
    if not each.has_interval or one.origin == "predicted":
        return ratio_cell(rough_ratio(two.value / one.value))
    found = ratio_of_runs(two, one)
    if reasons := dict.fromkeys(reason for time in (one, two) for reason in doubts(time, " of the ratio")):
        return ratio_cell(rough_ratio(found.value), notes=tuple(sorted(map(notes.number, reasons))))
    confidence = each.quantity.detail("confidence")
    sure = min(first[confidence], other[confidence]) >= SURE
    numbers = () if sure else (notes.number("Few samples: the interval of the ratio covers less than 95 %."),)
    return ratio_cell(found, sure and not found.low <= 1 <= found.high, numbers)


def reason_against(first: RecordRow | None, other: RecordRow | None, each: Compared, number: int) -> str:
    """Reason not to compare a later run's number with the first's; empty if none, or if neither has the quantity."""
    for row, name in ((first, "run 1"), (other, f"run {number}")):
        if value_of(row, each.column) is None and (reason := _row_reason(row, name)):
            return reason
    one, two = value_of(first, each.column), value_of(other, each.column)
    if (one is None) != (two is None):
        return f"Not compared: {'run 1' if one is None else f'run {number}'} did not measure it."
    return _difference(first, other, each, number) if first and other and one is not None else ""


def _difference(first: RecordRow, other: RecordRow, each: Compared, number: int) -> str:
    """Differences between two rows with the same settings that rule out a comparison; empty if none.

    The defaults of a module may be others in another run.
    """
    then, now = first["every"], other["every"]
    for name in (name for name in then if name in now and then[name] != now[name]):
        return f"Not compared: {name} is {then[name]} in run 1 and {now[name]} in run {number}."
    origins = [each.quantity.origin_of(row) for row in (first, other)]
    if origins[0] != origins[1]:
        return f"Not compared: {each.quantity.noun} {origins[0]} in run 1 and {origins[1]} in run {number}."
    methods = [str(row[each.method]) for row in (first, other)] if each.method else ["", ""]
    if methods[0] != methods[1]:
        word = "by" if each.origin == "counted" else "for"
        return f"Not compared: {each.quantity.noun} {each.origin} {word} {methods[0]} and {word} {methods[1]}."
    return ""


def _row_reason(row: RecordRow | None, name: str) -> str:
    if row is None:
        return f"Not compared: {name} has no such row."
    return "" if row["status"] == "ok" else f"Not compared: in {name} the row ended with {row['status']}."


def _about(key: Key, found: Sequence[RecordsByKey]) -> tuple[str, str, str]:
    records = [rows[key] for rows in found if key in rows]
    failed = [str(record["status"]) for record in records if record["status"] != "ok"]
    return key[0], str(records[0]["family"]), failed[0] if failed else "ok"


def _caption(
    runs: Sequence[RunData], same: Sequence[Compared], different: Sequence[Compared], hidden: int
) -> tuple[str, ...]:
    lines = [f"run {number}: {run.name}: {setup(run)}." for number, run in enumerate(runs, 1)]
    lines.append(
        "Ratios: a later run over run 1; of a time with its 95 % interval over processes, bold where that does not "
        "contain 1."
    )
    lines += control_lines(runs)
    if same:
        lines.append(f"The same in all runs: {'; '.join(each.title for each in same)}.")
    units = {each.quantity.key: each.quantity.unit for each in different}
    lines += convention_lines(units, values_in([row for run in runs for row in run.rows]))
    if len({str(run.definition.get("measure")) for run in runs}) > 1:
        lines.append("The runs were measured under different settings (budget, target or protocol).")
    if hidden:
        lines.append(f"{hidden} more rows are in the CSV table.")
    return tuple(lines)


def control_lines(runs: Sequence[RunData]) -> list[str]:
    """Slowdown of the control workload in a later run, over the cases that both timed it in."""
    lines = []
    first, *others = ({row["case"]: row["control_ms"] for row in run.rows} for run in runs)
    for number, own in enumerate(others, 2):
        ratios = [own[case] / first[case] for case in own if own[case] is not None and first.get(case)]
        if ratios:
            many = rough_ratio(median(ratios)).text()
            lines.append(
                f"The control workload, the same work in every case, took {many} times as long in run {number} as in "
                f"run 1 (median of {len(ratios)} cases)."
            )
    return lines


def _data(
    names: Sequence[str], keys: Sequence[Key], found: Sequence[RecordsByKey], known: Sequence[Compared]
) -> Numbers:
    columns: dict[str, list[Any]] = {name: [key[i] for key in keys] for i, name in enumerate(names)}
    timed = [each.quantity for each in known if each.has_interval]
    extra = [quantity.detail(name) for quantity in timed for name in ("samples", "low_ms", "high_ms")]
    for number, rows in enumerate(found, 1):
        for name in ("status", *(each.column for each in known), *extra):
            columns[f"{name}_{number}"] = [rows[key][name] if key in rows else None for key in keys]
    return Numbers(columns)
