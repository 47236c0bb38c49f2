"""Runs suites several times, idle and with a busy neighbour, and writes docs/repeatability.md: do the numbers repeat?

Run: python benchmarks/repeatability.py [--page]   (with --page: only write the page, from the committed runs)
"""

import itertools
import math
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

import ctxbench
from ctxbench.engine.progress import Plain
from ctxbench.machine_load import OTHERS_LIMIT, disturbed
from ctxbench.mode import MODES
from ctxbench.report.formats.markdown import render_markdown
from ctxbench.report.tables.table import plain_table
from ctxbench.results.run_folder import RunFolder

ROOT = Path(__file__).resolve().parents[1]
RUNS = ROOT / "results" / "repeatability"
PAGE = ROOT / "docs" / "repeatability.md"
# How often each suite is run on an idle machine and beside one process that computes all the time.
SUITES = {"quick": {"idle": 5, "busy": 5}, "table3": {"idle": 3, "busy": 2}}
STATES = {"idle": "on an idle machine", "busy": "beside one busy process"}
# Written beside the records, and too large to keep for every run.
NOT_KEPT = ("samples.csv", "timeline.csv", "processes.csv")

TEXT = """# Do the numbers repeat?

**Mostly: on an idle machine {agree} pairs of runs of `quick` agree, and a median moves by up to {typical} in half of
the pairs, and by {most} at most.** Do not read more into the difference of two runs.

`python benchmarks/repeatability.py` ran the suite `quick` five times and `table3` three times, one run after the
other; and then, beside one process that computes all the time, `quick` five times and `table3` twice. It wrote this
page from the records in `results/repeatability/`; the other files of these runs are not kept, because of their size.

Machine: {cpu}, {cores} usable cores, torch {torch}. `quick`: [1, 64, 32, 32], one thread, {quick} processes a case.
`table3`: [1, 512, 128, 128], one thread per core, {table3} processes a case. Both modes of 11 modules. The intervals
are of 95 %.

{table}

- Two runs *agree* if their medians differ by no more than both intervals explain: the distance of the logarithms is
  at most the root of the sum of the squares of both half-widths.
- An interval that contains the true value 95 % of the time contains the median of *another* run less often, because
  that median is uncertain, too: about 83 % of the time if both runs are equally uncertain.
- A time is *marked* if other work kept more than {limit:.0%} of the cores busy while it was measured, and measuring
  it again did not help: it is never bold, and no verdict rests on it.
- *Moved*: the median over the busy runs against the median over the idle runs of the same row.

{notes}
"""

NOTES = """## What was reached, and what was not

- `quick` reaches the goals on an idle machine but one: an interval contains another run's median in 75 of 100 cases,
  not in 80. The medians of the processes of one run are neighbours in time, and the machine's speed changes from one
  minute to the next; an interval over the processes of one run cannot know of the next run's minutes.
- `table3` has three processes of few passes, so that it ends within ten minutes; its medians move more than those of
  `quick`, and its intervals are wide enough to say so.
- Beside a busy process every row is marked. One thread on two cores (`quick`) is slowed by 0.5 to 6 %. A thread on each
  of two cores (`table3`) is slowed by 1.8 to 9 times, because each parallel region waits for the slower thread. So all
  other suites use one thread; `table3` does not, because it would not end within ten minutes.

What moves the medians on this machine is outside of it. In a loop of 45 s on the idle machine, with 0.01 s of steal
time, two of every fourteen seconds were slow: Python by 1.5 to 1.8 times, a softmax by 1.3 to 1.6, a matrix product by
1.05 to 1.3. What was tried on `quick` (median over its rows of the standard deviation between processes):

| what | between processes |
|---|---|
| each process ends at an interval of 5 % (about 0.05 s of samples), 5 processes | 9.5 % |
| the whole budget of 0.3 s, 5 processes | 7.3 % |
| half of that, 9 processes | 13.6 % |
| 0.3 s, without the processes whose control workload took more than 1.08 times its usual time | 5.3 % |

And on four modules in six fresh interpreters each, in turns: as it is 3.5 %; on one processor alone 4.6 %; without
address randomisation 5.7 %; with huge pages (`glibc.malloc.hugetlb=1`) 5.9 %; with glibc's malloc as it comes 7.1 %, up
to 26 % for `sa`, and 8 % slower. Of these, only keeping freed memory helps beyond what six interpreters can tell apart;
so that, more time in each process, measuring again and seven processes in `quick` were taken.
"""


@dataclass(frozen=True)
class Row:
    """A case and a mode over several runs: medians, ends of the intervals (ms), whether other work disturbed it."""

    case: str
    mode: str
    ms: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]
    marked: Sequence[bool]

    def half(self, run: int) -> float:
        """Half the width of a run's interval on the scale of logarithms."""
        return math.log(self.high[run] / self.low[run]) / 2

    def moves(self) -> list[float]:
        """The difference of two runs' medians, relative, for each pair of runs."""
        return [abs(math.log(a / b)) for a, b in itertools.combinations(self.ms, 2)]

    def agree(self) -> list[bool]:
        """Whether two runs differ by no more than both intervals explain, for each pair of runs."""
        pairs = itertools.combinations(range(len(self.ms)), 2)
        explained = [math.hypot(self.half(a), self.half(b)) for a, b in pairs]
        return [move <= most for move, most in zip(self.moves(), explained, strict=True)]

    def contained(self) -> list[bool]:
        """Whether a run's interval contains another run's median, for each ordered pair of runs."""
        return [self.low[a] <= self.ms[b] <= self.high[a] for a, b in itertools.permutations(range(len(self.ms)), 2)]


def rows_of(frames: Sequence[pd.DataFrame]) -> list[Row]:
    """The timed rows that all runs have an interval of."""
    found = []
    indexed = [frame.set_index("case") for frame in frames]
    for case, mode in itertools.product(indexed[0].index, MODES):
        columns = [f"latency_{mode}_{name}" for name in ("ms", "low_ms", "high_ms")]
        ms, low, high = ([float(frame.loc[case, column]) for frame in indexed] for column in columns)
        if not np.isnan([ms, low, high]).any():
            marked = [disturbed(float(frame.loc[case, "others_share"])) for frame in indexed]
            found.append(Row(str(case), mode, ms, low, high, marked))
    return found


def share(found: Sequence[bool]) -> str:
    return f"{sum(found)} of {len(found)} ({np.mean(found):.0%})" if found else "none"


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
        *(f"{np.quantile(moves, q):.1%}" for q in (0.5, 0.9, 1.0)),
        f"{np.quantile(widths, 0.5):.1%}; {np.quantile(widths, 0.9):.1%}",
        share(marked),
        "" if rows is idle else f"{np.quantile(against, 0.5):.1%}; {max(against):.1%}",
    ]


QUESTIONS = (
    ("pairs of runs that agree", "90 % or more"),
    ("one run's interval contains another's median", "80 % or more"),
    ("a median moves between two runs: half of the pairs under", "3 %"),
    ("nine in ten under", "8 %"),
    ("at most", "20 %"),
    ("half-width of an interval: half under; nine in ten under", ""),
    ("marked as disturbed", ""),
    ("moved: half under; at most", "25 % (`quick`) or marked"),
)


def page() -> str:
    """The page's text, from the runs that are there."""
    folders = {name: sorted(RUNS.glob(f"{name}-*")) for name in (f"{s}-{t}" for s in SUITES for t in STATES)}
    runs = {name: [RunFolder.open(path) for path in paths] for name, paths in folders.items() if paths}
    rows = {name: rows_of([run.frame() for run in each]) for name, each in runs.items()}
    columns = [answers(rows[name], rows[f"{name.partition('-')[0]}-idle"]) for name in rows]
    answered = [[*question, *cells] for question, *cells in zip(QUESTIONS, *columns, strict=True)]
    headings = dict.fromkeys(("question", "goal", *(name.replace("-", ", ") for name in rows)), "text")
    first = {suite: runs[f"{suite}-idle"][0].meta for suite in SUITES if f"{suite}-idle" in runs}
    environment = next(iter(first.values()))["environment"]
    return TEXT.format(
        cpu=environment["cpu"],
        cores=environment["cpu_usable"],
        torch=environment["packages"]["torch"],
        **{suite: meta["definition"]["measure"]["processes"] for suite, meta in first.items()},
        agree=answered[0][2],
        typical=answered[2][2],
        most=answered[4][2],
        table=render_markdown(plain_table(headings, answered), trusted=True).rstrip("\n"),
        limit=OTHERS_LIMIT,
        notes=NOTES,
    )


@contextmanager
def neighbour(busy: bool) -> Iterator[None]:
    """One process that computes all the time, if `busy`."""
    if not busy:
        yield
        return
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as process:
        try:
            yield
        finally:
            process.kill()


def measure() -> None:
    """Run what is not there yet."""
    for state, suite in itertools.product(STATES, SUITES):
        for number in range(1, SUITES[suite][state] + 1):
            out = RUNS / f"{suite}-{state}-{number}"
            if not out.exists():
                with neighbour(state == "busy"):
                    ctxbench.run(suite, metrics=["params", "latency"], out=out, reporter=Plain())
                for name in NOT_KEPT:
                    (out / name).unlink()


def main() -> None:
    if "--page" not in sys.argv:
        measure()
    PAGE.write_text(page(), encoding="utf-8")
    print(PAGE)


if __name__ == "__main__":
    main()
