"""Runs a suite three times and writes docs/repeatability.md: how far medians move, how often intervals hold.

Run: python benchmarks/repeatability.py [RUN_FOLDER ...]   (without folders: measure three runs first)
"""

import itertools
import json
import math
import sys
from pathlib import Path

import numpy as np

import ctxbench
from ctxbench.progress import Plain
from ctxbench.results import MODES, RunFolder

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "repeatability.md"
RUNS = 3
BUDGET_S = 1.0
# One thread: with as many threads as cores, any other process stalls every parallel region for a scheduler's tick.
THREADS = 1
# The half width of a 95 % interval in standard errors.
Z = 1.96

TEXT = """# Do the numbers repeat?

`python benchmarks/repeatability.py` measured the suite `{suite}` {runs} times, one run after the other, and wrote this
page from the run folders {folders}.

Machine: {cpu}, {cores} usable cores, one thread, torch {torch}; {budget:g} s a case and mode, {cases} cases, \
both modes. While the cases began, other \
processes kept {busy:.1f} cores busy (median; up to {busiest:.1f}).

| question | answer |
|---|---|
| how far does a median move between two runs? | half by under {half:.1%}, nine in ten by under {ninety:.1%}, at \
most {most:.1%} |
| how wide is a stated 95 % interval? | half of them under ±{width:.1%}, nine in ten under ±{width90:.1%} |
| do two runs differ by more than their intervals explain? | {agree} of {pairs} pairs ({agree_share:.0%}) agree within \
both; 95 % would if nothing but the samples' own noise moved them |
| does one run's interval hold the other's median? | {hold} of {both} times ({hold_share:.0%}); 83 % would, as both \
medians are uncertain |

{reading} With glibc, the layout of a process's heap decides whether each pass pays the kernel for its pages anew;
[gate-error-rates.md](gate-error-rates.md) has the spread between processes with and without that.

| case | mode | medians (ms) | intervals (ms) | largest move |
|---|---|---|---|---|
{rows}
"""


def main() -> None:
    folders = [RunFolder.open(Path(argument)) for argument in sys.argv[1:]] or measure()
    PAGE.write_text(page(folders), encoding="utf-8")
    print(PAGE)


def measure() -> list[RunFolder]:
    folders = []
    for number in range(RUNS):
        out = ROOT / "results" / f"repeatability-cpu-{number + 1}"
        run = ctxbench.run(
            "quick",
            threads=THREADS,
            metrics=["latency"],
            measure={"budget_s": BUDGET_S, "target": 0.005},
            out=out,
            reporter=Plain(),
        )
        folders.append(run.folder)
    return folders


def page(folders: list[RunFolder]) -> str:
    """The page's text from the run folders."""
    frames = [folder.frame().set_index("case") for folder in folders]
    moves: list[float] = []
    widths: list[float] = []
    agree: list[bool] = []
    hold: list[bool] = []
    rows = []
    for case, mode in itertools.product(frames[0].index, MODES):
        medians, lows, highs = (
            np.array([frame.loc[case, f"latency_{mode}_{name}"] for frame in frames])
            for name in ("ms", "low_ms", "high_ms")
        )
        widths += list((highs - lows) / 2 / medians)
        case_moves = []
        for i, j in itertools.combinations(range(len(frames)), 2):
            move = abs(float(np.log(medians[i] / medians[j])))
            case_moves.append(move)
            errors = [float(np.log(highs[k] / lows[k])) / 2 / Z for k in (i, j)]
            agree.append(move <= Z * math.hypot(*errors))
            hold += [lows[a] <= medians[b] <= highs[a] for a, b in ((i, j), (j, i))]
        moves += case_moves
        shown = ", ".join(f"{m:.3g}" for m in medians)
        spans = ", ".join(f"[{a:.3g}, {b:.3g}]" for a, b in zip(lows, highs, strict=True))
        rows.append(f"| {case} | {mode} | {shown} | {spans} | {max(case_moves):.1%} |")
    environment = folders[0].meta["environment"]
    share = float(np.mean(agree))
    busy = [json.loads(text)["before"]["busy_cores"] or 0.0 for frame in frames for text in frame["conditions"]]
    return TEXT.format(
        suite=folders[0].meta["suite"],
        runs=len(folders),
        folders=", ".join(f"`results/{folder.path.name}`" for folder in folders),
        cpu=environment["cpu"],
        cores=environment["cpu_usable"],
        torch=environment["packages"]["torch"],
        budget=folders[0].meta["definition"]["measure"]["budget_s"],
        cases=len(frames[0]),
        busy=np.median(busy),
        busiest=max(busy),
        half=np.quantile(moves, 0.5),
        ninety=np.quantile(moves, 0.9),
        most=max(moves),
        width=np.quantile(widths, 0.5),
        width90=np.quantile(widths, 0.9),
        agree=sum(agree),
        pairs=len(agree),
        agree_share=share,
        hold=sum(hold),
        both=len(hold),
        hold_share=float(np.mean(hold)),
        reading=reading(share),
        rows="\n".join(rows),
    )


def reading(share: float) -> str:
    """What the share of agreeing pairs means, in words."""
    if share >= 0.9:
        return "On this machine the stated interval is about the whole uncertainty of a run."
    return (
        "So part of the difference between runs is not in the interval of either: the interval is the uncertainty of "
        "this process's median, and a fresh process on a shared machine has its own speed. Whether a change made a "
        "module slower takes pairs of fresh processes, not two runs."
    )


if __name__ == "__main__":
    main()
