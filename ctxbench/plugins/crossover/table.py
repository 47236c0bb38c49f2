"""The crossovers of a run: pairs of modules under the same conditions, and from which n = H W on one is cheaper."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ctxbench.base.errors import UsageError, unknown
from ctxbench.base.limits import FEWEST_PROCESSES
from ctxbench.model.conditions import CONDITIONS
from ctxbench.model.metric import Quantity, RecordRow
from ctxbench.model.metrics import read_number, stored_quantities
from ctxbench.plugins.crossover.crossover import CostsAtSize, Crossover, crossover
from ctxbench.plugins.crossover.pair import parse_pair
from ctxbench.report.panels import label_of
from ctxbench.report.run_data import RunData
from ctxbench.report.tables.caption import convention_lines, setup, values_in
from ctxbench.report.tables.cells import Filled, put_together
from ctxbench.results.rows import is_filled
from ctxbench.table.numbers import Numbers
from ctxbench.table.table import ROW_LIMIT, Cell, Footnotes, Origin, Table, TableColumn

Pair = tuple[str, str]
# Of suites.
KEY = "crossover"
# What is the same of both modules besides height and width, and the headings for it.
SAME = {"batch": "Batch", "channels": "Channels"} | {n: each.title for n, each in CONDITIONS.items() if n != "shape"}
# Sizes named as left out; the others are counted.
MOST_SIZES = 3
NO_INTERVAL = f"Fewer than {FEWEST_PROCESSES} rounds in which both were timed: no interval."


@dataclass(frozen=True, eq=False)
class Pairing:
    """Two modules under the same conditions: n and the records of both, at each size that both have, by rising n."""

    first: str
    second: str
    conditions: Mapping[str, str]
    rows: Sequence[tuple[int, RecordRow, RecordRow]]

    def sizes(self, quantity: Quantity) -> list[CostsAtSize]:
        """The sizes at which both costs are known and can be compared."""
        found = []
        for n, *records in self.rows:
            first, second = (read_number(row, quantity) for row in records)
            if first and second and not any(_reason_not_compared(row, quantity) for row in records):
                found.append(CostsAtSize(n, first, second))
        return found

    def left_out(self, quantity: Quantity) -> str:
        """A sentence for the sizes that cannot be compared; empty if there is none."""
        found: dict[str, list[str]] = {}
        for n, *records in self.rows:
            for row in records:
                if reason := _reason_not_compared(row, quantity):
                    found.setdefault(f"{label_of(row)}: {reason}", []).append(str(n))
        texts = []
        for reason, sizes in found.items():
            more = f" and {len(sizes) - MOST_SIZES} more" if len(sizes) > MOST_SIZES else ""
            texts.append(f"n = {', '.join(sizes[:MOST_SIZES])}{more} ({reason})")
        return f"Left out: {'; '.join(texts)}." if texts else ""


def _reason_not_compared(row: RecordRow, quantity: Quantity) -> str:
    """Reason why a cost of a row is not compared; empty if it is."""
    value = read_number(row, quantity)
    if value is None:
        return str(row["status"]) if row["status"] != "ok" else "not known"
    return "disturbed by other work" if value.disturbed else "" if value.value else "0"


def pairings(rows: Sequence[RecordRow], pairs: Iterable[Pair]) -> list[Pairing]:
    """The pairs that have two sizes or more in common, for each of their settings and conditions.

    Both modules have the same height and width at a size; of several with the same n the squarest stands.
    """
    ordered = sorted(rows, key=lambda row: (_n(row), abs(math.log(row["height"] / row["width"]))))
    found = []
    for first, second in pairs:
        partners = defaultdict[tuple[Any, ...], list[RecordRow]](list)
        for row in (each for each in ordered if each["module"] == second):
            partners[_same(row), row["height"], row["width"]].append(row)
        groups = defaultdict[tuple[Any, ...], dict[int, tuple[RecordRow, RecordRow]]](dict)
        for one in (each for each in ordered if each["module"] == first):
            for two in partners[_same(one), one["height"], one["width"]]:
                group = groups[one["settings"], two["settings"], _same(one)]
                group.setdefault(_n(one), (one, two))
        found += [_pairing([(n, *both) for n, both in group.items()]) for group in groups.values() if len(group) > 1]
    return found


def _n(row: RecordRow) -> int:
    return int(row["height"] * row["width"])


def _same(row: RecordRow) -> tuple[Any, ...]:
    return tuple(row[name] for name in SAME)


def _pairing(rows: Sequence[tuple[int, RecordRow, RecordRow]]) -> Pairing:
    _, first, second = rows[0]
    conditions = {name: str(first[name] or "") for name in SAME}
    return Pairing(label_of(first), label_of(second), conditions, rows)


def differing(found: Sequence[Pairing]) -> list[str]:
    """The conditions in which the pairings differ."""
    return [name for name in SAME if len({each.conditions[name] for each in found}) > 1]


def costs_of(found: Sequence[Pairing]) -> list[Quantity]:
    """The costs that differ between sizes; if none does, all that are known."""
    if not found:
        return []
    rows = [row for each in found for _, *records in each.rows for row in records]
    costs = [cost for cost in stored_quantities() if cost.better == "smaller" and is_filled(rows, cost.column)]
    return [each for each in costs if _differs(rows, each.column)] or costs


def _differs(rows: Sequence[RecordRow], column: str) -> bool:
    """Return whether a module has more than one value under the same conditions."""
    values = defaultdict[tuple[Any, ...], set[Any]](set)
    for row in rows:
        values[row["module"], row["settings"], _same(row)].add(row[column])
    return any(len(each - {None}) > 1 for each in values.values())


def crossover_of(pairing: Pairing, cost: Quantity) -> Crossover | None:
    """The crossover in one cost; None if fewer than two sizes can be compared."""
    sizes = pairing.sizes(cost)
    return crossover(sizes, cost.exact) if len(sizes) > 1 else None


def text_of(found: Crossover | None, sizes: Sequence[CostsAtSize]) -> str:
    """`613 [576, 1024]`; `< 64` and `> 9216` where n is outside the sizes; `=` where nothing tells the two apart."""
    if found is None:
        return "–"  # noqa: RUF001  # a dash for "none"
    n, ends = found.n, found.n.ends
    if math.isnan(n.value):
        return "="
    measured = {float(size.n) for size in sizes}

    def end(n: float) -> str:
        if n in (0, math.inf):
            return f"< {sizes[0].n}" if n == 0 else f"> {sizes[-1].n}"
        return f"{n if n in measured else float(f'{n:.3g}'):.0f}"

    if ends[0] == ends[1]:
        return end(n.value)
    if {*ends} & {0, math.inf, *measured}:
        return "{} [{}, {}]".format(*map(end, (n.value, *ends)))
    return n.text()


def notes_of(pairing: Pairing, cost: Quantity, found: Crossover | None) -> list[str]:
    """Notes on a crossover: other crossings, rows left out, a missing interval, notes on the costs."""
    said = [] if found is None or found.is_single else [course(pairing, found, pairing.sizes(cost))]
    if left_out := pairing.left_out(cost):
        said.append(left_out)
    if found and cost.has_interval and math.isnan(found.n.low):
        said.append(NO_INTERVAL)
    sizes: dict[str, list[int]] = {}
    for n, *records in pairing.rows:
        for row in records:
            for each in (*cost.notes(row), *(note for note in row["notes"] if note.about == cost.key)):
                sizes.setdefault(f"{label_of(row)}: {each.shared}", []).append(n)
    every = len(pairing.rows)
    where = {text: f" (At {len(n)} of {every} sizes, the largest {n[-1]}.)" for text, n in sizes.items()}
    return said + [text + where[text] * (len(sizes[text]) < every) for text in sizes]


def course(pairing: Pairing, found: Crossover, sizes: Sequence[CostsAtSize]) -> str:
    """A sentence with the sizes at which each module is cheaper, in turn."""
    turns: list[tuple[int, list[int]]] = []
    for sign, size in zip(found.signs, sizes, strict=True):
        if sign and turns and turns[-1][0] == sign:
            turns[-1][1].append(size.n)
        elif sign:
            turns.append((sign, [size.n]))
    names = {-1: pairing.first, 1: pairing.second}
    spans = [f"{n[0]} to {n[-1]}" if len(n) > 1 else str(n[0]) for _, n in turns]
    words = [f"{names[sign]} is cheaper at n = {span}" for (sign, _), span in zip(turns, spans, strict=True)]
    return f"{'More than one crossing' if len(words) > 2 else 'The other way round'}: {', '.join(words)}."


def pairs_of(run: RunData) -> list[Pair]:
    """The pairs of modules whose crossovers are shown."""
    return [parse_pair(text) for text in run.texts(KEY)]


def crossover_table(run: RunData) -> Table | None:
    """The crossovers of the run's pairs, a row a pairing; None if no pair has two sizes in common."""
    found = pairings(run.rows, pairs_of(run))[:ROW_LIMIT]
    if not found:
        return None
    notes, costs = Footnotes(), costs_of(found)
    filled = labels(found)
    data: dict[str, list[object]] = {column.key: [cell.text for cell in cells] for column, cells in filled}
    for cost in costs:
        answers = [crossover_of(each, cost) for each in found]
        cells = [
            answer_cell(each, answer, each.sizes(cost), notes_of(each, cost, answer), notes)
            for each, answer in zip(found, answers, strict=True)
        ]
        filled.append((TableColumn(cost.key, "", cost.title, cost.origin, "crossover"), cells))
        for end, name in {"n": "value", "low": "low", "high": "high"}.items():
            data[f"{cost.key}_{end}"] = [math.nan if each is None else getattr(each.n, name) for each in answers]
    about = [(each.first, str(each.rows[0][1]["family"]), "ok") for each in found]
    title = "The n = H x W above which the first module is cheaper than the second"
    caption = _caption(run, costs)
    name = f"{run.suite}-crossover"
    table: Table = put_together(name, title, filled, about, caption, notes.texts, lambda: Numbers(data))
    return table


def labels(found: Sequence[Pairing]) -> list[Filled]:
    """Labels of a row: both modules, the conditions that differ, the sizes."""

    def column(key: str, header: str, texts: Iterable[str]) -> Filled:
        return TableColumn(key, "", header, "label"), [Cell(text) for text in texts]

    sizes = [f"{each.rows[0][0]} to {each.rows[-1][0]} ({len(each.rows)})" for each in found]
    return [
        column("first", "First", [each.first for each in found]),
        column("second", "Second", [each.second for each in found]),
        *(column(name, SAME[name], [each.conditions[name] for each in found]) for name in differing(found)),
        column("sizes", "Sizes n", sizes),
    ]


def answer_cell(
    pairing: Pairing, found: Crossover | None, sizes: Sequence[CostsAtSize], said: Sequence[str], notes: Footnotes
) -> Cell:
    """A crossover as text and in words, with what is said of it."""
    numbers = tuple(sorted({notes.number(sentence) for sentence in said}))
    if found is None:
        return Cell(text_of(found, sizes), notes=numbers, detail="fewer than two sizes can be compared")
    value = None if math.isnan(found.n.value) else min(found.n.value, sizes[-1].n + 1.0)
    origin: Origin | None = "predicted" if sizes[0].first.origin == "predicted" else None
    return Cell(text_of(found, sizes), value, notes=numbers, detail=_in_words(pairing, found, sizes), origin=origin)


def _in_words(pairing: Pairing, found: Crossover, sizes: Sequence[CostsAtSize]) -> str:
    inside = f"n = {sizes[0].n} to {sizes[-1].n}"
    n = found.n.value
    if math.isnan(n):
        return f"equal, or statistically tied, at {inside}"
    if n == 0:
        return f"{pairing.first} is cheaper at every size, {inside}"
    if n == math.inf:
        return f"{pairing.first} is not cheaper at the largest size, {inside}"
    side = f"{math.sqrt(n):.0f}"
    return f"{pairing.first} is cheaper above n = {n:.0f}, about {side} x {side}"


def _caption(run: RunData, costs: Sequence[Quantity]) -> list[str]:
    ends = ["of counts and predicted memory these two sizes"] if any(each.exact for each in costs) else []
    timed = [each.column for each in costs if each.has_interval]
    origins = {row.get("latency_origin") or "" for row in run.rows if any(row[column] is not None for column in timed)}
    if "" in origins:
        ends.append("of times where the 95 % interval of their ratio over rounds contains 1")
    if "predicted" in origins:
        ends.append("of predicted times the 80 % band of their ratio")
    return [
        f"here: {setup(run)}.",
        "n: above it the first module is cheaper at every size that was run; between two sizes each cost is taken to "
        f"follow a power law. In brackets: {', '.join(ends)}.",
        "< a: cheaper at every size, from the smallest, a; > b: not cheaper at the largest, b; =: equal, or not known "
        "to differ, at every size.",
        *convention_lines({each.key: each.unit for each in costs}, values_in(run.rows)),
    ]


def check_pairs(runs: Sequence[RunData]) -> None:
    """UsageError for a pair that was asked for and that no run can compare."""
    for pair in pairs_of(runs[0]) if runs[0].given.get(KEY) else ():
        for name in pair:
            modules = {row["module"] for run in runs for row in run.rows}
            if name not in modules:
                raise unknown("module of this run", name, modules)
        if not any(pairings(run.rows, [pair]) for run in runs):
            raise UsageError(
                f"{' and '.join(pair)} have fewer than two sizes H x W in common with the same batch, channels, dtype, "
                "layout, execution, threads and device; a crossover needs two"
            )


def crossover_tables(run: RunData) -> list[Table]:
    """The table of crossovers, if the run has any."""
    return [table] if (table := crossover_table(run)) else []
