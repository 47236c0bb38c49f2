"""Names beside points, placed where they cover nothing; where a name could be misread, a leader line joins the two."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray

from ..curves import Floats
from .style import INK, PAPER, SMALL

_ANGLES = np.radians([0, 180, 90, 270, 45, 135, 315, 225, 22, 158, 338, 202, 68, 112, 248, 292])
_DISTANCES = np.array([4.0, 9.0, 15.0, 23.0, 33.0, 46.0, 60.0, 78.0, 100.0, 125.0])  # points
_LEADER_FROM = 9.0
_ROUNDS = 8
# What a label costs that is cut by the figure's edge, times the share of it: more than all else.
_CUT = 1000.0


def freeze_layout(figure: Figure) -> None:
    """Lay the figure out now and for good: labels can be placed in its final coordinates, and writing is one draw."""
    engine = figure.get_layout_engine()
    if engine is not None:
        for _ in range(2):  # the second time with the ticks of the sizes that the first one gave
            engine.execute(figure)
        figure.set_layout_engine()  # none at all: with the engine "none", matplotlib draws twice to write once


def place_labels(
    axes: Axes, x: ArrayLike, y: ArrayLike, texts: Sequence[str], radii: Sequence[float], others: ArrayLike = ()
) -> None:
    """Write each text near its point. `x`, `y` are data coordinates, `radii` the markers' radii in points; `others` are
    points without a text, x and y of each, which no text should cover.

    Points are taken from the most crowded to the loneliest, each gets the place that costs least among those taken so
    far, and all are reconsidered in further rounds. Call it when limits and layout are final.
    """
    scale = axes.figure.dpi / 72
    points = axes.transData.transform(np.column_stack([np.asarray(x, np.float64), np.asarray(y, np.float64)]))
    reach = np.asarray(radii, np.float64)[:, None] * scale
    marks = np.hstack([points - reach, points + reach])
    silent = axes.transData.transform(np.asarray(others, np.float64).reshape(-1, 2))
    marks = np.vstack([marks, np.hstack([silent - reach.max(), silent + reach.max()])])
    frame = np.asarray(axes.get_window_extent().extents)[None]
    page = np.asarray(axes.figure.canvas.figure.bbox.extents)[None]
    places = [_places(points[i], radii[i], _size(axes, text), scale) for i, text in enumerate(texts)]
    leaders = [_with_leader(boxes, i, points) for i, boxes in enumerate(places)]
    fixed = [
        _fixed_cost(places[i], i, points, marks, frame, leaders[i]) + _CUT * _outside(places[i], page)
        for i in range(len(texts))
    ]
    chosen: dict[int, int] = {}
    for _ in range(_ROUNDS):
        before = dict(chosen)
        for i in _crowded_first(points):
            taken = np.array([places[other][chosen[other]] for other in chosen if other != i]).reshape(-1, 4)
            shared = _overlaps(places[i], taken)
            covered = (5 * (shared > 0) + 10 * shared / _areas(places[i])[:, None]).sum(axis=1)
            crossed = 2 * leaders[i] * _crossings(points[i], places[i], taken)
            chosen[i] = int(np.argmin(fixed[i] + covered + crossed))
        if chosen == before:
            break
    for i, place in chosen.items():
        _write(axes, points[i], places[i][place], texts[i], bool(leaders[i][place]))


def _places(point: Floats, radius: float, size: tuple[float, float], scale: float) -> Floats:
    """Boxes `[places, (x0, y0, x1, y1)]` of the size, in pixels, around the point, near ones first."""
    towards = np.column_stack([np.cos(_ANGLES), np.sin(_ANGLES)])
    half = np.array(size) / 2
    away = (_DISTANCES[:, None, None] + radius) * scale
    centres = (point + towards * (away + half * np.abs(towards))).reshape(-1, 2)
    return np.hstack([centres - half, centres + half])


def _with_leader(boxes: Floats, index: int, points: Floats) -> NDArray[np.bool_]:
    """Mask of the places that need a leader: the far ones, and those to which another point is about as near."""
    far = np.repeat(_DISTANCES > _LEADER_FROM, len(_ANGLES))
    outside = np.maximum(np.maximum(boxes[:, None, :2] - points, points - boxes[:, None, 2:]), 0)
    gaps = np.hypot(outside[..., 0], outside[..., 1])
    others = np.delete(gaps, index, axis=1).min(axis=1, initial=np.inf)
    return np.asarray(far | (others < 1.2 * gaps[:, index]))


def _fixed_cost(
    boxes: Floats, index: int, points: Floats, marks: Floats, frame: Floats, leaders: NDArray[np.bool_]
) -> Floats:
    """Cost of each place apart from the other labels: mostly the share of markers that it covers."""
    covered = 3 * (_overlaps(boxes, marks) / _areas(marks)).sum(axis=1)
    outside = _outside(boxes, frame)
    outside = 10 * outside + 4 * (outside > 0.01)
    crossed = 0.7 * _crossings(points[index], boxes, np.delete(marks, index, axis=0))
    distance = (np.repeat(_DISTANCES, len(_ANGLES)) / 40) ** 2
    return np.asarray(covered + outside + leaders * (0.15 + crossed) + distance)


def _outside(boxes: Floats, frame: Floats) -> Floats:
    """The share of each box that lies outside of the frame."""
    return np.asarray(1 - _overlaps(boxes, frame)[:, 0] / _areas(boxes))


def _areas(boxes: Floats) -> Floats:
    return np.asarray((boxes[:, 2:] - boxes[:, :2]).prod(axis=1))


def _overlaps(boxes: Floats, others: Floats) -> Floats:
    """The area that each of `[n, 4]` shares with each of `[m, 4]`, `[n, m]`."""
    low = np.maximum(boxes[:, None, :2], others[None, :, :2])
    high = np.minimum(boxes[:, None, 2:], others[None, :, 2:])
    return np.asarray(np.maximum(high - low, 0).prod(axis=2))


def _crossings(point: Floats, boxes: Floats, others: Floats) -> Floats:
    """Number of the others that a line from the point to the middle of each box passes through."""
    middles = (boxes[:, :2] + boxes[:, 2:]) / 2
    steps = np.linspace(0, 1, 12)[:, None, None]
    line = (point + steps * (middles - point))[:, :, None]  # [steps, boxes, 1, 2]
    inside = ((line >= others[:, :2]) & (line <= others[:, 2:])).all(axis=3)
    return np.asarray(inside.any(axis=0).sum(axis=1), np.float64)


def _crowded_first(points: Floats) -> list[int]:
    gaps = np.hypot(*(points[:, None] - points[None]).transpose(2, 0, 1))
    nearness = np.sort(gaps, axis=1)[:, 1:4].sum(axis=1)
    return [int(i) for i in np.argsort(nearness, kind="stable")]


def _size(axes: Axes, text: str) -> tuple[float, float]:
    """Width and height of the text, with a little air, in pixels."""
    probe = axes.text(0, 0, text, fontsize=SMALL)
    box = probe.get_window_extent()
    probe.remove()
    return box.width + 4, box.height + 2


def _write(axes: Axes, point: Floats, box: Floats, text: str, leader: bool) -> None:
    inverse = axes.transData.inverted()
    side = (point[0] > box[0]) + (point[0] > box[2])  # lines of a text begin or end at the point
    axes.annotate(
        text,
        xy=tuple(inverse.transform(point)),
        xytext=tuple(inverse.transform((box[:2] + box[2:]) / 2)),
        ha="center",
        va="center",
        fontsize=SMALL,
        multialignment=("left", "center", "right")[int(side)],
        annotation_clip=False,
        bbox={"facecolor": PAPER, "edgecolor": "none", "pad": 0.4, "alpha": 0.85},
        arrowprops={"arrowstyle": "-", "color": INK, "linewidth": 0.5, "shrinkA": 0, "shrinkB": 3} if leader else None,
    )
