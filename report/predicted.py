"""Times that were predicted for devices that are not here: devices side by side, and how close published ones are."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.stats import spearmanr

from ctxbench.metrics.base import MS, RecordRow
from ctxbench.metrics.predicted_time import CONVENTION
from ctxbench.mode import MODES

from .cells import Filled, heading, put_together
from .numbers import leading_value, significant
from .published import with_published
from .runs import CONDITIONS, RunData
from .table import Cell, Column, Footnotes, Table
from .tables import published_cells

# A prediction within this factor of a published time is counted as near.
NEAR = 1.5


def with_predictions(run: RunData) -> pd.DataFrame:
    """The records that have predicted times, a row for each device, with the columns of `predictions.csv`.

    `latency_*_published` is kept only beside the device that the paper measured on.
    """
    frame = with_published(run).merge(run.folder.predictions(), on="case", suffixes=("_module", ""))
    elsewhere = frame["title"] != run.published.get("device")
    for mode in MODES:
        frame.loc[elsewhere, f"latency_{mode}_published"] = pd.NA
    return frame


def predicted_table(run: RunData) -> Table | None:
    """One row a case, for each device a column of each mode: the time with its band, beside what a paper printed.

    None for a run without predicted times.
    """
    frame = with_predictions(run)
    if frame.empty:
        return None
    cases = run.frame[run.frame["case"].isin(frame["case"])]
    notes = Footnotes()
    names = [(str(title or module), str(module)) for title, module in zip(cases["title"], cases["module"], strict=True)]
    filled: list[Filled] = [
        (Column("module", "", "Module", "label"), [Cell(title, detail=key, short=key) for title, key in names])
    ]
    for name in [each for each in run.differing() if each != "device"]:
        values = ["" if pd.isna(value) else str(value) for value in cases[name]]
        filled.append((Column(name, "", CONDITIONS.get(name, "Settings"), "label"), [Cell(value) for value in values]))
    for (target, title), part in frame.groupby(["target", "title"], sort=False):
        rows = part.set_index("case").reindex(cases["case"]).to_dict("records")
        filled += _columns_of(run, str(target), str(title), rows, notes)
    about = [(str(row["module"]), str(row["family"]), str(row["status"])) for row in cases.to_dict("records")]
    device = run.published.get("device")
    paper = f"paper: {run.definition.get('source', 'published numbers')}, measured on {device}."
    caption = [f"{CONVENTION}.", *([paper] if any(column.origin == "published" for column, _ in filled) else [])]
    times = [f"latency_{mode}_predicted_{end}" for mode in reversed(MODES) for end in ("ms", "low_ms", "high_ms")]
    data = frame[["module", "hparams", "shape", "dtype", "target", "title", *times]]
    return put_together(f"{run.suite}-predicted", "Predicted time by device", filled, about, caption, notes.texts, data)


def _columns_of(run: RunData, target: str, title: str, rows: Sequence[RecordRow], notes: Footnotes) -> list[Filled]:
    """The columns of one device."""
    found: list[Filled] = []
    for mode in reversed(MODES):
        printed = [row[f"latency_{mode}_published"] for row in rows]
        if any(pd.notna(text) for text in printed):
            cells = published_cells(run, rows, f"latency_{mode}", notes)
            key = f"latency_{mode}_published_{target}"
            found.append((Column(key, heading(title, MS), f"{mode}, paper", "published", target), cells))
        cells = [_cell(row, mode, notes) for row in rows]
        key = f"latency_{mode}_predicted_{target}"
        found.append(
            (Column(key, heading(title, MS), f"{mode}, predicted", "predicted", target, f"{mode}, pred."), cells)
        )
    return found


def _cell(row: RecordRow, mode: str, notes: Footnotes) -> Cell:
    """A time with its band."""
    value, low, high = (row[f"latency_{mode}_predicted_{end}"] for end in ("ms", "low_ms", "high_ms"))
    if pd.isna(value):
        return Cell()
    numbers = tuple(notes.number(text) for text in row[f"latency_{mode}_predicted_notes"])
    text = f"{significant(value)} [{significant(low)}, {significant(high)}]"
    return Cell(text, float(value), notes=numbers, detail=f"{value:.4g} ms, 80 % band {low:.4g} to {high:.4g} ms")


@dataclass(frozen=True)
class Agreement:
    """How close predicted times are to published ones: `rows` has module, mode, predicted, low, high, published."""

    rows: pd.DataFrame

    @property
    def ratio(self) -> "pd.Series[float]":
        """Predicted over published."""
        return self.rows["predicted"] / self.rows["published"]

    @property
    def inside(self) -> "pd.Series[bool]":
        """Whether the band holds the published time."""
        return self.rows["published"].between(self.rows["low"], self.rows["high"])

    @property
    def median_error(self) -> float:
        return float((self.ratio - 1).abs().median())

    @property
    def near(self) -> int:
        """How many are within a factor of NEAR."""
        return int((np.abs(np.log(self.ratio)) <= np.log(NEAR)).sum())

    @property
    def rank_correlation(self) -> float:
        """Spearman's."""
        return float(spearmanr(self.rows["predicted"], self.rows["published"])[0])


def agreement(run: RunData) -> Agreement:
    """Predicted beside published times on the device that the paper measured on; without doubtful ones.

    A published time that a footnote of the suite calls into question is left out.
    """
    doubtful = {(note["module"], note["column"]) for note in run.published.get("footnotes") or []}
    rows = []
    for row in with_predictions(run).to_dict("records"):
        for mode in reversed(MODES):
            printed, name = row[f"latency_{mode}_published"], f"latency_{mode}_predicted"
            value = None if pd.isna(printed) else leading_value(printed)
            if value and (row["module"], f"latency_{mode}") not in doubtful and pd.notna(row[f"{name}_ms"]):
                times = (row[f"{name}_ms"], row[f"{name}_low_ms"], row[f"{name}_high_ms"], value)
                rows.append((row["module"], mode, *times))
    return Agreement(pd.DataFrame(rows, columns=["module", "mode", "predicted", "low", "high", "published"]))
