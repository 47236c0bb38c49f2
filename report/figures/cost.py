"""Cost figures: bars relative to self-attention, and the split of a training step into inference and the rest."""

from collections.abc import Sequence

import pandas as pd
from matplotlib.axes import Axes

from ctxbench.metrics import quantities, quantity, stored_quantities
from ctxbench.metrics.base import Quantity, RecordRow
from ctxbench.mode import MODES, Mode
from ctxbench.results.csv_file import rows_of

from ..tables.cells import amount, basis, interval_of
from ..tables.numbers import significant
from .layout import Names, names_of, parts
from .panels import REFERENCE, Panel, is_reference, label_of, origin_of
from .style import FAINT, INK, PAPER, Drawing, log_axis, looks

_BACKGROUND = {"facecolor": PAPER, "edgecolor": "none", "pad": 0.6}
# The height of a bar, inches.
_BAR = 0.17


def relative_quantities(panel: Panel) -> list[Quantity]:
    """The quantities that are better or worse in which the reference has a number, not 0, and so has another row."""
    frame = panel.main
    reference = frame[is_reference(frame)]
    return [
        each
        for each in stored_quantities()
        if each.better
        and len(reference)
        and (reference[each.column].notna() & (reference[each.column] != 0)).all()
        and frame[each.column].notna().sum() > 1
    ]


def has_relative(panels: Sequence[Panel]) -> bool:
    return any(relative_quantities(panel) for panel in panels)


def cost_bars(panels: Sequence[Panel]) -> Drawing:
    """Each cost as a share of self-attention's, one column a quantity, one row of axes a panel."""
    relative = {panel: relative_quantities(panel) for panel in panels}
    panels = [panel for panel in panels if relative[panel]]
    shown = [each for each in quantities().values() if any(each in relative[panel] for panel in panels)]
    names = [names_of(panel.main) for panel in panels]
    width = max(own.width for own in names) + 0.5 + 1.35 * len(shown)
    heights = [own.height + 1.0 for own in names]
    figure, found = parts("Costs relative to self-attention", width, [(panel, panel.main) for panel in panels], heights)
    drawing = Drawing(figure, "Cost relative to self-attention (100 %).")
    for panel, part, own in zip(panels, found, names, strict=True):
        row = part.subplots(1, len(shown), squeeze=False)[0]
        for each, axes in zip(shown, row, strict=True):
            _bar_axes(drawing, axes, panel, each, own)
        for axes in row[1:]:
            axes.set_yticklabels([])
    return drawing


def _bar_axes(drawing: Drawing, axes: Axes, panel: Panel, each: Quantity, names: Names) -> None:
    frame = panel.main
    labels = [label_of(row) for row in rows_of(frame)]
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
    for number, (share, module, status) in enumerate(zip(shares, frame["module"], frame["status"], strict=True)):
        place = names.middles[number]
        if pd.isna(share):
            axes.text(
                largest * 0.02, place, status if status != "ok" else "not known", va="center", fontsize=8, color=FAINT
            )
            continue
        (bar,) = axes.barh(place, share, height=_BAR, color=appearance[module].colour)
        amount_text = f"{significant(values.iloc[number] / each.unit.factor)} {each.unit.symbol}"
        bar.set_gid(drawing.detail(f"{labels[number]}: {amount_text}, {share:.3g} % of {REFERENCE}"))
        axes.text(share + largest * 0.02, place, significant(share, 2), va="center", fontsize=8, bbox=_BACKGROUND)
    axes.set(xlim=(0, largest * 1.28), ylim=(names.height, 0), title=title, xlabel=f"% of {REFERENCE}")
    axes.axvline(100, color=INK, linewidth=0.6, linestyle=":")
    axes.set_yticks(names.middles, names.texts)
    axes.tick_params(axis="y", length=0)


def has_split(panels: Sequence[Panel]) -> bool:
    return any((p.frame["latency_infer_ms"].notna() & p.frame["latency_train_ms"].notna()).any() for p in panels)


def train_infer_split(panels: Sequence[Panel]) -> Drawing:
    """Inference and training time of each module on one axis, with intervals and the ratio of the two."""
    panels = [panel for panel in panels if has_split([panel])]
    names = [names_of(panel.main) for panel in panels]
    width = max(own.width for own in names) + 4.5
    figure, found = parts(
        "Time of training and inference",
        width,
        [(panel, panel.main) for panel in panels],
        [own.height + 0.9 for own in names],
    )
    drawing = Drawing(figure, "Time of a pass, inference (open) and training (filled).")
    first: Axes | None = None
    for panel, part, own in zip(panels, found, names, strict=True):
        axes = part.subplots()
        if first:
            axes.sharex(first)
        _split_axes(drawing, axes, panel, own)
        first = axes
    return drawing


def _split_axes(drawing: Drawing, axes: Axes, panel: Panel, names: Names) -> None:
    frame = panel.main
    appearance = looks(frame["module"])
    for place, row in zip(names.middles, rows_of(frame), strict=True):
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
    axes.set(ylim=(names.height, 0), xlabel="ms per pass")
    axes.set_yticks(names.middles, names.texts)
    axes.grid(axis="x")
    axes.text(1.01, 1.01, "train / infer", fontsize=7, va="bottom", transform=axes.transAxes)


def _timed_point(
    drawing: Drawing, axes: Axes, row: RecordRow, mode: Mode, place: float, colour: str, marker: str
) -> None:
    time = quantity(f"latency_{mode}")
    interval = interval_of(row, time)
    if interval:
        axes.plot(interval, [place, place], color=INK, linewidth=0.8, zorder=3)
    filling = colour if mode == "train" else PAPER
    (point,) = axes.plot(row[time.column], place, marker=marker, color=colour, markerfacecolor=filling, zorder=2)
    text = f"{amount(row, time, time.unit)} ms, {basis(row, time)}"
    point.set_gid(drawing.detail(f"{label_of(row)}, {mode}: {text}"))
