"""Runs suites several times, idle and with a busy neighbour: do the numbers repeat?

Run: python research/repeatability.py
Then: python docs/update.py, which takes what docs/method.md says from here.
"""

import itertools
import math
import re
import statistics
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
from gate_on_this_machine import busy_loops

import ctxbench
from ctxbench.engine.progress import Plain
from ctxbench.results.run_folder import RunFolder

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))
from repeats import Row, rows_of, share

RUNS = Path(__file__).resolve().parents[1] / "results" / "repeatability"
# How often each suite is run on an idle machine and beside one process that computes all the time.
SUITES = {"quick": {"idle": 5, "busy": 5}, "table3": {"idle": 3, "busy": 2}}
STATES = ("idle", "busy")
# Written beside the records, and too large to keep for every run.
NOT_KEPT = ("samples.csv", "timeline.csv", "processes.csv")


def percent(logarithms: Sequence[float], quantile: float) -> str:
    """A quantile of ratios, by how much it is above one."""
    return f"{math.expm1(np.quantile(logarithms, quantile)):.1%}"


def answers(rows: Sequence[Row], idle: Sequence[Row]) -> list[str]:
    """The answers for one suite in one state; `idle` are the rows of the idle runs."""
    moves = [move for row in rows for move in row.moves()]
    agree = [each for row in rows for each in row.agree()]
    contained = [each for row in rows for each in row.contained()]
    widths = [row.half(run) for row in rows for run in range(len(row.ms))]
    marked = [each for row in rows for each in row.marked]
    before = {(row.case, row.mode): statistics.median(row.ms) for row in idle}
    against = [abs(math.log(statistics.median(row.ms) / before[row.case, row.mode])) for row in rows]
    return [
        share(agree),
        share(contained),
        *(percent(moves, q) for q in (0.5, 0.9, 1.0)),
        f"{percent(widths, 0.5)}; {percent(widths, 0.9)}",
        share(marked),
        "" if rows is idle else f"{percent(against, 0.5)}; {percent(against, 1.0)}",
    ]


# What the first answers are asked to be.
GOALS = (
    ("pairs of runs that agree", "90 % or more"),
    ("intervals that contain another run's median", "80 % or more"),
    ("half of the moves of a median between two runs", "3 % at most"),
    ("nine in ten moves", "8 % at most"),
    ("the largest move", "20 % at most"),
)


@cache
def columns() -> dict[str, list[str]]:
    """The answers by suite and state, from the runs that are there."""
    folders = {name: sorted(RUNS.glob(f"{name}-*")) for name in (f"{s}-{t}" for s in SUITES for t in STATES)}
    rows = {name: rows_of([RunFolder.open(path).frame() for path in paths]) for name, paths in folders.items() if paths}
    return {name: answers(own, rows[f"{name.partition('-')[0]}-idle"]) for name, own in rows.items()}


def lead() -> str:
    """Sentences on the runs of `quick`, on the goals, and on the runs beside a busy process."""
    agree, _, typical, _, most, *_ = columns()["quick-idle"]
    quick, table3 = columns()["quick-busy"], columns()["table3-busy"]
    of = RunFolder.open(RUNS / "quick-idle-1").meta["environment"]
    return (
        f"**On an idle machine {agree} pairs of runs of `quick` agree. A median moves by up to {typical} in half of "
        f"the pairs, and by {most} at most.** Of {len(GOALS) * len(columns())} goals, of two suites, idle and busy, "
        f"{len(missed())} are missed: {missed_goals()}. Beside a busy process {quick[-2]} of the times of `quick` and "
        f"{table3[-2]} of those of `table3` are marked as disturbed; a median of `table3` is up to "
        f"{table3[-1].partition('; ')[2]} from that at rest ({of['cpu']}, {of['cpu_usable']} cores, torch "
        f"{of['packages']['torch']}, {of['time'][:10]}, commit {of['commit'][:7]})."
    )


def missed() -> list[tuple[str, int]]:
    """The answers, by column and line, whose percentage misses the goal."""
    goals = [float(goal.partition(" ")[0]) for _, goal in GOALS]
    found = {
        (name, line): float(re.search(r"([\d.]+)%", cell)[1])  # type: ignore[index]  # each such cell has a percentage
        for name, cells in columns().items()
        for line, cell in enumerate(cells[: len(GOALS)])
    }
    return [
        (name, line)
        for (name, line), value in found.items()
        if (value < goals[line] if "or more" in GOALS[line][1] else value > goals[line])
    ]


def missed_goals() -> str:
    """`nine in ten moves (8 % at most): 8.8% in quick, busy`: the goals that are missed, with what was reached."""
    found: dict[int, list[str]] = {}
    for name, line in missed():
        found.setdefault(line, []).append(f"{columns()[name][line].partition(' (')[0]} in {name.replace('-', ', ')}")
    return "; ".join(f"{GOALS[line][0]} ({GOALS[line][1]}): {' and '.join(found[line])}" for line in sorted(found))


def main() -> None:
    """Run what is not there yet."""
    for state, suite in itertools.product(STATES, SUITES):
        for number in range(1, SUITES[suite][state] + 1):
            out = RUNS / f"{suite}-{state}-{number}"
            if not out.exists():
                with busy_loops(int(state == "busy")):
                    ctxbench.run(suite, metrics=["params", "latency"], out=out, reporter=Plain())
                for name in NOT_KEPT:
                    (out / name).unlink()


if __name__ == "__main__":
    main()
