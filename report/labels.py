"""Names beside points, placed one after the other where they touch nothing; far ones get a leader line."""

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox
from numpy.typing import ArrayLike, NDArray

from .style import INK

_ANGLES = (0, 180, 90, 270, 45, 135, 315, 225, 22, 158, 338, 202)
_DISTANCES = (7, 13, 22, 33, 46)  # points
_LEADER_FROM = 13


def freeze_layout(figure: Figure) -> None:
    """Lay the figure out now and for good, so that labels can be placed in its final coordinates."""
    figure.draw_without_rendering()
    figure.set_layout_engine("none")


def place_labels(axes: Axes, x: ArrayLike, y: ArrayLike, texts: Sequence[str], radii: Sequence[float]) -> None:
    """Write each text near its point. `x`, `y` are data coordinates, `radii` the markers' radii in points.

    Points are taken from the most crowded to the loneliest; for each the nearest free place is chosen, else the one
    that covers least. Call it when limits and layout are final.
    """
    scale = axes.figure.dpi / 72
    points = axes.transData.transform(np.column_stack([x, y]))
    marks = [_around(point, radius * scale) for point, radius in zip(points, radii, strict=True)]
    placed: list[Bbox] = []
    frame = axes.get_window_extent()
    for index in _crowded_first(points):
        width, height = _size(axes, texts[index])
        best: tuple[float, float, float, Bbox] | None = None
        for distance in _DISTANCES:
            for angle in _ANGLES:
                reach = (distance + radii[index]) * scale
                box = _box(points[index], angle, reach, width, height)
                others = [*placed, *(mark for i, mark in enumerate(marks) if i != index)]
                cost = sum(_overlap(box, other) for other in others) + 5 * (width * height - _overlap(box, frame))
                if best is None or cost < best[0] - 1e-6:
                    best = (cost, distance, angle, box)
            if best is not None and best[0] <= 1e-6:
                break
        assert best is not None
        placed.append(best[3])
        _write(axes, points[index], best[3], texts[index], leader=best[1] > _LEADER_FROM)


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
