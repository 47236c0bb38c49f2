"""The page of a profile: the annotated source, a flame graph, and the tables; one self-contained HTML file."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ctxbench.base.call_sites import AGAIN, Line
from ctxbench.base.mode import NOUNS, Mode
from ctxbench.base.number import significant
from ctxbench.plugins.profile.costs import Cost
from ctxbench.plugins.profile.profile import BYS, Lines, Part, Pass, Profile, line_of
from ctxbench.plugins.profile.tables import held, kept_or_moved, si, size, table
from ctxbench.plugins.profile.texts import headline, roofline, sentences
from ctxbench.report.page import TEMPLATES
from ctxbench.table.html import fill_page

# All rows of a pass; a part of the flame graph with less than this share of it is left out.
ALL, LEAST_SHARE = 10_000, 0.001


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
        "time": "ms" if taken.has_times else "of sum",
        "memory": kept_or_moved(taken),
        "sources": _files(profile, taken, parts),
        "flame": _node(taken, "module", "(module)", taken.costs, 0, lines, taken.sum_ms.value or 1.0),
        "tables": [(f"{by.capitalize()}s", table(profile, mode, by, lines, ALL)) for by in BYS],
    }


def _files(profile: Profile, taken: Pass, parts: Mapping[Line, Part]) -> list[dict[str, Any]]:
    """Each file with the functions that costs are booked to, line by line; an empty row between two functions."""
    amounts = [(part.ms.value, part.macs, held(taken, part)) for part in parts.values()]
    most = [max(each) or 1 for each in zip(*amounts, strict=True)]
    files: dict[str, list[dict[str, Any]]] = {}
    for source in profile.sources:
        found = [parts.get(Line(source.file, source.first + place)) for place in range(len(source.lines))]
        if any(found):
            rows = files.setdefault(source.file, [])
            rows += [{"number": "", "code": "", "cells": _cells(taken, None, most)}] * bool(rows)
            rows += [
                {"number": source.first + place, "code": code, "cells": _cells(taken, part, most)}
                for place, (code, part) in enumerate(zip(source.lines, found, strict=True))
            ]
    return [{"name": Path(file).name, "rows": rows} for file, rows in files.items()]


def _cells(taken: Pass, part: Part | None, most: Sequence[float]) -> list[tuple[list[tuple[str, float]], str]]:
    """A line's time or share, savings, MACs and bytes: bars with their width in per cent of the longest, and a text."""
    if part is None:
        return [([], "")] * 4
    times = (("forward", part.forward_ms), ("backward", part.backward_ms))
    held_bytes = held(taken, part)
    return [
        (
            [(name, 100 * ms / most[0]) for name, ms in times],
            significant(part.ms.value) if taken.has_times else f"{part.share:.1%}",
        ),
        ([], significant(part.saved_ms) if part.saved_ms and taken.has_times else ""),
        ([("macs", 100 * part.macs / most[1])], si(part.macs)),
        ([("memory", 100 * held_bytes / most[2])], size(held_bytes)),
    ]


def _node(
    taken: Pass, kind: str, name: str, costs: Sequence[Cost], depth: int, lines: Lines, around_ms: float
) -> dict[str, Any]:
    """A part of the pass as a tree: submodules, in them lines, in them operators, each as wide as its time."""
    part = taken.part(name, costs)
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
    least = LEAST_SHARE * taken.sum_ms.value
    children = [
        _node(taken, *key, own, depth + 1, lines, part.ms.value)
        for key, own in groups.items()
        if taken.part("", own).ms.value > least
    ]
    return {
        "kind": kind,
        "name": name,
        "title": f"{name}: {f'{part.ms.text()} ms, ' * taken.has_times}{part.share:.1%} of all operators",
        "width": round(100 * part.ms.value / around_ms, 3),
        "children": sorted(children, key=lambda child: -child["width"]),
    }
