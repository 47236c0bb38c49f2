"""Runs of one suite side by side: each quantity run by run, with ratios, and why a row cannot be compared."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from ctxbench.errors import UsageError

from .caption import conditions
from .numbers import MIB, ratio_text, significant, with_interval
from .runs import CONDITIONS, MODES, SURE, RunData
from .table import ROW_LIMIT, Cell, Column, Footnotes, Row, Table

_QUANTITIES = {
    "params": ("Params (M = 2^20)", 2**20, "counts"),
    "macs": ("MACs (G = 10^9)", 10**9, "counts"),
    "memory_train_predicted_bytes": ("Memory, train, predicted for CUDA (MiB)", MIB, "predicted"),
    "memory_infer_predicted_bytes": ("Memory, infer, predicted for CUDA (MiB)", MIB, "predicted"),
    "memory_train_bytes": ("Memory, train, measured (MiB)", MIB, "memory"),
    "memory_infer_bytes": ("Memory, infer, measured (MiB)", MIB, "memory"),
    "latency_train_ms": ("Time, train (ms)", 1, "train"),
    "latency_infer_ms": ("Time, infer (ms)", 1, "infer"),
}
Record = Mapping[Any, Any]


def compare_runs(runs: Sequence[RunData]) -> Table:
    """The rows of all runs, each quantity run by run and over the first run. UsageError for runs of different suites.

    Params, MACs and memory are shown only if a run disagrees.
    """
    suites = list(dict.fromkeys(run.suite for run in runs))
    if len(suites) > 1:
        raise UsageError(f"runs of different suites cannot be compared: {', '.join(suites)}; report on each by itself")
    names = _key_names(runs)
    found = [{_key(row, names): row for row in run.frame.to_dict("records")} for run in runs]
    keys = list(dict.fromkeys(key for rows in found for key in rows))
    shown, notes = keys[:ROW_LIMIT], Footnotes()
    pairs = _label_columns(names, shown, found, notes)
    same = []
    for quantity, (title, _, part) in _QUANTITIES.items():
        values = [[_value(rows.get(key), quantity) for rows in found] for key in keys]
        if all(value is None for row in values for value in row):
            continue
        if part not in MODES and all(len({v for v in row if v is not None}) <= 1 for row in values):
            same.append(title.partition(" (")[0])
            continue
        pairs += _quantity_columns(quantity, found, shown, notes)
    columns = tuple(column for column, _ in pairs)
    rows = tuple(
        _row(cells, key, found) for key, cells in zip(shown, zip(*(c for _, c in pairs), strict=True), strict=True)
    )
    caption = _caption(runs, same, len(keys) - len(shown))
    data = _data(names, keys, found)
    return Table(f"{suites[0]}-compared", f"{len(runs)} runs of {suites[0]}", columns, rows, caption, notes.texts, data)


def ratio_interval(first: Record, other: Record, quantity: str) -> tuple[float, float] | None:
    """The interval of other / first from the intervals of both; None if one has none.

    On a log scale each limit's distance is the root of the sum of squares (MOVER: Zou and Donner, Construction of
    confidence limits about effect measures, 2008).
    """
    prefix = quantity.removesuffix("ms")
    limits = [first[prefix + "low_ms"], first[prefix + "high_ms"], other[prefix + "low_ms"], other[prefix + "high_ms"]]
    if any(pd.isna(limit) for limit in limits):
        return None
    low_1, high_1, low_2, high_2 = limits
    one, two = first[quantity], other[quantity]
    down = math.hypot(math.log(two / low_2), math.log(high_1 / one))
    up = math.hypot(math.log(high_2 / two), math.log(one / low_1))
    return two / one * math.exp(-down), two / one * math.exp(up)


def _key_names(runs: Sequence[RunData]) -> list[str]:
    """What identifies a row in every run; the device only where a run has several."""
    several = any(len(run.devices()) > 1 for run in runs)
    return ["module", "settings", *(name for name in CONDITIONS if name != "device" or several)]


def _key(row: Record, names: Sequence[str]) -> tuple[str, ...]:
    return tuple("" if pd.isna(row[name]) else str(row[name]) for name in names)


def _value(row: Record | None, quantity: str) -> float | None:
    return None if row is None or pd.isna(row[quantity]) else float(row[quantity])


def _label_columns(
    names: Sequence[str],
    keys: Sequence[tuple[str, ...]],
    found: Sequence[Mapping[tuple[str, ...], Record]],
    notes: Footnotes,
) -> list[tuple[Column, list[Cell]]]:
    """What names a row; its module carries what is wrong with the whole row in a run."""
    titles = {key[0]: str(row["title"]) for rows in found for key, row in rows.items()}
    modules = []
    for key in keys:
        reasons = (_row_reason(rows.get(key), f"run {number}") for number, rows in enumerate(found, 1))
        numbers = tuple(notes.number(reason) for reason in reasons if reason)
        modules.append(Cell(titles[key[0]] or key[0], notes=numbers, detail=key[0], short=key[0]))
    pairs = [(Column("module", "", "Module", "label"), modules)]
    for place, name in enumerate(names[1:], 1):
        if len({key[place] for key in keys}) > 1:
            heading = CONDITIONS.get(name, "Settings")
            pairs.append((Column(name, "", heading, "label"), [Cell(key[place]) for key in keys]))
    return pairs


def _quantity_columns(
    quantity: str,
    found: Sequence[Mapping[tuple[str, ...], Record]],
    keys: Sequence[tuple[str, ...]],
    notes: Footnotes,
) -> list[tuple[Column, list[Cell]]]:
    """One column a run, then one ratio for each run but the first."""
    title, factor, part = _QUANTITIES[quantity]
    origin = "predicted" if part == "predicted" else "counted" if part == "counts" else "measured"
    pairs: list[tuple[Column, list[Cell]]] = []
    for number, rows in enumerate(found, 1):
        cells = [_value_cell(rows.get(key), quantity, factor) for key in keys]
        pairs.append((Column(f"{quantity}_{number}", title, f"run {number}", origin, part), cells))  # type: ignore[arg-type]  # one of the Origin words
    for number, rows in enumerate(found[1:], 2):
        cells = [_ratio_cell(found[0].get(key), rows.get(key), quantity, number, notes) for key in keys]
        pairs.append((Column(f"{quantity}_ratio_{number}", title, f"{number} / 1", "ratio", part), cells))
    return pairs


def _value_cell(row: Record | None, quantity: str, factor: int) -> Cell:
    value = _value(row, quantity)
    if row is None or value is None:
        return (
            Cell(str(row["status"]), failed=True, detail=str(row["message"]))
            if row and row["status"] != "ok"
            else Cell()
        )
    if not quantity.endswith("_ms"):
        return Cell(significant(value / factor, 4), value, detail=f"{int(value):,}")
    low, high = (row[quantity.removesuffix("ms") + end] for end in ("low_ms", "high_ms"))
    text = significant(value, 2) if pd.isna(low) or pd.isna(high) else " ".join(with_interval(value, low, high))
    return Cell(text, value, detail=f"{value:.6g} ms, {row[quantity.removesuffix('ms') + 'samples']} samples")


def _ratio_cell(first: Record | None, other: Record | None, quantity: str, number: int, notes: Footnotes) -> Cell:
    reason = _reason(first, other, quantity, number)
    if reason:
        return Cell("–", notes=(notes.number(reason),), detail=reason)  # noqa: RUF001  # a dash for "none"
    one, two = _value(first, quantity), _value(other, quantity)
    if first is None or other is None or one is None or two is None or one == 0:
        return Cell()
    interval = ratio_interval(first, other, quantity) if quantity.endswith("_ms") else None
    if interval is None:
        numbers = (notes.number("Too few samples for an interval of the ratio."),) if quantity.endswith("_ms") else ()
        return Cell(ratio_text(two / one), two / one, notes=numbers)
    low, high = interval
    confidence = quantity.removesuffix("ms") + "confidence"
    sure = min(first[confidence], other[confidence]) >= SURE
    numbers = () if sure else (notes.number("Few samples: the interval of the ratio covers less than 95 %."),)
    excluded = sure and (low > 1 or high < 1)
    text = " ".join(with_interval(two / one, low, high))
    return Cell(text, two / one, excluded, notes=numbers, detail=f"{two / one:.4f}")


def _reason(first: Record | None, other: Record | None, quantity: str, number: int) -> str:
    """Why a ratio cannot be given; empty if it can, or if neither run has the quantity."""
    for row, name in ((first, "run 1"), (other, f"run {number}")):
        if _value(row, quantity) is None and (reason := _row_reason(row, name)):
            return reason
    one, two = _value(first, quantity), _value(other, quantity)
    if (one is None) != (two is None):
        return f"Not compared: {'run 1' if one is None else f'run {number}'} did not measure it."
    if first and other and quantity == "macs" and first["macs_counter"] != other["macs_counter"]:
        return f"Not compared: MACs are counted by {first['macs_counter']} and {other['macs_counter']}."
    if first and other and quantity.endswith("predicted_bytes"):
        targets = [str(row["memory_predicted_for"]) for row in (first, other)]
        if targets[0] != targets[1]:
            return f"Not compared: memory is predicted for {targets[0]} and {targets[1]}."
    return ""


def _row_reason(row: Record | None, name: str) -> str:
    if row is None:
        return f"Not compared: {name} has no such row."
    return "" if row["status"] == "ok" else f"Not compared: in {name} the row ended with {row['status']}."


def _row(cells: tuple[Cell, ...], key: tuple[str, ...], found: Sequence[Mapping[tuple[str, ...], Record]]) -> Row:
    records = [rows[key] for rows in found if key in rows]
    failed = [str(record["status"]) for record in records if record["status"] != "ok"]
    return Row(cells, key[0], str(records[0]["family"]), failed[0] if failed else "ok")


def _caption(runs: Sequence[RunData], same: Sequence[str], hidden: int) -> tuple[str, ...]:
    lines = [f"run {number}: {run.name}: {conditions(run)}." for number, run in enumerate(runs, 1)]
    lines.append(
        "Ratios: a later run over run 1, with its 95 % interval; bold where that excludes 1. The interval is that of "
        "these processes; whether a change is slower takes pairs of fresh ones (ctxbench check)."
    )
    lines += _control_lines(runs)
    if same:
        lines.append(f"The same in all runs: {'; '.join(same)}.")
    if len({str(run.definition.get("measure")) for run in runs}) > 1:
        lines.append("The runs were measured under different settings (budget, target or protocol).")
    if hidden:
        lines.append(f"{hidden} more rows are in the CSV table.")
    return tuple(lines)


def _control_lines(runs: Sequence[RunData]) -> list[str]:
    """How much longer the control workload took in a later run, over the cases that both timed it in."""
    lines = []
    first = runs[0].frame.set_index("case")["control_ms"]
    for number, run in enumerate(runs[1:], 2):
        ratios = (run.frame.set_index("case")["control_ms"] / first).dropna()
        if len(ratios):
            lines.append(
                f"The control workload, the same work in every case, took {ratio_text(ratios.median())} times as long "
                f"in run {number} as in run 1 (median of {len(ratios)} cases)."
            )
    return lines


def _data(
    names: Sequence[str], keys: Sequence[tuple[str, ...]], found: Sequence[Mapping[tuple[str, ...], Record]]
) -> pd.DataFrame:
    columns: dict[str, list[Any]] = {name: [key[i] for key in keys] for i, name in enumerate(names)}
    ends = ["samples", "low_ms", "high_ms"]
    extra = [f"latency_{mode}_{end}" for mode in ("train", "infer") for end in ends]
    for number, rows in enumerate(found, 1):
        for name in ("status", *_QUANTITIES, *extra):
            columns[f"{name}_{number}"] = [rows[key][name] if key in rows else None for key in keys]
    return pd.DataFrame(columns)
