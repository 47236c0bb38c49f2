"""Runs a suite three times and writes docs/repeatability.md: how much medians differ, and what intervals explain of it.

Run: python benchmarks/repeatability.py [RUN_FOLDER ...]   (without folders: measure three runs first)
"""

import itertools
import json
import math
import sys
from pathlib import Path

import numpy as np

import ctxbench
from ctxbench.mode import MODES
from ctxbench.progress import Plain
from ctxbench.results import RunFolder

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

Machine: {cpu}, {cores} usable cores, one thread, torch {torch}; {budget:g} s for each case and mode, {cases} cases, \
both modes. When the cases began, other \
processes kept {busy:.1f} cores busy (median; up to {busiest:.1f}).

| question | answer |
|---|---|
| how much does a median differ between two runs? | by less than {half:.1%} in half of the pairs of runs, by less than \
{ninety:.1%} in nine of ten, by at most {most:.1%} |
| what is the relative half-width of a 95 % confidence interval? | under {width:.1%} for half of them, under \
{width90:.1%} for nine of ten |
| do two runs differ by more than their intervals explain? | {agree} of {pairs} pairs ({agree_share:.0%}) differ by no \
more than both intervals explain; it would be 95 % if the noise of the samples were the only cause |
| does the interval of one run contain the median of another? | {contained} of {both} times ({contained_share:.0%}); \
it would be 83 % with no other cause than this noise, because both medians are uncertain |

{conclusion} With glibc, the layout of a process's heap decides whether each pass must get its memory pages from the
kernel again; [gate-error-rates.md](gate-error-rates.md) has the spread between processes with and without that.

| case | mode | medians (ms) | intervals (ms) | largest difference |
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
    differences: list[float] = []
    widths: list[float] = []
    agree: list[bool] = []
    contained: list[bool] = []
    rows = []
    for case, mode in itertools.product(frames[0].index, MODES):
        medians, lows, highs = (
            np.array([frame.loc[case, f"latency_{mode}_{name}"] for frame in frames])
            for name in ("ms", "low_ms", "high_ms")
        )
        widths += list((highs - lows) / 2 / medians)
        case_differences = []
        for i, j in itertools.combinations(range(len(frames)), 2):
            difference = abs(float(np.log(medians[i] / medians[j])))
            case_differences.append(difference)
            errors = [float(np.log(highs[k] / lows[k])) / 2 / Z for k in (i, j)]
            agree.append(difference <= Z * math.hypot(*errors))
            contained += [lows[a] <= medians[b] <= highs[a] for a, b in ((i, j), (j, i))]
        differences += case_differences
        shown = ", ".join(f"{m:.3g}" for m in medians)
        spans = ", ".join(f"[{a:.3g}, {b:.3g}]" for a, b in zip(lows, highs, strict=True))
        rows.append(f"| {case} | {mode} | {shown} | {spans} | {max(case_differences):.1%} |")
    environment = folders[0].meta["environment"]
    share = float(np.mean(agree))
    busy = [json.loads(text)["before"]["busy_cores"] or 0.0 for frame in frames for text in frame["machine_state"]]
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
        half=np.quantile(differences, 0.5),
        ninety=np.quantile(differences, 0.9),
        most=max(differences),
        width=np.quantile(widths, 0.5),
        width90=np.quantile(widths, 0.9),
        agree=sum(agree),
        pairs=len(agree),
        agree_share=share,
        contained=sum(contained),
        both=len(contained),
        contained_share=float(np.mean(contained)),
        conclusion=conclusion(share),
        rows="\n".join(rows),
    )


def conclusion(share: float) -> str:
    """What the share of agreeing pairs means, in words."""
    if share >= 0.9:
        return "On this machine the confidence interval is about the whole uncertainty of a run."
    return (
        "So the confidence intervals explain only a part of the difference between runs: an interval is the "
        "uncertainty of one process's median, and each fresh process on a shared machine has its own speed. To find "
        "out whether a change made a module slower, use pairs of fresh processes (`ctxbench check`), not two runs."
    )


if __name__ == "__main__":
    main()
