"""The ten steps of benchmarks/gpu.py, by their worth: what no machine has told comes first.

`measure` of a step writes files into the run's folder, in a process of its own. `judge` reads those files alone, so it
also judges a step that was stopped, and an older run.
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cudnn_live
import gpu_blocks
import strided_gradients
from expectations import PEAK_SHARE, expected_times
from gpu_step import DEVICE, LARGE, SMALL, CannotRun, Step, Verdict, failures, folders, measured

from ctxbench.base.mode import MODES

if TYPE_CHECKING:
    import pandas as pd

ROOT = Path(__file__).resolve().parents[1]
# Seconds for all processes of Table 3's run.
TABLE3_S = 125.0
# What two protocols may differ by where the device decides, and how fast a graph and an emptied cache may be.
PROTOCOL_SHARE, TIME_SHARE = 0.10, 0.05
# The share of pairs of intervals that are to agree.
AGREEING_SHARE = 0.9
# A latency with this share of it spent on the host is the host's.
HOST_SHARE = 0.9
SIX = ("a2", "apc", "dm", "acf", "ham_nmf", "linear")
KINDS = {"eager": ("eager", False), "flushed": ("eager", True), "graph": ("graph", False)}
# The exit codes of `ctxbench check` that come with verdicts.
CHECKED = (0, 1, 3)
GATE_S = 25.0


def table3(out: Path, deadline: float) -> None:
    measure = {"processes": 3, "sample_s": 0.5, "warmup_s": 0.1, "total_s": TABLE3_S, "timeout_s": 60}
    # Not `memory_2020`, which is predicted and needs no GPU.
    measured(folders(out)[1], suite="table3", metrics=["params", "macs", "memory", "latency"], measure=measure)


def judge_table3(out: Path) -> Verdict:
    frame, left = run_of(folders(out)[1])
    expected = expected_times(str(frame.attrs["gpu"]))
    known = [(row, mode) for _, row in frame.iterrows() for mode in MODES if row[f"latency_{mode}_ms"] > 0]
    inside = [
        low <= row[f"latency_{mode}_ms"] <= high for row, mode in known for low, high in _bands(expected, row, mode)
    ]
    bad = failures(frame)
    seen = f"{len(known)} times of {len(frame)} rows; {sum(inside)} of {len(inside)} in their 80 % bands"
    good = not bad and (not inside or sum(inside) >= fewest_in_bands(len(inside)))
    return Verdict(good, "; ".join([seen, *bad[:3]]), left)


def _bands(expected: Any, row: Any, mode: str) -> list[tuple[float, float]]:
    return [expected[row["module"], mode]] if (row["module"], mode) in expected else []


def fewest_in_bands(count: int) -> int:
    """The fewest of `count` times that are in 80 % bands but for a chance of 5 %, if each is there by itself."""
    from scipy.stats import binom

    return int(binom.ppf(0.05, count, 0.8))


def paper(out: Path, deadline: float) -> None:
    measure = {"processes": 1, "protocol": "paper", "repeats": 5, "passes": 10, "warmup_s": 0.1, "timeout_s": 60}
    measured(folders(out)[2], suite="table3", metrics=["latency"], measure=measure)


def judge_paper(out: Path) -> Verdict:
    frame, left = run_of(folders(out)[2])
    interval, _ = run_of(folders(out)[1])
    both = frame.merge(interval, on="case", suffixes=("", "_interval"))
    ratios = {
        f"{row['module']} {mode}": row[f"latency_{mode}_ms"] / row[f"latency_{mode}_ms_interval"] - 1
        for _, row in both.iterrows()
        for mode in MODES
        if all(
            row[f"latency_{mode}_host_ms{by}"] < HOST_SHARE * row[f"latency_{mode}_ms{by}"] for by in ("", "_interval")
        )
    }
    if not ratios:
        raise CannotRun("no time of the device has been measured under both protocols")
    furthest = max(ratios, key=lambda name: abs(ratios[name]))
    seen = f"{len(ratios)} times of the device; furthest: {furthest}, {ratios[furthest]:+.1%}"
    bad = failures(frame)
    return Verdict(not bad and abs(ratios[furthest]) <= PROTOCOL_SHARE, "; ".join([seen, *bad[:3]]), left)


def alone(out: Path, deadline: float) -> None:
    measure = {"processes": 3, "sample_s": 0.5, "warmup_s": 0.1, "alone": True, "timeout_s": 60}
    shape = {"modules": SIX, "shape": [LARGE], "metrics": ["latency"], "measure": measure}
    measured(out / "alone", **shape)


def judge_alone(out: Path) -> Verdict:
    import repeats

    frame, left = run_of(out / "alone")
    together, _ = run_of(folders(out)[1])
    rows = repeats.rows_of([frame[frame["case"].isin(together["case"])], together])
    if not rows:
        raise CannotRun("no row has intervals both ways")
    agree = [each for row in rows for each in row.agree()]
    furthest = max(rows, key=lambda row: row.moves())
    seen = f"{repeats.share(agree)} agree; furthest: {furthest.case} {furthest.mode}, {max(furthest.moves()):.1%}"
    return Verdict(sum(agree) >= AGREEING_SHARE * len(agree), seen, left)


def host_and_device(out: Path, deadline: float) -> None:
    for name, (execution, flush) in KINDS.items():
        measure = {"processes": 1, "flush_l2": flush, "sample_s": 0.5, "warmup_s": 0.1, "timeout_s": 60}
        options: dict[str, Any] = {"shape": [SMALL, LARGE], "execution": execution, "metrics": ["latency"]}
        measured(out / f"time-{name}", modules=["sa"], measure=measure, **options)


def judge_time(out: Path) -> Verdict:
    frames = {name: run_of(out / f"time-{name}")[0].set_index("height") for name in KINDS}
    good, seen = True, []
    for shape in (SMALL, LARGE):
        at = {name: float(frame.loc[shape[2], "latency_infer_ms"]) for name, frame in frames.items()}
        host = float(frames["eager"].loc[shape[2], "latency_infer_host_ms"])
        good &= (host > at["graph"]) == (shape == SMALL)
        # A flush is queued before each pass: where the host is slower, it hides the host's time.
        good &= host > at["graph"] or at["flushed"] >= (1 - TIME_SHARE) * at["eager"]
        good &= at["graph"] <= (1 + TIME_SHARE) * at["eager"]
        seen.append(f"{list(shape)}: host {host:.3f}, " + ", ".join(f"{name} {ms:.3f}" for name, ms in at.items()))
    return Verdict(good, "SA infer in ms. " + "; ".join(seen))


def gate(out: Path, deadline: float) -> None:
    for name, options in (("self-test", ()), ("self-test-injected", ("--inject", "10%"))):
        if not (out / f"{name}.json").exists():
            check(out / f"{name}.json", *options)


def check(path: Path, *options: str) -> None:
    """One self-test of the gate. One module, because a verdict takes many pairs of fresh processes."""
    command = [
        sys.executable,
        "-m",
        "ctxbench",
        "check",
        "--self-test",
        "--modules",
        "sa",
        "--device",
        DEVICE,
        *options,
    ]
    done = subprocess.run([*command, "--budget", f"{GATE_S:.0f}s", "--json", str(path)], cwd=ROOT)
    if done.returncode not in CHECKED or not path.exists():
        raise CannotRun(f"{' '.join(command[3:])}: exit code {done.returncode}")


def judge_gate(out: Path) -> Verdict:
    counts = [
        json.loads((out / f"{name}.json").read_text(encoding="utf-8"))["self_test"]
        for name in ("self-test", "self-test-injected")
        if (out / f"{name}.json").exists()
    ]
    if not counts:
        raise CannotRun("no self-test has ended")
    alarms = [each["false_alarms"] for each in counts]
    seen = [f"{each['false_alarms']} false alarms of {each['unchanged']}" for each in counts]
    seen += [f"{each['found']} of {each['injected']} slowdowns of 10 % found" for each in counts[1:]]
    good = not any(alarms) and all(each["found"] == each["injected"] for each in counts[1:])
    return Verdict(good, "; ".join(seen), "the injected slowdown" if len(counts) < 2 else "")


def run_of(path: Path) -> tuple["pd.DataFrame", str]:
    """The records of a run, with its GPU's name in `attrs`, and the processes that are still to be measured."""
    from ctxbench.results.run_folder import RunFolder

    if not (path / "run.json").exists():
        raise CannotRun(f"{path.name} was not measured")
    folder = RunFolder.open(path)
    frame = folder.frame()
    if frame.empty:
        raise CannotRun(f"{path.name} has no row")
    frame.attrs["gpu"] = folder.meta["environment"]["gpus"][0]["name"]
    wanted = folder.meta["definition"]["measure"]["processes"]
    if folder.meta["state"] == "finished":
        return frame, ""
    lacking = sum(
        max(0, 1 + wanted - len(processes))
        for processes in folder.finished().values()
        if all(each.status == "ok" for each in processes.values())
    )
    return frame, f"{lacking} processes"


# Of the seconds that are derived: 4.5 s for an interpreter, 0.75 s for a process, 2.4 s for the counts and peaks of a
# case and 2.2 s for its two times (from the processes of results/table3-h200, which had longer warm-ups).
STEPS: Sequence[Step] = (
    Step(
        "table3",
        "Table 3 under the interval's protocol",
        "all rows ok; of the times with an expected band as many inside as 80 % bands hold, but for a chance of 5 %",
        135,
        f"a budget of {TABLE3_S:.0f} s for its processes, 10 s for what is around them",
        table3,
        judge_table3,
    ),
    Step(
        "paper",
        "Table 3 under the paper's protocol, of 50 passes",
        f"all rows ok; where the device decides in both, the protocols' times differ by at most {PROTOCOL_SHARE:.0%}",
        48,
        "derived: one round of eleven cases, of at most 50 passes of 43 ms each",
        paper,
        judge_paper,
    ),
    Step(
        "cudnn",
        "cuDNN with the GPU and without it: each convolution of the blocks",
        f"{cudnn_live.SAME_SHARE:.0%} of the choices are the same",
        72,
        "derived: 1,668 rows of two questions of 16 ms, measured without a GPU, and three passes",
        cudnn_live.measure,
        cudnn_live.judge,
    ),
    Step(
        "kernels",
        "Kernels by name, operator and time: all blocks, both modes, two shapes, three dtypes; of newer blocks two",
        "every case but those that train nothing; at most 4 MiB",
        144,
        "derived: 694 cases of at most 0.13 s, as those of the step `peaks`, and assumed 0.07 s for the profiler",
        gpu_blocks.measure_kernels,
        gpu_blocks.judge_kernels,
    ),
    Step(
        "peaks",
        "Peak memory: the cases of the step `kernels`",
        f"every peak from {PEAK_SHARE:.0%} below the prediction to {PEAK_SHARE:.0%} above it with cuDNN's workspaces",
        70,
        "measured: 85 s for 648 cases while they were predicted, which is now done before; 10 s for traces",
        gpu_blocks.measure_peaks,
        gpu_blocks.judge_peaks,
    ),
    Step(
        "gradients",
        "Gradients of operators for arguments of other strides, on CUDA",
        "every operator's gradient is that of contiguous arguments, in float32, bfloat16 and float16",
        45,
        "derived: 29,000 gradients of 1 ms; one takes 0.75 ms on a CPU",
        strided_gradients.measure,
        strided_gradients.judge,
    ),
    Step(
        "time",
        f"Host and device time of SA at {list(SMALL)} and {list(LARGE)}, with L2 flushed and as a CUDA graph",
        "the host takes longer at the small size, the device at the large one; there a flush makes no pass faster; a "
        f"graph makes none slower ({TIME_SHARE:.0%})",
        47,
        "measured: 64 s with twice the samples and a process for each case",
        host_and_device,
        judge_time,
    ),
    Step(
        "gate",
        "The gate's self-test on SA, with and without a slowdown of 10 %",
        "no unchanged row is called regressed; the injected slowdown is found",
        90,
        f"two budgets of {GATE_S:.0f} s, 15 s for what is around each",
        gate,
        judge_gate,
        in_parts=False,
    ),
    Step(
        "compiled",
        "Ten blocks as CUDA graphs and compiled",
        "all ten run both ways; no graph is slower than the block (5 %)",
        87,
        "assumed: 6 s to compile a block, once, in two calls",
        gpu_blocks.measure_compiled,
        gpu_blocks.judge_compiled,
    ),
    Step(
        "alone",
        "Six rows of Table 3, each in a process of its own",
        f"{AGREEING_SHARE:.0%} of the times are those of shared processes, as far as both intervals tell",
        82,
        "derived: three rounds of six processes",
        alone,
        judge_alone,
    ),
)
