"""The suite's table: published numbers beside ours in the paper's layout, with ratios, intervals and footnotes."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from ctxbench.results import RunFolder

from .caption import caption_lines
from .numbers import Unit, decimals_of, fixed, leading_value, ratio_text, significant
from .numbers import with_interval as write_interval
from .quantities import QUANTITIES, Quantity, plain_numbers, unit_of, with_published
from .rates import rate_columns
from .runs import CONDITIONS, DRIFT_WARNING, SURE, RunData, drifts
from .table import ROW_LIMIT, Cell, Column, Footnotes, Origin, Row, Table

# How the warnings begin that belong to the MACs alone.
MACS_WARNINGS = ("MAC counters disagree", "not counted in macs")


def comparison_table(folders: Sequence[RunFolder]) -> Table:
    """The table of one run, or of several runs of one suite side by side. UsageError for a damaged run."""
    runs = [RunData.read(folder) for folder in folders]
    if len(runs) == 1:
        return suite_table(runs[0])
    from .compare import compare_runs

    return compare_runs(runs)


def suite_table(run: RunData) -> Table:
    """One run in the paper's layout; `data` has every row, `rows` at most ROW_LIMIT."""
    frame = with_published(run)
    shown = frame.head(ROW_LIMIT)
    notes = Footnotes()
    units = {quantity.key: unit_of(run, quantity, frame) for quantity in QUANTITIES}
    pairs = [(Column("module", "", "Module", "label"), _module_cells(shown, notes))]
    for name in run.differing():
        values = ["" if pd.isna(value) else str(value) for value in shown[name]]
        pairs.append((Column(name, "", CONDITIONS.get(name, "Settings"), "label"), [Cell(value) for value in values]))
    for quantity in QUANTITIES:
        if frame[quantity.here].notna().any() or quantity.metric in run.meta.get("metrics", ()):
            pairs += _quantity_columns(run, quantity, shown, units[quantity.key], notes)
    pairs += rate_columns(shown)
    if (frame["status"] != "ok").any():
        pairs.append((Column("status", "", "Status", "status"), _status_cells(shown, notes)))
    columns = tuple(column for column, _ in pairs)
    by_row = zip(*(cells for _, cells in pairs), strict=True)
    about = zip(by_row, shown["module"], shown["family"], shown["status"], strict=True)
    rows = tuple(Row(cells, str(module), str(family), str(status)) for cells, module, family, status in about)
    caption = caption_lines(run, columns, units, len(frame) - len(shown))
    title = str(run.definition.get("title") or run.suite)
    return Table(run.suite, title, columns, rows, caption, notes.texts, plain_numbers(frame))


def _quantity_columns(
    run: RunData, quantity: Quantity, frame: pd.DataFrame, unit: Unit, notes: Footnotes
) -> list[tuple[Column, list[Cell]]]:
    """The columns of one quantity: published, here, ratio, and what was measured beside a prediction."""
    key, part = quantity.key, quantity.part
    printed = frame[f"{key}_published"]
    label = {"counts": unit.symbol, "memory": "MiB", "time": "ms"}[part]
    group = f"{quantity.title} ({label})" if label else quantity.title
    found: list[tuple[Column, list[Cell]]] = []

    def add(name: str, header: str, origin: Origin, cells: list[Cell], short: str = "") -> None:
        found.append((Column(name, group, header, origin, part, short), cells))

    if printed.notna().any():
        add(f"{key}_published", "paper", "published", _published_cells(frame, printed, _reasons(run, key), notes))
    if part == "time":
        cells = _time_cells(run, frame, key.removeprefix("latency_"), notes)
    else:
        cells = _attach(_number_cells(frame[quantity.here], unit, printed), _here_notes(frame, quantity), notes)
    cells = _mark_failed(_mark_best(cells, frame, quantity), frame)
    if quantity.origin == "predicted":
        add(key, "predicted", "predicted", cells, "pred.")
    else:
        add(key, "here", quantity.origin, cells)
    if part != "time" and frame[f"{key}_ratio"].notna().any():
        add(f"{key}_ratio", "ratio", "ratio", [_ratio_cell(value) for value in frame[f"{key}_ratio"]])
    if quantity.also and frame[quantity.also].notna().any():
        kinds = sorted({device.partition(":")[0] for device in frame["device"] if device != "meta"})
        header = f"on {kinds[0].upper()}" if len(kinds) == 1 else "on device"
        add(
            f"{key}_measured",
            header,
            "measured",
            _mark_failed(_number_cells(frame[quantity.also], unit, printed), frame),
        )
    return found


def _module_cells(frame: pd.DataFrame, notes: Footnotes) -> list[Cell]:
    """Title (key where there is little room), with the warnings that belong to no single number."""
    cells = []
    for module, title, warnings in zip(frame["module"], frame["title"], frame["warnings"], strict=True):
        texts = [w for w in str(warnings or "").split("; ") if w and not w.startswith(MACS_WARNINGS)]
        numbers = tuple(notes.number(text) for text in texts)
        cells.append(Cell(str(title or module), notes=numbers, detail=str(module), short=str(module)))
    return cells


def _status_cells(frame: pd.DataFrame, notes: Footnotes) -> list[Cell]:
    return [
        Cell("ok")
        if status == "ok"
        else Cell(str(status), notes=(notes.number(f"{status}: {message}"),), detail=str(message), failed=True)
        for status, message in zip(frame["status"], frame["message"], strict=True)
    ]


def _mark_failed(cells: list[Cell], frame: pd.DataFrame) -> list[Cell]:
    """The row's status where a failed row has no number."""
    return [
        Cell(str(status), failed=True) if status != "ok" and not cell.text else cell
        for cell, status in zip(cells, frame["status"], strict=True)
    ]


def _reasons(run: RunData, key: str) -> dict[str, list[str]]:
    """Module to the sentences that explain its published number in this column."""
    found: dict[str, list[str]] = {}
    for footnote in run.published.get("footnotes") or []:
        if footnote["column"] == key:
            found.setdefault(footnote["module"], []).append(footnote["text"])
    return found


def _published_cells(
    frame: pd.DataFrame, printed: "pd.Series[str]", reasons: Mapping[str, list[str]], notes: Footnotes
) -> list[Cell]:
    cells = []
    for module, text in zip(frame["module"], printed, strict=True):
        if pd.isna(text):
            cells.append(Cell())
            continue
        numbers = tuple(notes.number(reason) for reason in reasons.get(module, []))
        cells.append(Cell(str(text), leading_value(text), notes=numbers, detail="as printed"))
    return cells


def _number_cells(values: "pd.Series[Any]", unit: Unit, printed: "pd.Series[str]") -> list[Cell]:
    """Exact counts in a unit, with as many decimals as the published number of the row, or of the column, has."""
    known = printed.dropna()
    common = max((decimals_of(text) for text in known), default=None) if len(known) else None
    if common is not None and known.map(decimals_of).nunique() > 1:
        common = None  # the paper writes significant digits here, as for MACs
    cells = []
    for value, text in zip(values, printed, strict=True):
        if pd.isna(value):
            cells.append(Cell())
            continue
        number = int(value) / unit.factor
        decimals = decimals_of(text) if pd.notna(text) else common
        shown = (
            significant(number)
            if decimals is None or (number and abs(number) < 10**-decimals)
            else fixed(number, decimals)
        )
        cells.append(Cell(shown, number, detail=f"{int(value):,}"))
    return cells


def _here_notes(frame: pd.DataFrame, quantity: Quantity) -> list[list[str]]:
    """For each row the sentences that qualify our own number."""
    if quantity.key == "macs":
        return [[w for w in str(text or "").split("; ") if w.startswith(MACS_WARNINGS)] for text in frame["warnings"]]
    if quantity.part == "memory":
        return [_mark_sentences(text) for text in frame["memory_marks"]]
    return [[] for _ in range(len(frame))]


def _mark_sentences(marks: Any) -> list[str]:
    operators = json.loads(marks) if isinstance(marks, str) and marks else []
    if not operators:
        return []
    return [f"A lower bound: what these operators hold inside their kernels is not known: {', '.join(operators)}."]


def _attach(cells: list[Cell], texts: list[list[str]], notes: Footnotes) -> list[Cell]:
    """The cells with footnotes for their sentences; empty cells stay empty."""
    return [
        replace(cell, notes=tuple(notes.number(t) for t in sentences)) if cell.text else cell
        for cell, sentences in zip(cells, texts, strict=True)
    ]


def _time_cells(run: RunData, frame: pd.DataFrame, mode: str, notes: Footnotes) -> list[Cell]:
    cells = []
    for row in frame.to_dict("records"):
        names = ("ms", "low_ms", "high_ms", "confidence", "samples", "stop", "drift", "outliers")
        median, low, high, confidence, samples, stop, drift, outliers = (
            row[f"latency_{mode}_{name}"] for name in names
        )
        if pd.isna(median):
            cells.append(Cell())
            continue
        detail = f"{median:.6g} ms, {samples} samples, {outliers} outliers kept, ended by {stop}"
        if pd.notna(low) and pd.notna(high):
            text = " ".join(write_interval(median, low, high))
            detail += f", {confidence:.1%} interval [{low:.6g}, {high:.6g}], drift {drift:+.1%}"
        else:
            text, confidence = significant(median, 2), math.nan
        sentences = _time_sentences(run, confidence, stop)
        if drifts(row, mode):
            sentences.append(f"Drift: the medians of the measurement's halves differ by more than {DRIFT_WARNING:.0%}.")
        numbers = tuple(sorted(notes.number(sentence) for sentence in sentences))
        cells.append(Cell(text, float(median), notes=numbers, detail=detail))
    return cells


def _time_sentences(run: RunData, confidence: float, stop: str) -> list[str]:
    """How sure a median is, in a sentence that is the same for all cells that it concerns."""
    measure = run.definition.get("measure") or {}
    if math.isnan(confidence):
        return ["A single sample: no interval."]
    if confidence < SURE:
        return ["Few samples: the interval is from the smallest to the largest, and covers less than 95 %."]
    if stop == "budget":
        return [
            f"The time budget ({measure.get('budget_s', 0):g} s) ended before the interval was within "
            f"{measure.get('target', 0):.2g} of the median."
        ]
    return []


def _mark_best(cells: list[Cell], frame: pd.DataFrame, quantity: Quantity) -> list[Cell]:
    """Bold for the smallest among the rows that ran under the same conditions, and for those that tie with it.

    Times tie where their intervals overlap, counts where they read the same.
    """
    best: set[int] = set()
    for _, group in frame[frame["status"] == "ok"].groupby(list(CONDITIONS), dropna=False, sort=False):
        values = group[quantity.here].dropna().astype("float64")
        if len(values) < 2:
            continue
        first = values.index[int(values.argmin())]
        if quantity.part == "time":
            prefix = quantity.here.removesuffix("ms")
            low = frame[prefix + "low_ms"].fillna(frame[quantity.here])
            high = frame[prefix + "high_ms"].fillna(frame[quantity.here])
            best.update(int(i) for i in values.index if low[i] <= high[first])
        else:
            best.update(int(i) for i in values.index if cells[i].text == cells[first].text)
    return [replace(cell, best=i in best) for i, cell in enumerate(cells)]


def _ratio_cell(value: float) -> Cell:
    return Cell() if pd.isna(value) else Cell(ratio_text(value), float(value), detail=f"{value:.4f}")
