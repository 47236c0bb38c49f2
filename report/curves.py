"""The data of curves: a quantity of a run's rows against what they differ in, line by line, and what was fitted."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pydantic import ValidationError

from ctxbench.base.errors import UsageError
from ctxbench.base.statistics import Line, fit_line
from ctxbench.model.conditions import SHAPE
from ctxbench.model.metric import Quantity
from ctxbench.model.metrics import quantity, stored_quantities
from ctxbench.model.published import Printed
from ctxbench.model.suite_file import COMPUTED, POINTS, Figure
from ctxbench.results.claims import slope

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
# What names a row, and what it is drawn with.
NAMED_BY = ("module", "name", "family", "status", "shape", "every", "named")
# Fewer points do not show a fit.
FEWEST_FITTED = 3
# A line that is further off from any point, relatively, is not drawn: the points bend.
MISSED = 0.25


@dataclass(frozen=True, eq=False)
class Series:
    """A line of a figure: its module and settings but for `x`, and the rows by rising x, in `frame["x"]`."""

    module: str
    settings: str
    frame: pd.DataFrame
    quantity: Quantity

    @property
    def title(self) -> str:
        """Title of the module."""
        return str(self.frame["name"].iloc[0])

    @property
    def y(self) -> "pd.Series[float]":
        """The values in the quantity's unit; NaN where there is none."""
        return numbers_of(self.frame, self.quantity) / self.quantity.unit.factor


def figures_of(panel: Panel) -> list[Figure]:
    """The figures that the run's suite names. UsageError if the run tells of them what no suite can."""
    try:
        return [Figure.model_validate(each) for each in panel.run.definition.get("figures") or ()]
    except ValidationError as error:
        raise UsageError(
            f"{panel.run.folder.path / 'run.json'}: definition.figures: {error.errors()[0]['msg']}"
        ) from None


def columns_of(quantity: Quantity) -> list[str]:
    """The columns of a quantity's numbers, of their intervals, and of what disturbed them."""
    timed = [quantity.detail("low_ms"), quantity.detail("high_ms"), "others_share"] if quantity.has_interval else []
    return [quantity.column, f"{quantity.key}_published", *timed]


def numbers_of(frame: pd.DataFrame, quantity: Quantity) -> "pd.Series[float]":
    """A quantity of the rows in units of one; what only papers have, as published."""
    if quantity.origin != "published":
        return frame[quantity.column].astype("float64")
    printed = [
        float(Printed.parse(text).value) if pd.notna(text) else None for text in frame[f"{quantity.key}_published"]
    ]
    return pd.Series(printed, frame.index, dtype="float64") * quantity.unit.factor


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
    known = numbers_of(panel.frame, quantity).notna()
    if known.sum() < fewest:
        return []
    needed = [*NAMED_BY, *COMPUTED, *POINTS, *SHAPE.columns, *columns_of(quantity)]
    frame = panel.frame[[name for name in dict.fromkeys(needed) if name in panel.frame]]  # of nearly two hundred
    frame = _placed(frame, figure).assign(known=known)
    if frame["x"].nunique() < fewest:
        return []
    fixed = ["module", "rest", *(name for name in (*COMPUTED, *POINTS) if name != figure.x)]
    counts = frame[frame["known"]].groupby(fixed, dropna=False)["x"].nunique().rename("count")
    frame = frame.join(counts, on=fixed).query("count >= @fewest").sort_values("count", ascending=False, kind="stable")
    found: dict[tuple[str, str], Series] = {}
    for _, rows in frame.groupby(fixed, dropna=False, sort=False):
        own = rows.sort_values("known", ascending=False, kind="stable").drop_duplicates("x")
        own = own.sort_values("x") if is_numeric([own["x"]]) else own.sort_index()
        series = Series(str(own["module"].iloc[0]), str(own["rest"].iloc[0]), own, quantity)
        found.setdefault((series.module, series.settings), series)
    return sorted(found.values(), key=lambda series: int(series.frame.index.min()))


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
        (each, lines) for each, lines in found if any(series.y.nunique() > 1 for own in lines for series in own)
    ] or found


def is_numeric(columns: "Iterable[pd.Series[Any]]") -> bool:
    """Return whether all x of these columns are numbers; truth values and words are categories."""
    values = [value for column in columns for value in column]
    return all(isinstance(value, int | float | np.integer) and not isinstance(value, bool) for value in values)


@dataclass(frozen=True)
class Fit:
    """A straight line on the axes of a scale, fitted to points of which at least FEWEST_FITTED are known."""

    line: Line
    scale: str

    @property
    def text(self) -> str:
        """`1.98 [1.95, 2.01]`: exponent, slope, or factor for each unit of x."""
        number = slope(self.line).map_monotonic(math.exp) if self.scale == "log-y" else slope(self.line)
        return number.text(decimals=2 if self.scale == "log" else None)

    def at(self, x: Floats) -> Floats:
        """The line's y at these x."""
        up = self.line.intercept + self.line.slope * (np.log(x) if self.scale == "log" else x)
        return np.asarray(up if self.scale == "linear" else np.exp(up), dtype=np.float64)

    def is_seen(self, x: Floats, y: Floats) -> bool:
        """Return whether the line shows these points: it rises or falls, and misses none of them."""
        off = np.abs(self.at(x) - y) / (np.abs(y).max() if self.scale == "linear" else np.minimum(self.at(x), y))
        return bool(off.max() <= MISSED) and not self.line.low <= 0 <= self.line.high


def fit_of(series: Series, figure: Figure) -> Fit | str:
    """Fit, or the reason for none."""
    known = series.y.notna()
    x, y = series.frame["x"][known].astype("float64").to_numpy(), series.y[known].to_numpy()
    if len(x) < FEWEST_FITTED:
        return "too few points"
    if figure.scale != "linear" and (y <= 0).any():
        return "not above 0"
    up = y if figure.scale == "linear" else np.log(y)
    return Fit(fit_line(np.log(x) if figure.scale == "log" else x, up), figure.scale)


def fit_title(figure: Figure) -> str:
    """Title of the fit, for a heading."""
    what = {"log": "exponent", "log-y": f"factor for each unit of {figure.x}"}
    return f"{what.get(figure.scale, f'slope over {figure.x}')} [95 % interval]"


def _placed(frame: pd.DataFrame, figure: Figure) -> pd.DataFrame:
    """The rows that have the figure's x, with `x`, `positions` and as text, `rest`, the settings that name a line."""
    x = figure.x
    frame = frame.assign(positions=frame["height"] * frame["width"])
    across = list(frame[x]) if x in (*COMPUTED, *POINTS) else [each.get(x) for each in frame["every"]]
    aside = (x, *figure.along)
    rest = [settings_text({name: each[name] for name in each if name not in aside}) for each in frame["named"]]
    frame = frame.assign(x=pd.Series(across, frame.index, dtype="object"), rest=rest)
    return frame[[value is not None for value in across]]
