"""The steps of benchmarks/gpu.py: each runs in a process of its own and says whether what it saw was expected.

A step leaves its run folders in `out`. Only steps whose measuring processes have ended use CUDA in their own process,
because a GPU in exclusive mode takes one process at a time.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from gpu_step import DEVICE, CannotRun, Step, failures, folders, measured

ROOT = Path(__file__).resolve().parents[1]
LARGE, MEDIUM, SMALL = (1, 512, 128, 128), (1, 128, 64, 64), (1, 128, 32, 32)
DTYPES = ("float32", "bfloat16", "float16")
MODES = ("infer", "train")
# Of the step `memory`, for the blocks that differ.
TRACES_S = 50.0
# What a prediction of memory, a second protocol and a second GPU may differ by.
MEMORY_SHARE, PROTOCOL_SHARE, DEVICE_SHARE = 0.01, 0.10, 0.50
# The median error of predicted times after a calibration.
PREDICTED_SHARE = 0.15
AGREEING_SHARE = 0.9
MIB = 2**20
# Of SA, between two events.
PASSES = 10
# The exit codes of `ctxbench check` that come with verdicts.
CHECKED = (0, 1, 3)


def fork_and_backward(out: Path, deadline: float) -> tuple[bool, str]:
    measure = {"processes": 1, "sample_s": 0.5, "warmup_s": 0.1, "timeout_s": 60}
    frame = measured(
        out / "fork", modules=["sa", "ham_nmf"], shape=[(1, 64, 16, 16)], metrics=["latency"], measure=measure
    )
    seen = ", ".join(f"{row['module']} train {row['latency_train_ms']:.3g} ms" for _, row in frame.iterrows())
    bad = failures(frame)
    return not bad and bool(frame["latency_train_ms"].notna().all()), "; ".join(bad) or seen


def workspace_per_thread(out: Path, deadline: float) -> tuple[bool, str]:
    os.environ.pop("CUBLAS_WORKSPACE_CONFIG", None)  # else it decides the size
    import torch

    w = torch.ones(64, 64, device=DEVICE)
    x = torch.ones(64, 64, device=DEVICE, requires_grad=True)
    start = torch.cuda.memory_allocated()
    product = x.detach() @ w
    del product
    forward = torch.cuda.memory_allocated() - start
    total = (x @ w).sum()
    (gradient,) = torch.autograd.grad(total, x)
    del total, gradient
    backward = torch.cuda.memory_allocated() - start - forward
    major, minor = torch.cuda.get_device_capability()
    expected = 32 * MIB if major >= 9 else 8_519_680
    seen = f"forward {forward:,} bytes, backward {backward:,} bytes; compute capability {major}.{minor}"
    return forward == backward == expected, seen


def memory(out: Path, deadline: float) -> tuple[bool, str]:
    import memory_cuda

    wanted = memory_cuda.cases((LARGE, MEDIUM), DTYPES)
    rows = memory_cuda.peaks(wanted, out / "peaks.csv", deadline - TRACES_S)
    errors = sorted(((row.error, row) for row in rows if row.error is not None), key=lambda pair: -abs(pair[0]))
    if not errors:
        raise CannotRun("no row has both peaks")
    beyond = [row for error, row in errors if abs(error) > MEMORY_SHARE]
    unmarked = [row for row in beyond if not row.predicted.marks]
    error, first = errors[0]
    seen = [
        f"{len(errors) - len(beyond)} of {len(errors)} peaks within {MEMORY_SHARE:.0%}; "
        f"{len(beyond) - len(unmarked)} of the others are marked",
        f"{len(wanted) - len(errors)} not predicted or not measured",
        f"largest: {error:+.1%} ({first.case})",
    ]
    return not unmarked, "; ".join([*seen, *memory_cuda.write_blocks(beyond, out / "blocks.csv", deadline - 5)])


def table3(out: Path, deadline: float) -> tuple[bool, str]:
    from ctxbench.report.run_data import open_run
    from ctxbench.report.tables.suite import suite_table
    from ctxbench.table.markdown import render_markdown

    measures: list[dict[str, Any]] = [
        {"processes": 3, "sample_s": 0.5, "warmup_s": 0.3, "timeout_s": 60},
        {"processes": 1, "protocol": "paper", "repeats": 5, "passes": 10, "warmup_s": 0.3, "timeout_s": 60},
    ]
    frames = []
    for folder, measure in zip(folders(out)[1:], measures, strict=True):
        frames.append(measured(folder, suite="table3", measure=measure))
        print(render_markdown(suite_table(open_run(folder))), flush=True)
    bad = [text for frame in frames for text in failures(frame)]
    if bad:
        return False, "; ".join(bad)
    interval, paper = frames
    columns = [f"latency_{mode}_ms" for mode in MODES]
    ratios = (paper.set_index("module")[columns] / interval.set_index("module")[columns]).stack()
    far = (ratios - 1).abs().sort_values(ascending=False)
    module, column = far.index[0]
    seen = f"{len(interval)} rows ok under both; the protocols differ most in {module} {column}: {far.iloc[0]:.1%}"
    return bool(far.iloc[0] <= PROTOCOL_SHARE), seen


def calibration(out: Path, deadline: float) -> tuple[bool, str]:
    """Predict Table 3 from kernels measured on this GPU, and compare with what the step `table3` measured."""
    import pandas as pd

    path, table = out / "calibrated.toml", folders(out)[1] / "records.csv"
    command = [sys.executable, "-m", "ctxbench", "calibrate", "--device", DEVICE, "--out", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=deadline - time.monotonic())
    if done.returncode or not table.exists():
        raise CannotRun(done.stderr.strip() or "the step table3 left no run")
    predicted = measured(out / "predicted", suite="table3", device=str(path), static=True)
    both = pd.read_csv(table).merge(predicted, on="module", suffixes=("", "_predicted"))
    columns = [f"latency_{mode}" for mode in MODES]
    errors = pd.concat([(both[f"{name}_ms_predicted"] / both[f"{name}_ms"] - 1).abs() for name in columns])
    inside = pd.concat(
        [
            both[f"{name}_ms"].between(both[f"{name}_low_ms_predicted"], both[f"{name}_high_ms_predicted"])
            for name in columns
        ]
    )
    seen = (
        f"median error {errors.median():.0%}, largest {errors.max():.0%}; {inside.mean():.0%} of {len(inside)} in band"
    )
    return bool(errors.median() <= PREDICTED_SHARE), seen


def host_and_device(out: Path, deadline: float) -> tuple[bool, str]:
    kinds = {"eager": ("eager", False), "flushed": ("eager", True), "graph": ("graph", False)}
    times: dict[str, Any] = {}
    seen: list[str] = []
    for name, (execution, flush) in kinds.items():
        measure = {"processes": 1, "flush_l2": flush, "sample_s": 1, "warmup_s": 0.3, "timeout_s": 60}
        options = {"shape": [SMALL, LARGE], "execution": execution, "metrics": ["latency"], "measure": measure}
        frame = measured(out / f"time-{name}", modules=["sa"], **options)
        print(frame.filter(regex="case|status|message|warnings|_infer_ms|host").to_string(), flush=True)
        times[name] = frame["latency_infer_ms"].astype(float).tolist()
        seen += [text[:200] for text in failures(frame)]
    good = True
    for number, shape in enumerate((SMALL, LARGE)):
        host, device = host_and_device_ms(shape)
        at = {name: values[number] for name, values in times.items()}
        good &= (host > device) == (shape == SMALL)
        # A flush is queued before each pass: where the host is slower, it hides the host's time.
        good &= host > device or at["flushed"] >= 0.95 * at["eager"]
        good &= at["graph"] <= 1.05 * at["eager"]
        measured_as = ", ".join(f"{name} {value:.3f}" for name, value in at.items())
        seen.append(f"{list(shape)}: host {host:.3f}, device {device:.3f}; ctxbench: {measured_as}")
    return good, "SA infer in ms. " + "; ".join(seen)


def host_and_device_ms(shape: tuple[int, ...]) -> tuple[float, float]:
    """Milliseconds a pass that the host takes to enqueue SA, and that the device takes to run it."""
    import torch

    from ctxbench import devices, registry

    devices.device(DEVICE).set_flags("float32", None, False)  # as a run does; torch begins with TF32 in convolutions
    module = registry.get("sa").build(shape[1]).to(DEVICE).eval()
    image = torch.randn(shape, device=DEVICE)
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    with torch.inference_mode():
        for _ in range(3):
            module(image)
        torch.cuda.synchronize()
        torch.cuda._sleep(10**8)  # cycles, about 50 ms: the passes are queued behind it
        start.record()
        before = time.perf_counter()
        for _ in range(PASSES):
            module(image)
        host = time.perf_counter() - before
        end.record()
    torch.cuda.synchronize()
    return 1000 * host / PASSES, start.elapsed_time(end) / PASSES


def second_gpu(out: Path, deadline: float) -> tuple[bool, str]:
    import torch

    if torch.cuda.device_count() < 2:
        raise CannotRun(f"torch sees {torch.cuda.device_count()} GPU")
    measure = {"processes": 1, "sample_s": 1, "warmup_s": 0.3, "timeout_s": 60}
    options = {"device": ["cuda:0", "cuda:1"], "shape": [LARGE], "metrics": ["memory", "latency"], "measure": measure}
    frame = measured(out / "cuda-1", modules=["sa"], **options)
    if bad := failures(frame):
        return False, "; ".join(bad)
    first, second = frame["latency_infer_ms"].astype(float)
    seen = f"SA infer at {list(LARGE)}: cuda:0 {first:.3f} ms, cuda:1 {second:.3f} ms"
    return abs(second / first - 1) <= DEVICE_SHARE, seen


def repeat(out: Path, deadline: float) -> tuple[bool, str]:
    import repeats

    measure = {"processes": 4, "sample_s": 0.3, "warmup_s": 0.1, "timeout_s": 60}
    options = {"suite": "quick", "modules": ["sa", "ham_nmf"], "metrics": ["latency"], "measure": measure}
    frames = [measured(out / f"repeat-{number}", **options) for number in (1, 2, 3)]
    if bad := [text for frame in frames for text in failures(frame)]:
        return False, "; ".join(bad)
    rows = repeats.rows_of(frames)
    agree = [each for row in rows for each in row.agree()]
    moves = [move for row in rows for move in row.moves()]
    seen = f"{repeats.share(agree)} pairs of runs agree; a median moves by {max(moves):.1%} at most"
    return sum(agree) >= AGREEING_SHARE * len(agree), seen


def self_test(out: Path, deadline: float) -> tuple[bool, str]:
    budget = min(60.0, max(10.0, (deadline - time.monotonic() - 40) / 2))
    plain = check(out / "self-test.json", budget)
    injected = check(out / "self-test-injected.json", budget, "--inject", "10%")
    alarms = [each["false_alarms"] for each in (plain, injected)]
    seen = (
        f"false alarms: {alarms[0]} of {plain['unchanged']} without injection ({plain['undecided']} inconclusive), "
        f"{alarms[1]} of {injected['unchanged']} with; {injected['found']} of {injected['injected']} slowdowns found"
    )
    return alarms == [0, 0] and injected["found"] == injected["injected"], seen


def check(path: Path, budget_s: float, *options: str) -> dict[str, Any]:
    """One self-test of the gate; its counts. One module, because a verdict takes many pairs of fresh processes."""
    command = [sys.executable, "-m", "ctxbench", "check", "--self-test", "--modules", "sa", *options]
    done = subprocess.run([*command, "--budget", f"{budget_s:.0f}s", "--json", str(path)], cwd=ROOT)
    if done.returncode not in CHECKED or not path.exists():
        raise CannotRun(f"{' '.join(command[3:])}: exit code {done.returncode}, see self-test.log")
    counts: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))["self_test"]
    return counts


def nvml(out: Path, deadline: float) -> tuple[bool, str]:
    done = subprocess.run([sys.executable, "-m", "ctxbench", "env"], stdout=subprocess.PIPE, text=True)
    print(done.stdout)
    if done.returncode:
        raise CannotRun(f"ctxbench env: exit code {done.returncode}, see nvml.log")
    environment = json.loads(done.stdout)
    from ctxbench import devices

    state = devices.device(DEVICE).state()
    print(json.dumps(state, indent=2, default=str))
    names = ("sm_clock_mhz", "memory_clock_mhz", "temperature_c", "power_w")
    known = all(isinstance(state.get(name), int | float) for name in names)
    seen = f"driver {environment.get('driver')}; {json.dumps(state, default=str)}"
    return known and bool(environment.get("gpus")) and bool(environment.get("driver")), seen


STEPS = (
    Step(
        "fork",
        "Fork and backward: a small training run through the engine",
        "both rows are ok and have a training time",
        90,
        fork_and_backward,
    ),
    Step(
        "workspace",
        "cuBLAS workspace of each thread: what the first product allocates in forward and in backward",
        "8,519,680 bytes each; 33,554,432 (32 MiB) each from compute capability 9.0 on",
        60,
        workspace_per_thread,
    ),
    Step(
        "nvml",
        "What NVML answers",
        "the environment names GPU and driver; clocks, temperature and power are numbers",
        40,
        nvml,
    ),
    Step(
        "memory",
        f"Predicted and measured peak memory: the registry, both modes, {', '.join(DTYPES)}",
        f"every peak without a mark within {MEMORY_SHARE:.0%}, at {list(LARGE)} and {list(MEDIUM)}",
        170,
        memory,
    ),
    Step(
        "table3",
        "Table 3 under the interval and the paper's protocol",
        f"all rows ok; the two latencies of a row differ by at most {PROTOCOL_SHARE:.0%}",
        300,
        table3,
    ),
    Step(
        "calibration",
        "Table 3 predicted from kernels measured on this GPU (`ctxbench calibrate`)",
        f"the median error is at most {PREDICTED_SHARE:.0%}",
        120,
        calibration,
    ),
    Step(
        "time",
        f"Host and device time of SA at {list(SMALL)} and {list(LARGE)}, with L2 flushed and as a CUDA graph",
        "the host takes longer at the small size, the device at the large one; there a flush makes no pass faster; a "
        "graph makes none slower (5 %)",
        90,
        host_and_device,
    ),
    Step(
        "cuda-1",
        "The second GPU",
        f"rows ok; SA on cuda:1 within {DEVICE_SHARE:.0%} of cuda:0",
        60,
        second_gpu,
    ),
    Step(
        "repeat",
        "The same run three times: SA and Ham (NMF) at a small shape, four processes each",
        f"{AGREEING_SHARE:.0%} of the pairs of runs differ by no more than both intervals explain",
        180,
        repeat,
    ),
    Step(
        "self-test",
        "The gate's self-test on SA, with and without a slowdown of 10 %",
        "no unchanged row is called regressed; the injected slowdown is found",
        180,
        self_test,
    ),
)
