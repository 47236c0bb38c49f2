"""Cost figures: bars relative to self-attention, and the split of a training step into inference and the rest."""

from collections.abc import Sequence

import pandas as pd
from matplotlib.axes import Axes

from .numbers import MIB, significant, with_interval
from .panels import Panel, Row, conditions_of, label_of
from .style import FAINT, INK, PAPER, Drawing, log_axis, looks, new_figure

REFERENCE = "sa"
_BACKGROUND = {"facecolor": PAPER, "edgecolor": "none", "pad": 0.6}
_BARS = {
    "params": "Params",
    "macs": "MACs",
    "memory_train_predicted_bytes": "Memory, train\n(predicted, CUDA)",
    "memory_infer_predicted_bytes": "Memory, infer\n(predicted, CUDA)",
    "latency_train_ms": "Time, train",
    "latency_infer_ms": "Time, infer",
}
_SCALES = {"macs": (1e9, "G"), "params": (2**20, "M")}


def relative_columns(panel: Panel) -> list[str]:
    """The quantities in which the reference has a number and so has another row."""
    frame = panel.main
    reference = frame[(frame["module"] == REFERENCE) & (frame["settings"] == "")]
    if reference.empty:
        return []
    return [name for name in _BARS if reference[name].notna().all() and frame[name].notna().sum() > 1]


def has_relative(panels: Sequence[Panel]) -> bool:
    return any(relative_columns(panel) for panel in panels)


def cost_bars(panels: Sequence[Panel]) -> Drawing:
    """Each cost as a share of self-attention's, one column a quantity, one row of axes a panel."""
    panels = [panel for panel in panels if relative_columns(panel)]
    names = [name for name in _BARS if any(name in relative_columns(panel) for panel in panels)]
    counts = [len(panel.main) for panel in panels]
    figure = new_figure(1.6 + 1.35 * len(names), sum(0.24 * count + 1.0 for count in counts))
    drawing = Drawing(figure, f"Cost relative to self-attention (100 %), {conditions_of(panels[0].main)}.")
    grid = figure.subplots(len(panels), len(names), squeeze=False, height_ratios=counts)
    for panel, row in zip(panels, grid, strict=True):
        for position, (name, axes) in enumerate(zip(names, row, strict=True)):
            _bar_axes(drawing, axes, panel, name, first=position == 0)
        if len(panels) > 1:
            row[0].set_ylabel(panel.title, fontweight="bold")
    return drawing


def _bar_axes(drawing: Drawing, axes: Axes, panel: Panel, name: str, first: bool) -> None:
    frame = panel.main
    labels = [label_of(row) for row in frame.to_dict("records")]
    values = frame[name].astype("float64")
    shares = 100 * values / float(values[(frame["module"] == REFERENCE) & (frame["settings"] == "")].iloc[0])
    appearance = looks(frame["module"])
    if shares.isna().all():
        axes.set_axis_off()
        axes.set_title(f"{_BARS[name]}\nno number for {REFERENCE}", color=FAINT)
        return
    largest = max(float(shares.max(skipna=True)), 100.0)
    for place, (share, module, status) in enumerate(zip(shares, frame["module"], frame["status"], strict=True)):
        if pd.isna(share):
            axes.text(
                largest * 0.02, place, status if status != "ok" else "not known", va="center", fontsize=8, color=FAINT
            )
            continue
        (bar,) = axes.barh(place, share, height=0.7, color=appearance[module].colour)
        bar.set_gid(
            drawing.detail(f"{labels[place]}: {_amount(name, values.iloc[place])}, {share:.3g} % of {REFERENCE}")
        )
        axes.text(share + largest * 0.02, place, significant(share, 2), va="center", fontsize=8, bbox=_BACKGROUND)
    axes.set(xlim=(0, largest * 1.28), ylim=(len(frame) - 0.4, -0.6), title=_BARS[name], xlabel="%")
    axes.axvline(100, color=INK, linewidth=0.6, linestyle=":")
    axes.set_yticks(range(len(frame)), labels if first else [])
    axes.tick_params(axis="y", length=0)


def _amount(name: str, value: float) -> str:
    if name.endswith("_ms"):
        return f"{significant(value)} ms"
    if name.endswith("_bytes"):
        return f"{significant(value / MIB)} MiB"
    factor, symbol = _SCALES[name]
    return f"{significant(value / factor)} {symbol}"


def has_split(panels: Sequence[Panel]) -> bool:
    return any((p.frame["latency_infer_ms"].notna() & p.frame["latency_train_ms"].notna()).any() for p in panels)


def train_infer_split(panels: Sequence[Panel]) -> Drawing:
    """Inference and training time of each module on one axis, with intervals and the ratio of the two."""
    panels = [panel for panel in panels if has_split([panel])]
    count = max(len(panel.main) for panel in panels)
    figure = new_figure(1.2 + 3.6 * len(panels), 0.27 * count + 1.3)
    drawing = Drawing(
        figure, f"Time of a pass, inference (open) and training (filled), {conditions_of(panels[0].main)}."
    )
    row = figure.subplots(1, len(panels), squeeze=False)[0]
    for panel, axes in zip(panels, row, strict=True):
        _split_axes(drawing, axes, panel)
    return drawing


def _split_axes(drawing: Drawing, axes: Axes, panel: Panel) -> None:
    frame = panel.main
    appearance = looks(frame["module"])
    labels = [label_of(row) for row in frame.to_dict("records")]
    for place, row in enumerate(frame.to_dict("records")):
        look = appearance[row["module"]]
        known = [mode for mode in ("infer", "train") if pd.notna(row[f"latency_{mode}_ms"])]
        if not known:
            axes.text(
                0.02, place, row["status"], va="center", fontsize=8, color=FAINT, transform=axes.get_yaxis_transform()
            )
        if len(known) == 2:
            ends = [row["latency_infer_ms"], row["latency_train_ms"]]
            axes.plot(ends, [place, place], color=look.colour, linewidth=1.5, zorder=1)
            ratio = significant(ends[1] / ends[0], 2)
            axes.text(1.01, place, f"{ratio} x", va="center", fontsize=8, transform=axes.get_yaxis_transform())
        for mode in known:
            _timed_point(drawing, axes, row, mode, place, look.colour, look.marker)
    log_axis(axes, "x")
    axes.set(ylim=(len(frame) - 0.4, -0.6), xlabel="ms a pass", title=panel.title)
    axes.set_yticks(range(len(frame)), labels)
    axes.grid(axis="x")
    axes.text(1.01, -0.9, "train / infer", fontsize=7, va="bottom", transform=axes.get_yaxis_transform())


def _timed_point(drawing: Drawing, axes: Axes, row: Row, mode: str, place: int, colour: str, marker: str) -> None:
    median, low, high = (row[f"latency_{mode}_{name}"] for name in ("ms", "low_ms", "high_ms"))
    text = f"{significant(median)} ms"
    if pd.notna(low) and pd.notna(high):
        axes.plot([low, high], [place, place], color=INK, linewidth=0.8, zorder=3)
        text = " ".join(with_interval(median, low, high)) + " ms"
    (point,) = axes.plot(
        median, place, marker=marker, color=colour, markerfacecolor=colour if mode == "train" else PAPER, zorder=2
    )
    point.set_gid(drawing.detail(f"{label_of(row)}, {mode}: {text}, {row[f'latency_{mode}_samples']} samples"))
