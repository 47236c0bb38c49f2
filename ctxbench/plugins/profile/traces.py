"""Timelines of a profile for other viewers: Chrome's trace events, and speedscope's file format."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ctxbench.base import disk
from ctxbench.base.mode import NOUNS, Mode
from ctxbench.plugins.profile.costs import Span

NAMES = ("trace.json", "profile.speedscope.json")
# What both formats say of who wrote them.
MARK = '"exporter": "ctxbench"'
_SPEEDSCOPE = "https://www.speedscope.app/file-format-schema.json"


def check_traces(folder: Path) -> None:
    """Make the folder of the traces. UsageError if a file of another program would be replaced there."""
    disk.make_folder(folder)
    disk.check_replaced((folder / name for name in NAMES), MARK)


def write_traces(folder: Path, about: str, calls: Mapping[Mode, Sequence[Span]]) -> list[Path]:
    """Write `trace.json` (Perfetto, chrome://tracing) and `profile.speedscope.json` into a folder; their paths."""
    paths = [folder / name for name in NAMES]
    for path, content in zip(paths, (chrome(calls), speedscope(about, calls)), strict=True):
        disk.write(path, json.dumps(content))
    return paths


def _stack(span: Span) -> list[str]:
    """The submodules from the outermost, the line, the operator."""
    path = span.place.module.split(".") if span.place.module else []
    modules = [".".join(path[: depth + 1]) for depth in range(len(path))]
    line = str(span.place.own) if span.place.own else f"({span.place.node})"
    return [span.phase, *modules, line, span.operator]


def chrome(calls: Mapping[Mode, Sequence[Span]]) -> dict[str, Any]:
    """Trace events: a call of an operator each, in microseconds, a thread for each mode."""
    events: list[dict[str, Any]] = []
    for thread, (mode, spans) in enumerate(calls.items()):
        events.append({"ph": "M", "name": "thread_name", "pid": 0, "tid": thread, "args": {"name": NOUNS[mode]}})
        start = spans[0].start if spans else 0
        for span in spans:
            when = {"ts": (span.start - start) / 1e3, "dur": (span.end - span.start) / 1e3}
            about = {"submodule": span.place.module, "line": str(span.place.own or ""), "node": span.place.node}
            where = {"ph": "X", "pid": 0, "tid": thread, "cat": span.phase}
            events.append({"name": span.operator, **where, **when, "args": about})
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": {"exporter": "ctxbench"}}


def speedscope(about: str, calls: Mapping[Mode, Sequence[Span]]) -> dict[str, Any]:
    """A sampled profile for each mode: the stack of each call, with its time and that between calls, in nanoseconds."""
    frames: dict[str, int] = {}
    profiles = []
    for mode, spans in calls.items():
        samples: list[list[int]] = []
        weights: list[int] = []
        now = spans[0].start if spans else 0
        for span in spans:
            for stack, length in ((["between operators"], span.start - now), (_stack(span), span.end - span.start)):
                if length > 0:
                    samples.append([frames.setdefault(name, len(frames)) for name in stack])
                    weights.append(length)
            now = max(now, span.end)
        ends = {"startValue": 0, "endValue": sum(weights), "unit": "nanoseconds"}
        profiles.append({"type": "sampled", "name": NOUNS[mode], **ends, "samples": samples, "weights": weights})
    shared = {"frames": [{"name": name} for name in frames]}
    return {"$schema": _SPEEDSCOPE, "name": about, "shared": shared, "profiles": profiles, "exporter": "ctxbench"}
