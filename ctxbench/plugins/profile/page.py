"""The page of a profile: the annotated source, a flame graph, and the tables; one self-contained HTML file."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ctxbench.base.call_sites import AGAIN, Line
from ctxbench.base.mode import NOUNS, Mode
from ctxbench.base.number import significant
from ctxbench.plugins.profile.costs import Cost
from ctxbench.plugins.profile.profile import BYS, Lines, Part, Pass, Profile, line_of
from ctxbench.plugins.profile.tables import kept_or_moved, si, size, table
from ctxbench.plugins.profile.texts import headline, roofline, sentences
from ctxbench.report.page import TEMPLATES
from ctxbench.table.html import fill_page

# All rows of a pass; a part of the flame graph with less than this share of it is left out.
ALL, LEAST_SHARE = 10_000, 0.001
HEADINGS = {"line": "Lines", "submodule": "Submodules", "operator": "Operators"}


def render_profile(profile: Profile, lines: Lines) -> str:
    """The whole page."""
    return fill_page(
        f"{__package__}:profile.html",
        f"{__package__}:profile.js",
        [f"{TEMPLATES}/page.css", f"{__package__}:profile.css"],
        title=profile.about,
        roofline=roofline(profile),
        passes=[_pass(profile, mode, lines) for mode in profile.passes],
    )


def _pass(profile: Profile, mode: Mode, lines: Lines) -> dict[str, Any]:
    taken = profile.passes[mode]
    lines_of: dict[Line, list[Cost]] = defaultdict(list)
    for cost in taken.costs:
        if isinstance(line := line_of(cost.place, lines), Line):
            lines_of[line].append(cost)
    parts = {line: taken.part(line, costs) for line, costs in lines_of.items()}
    return {
        "mode": mode,
        "noun": NOUNS[mode].capitalize(),
        "headline": headline(profile, mode),
        "sentences": sentences(taken),
        "memory": kept_or_moved(taken),
        "sources": _files(profile, taken, parts),
        "flame": _flame(taken, lines),
        "tables": [(HEADINGS[by], table(profile, mode, by, lines, ALL)) for by in BYS],
    }


def _files(profile: Profile, taken: Pass, parts: Mapping[Line, Part]) -> list[dict[str, Any]]:
    """Each file with the functions that costs are booked to, line by line; an empty row between two functions."""
    longest = max((part.forward_ms + part.backward_ms for part in parts.values()), default=0.0)
    most = tuple(max((value(part) for part in parts.values()), default=0) for value in (_macs, partial(_bytes, taken)))
    files: dict[str, list[dict[str, Any]]] = {}
    for source in profile.sources:
        found = [parts.get(Line(source.file, source.first + place)) for place in range(len(source.lines))]
        if any(found):
            rows = files.setdefault(source.file, [])
            rows += [{"number": "", "code": "", **_bars(taken, None, longest, most)}] * bool(rows)
            rows += [
                {"number": source.first + place, "code": code, **_bars(taken, part, longest, most)}
                for place, (code, part) in enumerate(zip(source.lines, found, strict=True))
            ]
    return [{"name": Path(file).name, "rows": rows} for file, rows in files.items()]


def _macs(part: Part) -> int:
    return part.macs


def _bars(taken: Pass, part: Part | None, longest: float, most: tuple[int, ...]) -> dict[str, Any]:
    if part is None:
        return {"time": [], "macs_width": 0, "size_width": 0, **dict.fromkeys(("ms", "saves", "macs", "size"), "")}
    phases = (("forward", part.forward_ms), ("backward", part.backward_ms))
    return {
        "time": [(name, _width(ms, longest)) for name, ms in phases],
        "ms": significant(part.ms.value),
        "saves": significant(part.saved_ms) if part.saved_ms else "",
        "macs_width": _width(part.macs, most[0]),
        "macs": si(part.macs),
        "size_width": _width(_bytes(taken, part), most[1]),
        "size": size(_bytes(taken, part)),
    }


def _bytes(taken: Pass, part: Part) -> int:
    return part.saved_bytes if taken.mode == "train" else part.moved_bytes


def _width(value: float, longest: float) -> float:
    """Per cent of the longest bar."""
    return round(100 * value / longest, 2) if longest else 0.0


def _flame(taken: Pass, lines: Lines) -> dict[str, Any]:
    """The pass as a tree: submodules, in them lines, in them operators, each as wide as its part of the time."""
    return _node(taken, "module", "(module)", taken.costs, 0, lines, 100.0)


def _spent(taken: Pass, costs: Sequence[Cost]) -> float:
    return taken.part("", costs).ms.value


def _node(
    taken: Pass, kind: str, name: str, costs: Sequence[Cost], depth: int, lines: Lines, width: float
) -> dict[str, Any]:
    part = taken.part(name, costs)
    title = f"{name}: {part.ms.text()} ms, {part.share:.1%} of all operators"
    groups: dict[tuple[str, str], list[Cost]] = defaultdict(list)
    for cost in costs if kind != "operator" else ():
        path = cost.place.module.split(".") if cost.place.module else []
        if kind == "line":
            phase = AGAIN if cost.place.node == AGAIN else cost.phase
            groups["operator", f"{cost.operator}{f' ({phase})' * (phase != 'forward')}"].append(cost)
        elif len(path) > depth:
            groups["module", path[depth]].append(cost)
        else:
            groups["line", str(line_of(cost.place, lines))].append(cost)
    whole, least = part.ms.value, LEAST_SHARE * taken.sum_ms.value
    children = [
        _node(taken, *key, own, depth + 1, lines, round(100 * _spent(taken, own) / whole, 3))
        for key, own in sorted(groups.items(), key=lambda item: -_spent(taken, item[1]))
        if _spent(taken, own) > least
    ]
    return {"kind": kind, "name": name, "title": title, "width": width, "children": children}
