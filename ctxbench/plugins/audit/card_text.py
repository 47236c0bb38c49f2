"""The text of a cost card: a published table with exact counts, and the times of a run."""

import json
import math
import platform
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from ctxbench.base.errors import UsageError
from ctxbench.base.extras import installed
from ctxbench.base.mode import MODES
from ctxbench.model.case import Case
from ctxbench.model.conditions import SHAPE
from ctxbench.plugins.audit.conventions import NO_GRAD, TOOLS
from ctxbench.plugins.macs.tools import unit_of
from ctxbench.registry.reference import Reference
from ctxbench.results.run_folder import RunFolder

COUNTED = ("params", "macs", "macs_train", "memory_train", "memory_infer")
HEAD = """\
# The costs of {names} at an input of {shape}, as ctxbench {version} counts and predicts them.
# To check them in a minute, without a GPU, in the folder from which the card was written: ctxbench audit {file}
# Each figure of parameters, MACs and memory is then counted again, to the last digit. Times are not: they are of the
# machine below, and {times}.
# Of a row with a `tool`, parameters and MACs are what that counter prints (its own "FLOPs" where it says so). Memory is
# the peak that is predicted for CUDA: weights counted, the input not, the first step.
title = {title}
authors = "ctxbench card"
venue = "a supplement"
year = {year}
seen = "read"
device = {device}
software = {software}
shape = {shape}
"""


def asked(tools: Sequence[str]) -> list[str]:
    """The counts that a card has: the block's own, and of counters their MACs and the parameters of their version."""
    params = dict.fromkeys(TOOLS["params"][each.removesuffix(NO_GRAD)] for each in tools)
    return [*COUNTED, *(TOOLS["macs"][each] for each in tools), *params]


def head(cases: Mapping[str, Case], out: Path, run: RunFolder | None) -> str:
    """The comment above, and the keys of the table."""
    about = run.meta["environment"] if run else {}
    versions = about.get("packages") or {name: installed(name) for name in ("ctxbench", "torch")}
    software = {**versions, "Python": about.get("python") or platform.python_version()}
    shape = [*next(iter(cases.values())).shape]
    times = f"are the medians of fresh processes, by `{_line(run.meta['command'])}`" if run else "there are none here"
    gpus = [str(each.get("name", each)) if isinstance(each, dict) else str(each) for each in about.get("gpus") or []]
    return HEAD.format(
        names=" and ".join(cases), shape=shape, file=out.name, times=times, version=installed("ctxbench"),
        title=json.dumps(f"Costs of {', '.join(cases)}"), year=datetime.now(UTC).year,
        device=json.dumps(", ".join(filter(None, [about.get("cpu"), *gpus])) or "none: nothing was measured"),
        software=json.dumps(", ".join(f"{name} {version}" for name, version in software.items())),
    )  # fmt: skip


def counted(
    name: str, case: Case, tools: Sequence[str], counts: Mapping[str, int], missing: Mapping[str, str]
) -> Iterator[str]:
    """The row of a block, and one for each counter."""
    yield from (f"# {name}: no {each}, since {_line(missing[each])}" for each in COUNTED if each in missing)
    yield from _row(name, name, case, {each: counts[each] for each in COUNTED if each in counts})
    for tool in tools:
        own = {"params": TOOLS["params"][tool.removesuffix(NO_GRAD)], "macs": TOOLS["macs"][tool]}
        if own["macs"] in missing:
            yield f"# {name}: {tool} prints nothing: {_line(missing[own['macs']])}"
            continue
        printed = {quantity: counts[each] for quantity, each in own.items() if each in counts}
        yield from _row(f"{name}, {tool}", name, case, printed, f"tool = {json.dumps(tool)}  # {unit_of(tool)}")


def _row(title: str, name: str, case: Case, printed: Mapping[str, int], *more: str) -> Iterator[str]:
    """A row of the table: its counts, exactly."""
    figures = ", ".join(f'{quantity} = "{_exact(quantity, count)}"' for quantity, count in printed.items())
    yield f"\n[rows.{json.dumps(title)}]\nblock = {json.dumps(name)}"
    if unsaid := [key for key, value in case.hparams.items() if not isinstance(value, str | bool | int | float)]:
        raise UsageError(f"{name}: {unsaid[0]} is {case.hparams[unsaid[0]]!r}; a table says numbers and words alone")
    if case.hparams:
        chosen = ", ".join(f"{json.dumps(key)} = {json.dumps(value)}" for key, value in case.hparams.items())
        yield f"settings = {{ {chosen} }}"
    yield from (*more, f"printed = {{ {figures} }}")


def _exact(quantity: str, count: int) -> str:
    """A count to the last digit: in millions of parameters, 10^9 MACs, and bytes."""
    places, suffix = {"params": (6, "M"), "memory": (0, "B")}.get(quantity.partition("_")[0], (9, "G"))
    return f"{Decimal(count).scaleb(-places):.{places}f}{suffix}"


def measured(name: str, case: Case, run: RunFolder) -> Iterator[str]:
    """A row for each record of a run that timed the block at this input. UsageError if there is none."""
    known, block = {**case.defaults, **case.hparams}, Reference.parse(case.reference).whole
    rows = [
        row
        for row in run.rows()
        if (row["module"], [row[each] for each in SHAPE.columns]) == (case.module, [*case.shape])
        and Reference.parse(row["reference"]).whole == block  # another file may have a class of this name
        and json.loads(row["hparams"]) == known
        and row["latency_origin"] in (None, "", "measured")
        and (row["latency_infer_ms"] or row["latency_train_ms"])
    ]
    if not rows:
        raise UsageError(f"{run.path} has no measured time of {name} at an input of {[*case.shape]}")
    for row in rows:
        modes = [mode for mode in MODES if row[f"latency_{mode}_ms"]]
        figures = ", ".join(f'latency_{mode} = "{row[f"latency_{mode}_ms"]:.3f}"' for mode in modes)
        notes = ", ".join(f"latency_{mode} = {json.dumps(_interval(row, mode))}" for mode in modes)
        yield f"\n[rows.{json.dumps('measured: ' + row['case'])}]\nblock = {json.dumps(name)}"
        yield f"printed = {{ {figures} }}\nnotes = {{ {notes} }}"


def _line(text: str) -> str:
    """A text without line ends, which would end a comment."""
    return " ".join(str(text).split())


def _interval(row: Mapping[str, Any], mode: str) -> str:
    low, high = row[f"latency_{mode}_low_ms"], row[f"latency_{mode}_high_ms"]
    known = f"95 % interval {low:.3f} to {high:.3f} ms" if low and high and high < math.inf else "interval not known"
    return f"{known}, {row['processes']} process{'es' * (row['processes'] != 1)}, on {row['device']}"
