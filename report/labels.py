"""Names beside points, placed one after the other where they touch nothing; far ones get a leader line."""

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox
from numpy.typing import ArrayLike, NDArray

from .style import INK

_ANGLES = (0, 180, 90, 270, 45, 135, 315, 225, 22, 158, 338, 202, 68, 112, 248, 292)
_DISTANCES = (4, 9, 15, 23, 33, 46, 60)  # points
_LEADER_FROM = 9
_ROUNDS = 3


def freeze_layout(figure: Figure) -> None:
    """Lay the figure out now and for good, so that labels can be placed in its final coordinates."""
    figure.draw_without_rendering()
    figure.set_layout_engine("none")


def place_labels(axes: Axes, x: ArrayLike, y: ArrayLike, texts: Sequence[str], radii: Sequence[float]) -> None:
    """Write each text near its point. `x`, `y` are data coordinates, `radii` the markers' radii in points.

    Points are taken from the most crowded to the loneliest, each gets the place that costs least among those taken so
    far, and all are reconsidered in further rounds. Call it when limits and layout are final.
    """
    scale = axes.figure.dpi / 72
    points = axes.transData.transform(np.column_stack([np.asarray(x, np.float64), np.asarray(y, np.float64)]))
    marks = [_around(point, radius * scale) for point, radius in zip(points, radii, strict=True)]
    frame = axes.get_window_extent()
    sizes = [_size(axes, text) for text in texts]
    placed: dict[int, tuple[Bbox, bool]] = {}
    for _ in range(_ROUNDS):
        for index in _crowded_first(points):
            taken = [box for other, (box, _) in placed.items() if other != index]
            best = math.inf
            for step, distance in enumerate(_DISTANCES):
                for angle in _ANGLES:
                    box = _box(points[index], angle, (distance + radii[index]) * scale, *sizes[index])
                    leader = distance > _LEADER_FROM or _belongs_elsewhere(box, index, points)
                    cost = _cost(box, index, points, marks, taken, frame, leader) + 0.04 * step
                    if cost < best - 1e-9:
                        best = cost
                        placed[index] = box, leader
    for index, (box, leader) in placed.items():
        _write(axes, points[index], box, texts[index], leader)


def _cost(
    box: Bbox,
    index: int,
    points: NDArray[np.float64],
    marks: Sequence[Bbox],
    taken: Sequence[Bbox],
    frame: Bbox,
    leader: bool,
) -> float:
    """What a place costs, in areas of the text: covering and leaving the frame most, then leaders that cross."""
    area = box.width * box.height
    others = [mark for i, mark in enumerate(marks) if i != index]
    covered = 10 * sum(_overlap(box, other) for other in taken) + 6 * sum(_overlap(box, mark) for mark in marks)
    outside = 10 * (area - _overlap(box, frame))
    crossed = 2 * _crossed(points[index], box, taken) + 0.7 * _crossed(points[index], box, others) if leader else 0
    return (covered + outside) / area + crossed + 0.15 * leader


def _belongs_elsewhere(box: Bbox, index: int, points: NDArray[np.float64]) -> bool:
    """Whether another point lies nearer to the text than its own does."""
    outside = np.maximum(np.maximum(box.min - points, points - box.max), 0)
    gaps = np.hypot(outside[:, 0], outside[:, 1])
    return bool(np.delete(gaps, index).min(initial=np.inf) < 1.2 * gaps[index])


def _crossed(point: NDArray[np.float64], box: Bbox, others: Sequence[Bbox]) -> int:
    """How many boxes a line from the point to the middle of the text would cross."""
    line = np.linspace(point, ((box.x0 + box.x1) / 2, (box.y0 + box.y1) / 2), 12)
    return sum(any(other.contains(*at) for at in line) for other in others)


def _crowded_first(points: NDArray[np.float64]) -> list[int]:
    gaps = np.hypot(*(points[:, None] - points[None]).transpose(2, 0, 1))
    nearness = np.sort(gaps, axis=1)[:, 1:4].sum(axis=1)
    return [int(i) for i in np.argsort(nearness, kind="stable")]


def _size(axes: Axes, text: str) -> tuple[float, float]:
    probe = axes.text(0, 0, text, fontsize=8)
    box = probe.get_window_extent()
    probe.remove()
    return box.width + 4, box.height + 2


def _around(point: NDArray[np.float64], radius: float) -> Bbox:
    return Bbox.from_bounds(point[0] - radius, point[1] - radius, 2 * radius, 2 * radius)


def _box(point: NDArray[np.float64], angle: float, reach: float, width: float, height: float) -> Bbox:
    """A box that touches the circle of radius `reach` around the point, in the direction of the angle."""
    dx, dy = math.cos(math.radians(angle)), math.sin(math.radians(angle))
    centre_x = point[0] + dx * (reach + width / 2 * abs(dx))
    centre_y = point[1] + dy * (reach + height / 2 * abs(dy))
    return Bbox.from_bounds(centre_x - width / 2, centre_y - height / 2, width, height)


def _overlap(one: Bbox, other: Bbox) -> float:
    width = min(one.x1, other.x1) - max(one.x0, other.x0)
    height = min(one.y1, other.y1) - max(one.y0, other.y0)
    return float(max(width, 0.0) * max(height, 0.0))


def _write(axes: Axes, point: NDArray[np.float64], box: Bbox, text: str, leader: bool) -> None:
    inverse = axes.transData.inverted()
    centre = ((box.x0 + box.x1) / 2, (box.y0 + box.y1) / 2)
    axes.annotate(
        text,
        xy=tuple(inverse.transform(point)),
        xytext=tuple(inverse.transform(centre)),
        ha="center",
        va="center",
        fontsize=8,
        annotation_clip=False,
        arrowprops={"arrowstyle": "-", "color": INK, "linewidth": 0.5, "shrinkA": 0, "shrinkB": 3} if leader else None,
    )
