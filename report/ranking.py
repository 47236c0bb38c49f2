"""A comparison's table: the standings in order, each number with its ratio to the first candidate's."""

import math
from collections.abc import Sequence

import pandas as pd

from ctxbench.ranking import AXES, Ranking, Standing, front, listed, order, ranked, shared_axes

from .numbers import Unit, ratio_text, scaled_unit, significant, with_interval
from .table import Cell, Column, Row, Table

TITLES = {
    "params": "Params",
    "macs": "MACs",
    "memory_train": "Memory, train",
    "memory_infer": "Memory, infer",
    "latency_infer": "Time, infer",
    "latency_train": "Time, train",
}
UNITS = {"params": Unit("M", 2, 20), "macs": Unit("G", 10, 9)}
MIB = Unit("MiB", 2, 20)
MS = Unit("ms", 10, 0)


def ranking_table(ranking: Ranking, rank_by: str) -> Table:
    """The standings by `rank_by`; `front` marks the Pareto front over the axes that all measured rows have."""
    standings = ranking.standings
    rows = ranked(standings, rank_by)
    candidate = next(standing for standing in standings if standing.is_candidate)
    axes = shared_axes(standings)
    on_front = {standing.label for standing in front(standings, axes)}
    pairs: list[tuple[Column, list[Cell]]] = [
        (Column("place", "", "#", "label"), [Cell(str(i)) for i in range(1, len(rows) + 1)]),
        (Column("module", "", "Module", "label"), [Cell(_name(row), best=row.is_candidate) for row in rows]),
        (Column("front", "", "Front", "label"), [Cell("yes" if row.label in on_front else "") for row in rows]),
    ]
    for column in dict.fromkeys([*AXES, rank_by]):
        if any(column in row.values for row in rows):
            pairs += _columns(column, rows, candidate)
    if any(row.status != "ok" for row in rows):
        cells = [Cell(row.status, failed=row.status != "ok", detail=row.message) for row in rows]
        pairs.append((Column("status", "", "Status", "status"), cells))
    columns = tuple(column for column, _ in pairs)
    by_row = zip(*(cells for _, cells in pairs), strict=True)
    body = tuple(Row(cells, row.label, "", row.status) for cells, row in zip(by_row, rows, strict=True))
    caption = (
        f"Ranked by {TITLES[rank_by]}; x: times {candidate.label}'s; =: the intervals overlap.",
        f"Front: no other row is nowhere worse and somewhere better in {listed([AXES[axis][1] for axis in axes])}.",
        f"Memory: {ranking.memory}. Time: median over two fresh processes, measured in turns (C B A, then A B C).",
        *(f"{row.label}: {row.status}: {row.message}" for row in rows if row.status != "ok"),
    )
    data = pd.DataFrame(
        [{"module": r.label, **{c: v.value for c, v in r.values.items()}, "status": r.status} for r in rows]
    )
    return Table("compare", ranking.condition, columns, body, caption, (), data)


def _name(standing: Standing) -> str:
    return f"> {standing.label}" if standing.is_candidate else standing.label


def _columns(column: str, rows: Sequence[Standing], candidate: Standing) -> list[tuple[Column, list[Cell]]]:
    """A quantity's value and its ratio to the candidate's."""
    known = [row.values[column].value for row in rows if column in row.values]
    unit = scaled_unit(UNITS[column], known) if column in UNITS else MIB if column.startswith("memory") else MS
    group = f"{TITLES[column]} ({unit.symbol})" if unit.symbol else TITLES[column]
    values, ratios = [], []
    for row in rows:
        value = row.values.get(column)
        if value is None:
            values.append(Cell())
            ratios.append(Cell())
            continue
        if value.low < value.high < math.inf:
            text = with_interval(value.value, value.low, value.high)[0]
        else:
            text = significant(value.value / unit.factor)
        values.append(Cell(text, value.value / unit.factor))
        ratios.append(_ratio(row, candidate, column))
    part = column
    return [
        (Column(column, group, "value", "measured", part), values),
        (Column(f"{column}_ratio", group, "x", "ratio", part), ratios),
    ]


def _ratio(row: Standing, candidate: Standing, column: str) -> Cell:
    mine = candidate.values.get(column)
    if mine is None or not mine.value or row is candidate:
        return Cell()
    if column.startswith("latency") and order(row.values[column], mine) == 0:
        return Cell("=", 1.0, detail="the intervals overlap")
    ratio = row.values[column].value / mine.value
    return Cell(ratio_text(ratio), ratio)
