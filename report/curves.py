"""The data of curves: a quantity of a run's rows against what they differ in, line by line, and what was fitted."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from ctxbench.base.errors import UsageError
from ctxbench.base.fits import FittedLine, fit_line
from ctxbench.model.metric import Quantity, RecordRow
from ctxbench.model.metrics import quantity, stored_quantities
from ctxbench.model.published import Printed
from ctxbench.model.suite_file import COMPUTED, POINTS, Figure

from .panels import Panel
from .run_data import settings_text

Floats = NDArray[np.float64]
AXIS_TITLES = {"positions": "positions n = H x W", "batch": "batch", "channels": "channels"}
# What the report draws of a run whose suite names no figures: see `drawn_of` for the y.
SCALING = tuple(
    Figure(name=name, title=f"Scaling with {what}", x=x, y=["params"], scale="log", fit=True)
    for name, what, x in (
        ("scaling", "H x W", "positions"),
        ("scaling-batch", "the batch", "batch"),
        ("scaling-channels", "the channels", "channels"),
    )
)
# Fewer points do not show a fit.
FEWEST_FITTED = 3
# A line that is further off from any point, relatively, is not drawn: the points bend.
MISSED = 0.25


@dataclass(frozen=True, eq=False)
class Series:
    """A line of a figure: its module and settings but for `x`, and its rows by rising x."""

    module: str
    settings: str
    x: Sequence[Any]
    rows: Sequence[RecordRow]
    quantity: Quantity

    @property
    def title(self) -> str:
        return str(self.rows[0]["name"])

    @cached_property
    def y(self) -> Floats:
        """The values in the quantity's unit; NaN where there is none."""
        return numbers_of(self.rows, self.quantity) / self.quantity.unit.factor

    @cached_property
    def known(self) -> NDArray[np.bool_]:
        """Mask of the values that there are."""
        return ~np.isnan(self.y)


def figures_of(panel: Panel) -> list[Figure]:
    """The figures that the run's suite names. UsageError if the run tells of them what no suite can."""
    try:
        return [Figure.model_validate(each) for each in panel.run.definition.get("figures") or ()]
    except ValidationError as error:
        raise UsageError(
            f"{panel.run.folder.path / 'run.json'}: definition.figures: {error.errors()[0]['msg']}"
        ) from None


def numbers_of(rows: Sequence[RecordRow], quantity: Quantity) -> Floats:
    """A quantity of the rows in units of one, NaN where there is none; what only papers have, as published."""
    if quantity.origin != "published":
        return np.array([row[quantity.column] for row in rows], np.float64)
    texts = [row[f"{quantity.key}_published"] for row in rows]
    printed = [float(Printed.parse(text).value) if text is not None else None for text in texts]
    return np.array(printed, np.float64) * quantity.unit.factor


def series_of(panel: Panel, figure: Figure, quantity: Quantity, fewest: int = 2) -> list[Series]:
    """The lines of a quantity, which are made once for a panel."""
    key = (figure.name, figure.x, *figure.along, quantity.key, fewest)
    if key not in panel.series:
        panel.series[key] = _series_of(panel, figure, quantity, fewest)
    found: list[Series] = panel.series[key]
    return found


def _series_of(panel: Panel, figure: Figure, quantity: Quantity, fewest: int) -> list[Series]:
    """The lines of a quantity: rows that differ in x alone, with `fewest` different x or more that have a number.

    Of several such lines with the same module and settings (other inputs, other dtypes) the one with most numbers
    stands, then the first.
    """
    fixed = [name for name in (*COMPUTED, *POINTS) if name != figure.x]
    groups: dict[tuple[Any, ...], list[tuple[int, Any, bool]]] = {}
    for place, (row, y) in enumerate(zip(panel.rows, numbers_of(panel.rows, quantity), strict=True)):
        x = _condition(row, figure.x) if figure.x in (*COMPUTED, *POINTS) else row["every"].get(figure.x)
        if x is not None:
            rest = {name: row["named"][name] for name in row["named"] if name not in (figure.x, *figure.along)}
            key = (str(row["module"]), settings_text(rest), *(_condition(row, name) for name in fixed))
            groups.setdefault(key, []).append((place, x, not math.isnan(y)))
    counts = {key: len({x for _, x, is_known in own if is_known}) for key, own in groups.items()}
    found: dict[tuple[str, str], tuple[int, Series]] = {}
    for key in sorted(groups, key=lambda key: -counts[key]):
        places: dict[Any, int] = {}
        for place, x, _ in sorted(groups[key], key=lambda point: not point[2]):
            places.setdefault(x, place)
        across = sorted(places) if is_numeric(places) else sorted(places, key=lambda x: places[x])
        if counts[key] >= fewest:
            series = Series(key[0], key[1], across, [panel.rows[places[x]] for x in across], quantity)
            found.setdefault(key[:2], (min(places.values()), series))
    return [series for _, series in sorted(found.values(), key=lambda each: each[0])]


def _condition(row: RecordRow, name: str) -> Any:
    return row["height"] * row["width"] if name == "positions" else row[name]


def drawn_of(panels: Sequence[Panel], figure: Figure) -> list[tuple[Quantity, list[list[Series]]]]:
    """Quantities of a figure with the lines of each panel: its y with numbers.

    Of SCALING: the costs that differ along x, or if none does, all that are known.
    """
    is_scaling = figure in SCALING
    wanted = [each for each in stored_quantities() if each.better] if is_scaling else map(quantity, figure.y)
    fewest = FEWEST_FITTED if is_scaling else 2
    found = [(each, [series_of(panel, figure, each, fewest) for panel in panels]) for each in wanted]
    found = [(each, lines) for each, lines in found if any(lines)]
    if not is_scaling:
        return found
    return [
        (each, lines) for each, lines in found if any(len({*line.y[line.known]}) > 1 for own in lines for line in own)
    ] or found


def is_numeric(values: Iterable[Any]) -> bool:
    """Return whether all x are numbers; truth values and words are categories."""
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)


@dataclass(frozen=True)
class Fit:
    """A straight line on the axes of a scale, fitted to points of which at least FEWEST_FITTED are known."""

    line: FittedLine
    scale: str

    @property
    def text(self) -> str:
        """`1.98 [1.95, 2.01]`: exponent, slope, or factor for each unit of x."""
        number = self.line.slope.map_monotonic(math.exp) if self.scale == "log-y" else self.line.slope
        return number.text(decimals=2 if self.scale == "log" else None)

    def at(self, x: Floats) -> Floats:
        """The line's y at these x."""
        up = self.line.intercept + self.line.slope.value * (np.log(x) if self.scale == "log" else x)
        return np.asarray(up if self.scale == "linear" else np.exp(up), dtype=np.float64)

    def is_seen(self, x: Floats, y: Floats) -> bool:
        """Return whether the line shows these points: it rises or falls, and misses none of them."""
        off = np.abs(self.at(x) - y) / (np.abs(y).max() if self.scale == "linear" else np.minimum(self.at(x), y))
        return bool(off.max() <= MISSED) and not self.line.slope.low <= 0 <= self.line.slope.high


def fit_of(series: Series, figure: Figure) -> Fit | str:
    """Fit, or the reason for none."""
    x, y = np.array(series.x, np.float64)[series.known], series.y[series.known]
    if len(x) < FEWEST_FITTED:
        return "too few points"
    if figure.scale != "linear" and (y <= 0).any():
        return "not above 0"
    up = y if figure.scale == "linear" else np.log(y)
    return Fit(fit_line(np.log(x) if figure.scale == "log" else x, up), figure.scale)


def fit_title(figure: Figure) -> str:
    what = {"log": "exponent", "log-y": f"factor for each unit of {figure.x}"}
    return f"{what.get(figure.scale, f'slope over {figure.x}')} [95 % interval]"
