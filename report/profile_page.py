"""The page of a profile: the annotated source, a flame graph, and the tables; one self-contained HTML file."""

import base64
import hashlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ctxbench.attribution.profile import BYS, Cost, Lines, Part, Pass, Profile, Source, line_of
from ctxbench.mode import NOUNS, Mode
from ctxbench.number import significant

from .formats.html import environment, template_text, trusted
from .profile import headline, roofline, sentences
from .tables.profile import kept_or_moved, si, size, table

# All rows of a pass; a part of the flame graph with less than this share of it is left out.
ALL, LEAST_SHARE = 10_000, 0.001
HEADINGS = {"line": "Lines", "submodule": "Submodules", "operator": "Operators"}


def render_profile(profile: Profile, lines: Lines) -> str:
    """The whole page."""
    script = template_text("profile.js")
    return (
        environment()
        .get_template("profile.html")
        .render(
            title=profile.about,
            roofline=roofline(profile),
            script=trusted(script),
            script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
            style=trusted(template_text("page.css") + template_text("profile.css")),
            passes=[_pass(profile, mode, lines) for mode in profile.passes],
        )
    )


def _pass(profile: Profile, mode: Mode, lines: Lines) -> dict[str, Any]:
    taken = profile.passes[mode]
    parts = {part.line: part for part in taken.parts("line", lines) if part.line is not None}
    files = [{(line.file, line.number): part for line, part in parts.items() if line.file == source.file}
             for source in profile.sources]  # fmt: skip
    return {
        "mode": mode,
        "noun": NOUNS[mode].capitalize(),
        "headline": headline(profile, mode),
        "sentences": sentences(taken),
        "memory": kept_or_moved(taken),
        "sources": [
            found
            for source, own in zip(profile.sources, files, strict=True)
            if (found := _source(taken, source, own, [*parts.values()]))
        ],
        "flame": _flame(taken, lines),
        "tables": [(HEADINGS[by], table(profile, mode, by, lines, ALL)) for by in BYS],
    }


def _source(
    taken: Pass, source: Source, own: Mapping[tuple[str, int], Part], parts: Sequence[Part]
) -> dict[str, Any] | None:
    """A function's lines with their costs; None for one that no cost is booked to."""
    numbers = range(source.first, source.first + len(source.lines))
    found = [own.get((source.file, number)) for number in numbers]
    if not any(found):
        return None
    longest = max(part.forward_ms + part.backward_ms for part in parts)
    most = (max(part.macs for part in parts), max(_bytes(taken, part) for part in parts))
    rows = [
        {"number": number, "code": code, **_bars(taken, part, longest, most)}
        for number, code, part in zip(numbers, source.lines, found, strict=True)
    ]
    return {"name": Path(source.file).name, "rows": rows}


def _bars(taken: Pass, part: Part | None, longest: float, most: tuple[int, int]) -> dict[str, Any]:
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


def _node(
    taken: Pass, kind: str, name: str, costs: Sequence[Cost], depth: int, lines: Lines, width: float
) -> dict[str, Any]:
    part = taken.part(name, costs)
    title = f"{name}: {part.ms.text()} ms, {part.share.value:.1%} of the pass"
    groups: dict[tuple[str, str], list[Cost]] = defaultdict(list)
    for cost in costs if kind != "operator" else ():
        path = cost.place.module.split(".") if cost.place.module else []
        if kind == "line":
            groups["operator", f"{cost.operator}{' (backward)' if cost.phase == 'backward' else ''}"].append(cost)
        elif len(path) > depth:
            groups["module", path[depth]].append(cost)
        else:
            groups["line", str(line_of(cost.place, lines))].append(cost)
    whole = part.ms.value or 1.0
    shares = {key: taken.part(key[1], own).ms.value / whole for key, own in groups.items()}
    total = max(1.0, sum(shares.values()))  # medians of parts need not add up to that of their sum
    children = [
        _node(taken, key[0], key[1], own, depth + 1, lines, round(100 * shares[key] / total, 3))
        for key, own in sorted(groups.items(), key=lambda item: -shares[item[0]])
        if taken.part(key[1], own).share.value >= LEAST_SHARE
    ]
    return {"kind": kind, "name": name, "title": title, "width": width, "children": children}
