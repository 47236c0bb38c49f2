"""Cost figures: bars relative to self-attention, and the split of a training step into inference and the rest."""

from collections.abc import Sequence

import pandas as pd
from matplotlib.axes import Axes

from ctxbench.metrics import quantities, quantity
from ctxbench.metrics.base import Quantity, RecordRow
from ctxbench.mode import MODES, Mode

from .cells import amount, interval_of
from .numbers import significant
from .panels import REFERENCE, Panel, conditions_of, is_reference, label_of, origin_of
from .style import FAINT, INK, PAPER, Drawing, log_axis, looks, new_figure

_BACKGROUND = {"facecolor": PAPER, "edgecolor": "none", "pad": 0.6}


def relative_quantities(panel: Panel) -> list[Quantity]:
    """The quantities that are better or worse in which the reference has a number, not 0, and so has another row."""
    frame = panel.main
    reference = frame[is_reference(frame)]
    return [
        each
        for each in quantities().values()
        if each.better
        and len(reference)
        and (reference[each.column].notna() & (reference[each.column] != 0)).all()
        and frame[each.column].notna().sum() > 1
    ]


def has_relative(panels: Sequence[Panel]) -> bool:
    return any(relative_quantities(panel) for panel in panels)


def cost_bars(panels: Sequence[Panel]) -> Drawing:
    """Each cost as a share of self-attention's, one column a quantity, one row of axes a panel."""
    panels = [panel for panel in panels if relative_quantities(panel)]
    shown = [each for each in quantities().values() if any(each in relative_quantities(panel) for panel in panels)]
    counts = [len(panel.main) for panel in panels]
    figure = new_figure(1.6 + 1.35 * len(shown), sum(0.24 * count + 1.0 for count in counts))
    drawing = Drawing(figure, f"Cost relative to self-attention (100 %), {conditions_of(panels[0].main)}.")
    grid = figure.subplots(len(panels), len(shown), squeeze=False, height_ratios=counts)
    for panel, row in zip(panels, grid, strict=True):
        for position, (each, axes) in enumerate(zip(shown, row, strict=True)):
            _bar_axes(drawing, axes, panel, each, first=position == 0)
        if len(panels) > 1:
            row[0].set_ylabel(panel.title, fontweight="bold")
    return drawing


def _bar_axes(drawing: Drawing, axes: Axes, panel: Panel, each: Quantity, first: bool) -> None:
    frame = panel.main
    labels = [label_of(row) for row in frame.to_dict("records")]
    values = frame[each.column].astype("float64")
    shares = 100 * values / float(values[is_reference(frame)].iloc[0])
    origin = origin_of(each, frame).replace(", ", ",\n")
    title = f"{each.title}\n({origin})" if each.origin == "predicted" else each.title
    appearance = looks(frame["module"])
    if shares.isna().all():
        axes.set_axis_off()
        axes.set_title(f"{title}\nno number for {REFERENCE}", color=FAINT)
        return
    largest = max(float(shares.max(skipna=True)), 100.0)
    for place, (share, module, status) in enumerate(zip(shares, frame["module"], frame["status"], strict=True)):
        if pd.isna(share):
            axes.text(
                largest * 0.02, place, status if status != "ok" else "not known", va="center", fontsize=8, color=FAINT
            )
            continue
        (bar,) = axes.barh(place, share, height=0.7, color=appearance[module].colour)
        number = f"{significant(values.iloc[place] / each.unit.factor)} {each.unit.symbol}"
        bar.set_gid(drawing.detail(f"{labels[place]}: {number}, {share:.3g} % of {REFERENCE}"))
        axes.text(share + largest * 0.02, place, significant(share, 2), va="center", fontsize=8, bbox=_BACKGROUND)
    axes.set(xlim=(0, largest * 1.28), ylim=(len(frame) - 0.4, -0.6), title=title, xlabel="%")
    axes.axvline(100, color=INK, linewidth=0.6, linestyle=":")
    axes.set_yticks(range(len(frame)), labels if first else [])
    axes.tick_params(axis="y", length=0)


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
        known = [mode for mode in MODES if pd.notna(row[f"latency_{mode}_ms"])]
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


def _timed_point(
    drawing: Drawing, axes: Axes, row: RecordRow, mode: Mode, place: int, colour: str, marker: str
) -> None:
    time = quantity(f"latency_{mode}")
    interval = interval_of(row, time)
    if interval:
        axes.plot(interval, [place, place], color=INK, linewidth=0.8, zorder=3)
    filling = colour if mode == "train" else PAPER
    (point,) = axes.plot(row[time.column], place, marker=marker, color=colour, markerfacecolor=filling, zorder=2)
    text = f"{amount(row, time, time.unit)} ms, {row[time.detail('samples')]} samples"
    point.set_gid(drawing.detail(f"{label_of(row)}, {mode}: {text}"))
