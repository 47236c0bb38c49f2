"""Curves: quantities against a hyper-parameter or a size, a line for each module and setting, with what was fitted.

Where many modules differ in a word only, such as the dtype, they are sorted points: the ratio to the first word.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, compress
from statistics import median
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import SubFigure
from matplotlib.lines import Line2D
from matplotlib.text import Annotation
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from ctxbench.model.metric import Quantity
from ctxbench.model.suite_file import POINTS, Figure

from ..curves import AXIS_TITLES, Fit, Floats, Series, drawn_of, fit_of, is_numeric
from ..panels import DISTURBED, Panel, is_disturbed, origin_of
from ..tables.cells import heading
from .labels import freeze_layout
from .layout import CHARACTER, KEY, LINE, NAME, PAGE, FigureSize, parts, without_family, wrapped
from .listed import listed_axes
from .style import DASHES, FAINT, FAMILIES, INK, MARKERS, PALE, PAPER, SMALL, Drawing, Look, looks
from .ticks import log_axis

# Axes beside each other, and their inches: the least wide, and how high; the same with many names at lines.
_COLUMNS, _LEAST, _NAMED, _HEIGHT, _HIGH = 3, 2.2, 3.0, 2.1, 3.0
# Inches of axes of one word in a list, names included, at least.
_WORD_AXES = 1.9
# Inches of a module's line in a list, and of what is above and below the lines.
_LINE, _ASIDE = 0.125, 0.8
# Characters of a line of the legend.
_ENTRY = 40
MOST_SERIES = 40
# With more lines than this over words, each module is a line of the figure. With more modules over numbers, those are
# named that grow by another exponent than the median, by more than this, and all others have one look.
_MANY, _UNLIKE, _OTHERS = 12, 0.25, Look(FAINT, ".")
# Points: the lines of all others.
_THIN = 0.5
# Linear axes begin at 0 unless the smallest value is above this share of the largest.
_FLAT = 0.5
# Markers of a line, all of which count for the fit, and sizes named as failed.
MOST_POINTS = 200
MOST_FAILURES = 3
# The part of a marker that is filled, for the lines of a module in turn; none: hollow.
_FILLS = ("full", "none", "left", "top")
# Lines whose points differ by less, relatively, coincide: they have their markers in turn.
_SAME = 0.01
# Words on the x-axis: characters of a line, and how far apart the markers of two lines at one word are, at most.
_WORD, _BESIDE = 10, 0.16
# How much of linear axes is above the largest value.
_ABOVE = 1.05
# Points between a line's last point and its name.
_ASIDE_NAME = 9.0
# Of a panel, by quantity.
PanelSeries = dict[str, list[Series]]


def curve(panels: Sequence[Panel], figure: Figure, sheet: FigureSize = PAGE) -> Drawing:
    """The drawing: a part a panel, and in it axes for each quantity; one legend a part."""
    found = drawn_of(panels, figure)
    ys = [each for each, _ in found]
    shown = {
        panel: _fitting({each.key: lines[number] for each, lines in found}, figure)
        for number, panel in enumerate(panels)
        if any(lines[number] for _, lines in found)
    }
    least = _NAMED if any(_are_many(own, figure) for own in shown.values()) else _LEAST
    columns = sheet.columns(least, 2 if len(ys) == 4 else min(_COLUMNS, len(ys)))
    words = _words_apart(shown, ys, sheet)
    asked = [(each, word) for each in ys for word in words or [""]]
    columns = len(words) or columns
    rows = -(-len(asked) // columns)
    drawn = []
    for panel, own in shown.items():
        points = {row["case"] for line in _all(own) for row in line.rows}
        records = [row for row in panel.rows if row["case"] in points]
        drawn.append((panel, without_family(records) if _are_many(own, figure) else records))
    heights = [
        _height(own, figure) * rows + LINE * _legend_lines(own, figure, sheet, sheet.width / columns)
        for own in shown.values()
    ]
    origins = {origin_of(each, panel.rows).partition(",")[0] for panel in shown for each in ys}
    picture, places = parts(figure.title, sheet, drawn, heights, origins)
    drawing = Drawing(picture, _caption(figure, found, shown))
    first: dict[str, Axes] = {}
    names: list[list[Annotation]] = []
    for (panel, own), part in zip(shown.items(), places, strict=True):
        cells = list(part.subplots(rows, columns, squeeze=False, gridspec_kw={"hspace": 0.04}).flat)
        appearance, many = _looks(own), _are_many(own, figure)
        order: list[str] = []
        at_lines = many or _have_room(own, sheet.width / columns)
        for (each, word), axes in zip(asked, cells, strict=False):
            lines = own[each.key]
            axes.set_title(_title(panel, own, figure, each) + f"\n{word}" * bool(word))
            if not lines:
                axes.set_axis_off()
            elif _is_list(own):
                if word and axes is not cells[0]:
                    axes.sharex(cells[0])
                order = listed_axes(drawing, axes, lines, each, order, word)
                axes.tick_params(labelleft=word in ("", *words[:1]))
            else:
                named = _unlike(lines, figure) if many else lines
                others = [line for line in lines if line not in named]
                grey = {(line.module, line.settings): _OTHERS for line in others}
                _axes(drawing, axes, [*others, *named], figure, appearance | grey)
                if at_lines:
                    names.append(_name_lines(axes, named, appearance, others))
                if each.key in first:
                    axes.sharey(first[each.key])
                first.setdefault(each.key, axes)
        for axes in cells[len(asked) :]:
            axes.set_axis_off()
        if not at_lines:
            _legend(part, cells[: len(asked)], _beside(own, sheet))
    if names:
        freeze_layout(picture)
        for own_names in names:
            _move_apart(own_names, picture.dpi)
    return drawing


def _fitting(own: PanelSeries, figure: Figure) -> PanelSeries:
    """The lines that axes can hold: a list grows with them, curves that must be told apart do not."""
    if _is_list(own) or _are_many(own, figure):
        return own
    return {key: lines[:MOST_SERIES] for key, lines in own.items()}


def _are_many(own: PanelSeries, figure: Figure) -> bool:
    """Return whether the lines are of more modules than looks tell apart, and few have another exponent."""
    lines = _all(own)
    many = len({line.module for line in lines}) > _MANY and figure.scale == "log"
    if not many or not is_numeric(_every_x(lines)):
        return False
    return all(len(_unlike(each, figure)) <= _MANY for each in own.values())


def _unlike(lines: Sequence[Series], figure: Figure) -> list[Series]:
    """The lines whose exponent is not near the median."""
    fits = {line: fit_of(line, figure) for line in lines}
    exponents = {line: fit.line.slope.value for line, fit in fits.items() if isinstance(fit, Fit)}
    middle = median(exponents.values()) if exponents else 0.0
    return [line for line in exponents if abs(exponents[line] - middle) > _UNLIKE]


def _is_one_module(own: PanelSeries) -> bool:
    """Return whether the lines are settings of one module, and few enough for a colour each."""
    lines, settings = _all(own), {line.settings for line in _all(own)}
    return len({line.module for line in lines}) == 1 and 1 < len(settings) <= len(FAMILIES)


def _have_room(own: PanelSeries, width: float) -> bool:
    """Return whether the lines over numbers can have their names at their ends: in axes of so many inches."""
    lines, most = _all(own), max(map(len, own.values()))
    few = _is_one_module(own) or (width >= _NAMED and 1 < most <= _MANY)
    end_alike = len({line.x[-1] for line in lines}) == 1 and all(line.known[-1] for line in lines)
    return few and end_alike and is_numeric(_every_x(lines)) and not any(map(_failures, lines))


def _looks(own: PanelSeries) -> dict[tuple[str, str], Look]:
    """The look of each line, by module and settings: of one module's lines a colour each."""
    keys = list(dict.fromkeys((line.module, line.settings) for line in _all(own)))
    if _is_one_module(own):
        colours = [look.colour for look in FAMILIES.values()]
        apart = [*colours[::2], *colours[1::2]]  # neighbours are alike
        return {key: Look(apart[n], MARKERS[n]) for n, key in enumerate(keys)}
    by_module = looks(module for module, _ in keys)
    return {key: by_module[key[0]] for key in keys}


def _name_lines(
    axes: Axes, lines: Sequence[Series], appearance: Mapping[tuple[str, str], Look], others: Sequence[Series]
) -> list[Annotation]:
    """Write at the last point of each line what tells it from the others; lines that end alike share a name.

    The `others` have one name, at the middle of their ends.
    """
    ends: list[tuple[float, float, str, dict[str, list[str]]]] = []  # with the titles by their setting
    alone = len({each.module for each in lines}) == 1 < len(lines)
    for line in lines:
        if line.known.any():
            last = int(np.flatnonzero(line.known)[-1])
            x, y = float(line.x[last]), float(line.y[last])
            own = next((each for each in ends if each[0] == x and np.isclose(each[1], y, _SAME, 0)), None)
            if own is None:
                ends.append(own := (x, y, appearance[line.module, line.settings].colour, {}))
            setting = _setting(line, [each for each in lines if each.module == line.module])
            own[3].setdefault(setting, []).append("" if alone else line.title.partition(" [")[0])
    last_points = [(float(line.x[-1]), float(line.y[-1])) for line in others if line.known[-1]]
    if last_points:
        x, y = (median(values) for values in zip(*last_points, strict=True))
        ends.append((x, y, INK, {"": [f"{len(others)} others"]}))
    return [
        axes.annotate(
            wrapped(", ".join(f"{', '.join(titles)} {setting}".strip() for setting, titles in own.items()), NAME),
            (x, y), (_ASIDE_NAME, 0), textcoords="offset points", va="center", fontsize=SMALL,
            color=colour if sum(map(len, own.values())) == 1 else INK, annotation_clip=False,
        )
        for x, y, colour, own in sorted(ends, key=lambda end: end[1])
    ]  # fmt: skip


def _move_apart(names: Sequence[Annotation], dpi: float) -> None:
    """Move names, which are given from the lowest on, until none covers another or the title. The layout is final."""
    boxes = [name.get_window_extent() for name in names]
    moves, top = [0.0] * len(names), -math.inf
    for i, box in enumerate(boxes):
        moves[i] = max(0.0, top - box.y0)
        top = box.y1 + moves[i]
    bottom = names[0].axes.get_window_extent().y1 if names and names[0].axes else math.inf
    for i in reversed(range(len(names))):
        moves[i] -= max(0.0, boxes[i].y1 + moves[i] - bottom)
        bottom = boxes[i].y0 + moves[i]
        names[i].set_position((_ASIDE_NAME, moves[i] * 72 / dpi))


def _all(own: PanelSeries) -> list[Series]:
    return list(chain.from_iterable(own.values()))


def _every_x(lines: Iterable[Series]) -> Iterator[Any]:
    return chain.from_iterable(line.x for line in lines)


def _is_list(own: PanelSeries) -> bool:
    """Return whether the lines are many, and differ in words."""
    return max(map(len, own.values())) > _MANY and not is_numeric(_every_x(_all(own)))


def _words_apart(shown: Mapping[Panel, PanelSeries], ys: Sequence[Quantity], sheet: FigureSize) -> list[str]:
    """Words that have axes each: those with numbers beyond the first word, in lists of one quantity, if they fit."""
    if len(ys) > 1 or not all(map(_is_list, shown.values())):
        return []
    lines = [line for own in shown.values() for line in _all(own)]
    first = str(next(_every_x(lines)))
    found = dict.fromkeys(str(x) for line in lines for x in compress(line.x, line.known & (line.y > 0)))
    others = [word for word in found if word != first]
    return others if sheet.columns(_WORD_AXES, len(others)) == len(others) > 1 else []


def _height(own: PanelSeries, figure: Figure) -> float:
    """Inches of axes."""
    if _is_list(own):
        return _LINE * max(map(len, own.values())) + _ASIDE
    return _HIGH if _are_many(own, figure) else _HEIGHT


def _beside(own: PanelSeries, sheet: FigureSize) -> int:
    """Number of columns of the legend."""
    longest = _ENTRY if _is_list(own) else max(len(line) for label in _labels(own) for line in label.split("\n"))
    return max(1, int(sheet.width / (CHARACTER * longest + KEY)))


def _legend_lines(own: PanelSeries, figure: Figure, sheet: FigureSize, width: float) -> int:
    if _are_many(own, figure) or _have_room(own, width):
        return 0
    return -(-sum(label.count("\n") + 1 for label in _labels(own)) // _beside(own, sheet)) if not _is_list(own) else 2


def _caption(
    figure: Figure, found: Sequence[tuple[Quantity, list[list[Series]]]], shown: dict[Panel, PanelSeries]
) -> str:
    fitted = "; the table has the fits" if figure.fit else ""
    if any(map(_is_list, shown.values())):
        fitted += "; of times with the 95 % interval of the ratio over rounds, where three are common to both"
    if any(_are_many(own, figure) for own in shown.values()):
        fitted += f"; named: an exponent more than {_UNLIKE:g} from the median"
    every = sum(max(map(len, of_panel)) for of_panel in zip(*(lines for _, lines in found), strict=True))
    drawn = sum(max(map(len, own.values())) for own in shown.values())
    omitted = f" Shown: {drawn} of {every} lines." if drawn < every else ""
    return f"{figure.title}: against {_x_title(figure)}{fitted}.{omitted}"


def _x_title(figure: Figure) -> str:
    return AXIS_TITLES.get(figure.x, figure.x)


def _title(panel: Panel, own: PanelSeries, figure: Figure, each: Quantity) -> str:
    """The quantity and its origin; over curves its unit; and the input, where that of the figure's axes differs."""
    title = each.title if _is_list(own) else heading(each.title, each.unit)
    origin = f"\n({origin_of(each, panel.rows)})" if each.origin in ("predicted", "published") else ""
    shapes = {row["shape"] for line in own[each.key] for row in line.rows}
    every = {row["shape"] for line in _all(own) for row in line.rows}
    several = figure.x not in POINTS and len(every) > 1 and len(shapes) == 1
    return title + origin + (f"\ninput [{shapes.pop().replace('x', ', ')}]" if several else "")


def _labels(own: PanelSeries) -> list[str]:
    """Labels of the lines, each once."""
    every = _all(own)
    return list(dict.fromkeys(_label(line, every) for line in every))


def _label(line: Series, others: Sequence[Series]) -> str:
    """The module and those settings that another line does not have; how and where rows failed."""
    return wrapped(f"{line.title} {_setting(line, others)}".strip() + _failures(line), _ENTRY)


def _setting(line: Series, others: Sequence[Series]) -> str:
    """The settings that another line does not have."""
    theirs = [other.settings.split(", ") for other in others]
    return ", ".join(setting for setting in line.settings.split(", ") if any(setting not in each for each in theirs))


def _axes(
    drawing: Drawing, axes: Axes, lines: Sequence[Series], figure: Figure, appearance: dict[tuple[str, str], Look]
) -> None:
    """A line for each series through its points, or the fit that shows them."""
    words = list(dict.fromkeys(map(str, _every_x(lines))))
    numeric = is_numeric(_every_x(lines))
    before: dict[str, int] = {}
    aside = min(_BESIDE, 0.7 / len(lines)) * (np.arange(len(lines)) - (len(lines) - 1) / 2)
    for line, shift in zip(lines, aside, strict=True):
        place = before[line.module] = before.get(line.module, -1) + 1
        known = line.known & ((line.y > 0) | (figure.scale in ("linear", "log-x")))
        if not known.any():
            continue
        x = np.array([float(v) if numeric else words.index(str(v)) + shift for v in compress(line.x, known)])
        y = line.y[known]
        fit = fit_of(line, figure) if figure.fit and numeric else None
        look = appearance[line.module, line.settings]
        place *= len({each.colour for each in appearance.values()}) < len(appearance)  # colours tell them apart
        fill = _FILLS[place % len(_FILLS)]
        style: dict[str, Any] = {"marker": look.marker, "color": look.colour, "markerfacecoloralt": PAPER}
        style |= {"markerfacecolor": PAPER} if fill == "none" else {"fillstyle": fill}  # the line below is not seen
        dash = DASHES[place % len(DASHES)] if numeric else ""
        thin: dict[str, Any] = {"linewidth": _THIN} if look is _OTHERS else {}
        style |= {"markersize": 2 * _THIN} if thin else {}
        if isinstance(fit, Fit) and fit.is_seen(x, y):
            ends = np.array([x.min(), x.max()])
            axes.plot(ends, fit.at(ends), dash, color=look.colour, **thin)
        elif numeric:
            axes.plot(x, y, dash, color=look.colour, **thin)
        label = _label(line, lines)
        text = f"{label}: {fit.text}" if isinstance(fit, Fit) else label
        marked = _marked(line, lines, len(x)) if numeric else slice(None)
        for points in _points(axes, x[marked], y[marked], _unsure(line)[known][marked], style):
            points.set_gid(drawing.detail(" ".join(text.split())))
        axes.plot([], [], linestyle=dash, label=label, **style)
        _intervals(axes, line, known, x)
    _scales(axes, lines, figure, words, numeric)


def _marked(line: Series, lines: Sequence[Series], count: int) -> NDArray[np.int64]:
    """Marked points of a line: not too many, and where several lines coincide, each in turn."""
    same = [each for each in lines if len(each.y) == len(line.y) and np.allclose(each.y, line.y, _SAME, 0, True)]
    some = np.unique(np.linspace(0, count - 1, min(count, MOST_POINTS)).astype(np.int64))
    return some[same.index(line) % count :: len(same)]


def _unsure(line: Series) -> NDArray[np.bool_]:
    """Mask of the rows with a time without an interval."""
    each = line.quantity
    return np.array([each.has_interval and row[each.detail("low_ms")] is None for row in line.rows], bool)


def _points(axes: Axes, x: Floats, y: Floats, unsure: NDArray[np.bool_], style: dict[str, Any]) -> list[Line2D]:
    """The points; those without an interval are pale."""
    found = []
    for which, alpha in ((~unsure, None), (unsure, PALE)):
        if which.any():
            found += axes.plot(x[which], y[which], linestyle="", alpha=alpha, clip_on=False, **style)
    return found


def _intervals(axes: Axes, line: Series, known: NDArray[np.bool_], x: Floats) -> None:
    """The intervals of times, and a mark at those that other work disturbed."""
    each = line.quantity
    if each.has_interval:
        rows = list(compress(line.rows, known))
        ends = [[row[each.detail(end)] for row in rows] for end in ("low_ms", "high_ms")]
        low, high = np.array(ends, np.float64) / each.unit.factor
        axes.vlines(x, low, high, color=FAINT, linewidth=0.8, zorder=1)
        for place, y, row in zip(x, line.y[known], rows, strict=True):
            if is_disturbed(row):
                axes.annotate(DISTURBED, (place, y), xytext=(3, 3), textcoords="offset points", fontsize=SMALL)


def _scales(axes: Axes, lines: Sequence[Series], figure: Figure, words: Sequence[str], numeric: bool) -> None:
    if not numeric:
        axes.set_xticks(range(len(words)), [wrapped(word, _WORD) for word in words])
        axes.margins(x=0.15)
    elif all(isinstance(x, int) for x in _every_x(lines)):
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set(xlabel=_x_title(figure))
    axes.grid(which="major")
    if figure.scale in ("log", "log-x") and numeric:
        log_axis(axes, "x", sorted({*map(float, _every_x(lines))}))
    if figure.scale in ("log", "log-y"):
        log_axis(axes, "y")
    elif 0 <= min(np.nanmin(line.y) for line in lines) <= _FLAT * max(np.nanmax(line.y) for line in lines):
        axes.set_ylim(0, _ABOVE * axes.get_ylim()[1])  # a difference looks as large as it is


def _legend(part: SubFigure, cells: Iterable[Axes], columns: int) -> None:
    """One legend below all axes, an entry for each label."""
    found: dict[str, Artist] = {}
    for axes in cells:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    if found:
        part.legend(
            list(found.values()),
            list(found),
            loc="outside lower left",
            ncols=min(columns, len(found)),
            labelspacing=0.3,
            borderpad=0,
        )


def _failures(line: Series) -> str:
    """`, oom at 4096, 16384`: how rows of a line failed, and at which x."""
    failed = {x: str(row["status"]) for x, row in zip(line.x, line.rows, strict=True) if row["status"] != "ok"}
    if not failed:
        return ""
    sizes = ", ".join(map(str, list(failed)[:MOST_FAILURES]))
    more = f" and {len(failed) - MOST_FAILURES} more" if len(failed) > MOST_FAILURES else ""
    return f", {'/'.join(dict.fromkeys(failed.values()))} at {sizes}{more}"
