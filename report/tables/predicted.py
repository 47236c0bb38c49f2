"""Times that were predicted for devices that are not here: by device, crossovers, and how close published ones are."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from ctxbench.comparison import Value
from ctxbench.crossover import Crossover, Size, crossover_in_bands
from ctxbench.metrics.base import MS, RecordRow
from ctxbench.metrics.predicted_time import CONVENTION
from ctxbench.mode import MODES
from ctxbench.predict import LAUNCH_BOUND

from ..run_data import CONDITIONS, RunData
from .cells import Filled, heading, put_together
from .crossover import Pairing, answer_cell, course, labels, pairings
from .numbers import leading_value, significant
from .published import with_published
from .suite import published_cells
from .table import ROW_LIMIT, Cell, Column, Footnotes, Table

# A prediction within this factor of a published time is counted as near.
NEAR = 1.5
UNDECIDED = "not decided by the prediction"
CROSSOVER_CAPTION = (
    f"{CONVENTION}.",
    "n: above it the first module is predicted to be faster at every size of the run; between two sizes each time is "
    "taken to follow a power law. In brackets: n for the first at the low end of its band and the second at the high "
    "end of its own, and the other way round. Wherever in their bands the times are, they cross between these two.",
    "< a: faster at every size, from the smallest, a; > b: not faster at the largest, b.",
    f"{UNDECIDED}: at every size the bands of the two overlap.",
    "Launch-bound: the assumed time of the host for each operator is longer than that of the kernels.",
)


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
    numbers = tuple(notes.number(_shared(text)) for text in row[f"latency_{mode}_predicted_notes"])
    text = f"{significant(value)} [{significant(low)}, {significant(high)}]"
    return Cell(text, float(value), notes=numbers, detail=f"{value:.4g} ms, 80 % band {low:.4g} to {high:.4g} ms")


def _shared(note: str) -> str:
    """A note without the numbers of its pass, so that many cells share it; `predictions.csv` has them."""
    if note.startswith(LAUNCH_BOUND):
        return (
            f"{LAUNCH_BOUND}: the assumed time of the host to launch the kernels is longer than theirs; a CUDA graph "
            "or torch.compile changes this time."
        )
    return re.sub(r"^\d+% of the time", "A part of the time", note)


def predicted_crossover_table(run: RunData) -> Table | None:
    """The crossovers of the run's pairs in predicted times, a row for each device and pairing; None if there is none.

    On which device and with how many threads the run itself was makes no difference here.
    """
    frame = run.frame.assign(device="", threads=0).merge(run.folder.predictions(), on="case", suffixes=("_module", ""))
    rows = [
        (str(title), each)
        for (_, title), part in frame.groupby(["target", "title"], sort=False)
        for each in pairings(part, run.crossover)
    ][:ROW_LIMIT]
    if not rows:
        return None
    notes, found = Footnotes(), [each for _, each in rows]
    filled = [(Column("title", "", "Predicted for", "label"), [Cell(title) for title, _ in rows]), *labels(found)]
    data: dict[str, list[object]] = {column.key: [cell.text for cell in cells] for column, cells in filled}
    for mode in reversed(MODES):
        answers = [_answer(each, mode, notes) for each in found]
        key = f"latency_{mode}_predicted"
        column = Column(key, "", f"Time, {mode}, predicted", "predicted", "crossover")
        filled.append((column, [cell for cell, _ in answers]))
        for end in ("n", "low", "high"):
            data[f"{key}_{end}"] = [getattr(answer, end) if answer else math.nan for _, answer in answers]
    about = [(each.first, str(each.rows[0][1]["family"]), "ok") for each in found]
    title = "The n = H x W above which the first module is predicted to be faster than the second"
    name = f"{run.suite}-crossover-predicted"
    return put_together(name, title, filled, about, CROSSOVER_CAPTION, notes.texts, pd.DataFrame(data))


def _answer(pairing: Pairing, mode: str, notes: Footnotes) -> tuple[Cell, Crossover | None]:
    """The crossover in the predicted time of a mode, as a cell and as it is; None if fewer than two sizes have it."""
    name = f"latency_{mode}_predicted"
    rows = [row for row in pairing.rows if all(pd.notna(record[f"{name}_ms"]) for record in row[1:])]
    sizes = [Size(n, _value(first, name), _value(second, name)) for n, first, second in rows]
    found = crossover_in_bands(sizes) if len(sizes) > 1 else None
    said = [course(pairing, found, sizes)] if found and _is_reversed(found) else []
    launches = {
        pairing.first: [n for n, first, _ in rows if _is_launch_bound(first, name)],
        pairing.second: [n for n, _, second in rows if _is_launch_bound(second, name)],
    }
    for label, bound in launches.items():
        if bound:
            said.append(f"{label} is launch-bound at {len(bound)} of {len(rows)} sizes, the largest n = {bound[-1]}.")
    cell = answer_cell(pairing, found, sizes, said, notes)
    return replace(cell, text=UNDECIDED) if found and math.isnan(found.n) else cell, found


def _value(row: RecordRow, name: str) -> Value:
    """A predicted time with its band."""
    return Value(row[f"{name}_ms"], row[f"{name}_low_ms"], row[f"{name}_high_ms"])


def _is_launch_bound(row: RecordRow, name: str) -> bool:
    return any(text.startswith(LAUNCH_BOUND) for text in row[f"{name}_notes"])


def _is_reversed(found: Crossover) -> bool:
    """Whether the first is faster at some size and not at a larger one."""
    return not found.is_single or (found.n == math.inf and -1 in found.signs)


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
        from scipy.stats import spearmanr  # a second of processor time, needed only here

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
