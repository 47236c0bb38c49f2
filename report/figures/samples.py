"""Raw samples in time order, a panel for each case and mode, with drift marked."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from matplotlib.axes import Axes

from ctxbench.base.mode import MODES, Mode
from ctxbench.model.metric import RecordRow
from ctxbench.model.metrics import quantity
from ctxbench.results.rows import by_values

from ..curves import Floats
from ..panels import Panel, label_of, marked_label_of
from ..run_data import drifts
from ..tables.cells import interval_of
from .layout import PAGE, FigureSize, multiples, wrapped
from .style import FAINT, INK, SMALL, Drawing, looks

MOST_STREAMS = 32
# Characters of a line above axes.
_TITLE = 34


@dataclass(frozen=True)
class Stream:
    """The samples of one case in one mode, in time order, with its record."""

    panel: Panel
    row: RecordRow
    mode: Mode
    samples: Sequence[RecordRow]


def streams_of(panels: Sequence[Panel]) -> list[Stream]:
    """Every stream of the panels' main rows."""
    found = []
    for panel in panels:
        groups = by_values(panel.run.samples, "case", "mode")
        for row in panel.main:
            timed = [mode for mode in reversed(MODES) if row[f"latency_{mode}_ms"] is not None]
            known = [mode for mode in timed if (row["case"], mode) in groups]
            found += [Stream(panel, row, mode, groups[row["case"], mode]) for mode in known]
    return found


def sample_streams(panels: Sequence[Panel], sheet: FigureSize = PAGE) -> Drawing:
    """Each timed block as a point, process by process; medians and interval; the halves' medians where they drift."""
    streams = streams_of(panels)
    shown = streams
    if len(streams) > MOST_STREAMS:
        shown = sorted(streams, key=lambda stream: -abs(_drift(stream.row, stream.mode)))[:MOST_STREAMS]
    figure, placed = multiples("Samples in time order", shown, sheet, 2.1, 1.4)
    omitted = (
        f" Shown: the {len(shown)} of {len(streams)} streams that drift most." if len(shown) < len(streams) else ""
    )
    drawing = Drawing(figure, f"Samples process by process, the medians and the interval; drift is marked.{omitted}")
    appearance = looks(str(stream.row["module"]) for stream in shown)
    for part, drawn in placed:
        for axes, stream in drawn:
            _stream_axes(drawing, axes, stream, appearance[stream.row["module"]].colour)
        part.supxlabel("seconds", fontsize=SMALL)
        part.supylabel("ms per pass", fontsize=SMALL)
    return drawing


def one_after_the_other(samples: Sequence[RecordRow]) -> list[tuple[Floats, Floats]]:
    """Times and milliseconds of each process, its times shifted behind those of the process before."""
    found: list[tuple[Floats, Floats]] = []
    end = 0.0
    for part in by_values(samples, "process").values():
        at = end + np.array([each["at_s"] for each in part])
        found.append((at, np.array([each["ms"] for each in part])))
        end = float(at[-1])
    return found


def _halves(at: Floats, ms: Floats) -> list[tuple[Floats, Floats]]:
    half = len(ms) // 2
    return [(at[:half], ms[:half]), (at[-half:], ms[-half:])] if half else []


def _drift(row: RecordRow, mode: Mode) -> float:
    return float(row[f"latency_{mode}_drift"] or 0)


def _stream_axes(drawing: Drawing, axes: Axes, stream: Stream, colour: str) -> None:
    row, mode = stream.row, stream.mode
    processes = one_after_the_other(stream.samples)
    at, ms = (np.concatenate(parts) for parts in zip(*processes, strict=True))
    (points,) = axes.plot(at, ms, ".", color=INK, markersize=3, zorder=3)
    points.set_gid(drawing.detail(f"{label_of(row)}, {mode}: {len(ms)} samples, {_drift(row, mode):+.1%} drift"))
    time = quantity(f"latency_{mode}")
    interval = interval_of(row, time)
    if interval:
        axes.axhspan(*interval, color=colour, alpha=0.25, linewidth=0, zorder=1)
    axes.axhline(row[time.column], color=colour, linewidth=1.2, zorder=2)
    for times, part in processes if len(processes) > 1 else ():
        axes.plot([times[0], times[-1]], [np.median(part)] * 2, color=colour, linewidth=2, zorder=4)
    for before, after in pairwise(processes):
        axes.axvline((before[0][-1] + after[0][0]) / 2, color=FAINT, linewidth=0.5, zorder=0)
    title = wrapped(f"{marked_label_of(row)}, {mode}", _TITLE)
    if drifts(row, time):
        for times, part in (half for process in processes for half in _halves(*process)):
            axes.plot([times[0], times[-1]], [np.median(part)] * 2, color="#D55E00", linewidth=2, zorder=4)
        title += f"  drift {_drift(row, mode):+.0%}"
    axes.set_title(title, fontsize=SMALL, fontweight="bold" if "drift" in title else "normal")
    axes.set_ylim(bottom=0 if ms.min() > 0 and ms.max() / ms.min() > 3 else None)
