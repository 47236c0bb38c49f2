"""Summary at the top of a page: a few plain sentences made from the numbers."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from ctxbench.base.number import Number, order, rough_ratio, times
from ctxbench.base.texts import counted, listed
from ctxbench.model.case import EMPTY
from ctxbench.model.metric import Quantity, RecordRow, Unit
from ctxbench.model.metrics import quantities, read_number
from ctxbench.plugin import loaded
from ctxbench.results.rows import is_filled
from ctxbench.table.table import Table

from .panels import Panel, is_reference, label_of
from .published import unit_of
from .run_data import RunData
from .tables.cells import amount
from .tables.runs import compared, ratio_key

# Failed rows that are named; the others are counted.
MOST_NAMES = 5
# The families whose modules give every position the same of what is far away, or none of it: beside others they win
# each cost.
CONTROLS = ("pooling", "large kernel")
# Counts that differ by less than this factor are told apart in percent.
CLOSE = 1.1
SUPERLATIVES = {"less": "least", "more": "most"}


@dataclass(frozen=True)
class Ranked:
    """A row's number in one quantity."""

    label: str
    value: Number
    text: str
    is_reference: bool


def run_sentences(panel: Panel) -> list[str]:
    """Best module in each quantity of the Pareto front, its factor, its ties, and the number of failed rows.

    Only rows under the same conditions that ended ok are compared.
    """
    rows = panel.alike
    done = [row for row in rows if row["status"] == "ok"]
    found = [sentence for tell in loaded("sentences") for sentence in tell(panel.rows)]
    controls = [row for row in done if _is_control(row)]
    if 0 < len(controls) < len(done) and len({row["family"] for row in done}) > 2:
        done = [row for row in done if not _is_control(row)]
        names = listed([label_of(row) for row in controls])
        found.append(f"Not ranked by cost, because they do not mix distant positions: {names}.")
    if len(panel.rows) > len(rows):
        others = len(panel.rows) - len(rows)
        found.append(
            f"Compared here: the {len(rows)} rows with {', '.join(panel.run.conditions(rows))}; "
            f"{counted(others, 'row')} under other conditions {'is' if others == 1 else 'are'} in the table."
        )
    axes = [each for each in quantities().values() if each.on_front and is_filled(done, each.column)]
    if len(done) == 1:
        found += _alone(panel, done, axes, only=len(rows) == 1)
    else:
        places = {each.key: _places(panel, done, each) for each in axes}
        found += [_leader(each, places[each.key]) for each in axes if len(places[each.key]) > 1]
    return [*found, *_ended(panel.rows)]


def comparison_sentences(runs: Sequence[RunData], table: Table) -> list[str]:
    """Comparison of each later run with the first one in each quantity that differs, and the number of failed rows."""
    names = [run.name for run in runs]
    found = []
    for each in compared():
        for number in range(2, len(runs) + 1):
            place = [i for i, column in enumerate(table.columns) if column.key == ratio_key(each.column, number)]
            cells = [row.cells[i] for row in table.rows for i in place]
            ratios = [cell.value for cell in cells if cell.value is not None]
            if not ratios:
                continue
            noun = f"{each.origin} {each.quantity.noun}" if each.quantity.measured_column else each.quantity.noun
            many = rough_ratio(median(ratios)).text()
            text = f"{noun[:1].upper()}{noun[1:]} in {names[number - 1]} is {many} times that in {names[0]}"
            text += f" (median of {len(ratios)} rows)" if len(ratios) > 1 else ""
            if each.has_interval:
                sure = sum(cell.best for cell in cells)
                text += f"; in {sure} of {counted(len(ratios), 'row')} the interval of the ratio does not contain 1"
            found.append(f"{text}.")
    if not found:
        found.append("No number differs between the runs, where more than one of them has it.")
    if all(row["status"] == "ok" for run in runs for row in run.rows):
        return [*found, "No row of any run failed."]
    return [*found, *(f"{run.name}: {sentence}" for run in runs for sentence in _ended(run.rows))]


def _is_control(row: RecordRow) -> bool:
    return row["family"] in CONTROLS or row["module"] == EMPTY


def _places(panel: Panel, done: Sequence[RecordRow], each: Quantity) -> list[Ranked]:
    """The known numbers of one quantity, the best first."""
    unit = unit_of(panel.run, each, panel.rows)
    places = [
        Ranked(label_of(row), value, _text(row, each, unit), is_reference(row))
        for row in done
        if (value := read_number(row, each))
    ]
    return sorted(places, key=lambda place: place.value.value, reverse=each.better == "larger")


def _text(row: RecordRow, each: Quantity, unit: Unit) -> str:
    value, *_ = amount(row, each, unit).split(" [")
    return f"{value} {unit.symbol}".strip()


def _leader(each: Quantity, places: Sequence[Ranked]) -> str:
    """Best module in one quantity, its ties, and the factor by which the others follow."""
    left_out = [
        f"{place.label} ({place.value.reason_not_comparable})" for place in places if place.value.reason_not_comparable
    ]
    places = [place for place in places if not place.value.reason_not_comparable]
    if len(places) < 2:
        return f"Not compared in {each.noun}: {listed(left_out)}."
    best = places[0]
    ties = [place for place in places[1:] if order(best.value, place.value) == 0]
    rest = [place for place in places[1:] if place not in ties]
    noun = _noun(each, best)
    if each.has_interval:
        leaders, unsure = [best.label], listed([place.label for place in ties]) if ties else ""
    else:
        leaders, unsure = [place.label for place in (best, *ties)], ""
    if not rest and not unsure:
        every = "Both" if len(places) == 2 else f"All {len(places)}"
        same = "the same number of" if each.comparative == "fewer" else "the same"
        what = f"{same} {noun}, {best.text}" if best.value.value else f"no {noun}"
        return f"{every} rows have {what}."
    has = "has" if len(leaders) == 1 else "have"
    text = f"{listed(leaders)} {has} the {_superlative(each)} {noun}, {best.text}"
    if not best.value.value:
        text = f"{listed(leaders)} {has} no {noun}"
    text += f", statistically tied with {unsure}" if unsure else ""
    text += _distance(each, best, rest)
    text += f"; not compared: {listed(left_out)}" if left_out else ""
    return f"{text}."


def _distance(each: Quantity, best: Ranked, rest: Sequence[Ranked]) -> str:
    """By which factor the best differs from the next ones and from the reference."""
    if not rest:
        return ""
    following = [place for place in rest if place.value == rest[0].value]
    names = listed([place.label for place in following])
    if not best.value.value or not rest[0].value.value:
        return f"; next {'comes' if len(following) == 1 else 'come'} {names} with {rest[0].text}"
    text = f": {_factor(best, rest[0])} {each.comparative} than {names}, the next"
    reference = next((place for place in rest if place.is_reference and place not in following), None)
    return f"{text}, and {_factor(best, reference)} {each.comparative} than {reference.label}" if reference else text


def _factor(one: Ranked, other: Ranked) -> str:
    """`1.6x`; of counts that are close, in percent."""
    small, large = sorted((one.value, other.value), key=lambda value: value.value)
    is_close = not large.has_interval and large.value < CLOSE * small.value
    return f"{100 * (1 - small.value / large.value):.2g} %" if is_close else times(large, small)


def _alone(panel: Panel, done: Sequence[RecordRow], axes: Sequence[Quantity], only: bool) -> list[str]:
    """The numbers of the one row that ended ok."""
    numbers = [f"{place.text} {_noun(each, place)}" for each in axes for place in _places(panel, done, each)]
    label = label_of(done[0])
    if not numbers:
        return []
    return [f"{label} is the only row: {listed(numbers)}." if only else f"Only {label} ended ok: {listed(numbers)}."]


def _ended(rows: Sequence[RecordRow]) -> list[str]:
    """Number and names of failed rows; nothing for a single row that did not fail."""
    failed = [row for row in rows if row["status"] != "ok"]
    if not failed:
        return [f"None of the {len(rows)} rows failed."] if len(rows) > 1 else []
    counts = Counter((label_of(row), str(row["status"])) for row in failed)
    names = [f"{label} ({status}{f', {n} rows' if n > 1 else ''})" for (label, status), n in counts.items()]
    if len(failed) < len(rows):
        return [f"{len(failed)} of {len(rows)} rows failed: {listed(names, MOST_NAMES)}."]
    word = "The only row" if len(rows) == 1 else "Both rows" if len(rows) == 2 else f"All {len(rows)} rows"
    return [f"{word} failed: {listed(names, MOST_NAMES)}."]


def _noun(each: Quantity, place: Ranked) -> str:
    return f"predicted {each.noun}" if "predicted" in (each.origin, place.value.origin) else each.noun


def _superlative(each: Quantity) -> str:
    """`fewest` for `fewer`."""
    return SUPERLATIVES.get(each.comparative) or each.comparative.removesuffix("er") + "est"
