"""The suite's table: published numbers beside ours, with ratio, interval, status and footnotes, in the paper's layout."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from ctxbench.results import RunFolder

from .caption import caption_lines
from .numbers import MIB, Unit, decimals_of, fixed, leading_value, parse_unit, ratio_text, scaled_unit, significant
from .numbers import with_interval as write_interval
from .runs import CONDITIONS, RunData
from .table import Cell, Column, Footnotes, Origin, Row, Table

ROW_LIMIT = 1000
# Above this change between the two halves of a measurement, a footnote warns.
DRIFT_WARNING = 0.05
_MEMORY_UNIT = Unit("MiB", 2, 20)


@dataclass(frozen=True)
class Quantity:
    """One published column and what stands beside it: `here` is compared with it, `also` is only shown."""

    key: str
    title: str
    part: str
    origin: Origin
    here: str
    also: str | None = None


QUANTITIES = (
    Quantity("params", "Params", "counts", "counted", "params"),
    Quantity("macs", "MACs", "counts", "counted", "macs"),
    Quantity("memory_train", "Memory, train", "memory", "predicted", "memory_train_predicted_bytes", "memory_train_bytes"),
    Quantity("memory_infer", "Memory, infer", "memory", "predicted", "memory_infer_predicted_bytes", "memory_infer_bytes"),
    Quantity("latency_train", "Time, train", "time", "measured", "latency_train_ms"),
    Quantity("latency_infer", "Time, infer", "time", "measured", "latency_infer_ms"),
)


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
    columns: list[Column] = []
    cells: list[list[Cell]] = []

    def add(column: Column, entries: list[Cell]) -> None:
        columns.append(column)
        cells.append(entries)

    add(Column("module", "", "Module", "label"), _module_cells(shown, notes))
    for name in run.differing():
        heading = CONDITIONS.get(name, "Settings")
        add(Column(name, "", heading, "label"), [Cell("" if v is pd.NA else str(v)) for v in shown[name]])
    for quantity in QUANTITIES:
        _add_quantity(run, quantity, shown, notes, add)
    if (frame["status"] != "ok").any():
        add(Column("status", "", "Status", "status"), _status_cells(shown, notes))
    rows = tuple(
        Row(entries, str(module), str(family), str(status))
        for entries, module, family, status in zip(
            zip(*cells, strict=True), shown["module"], shown["family"], shown["status"], strict=True
        )
    )
    caption = caption_lines(run, columns, len(frame) - len(shown))
    title = str(run.definition.get("title") or run.suite)
    return Table(run.suite, title, tuple(columns), rows, caption, notes.texts, _data(frame))


def with_published(run: RunData) -> pd.DataFrame:
    """The records with `<quantity>_published` (as printed) and `<quantity>_ratio` (here over published).

    A published number stands beside rows with the module's published hyper-parameters and dtype, and the published shape
    where the suite declares one. Times have no ratio: they were taken on another device.
    """
    frame = run.frame.copy()
    rows: Mapping[str, Mapping[str, str]] = run.published.get("rows") or {}
    fits = (frame["hparams"] == "{}") & (frame["dtype"] == "float32")
    if run.published.get("shape"):
        fits &= frame["shape"] == "×".join(map(str, run.published["shape"]))
    for quantity in QUANTITIES:
        printed = frame["module"].map({module: row.get(quantity.key) for module, row in rows.items()})
        frame[f"{quantity.key}_published"] = printed.where(fits).astype("string")
        if quantity.part == "time":
            continue
        values = pd.to_numeric(frame[f"{quantity.key}_published"], errors="coerce").astype("Float64")
        here = frame[quantity.here].astype("Float64") / unit_of(run, quantity, frame).factor
        frame[f"{quantity.key}_ratio"] = (here / values).where(values > 0)
    return frame


def unit_of(run: RunData, quantity: Quantity, frame: pd.DataFrame) -> Unit:
    """The unit of a column: the published one, or one of the same base that fits where nothing published is shown."""
    if quantity.part != "counts":
        return _MEMORY_UNIT
    default = {"params": "M = 2^20", "macs": "G = 10^9"}[quantity.key]
    where = f"{run.folder.path / 'run.json'}: published.{quantity.key}_unit"
    unit = parse_unit(run.published.get(f"{quantity.key}_unit", default), where)
    printed = frame.get(f"{quantity.key}_published")
    if printed is not None and printed.notna().any():
        return unit
    return scaled_unit(unit, frame[quantity.here].dropna().astype(float))


def _add_quantity(run: RunData, quantity: Quantity, frame: pd.DataFrame, notes: Footnotes, add: Any) -> None:
    """The columns of one quantity: published, here, ratio, and what was measured beside a prediction."""
    key, part = quantity.key, quantity.part
    unit = unit_of(run, quantity, frame)
    printed = frame[f"{key}_published"]
    label = {"counts": unit.symbol, "memory": "MiB", "time": "ms"}[part]
    group = f"{quantity.title} ({label})" if label else quantity.title
    if printed.notna().any():
        reasons = _reasons(run, key)
        add(Column(f"{key}_published", group, "paper", "published", part), _published_cells(frame, printed, reasons, notes))
    here = frame[quantity.here]
    if here.notna().any():
        if part == "time":
            entries = _time_cells(run, frame, key.removeprefix("latency_"), notes)
        else:
            entries = _number_cells(here, unit, printed)
            entries = _attach(entries, _here_notes(frame, quantity), notes)
        header = {"predicted": "predicted", "counted": "here", "measured": "here"}[quantity.origin]
        short = "pred." if header == "predicted" else ""
        add(Column(key, group, header, quantity.origin, part, short), _mark_best(entries, frame, quantity))
        ratio = frame.get(f"{key}_ratio")
        if ratio is not None and ratio.notna().any():
            add(Column(f"{key}_ratio", group, "ratio", "ratio", part), [_ratio_cell(value) for value in ratio])
    if quantity.also and frame[quantity.also].notna().any():
        kinds = sorted({device.partition(":")[0] for device in frame["device"] if device != "meta"})
        header = f"on {kinds[0].upper()}" if len(kinds) == 1 else "on device"
        entries = _number_cells(frame[quantity.also], unit, printed)
        add(Column(f"{key}_measured", group, header, "measured", part), entries)


def _module_cells(frame: pd.DataFrame, notes: Footnotes) -> list[Cell]:
    """Title (key where there is little room), with the warnings that belong to no single number."""
    cells = []
    for module, title, warnings in zip(frame["module"], frame["title"], frame["warnings"], strict=True):
        texts = [w for w in str(warnings or "").split("; ") if w and not w.startswith(("MAC counters", "not counted"))]
        numbers = tuple(notes.number(f"{module}: {text}") for text in texts)
        cells.append(Cell(str(title or module), notes=numbers, detail=str(module), short=str(module)))
    return cells


def _status_cells(frame: pd.DataFrame, notes: Footnotes) -> list[Cell]:
    return [
        Cell(str(status), notes=() if status == "ok" else (notes.number(f"{case}: {message or status}"),), detail=str(message))
        for status, message, case in zip(frame["status"], frame["message"], frame["case"], strict=True)
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
        if text is pd.NA:
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
        if value is pd.NA:
            cells.append(Cell())
            continue
        number = int(value) / unit.factor
        decimals = decimals_of(text) if text is not pd.NA else common
        shown = significant(number) if decimals is None or (number and abs(number) < 10**-decimals) else fixed(number, decimals)
        cells.append(Cell(shown, number, detail=f"{int(value):,}"))
    return cells


def _here_notes(frame: pd.DataFrame, quantity: Quantity) -> list[list[str]]:
    """For each row the sentences that qualify our own number."""
    if quantity.key == "macs":
        return [
            [w for w in str(text or "").split("; ") if w.startswith(("MAC counters", "not counted"))]
            for text in frame["warnings"]
        ]
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
        Cell(c.text, c.value, c.best, tuple(notes.number(t) for t in sentences), c.detail, c.short) if c.text else c
        for c, sentences in zip(cells, texts, strict=True)
    ]


def _time_cells(run: RunData, frame: pd.DataFrame, mode: str, notes: Footnotes) -> list[Cell]:
    prefix = f"latency_{mode}_"
    names = ["ms", "low_ms", "high_ms", "confidence", "samples", "stop", "drift", "outliers"]
    cells = []
    for values in zip(*(frame[prefix + name] for name in names), strict=True):
        median, low, high, confidence, samples, stop, drift, outliers = values
        if pd.isna(median):
            cells.append(Cell())
            continue
        known = pd.notna(low) and pd.notna(high)
        text, interval = write_interval(median, low, high) if known else (significant(median, 2), "")
        sentences = _time_sentences(run, confidence if known else 0.0, stop, drift)
        detail = f"{median:.6g} ms, {samples} samples, {outliers} outliers kept, ended by {stop}"
        if known:
            detail = f"{median:.6g} ms, {confidence:.1%} interval [{low:.6g}, {high:.6g}], " + detail.partition(", ")[2]
        numbers = tuple(notes.number(sentence) for sentence in sentences)
        cells.append(Cell(f"{text} {interval}".strip(), float(median), notes=numbers, detail=detail))
    return cells


def _time_sentences(run: RunData, confidence: Any, stop: Any, drift: Any) -> list[str]:
    found = []
    measure = run.definition.get("measure") or {}
    if stop == "budget":
        found.append(
            f"The time budget of {measure.get('budget_s', 0):g} s ended before the interval was within "
            f"{measure.get('target', 0):.3g} of the median."
        )
    if confidence == 0:
        found.append("A single sample: no interval.")
    elif pd.notna(confidence) and confidence < 0.9495:
        found.append(f"Few samples: the interval is the smallest and the largest, and covers {confidence:.0%}.")
    if pd.notna(drift) and abs(drift) > DRIFT_WARNING:
        slower = "slower" if drift > 0 else "faster"
        found.append(f"Drift: the second half of the samples was {abs(drift):.0%} {slower} than the first.")
    return found


def _mark_best(cells: list[Cell], frame: pd.DataFrame, quantity: Quantity) -> list[Cell]:
    """Bold for the smallest among the rows that ran under the same conditions, and for those that tie with it.

    Times tie where their intervals overlap, counts where they read the same.
    """
    ok = frame["status"] == "ok"
    best = np.zeros(len(frame), dtype=bool)
    for _, group in frame[ok].groupby(list(CONDITIONS), dropna=False, sort=False):
        values = group[quantity.here].dropna().astype("float64")
        if len(values) < 2:
            continue
        positions = frame.index.get_indexer(values.index)
        first = values.idxmin()
        if quantity.part == "time":
            prefix = quantity.here.removesuffix("ms")
            low = frame.loc[values.index, prefix + "low_ms"].fillna(values)
            tied = low <= frame[prefix + "high_ms"].fillna(frame[quantity.here])[first]
            best[positions] = tied.to_numpy()
        else:
            text = cells[frame.index.get_loc(first)].text
            best[positions] = [cells[i].text == text for i in positions]
    return [
        Cell(c.text, c.value, True, c.notes, c.detail, c.short) if flag else c for c, flag in zip(cells, best, strict=True)
    ]


def _ratio_cell(value: float) -> Cell:
    return Cell() if pd.isna(value) else Cell(ratio_text(value), float(value), detail=f"{value:.4f}")


def _data(frame: pd.DataFrame) -> pd.DataFrame:
    """The numbers behind the table, for CSV: what names a case, then each quantity published, here, ratio, interval."""
    names = ["module", "title", "family", "hparams", "batch", "channels", "height", "width"]
    names += ["dtype", "memory_format", "execution", "threads", "device", "status", "message"]
    for quantity in QUANTITIES:
        names += [f"{quantity.key}_published", quantity.here, f"{quantity.key}_ratio"]
        if quantity.part == "time":
            names += [quantity.here.removesuffix("ms") + end for end in ("low_ms", "high_ms", "samples", "stop")]
        names += [quantity.also] if quantity.also else []
    return frame[[name for name in names if name in frame.columns]]
