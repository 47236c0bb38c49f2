"""A comparison's table: the standings in order, each number with its ratio to the first candidate's."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ctxbench.base.number import Number, order, order_without_ratio, ratio, reason_not_comparable
from ctxbench.base.texts import listed
from ctxbench.model.metric import Quantity, Unit
from ctxbench.model.metrics import metrics, quantities, quantity
from ctxbench.plugins.compare.ranking import Ranking, Standing, axes_of_front, by_place, front, ranked, settled_axes
from ctxbench.report.beside import beside
from ctxbench.report.published import is_prefix, scaled_unit
from ctxbench.report.tables.caption import convention_lines
from ctxbench.report.tables.cells import Filled, doubts, heading, put_together, text_of
from ctxbench.table.numbers import Numbers
from ctxbench.table.table import Cell, Footnotes, Table, TableColumn


def ranking_table(ranking: Ranking, rank_by: str) -> Table:
    """The standings by a quantity; `front` marks the Pareto front over the axes in which a verdict is possible.

    Where no row has that quantity, by the first one that a row has. UsageError if there is no quantity `rank_by`.
    """
    standings = ranking.standings
    known = [
        key for key in (quantity(rank_by).key, *axes_of_front(standings)) if any(key in r.values for r in standings)
    ]
    rank_by = next(iter(known), rank_by)
    rows = [row for own in by_place(standings).values() for row in ranked(own, rank_by)]
    candidates = {row.place: row for row in reversed(standings) if row.is_candidate}
    candidate = next(standing for standing in standings if standing.is_candidate)
    axes, notes = settled_axes(standings), Footnotes()
    on_front = {(row.place, row.label) for own in by_place(standings).values() for row in front(own, axes)}
    numbers = [number for own in by_place(standings).values() for number in range(1, len(own) + 1)]
    filled: list[Filled] = [
        *_places(rows),
        (TableColumn("place", "", "#", "label"), [Cell(str(number)) for number in numbers]),
        (TableColumn("module", "", "Module", "label"), [Cell(_name(row), best=row.is_candidate) for row in rows]),
        *(
            (TableColumn(name, "", name, "label"), [Cell(_setting(row, name)) for row in rows])
            for name in ranking.settings
        ),
        (
            TableColumn("front", "", "Front", "label"),
            [Cell("yes" if (row.place, row.label) in on_front else "") for row in rows],
        ),
    ]
    timed = [key for key, each in quantities().items() if each.has_interval]
    costs = [*axes_of_front(standings), *timed, *asked_for(), rank_by]
    if ranking.is_place:
        costs = [key for key, each in quantities().items() if key in costs or each.measured_column]
    for key in dict.fromkeys(costs):
        if any(key in row.values for row in rows):
            filled += _columns(quantity(key), rows, candidates, notes)
    shown = {column.key: _unit(column.key, rows) for column, _ in filled if column.origin == "measured"}
    columns, published = beside([row.module if row.label == row.module else "" for row in rows])
    filled += columns
    if any(row.status != "ok" for row in rows):
        cells = [Cell(row.status, failed=row.status != "ok", detail=row.message) for row in rows]
        filled.append((TableColumn("status", "", "Status", "status"), cells))
    about = [(row.label, "", row.status) for row in rows]
    caption = [*_caption(ranking, rank_by, candidate, axes, shown), *published]
    found: Table = put_together("compare", ranking.condition, filled, about, caption, notes.texts, lambda: _data(rows))
    return found


def _data(rows: Sequence[Standing]) -> Numbers:
    return Numbers.of_rows(
        [
            {
                **({"place": r.place} if r.place else {}),
                "module": r.label,
                **r.settings,
                **{key: v.value for key, v in r.values.items()},
                "status": r.status,
            }
            for r in rows
        ]
    )


def execution_table(ranking: Ranking) -> Table:
    """The times of each row that other executions have, too, with their ratio to eager's."""
    rows, notes = ranking.standings, Footnotes()
    filled = [*_places(rows), (TableColumn("module", "", "Module", "label"), [Cell(_name(row)) for row in rows])]
    for name in ranking.settings:
        filled.append((TableColumn(name, "", name, "label"), [Cell(_setting(row, name)) for row in rows]))
    measured = {key for standings in ranking.others.values() for row in standings for key in row.values}
    for what in (each for each in quantities().values() if each.has_interval and each.key in measured):
        for execution, standings in {"eager": rows, **ranking.others}.items():
            if not any(what.key in row.values for row in standings):
                continue
            own = {(row.place, row.label): row for row in standings}
            found = [own.get((row.place, row.label), replace(row, values={}, status="")) for row in rows]
            unit, part = what.unit, f"{what.key} {execution}"
            group = f"{heading(what.title, unit)}, {execution}"
            cells = [
                _value(row, what, unit, notes) if row.status == "ok" else Cell(row.status, failed=True) for row in found
            ]
            filled.append((TableColumn(part, group, "value", "measured", part), cells))
            if execution != "eager":
                ratios = [_ratio(other, row, what) for other, row in zip(found, rows, strict=True)]
                filled.append((TableColumn(f"{part} ratio", group, "x", "ratio", part), ratios))
    about = [(row.label, "", row.status) for row in rows]
    caption = ["x: times eager's, with the 95 % interval over rounds; =: that interval contains 1."]
    table: Table = put_together("executions", "By execution", filled, about, caption, notes.texts)
    return table


def asked_for() -> list[str]:
    """The stored quantities of metrics that are measured only by name, where one of two values is better."""
    own = [each for metric in metrics().values() if not metric.default for each in metric.quantities]
    return [each.key for each in own if each.better and not each.derive]


def _caption(
    ranking: Ranking, rank_by: str, candidate: Standing, axes: Sequence[str], shown: Mapping[str, Unit]
) -> list[str]:
    timed = [(row.label, value) for row in ranking.standings for value in row.values.values() if value.has_interval]
    is_predicted = any(value.origin == "predicted" for _, value in timed)
    band = "80 % band; =: that band" if is_predicted else "95 % interval over rounds; =: that interval"
    over = f", of a time with its {band} contains 1"
    has_times = any(quantity(key).has_interval for key in shown)
    by = f"Ranked by {quantity(rank_by).title}; " * any(rank_by in row.values for row in ranking.standings)
    lines = [f"{by}x: times {candidate.label}'s{over * has_times}."]
    if axes:
        nouns = listed([quantity(axis).noun for axis in axes])
        rival = f"no other row{' of its place' * any(row.place for row in ranking.standings)}"
        better = f"at least as good in {nouns}, and better in one of these" if len(axes) > 1 else f"better in {nouns}"
        lines.append(f"Front: {rival} is known to be {better}.")
    if any(quantity(key).measured_column for key in shown):
        lines.append(f"Memory: {ranking.memory}.")
    times: dict[str, list[Number]] = {}
    for label, value in timed:
        if value.origin != "predicted":
            times.setdefault(label, []).append(value)
    if times:
        lines.append("Each round times every row in a fresh process, in another order.")
    known = {
        "processes": sorted({str(len(value.processes)) for own in times.values() for value in own} - {"0"}),
        "latency_origin": ["predicted"] * is_predicted,
    }
    lines += convention_lines(shown, lambda column: known.get(column, []))
    if apart := [label for label, own in times.items() if any(not value.processes for value in own)]:
        lines.append(f"Measured in other rounds, so = where two intervals overlap: {listed(apart)}.")
    failed = [row for row in ranked(ranking.standings, rank_by) if row.status != "ok"]
    return [*lines, *(f"{row.place}{' ' * bool(row.place)}{row.label}: {row.status}: {row.message}" for row in failed)]


def _places(rows: Sequence[Standing]) -> list[Filled]:
    """The column of the rows' places, if they have any."""
    cells = [Cell(row.place) for row in rows]
    return [(TableColumn("at", "", "Place", "label"), cells)] if any(row.place for row in rows) else []


def _name(standing: Standing) -> str:
    name = standing.name if standing.settings else standing.label
    name += f" [{standing.marks}]" if standing.marks else ""
    return f"> {name}" if standing.is_candidate else name


def _setting(standing: Standing, name: str) -> str:
    return str(standing.settings[name]) if name in standing.settings else ""


def _unit(key: str, rows: Sequence[Standing]) -> Unit:
    """A quantity's unit; of counts, the prefix that suits these rows."""
    unit = quantity(key).unit
    return scaled_unit([row.values[key].value for row in rows if key in row.values]) if is_prefix(unit) else unit


def _columns(
    what: Quantity, rows: Sequence[Standing], candidates: Mapping[str, Standing], notes: Footnotes
) -> list[Filled]:
    """A quantity's value, and its ratio to the candidate's at its place where one of two values is better."""
    unit = _unit(what.key, rows)
    group = heading(what.title, unit)
    values = [_value(row, what, unit, notes) for row in rows]
    filled = [(TableColumn(what.key, group, "value", "measured", what.key), values)]
    if what.better:
        ratios = [_ratio(row, candidates[row.place], what) for row in rows]
        filled.append((TableColumn(f"{what.key}_ratio", group, "x", "ratio", what.key), ratios))
    return filled


def _value(row: Standing, what: Quantity, unit: Unit, notes: Footnotes) -> Cell:
    found = row.values.get(what.key)
    if found is None:
        return Cell(notes=tuple(map(notes.number, row.notes.get(what.key, ()))))
    text = text_of(found, what, unit)
    about = tuple(map(notes.number, [*row.notes.get(what.key, ()), *doubts(found)]))
    return Cell(text, found.value / unit.factor, notes=about, origin=found.origin)


def _ratio(row: Standing, candidate: Standing, what: Quantity) -> Cell:
    value, mine = row.values.get(what.key), candidate.values.get(what.key)
    if value is None or mine is None or not mine.value or row is candidate:
        return Cell()
    if reason := reason_not_comparable(value, mine):
        return Cell("–", detail=f"cannot be compared: {reason}")  # noqa: RUF001  # a dash for "none"
    found = ratio(value, mine)
    if what.has_interval and order(value, mine) == 0:
        return Cell("=", 1.0, detail=found.text() if found.has_interval else "the intervals overlap")
    if order_without_ratio(value, mine):
        return Cell("far", detail="different enough to rank in spite of background load")
    return Cell(found.text(), found.value)
