"""Checks for the first minutes on a GPU: ten steps, each with its expectation, in its own process.

Run: make gpu   (or: python benchmarks/gpu.py [--minutes 20] [--out results/gpu-NAME] [--dry-run])

A step that fails, hangs or crashes does not stop the others. Writes run folders, one log a step and the outcome under
`results/`. Exit codes: 0, 1 if a step is not as expected, 2 if there is no GPU or `--out` exists.
This process never touches the GPU, so that a step has it alone.
"""

import argparse
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from gpu_step import CannotRun, Step, folders
from gpu_steps import STEPS

ROOT = Path(__file__).resolve().parents[1]
AS_EXPECTED, NOT_AS_EXPECTED = "as expected", "not as expected"
COULD_NOT_RUN, SKIPPED = "could not run", "skipped: no time left"
# A step is not started with less time than this, and has this long to end after Ctrl-C, and again after SIGKILL.
LEAST_S, GRACE_S = 5.0, 5.0

Command = Callable[[str, float], Sequence[str]]


@dataclass(frozen=True)
class Outcome:
    """Outcome of a step."""

    step: str
    expectation: str
    seen: str
    verdict: str
    seconds: float


def main() -> int:
    arguments = parse_arguments()
    if arguments.step:
        return answer(arguments.step, arguments.out, arguments.seconds)
    if arguments.describe:
        print(json.dumps(properties()))
        return 0
    if arguments.dry_run:
        for number, step in enumerate(STEPS, 1):
            print(f"{number}. {step.title} (at most {step.timeout_s:.0f} s)\n   expected: {step.expectation}")
        return 0
    gpu = describe()
    if not gpu:
        print("gpu.py: there is no GPU that torch can use, so nothing was run", file=sys.stderr)
        return 2
    out: Path = arguments.out or unused(ROOT / "results" / f"gpu-{slug(gpu['GPU'])}")
    if any(folder.exists() for folder in folders(out)):
        print(f"gpu.py: {out} has a run already; choose another --out", file=sys.stderr)
        return 2

    def command(name: str, seconds: float) -> Sequence[str]:
        return [sys.executable, __file__, "--step", name, "--out", str(out), "--seconds", f"{seconds:.0f}"]

    outcomes = run_all(STEPS, command, gpu, out, 60 * arguments.minutes)
    print(f"results: {out}; for the page: python docs/update.py docs/gpu.md")
    return int(any(outcome.verdict == NOT_AS_EXPECTED for outcome in outcomes))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=20.0, help="for all steps; later ones are skipped")
    parser.add_argument("--out", type=Path, help="the folder of logs and run folders; default: results/gpu-NAME")
    parser.add_argument("--dry-run", action="store_true", help="print the steps and what is expected of them")
    parser.add_argument("--step", choices=[step.name for step in STEPS], help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, default=60.0, help=argparse.SUPPRESS)
    parser.add_argument("--describe", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def answer(name: str, out: Path, seconds: float) -> int:
    """Run one step in this process; the last line that it prints is its verdict in JSON."""
    (step,) = [each for each in STEPS if each.name == name]
    try:
        good, seen = step.run(out, time.monotonic() + seconds)
        verdict = AS_EXPECTED if good else NOT_AS_EXPECTED
    except CannotRun as reason:
        verdict, seen = COULD_NOT_RUN, str(reason)
    sys.stderr.flush()
    print("\n" + json.dumps({"verdict": verdict, "seen": seen}), flush=True)
    return 0


def describe() -> Mapping[str, str]:
    """The GPU, its driver and torch, as a fresh process sees them; empty without a GPU."""
    command = [sys.executable, __file__, "--describe"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return found


def properties() -> dict[str, str]:
    """The first GPU and its software; empty without one."""
    import torch

    if not torch.cuda.is_available():
        return {}
    properties = torch.cuda.get_device_properties(0)
    try:
        command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        driver = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\n")[0].strip()
    except (OSError, subprocess.CalledProcessError):
        driver = "unknown"
    return {
        "GPU": properties.name,
        "compute capability": f"{properties.major}.{properties.minor}",
        "driver": driver,
        "torch": torch.__version__,
        "GPUs": str(torch.cuda.device_count()),
    }


def run_all(
    steps: Sequence[Step],
    command: Command,
    gpu: Mapping[str, str],
    out: Path,
    seconds: float,
) -> list[Outcome]:
    """Run the steps in order until `seconds` are used up; `steps.json` is written after each."""
    out.mkdir(parents=True)
    end = time.monotonic() + seconds
    outcomes = []
    for number, step in enumerate(steps, 1):
        print(f"{number}. {step.title}\n   expected: {step.expectation}", flush=True)
        start = time.monotonic()
        verdict, seen = SKIPPED, ""
        if end - start >= LEAST_S:
            limit = min(step.timeout_s, end - start)
            verdict, seen = run_step(command(step.name, limit), out / f"{step.name}.log", limit)
        outcomes.append(Outcome(step.title, step.expectation, seen, verdict, time.monotonic() - start))
        print(f"   seen: {seen or '-'}\n   {verdict.upper()} ({outcomes[-1].seconds:.0f} s)", flush=True)
        content = {
            "day": f"{datetime.now(UTC):%Y-%m-%d}",
            "gpu": dict(gpu),
            "steps": [asdict(outcome) for outcome in outcomes],
        }
        (out / "steps.json").write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    return outcomes


def run_step(command: Sequence[str], log: Path, timeout_s: float) -> tuple[str, str]:
    """Run a step's process, its output going to `log`; the verdict and what was seen."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
        late = False
        try:
            process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            late = True
        finally:
            end_process(process)
    if late:
        return COULD_NOT_RUN, f"not finished after {timeout_s:.0f} s"
    lines = [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    last = lines[-1] if lines else "no output"
    if process.returncode < 0:
        return COULD_NOT_RUN, f"killed by {signal.Signals(-process.returncode).name}: {last}"
    try:
        told = json.loads(last)
        return told["verdict"], told["seen"]
    except (ValueError, KeyError, TypeError):
        return COULD_NOT_RUN, f"exit code {process.returncode}: {last}"


def end_process(process: "subprocess.Popen[bytes]") -> None:
    """End a step and what it started: Ctrl-C, then SIGKILL. One that is stuck in the driver is left behind."""
    for number in (signal.SIGINT, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GRACE_S)


def slug(name: str) -> str:
    """`h100-80gb-hbm3` for `NVIDIA H100 80GB HBM3`."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower().removeprefix("nvidia ")).strip("-")


def unused(out: Path) -> Path:
    """The folder, or the first of `<folder>-2`, `<folder>-3`, ... that has no run."""
    path, number = out, 2
    while any(folder.exists() for folder in folders(path)):
        path, number = out.with_name(f"{out.name}-{number}"), number + 1
    return path


if __name__ == "__main__":
    sys.exit(main())
