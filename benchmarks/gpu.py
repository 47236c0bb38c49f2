"""Ten steps for the first fifteen minutes on a GPU, by their worth: each in its own process, with its expectation.

Run: python benchmarks/gpu.py [--minutes 10] [--out results/gpu-NAME] [--dry-run] [--read FOLDER]   (or: make gpu)

It needs the torch and the packages that are there, no installation of ctxbench and no network. Each step writes what it
measures as it goes, and its outcome as it ends; a second call with the same folder goes on where the first one stopped.
A step that fails, hangs or crashes does not stop the others. `--read` judges an older run by today's expectations.
Exit codes: 0, 1 if a step is not as expected, 2 if there is no GPU or `--out` is a run of another one.
This process never touches the GPU, so that a step has it alone.
"""

import argparse
import contextlib
import importlib.metadata
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpu_step import Step

ROOT = Path(__file__).resolve().parents[1]
AS_EXPECTED, NOT_AS_EXPECTED = "as expected", "not as expected"
COULD_NOT_RUN, UNFINISHED, SKIPPED = "could not run", "not finished", "skipped: no time left"
# Outcomes after which a second call does not take the step up again.
FINAL = (AS_EXPECTED, NOT_AS_EXPECTED)
# A step may take this many times its planned seconds.
PATIENCE = 1.3
# Processes of a step, where they crash.
TRIES = 3
# A step is not started with less time than this, and has this long to end after Ctrl-C, and again after SIGKILL.
LEAST_S, GRACE_S = 10.0, 5.0

# Runs the measurement of a step into a folder for so many seconds at most; how it ended otherwise than well.
Run = Callable[["Step", Path, float], str]


@dataclass(frozen=True)
class Outcome:
    """Outcome of a step."""

    name: str
    step: str
    expectation: str
    seen: str
    verdict: str
    seconds: float


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="ctxbench-clone-") as folder:
        if importlib.util.find_spec("ctxbench") is None:
            put_clone_on_path(Path(folder))
        try:
            return run_command(parse_arguments())
        except ModuleNotFoundError:
            print(f"gpu.py: this Python lacks what ctxbench needs: {', '.join(lacking())}", file=sys.stderr)
            return 2


def lacking() -> list[str]:
    """The packages that ctxbench needs and that are not installed."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    names = [re.split(r"[<>=~!\[ ]", each)[0] for each in project["dependencies"]]
    installed = {each.metadata["Name"].lower() for each in importlib.metadata.distributions()}
    return [name for name in names if name.lower() not in installed]


def put_clone_on_path(folder: Path) -> None:
    """Make ctxbench importable here and in all that this process starts: its packages under their installed names."""
    package = folder / "ctxbench"
    package.mkdir()
    beside = [ROOT / name for name in ("modules", "networks", "published", "report", "suites")]
    for each in (*(ROOT / "ctxbench").iterdir(), *beside):
        (package / each.name).symlink_to(each)
    sys.path.insert(0, str(folder))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0, help="for this call; later steps wait for another one")
    parser.add_argument("--out", type=Path, help="the folder of logs and tables; default: results/gpu-NAME")
    parser.add_argument("--dry-run", action="store_true", help="print the steps and what is expected of them")
    parser.add_argument("--read", type=Path, help="judge the run in this folder by today's expectations")
    parser.add_argument("--step", help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, default=60.0, help=argparse.SUPPRESS)
    parser.add_argument("--describe", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def run_command(arguments: argparse.Namespace) -> int:
    if arguments.describe:
        print(json.dumps(properties()))
        return 0
    from gpu_steps import STEPS

    if arguments.step:
        (step,) = [each for each in STEPS if each.name == arguments.step]
        step.measure(arguments.out, time.monotonic() + arguments.seconds)
        return 0
    if arguments.dry_run:
        print("\n".join(plan_of(STEPS)))
        return 0
    if arguments.read:
        for each in told_apart(STEPS, arguments.read):
            print(f"{each.name}: {each.now or 'no step today'}; then: {each.then or 'no such step'}")
            print(*(f"   {text}\n" for text in (each.seen, each.fault) if text), sep="", end="")
        return 0
    gpu = describe()
    if not gpu:
        print("gpu.py: there is no GPU that torch can use, so nothing was run", file=sys.stderr)
        return 2
    out: Path = arguments.out or ROOT / "results" / f"gpu-{slug(gpu['GPU'])}"
    before = earlier(out)
    if arguments.out is None:
        out = next_folder(out, gpu)
        before = earlier(out)
    elif not is_of(before, gpu):
        print(f"gpu.py: {out} has a run of another GPU, torch or program; choose another --out", file=sys.stderr)
        return 2
    outcomes = run_all(STEPS, in_own_process, gpu, out, 60 * arguments.minutes)
    left = [outcome.name for outcome in outcomes if outcome.verdict not in FINAL]
    print(f"left for another call: {', '.join(left)}" if left else "all steps have ended")
    print(f"results: {out}; for the page: python docs/update.py docs/gpu.md")
    return int(any(outcome.verdict == NOT_AS_EXPECTED for outcome in outcomes))


def plan_of(steps: Sequence["Step"]) -> list[str]:
    """The steps with what is expected of them and what they take; the second at which each begins."""
    lines, begin = [], 0.0
    for number, step in enumerate(steps, 1):
        lines.append(f"{number}. {step.title}: {step.seconds:.0f} s from second {begin:.0f} on ({step.because})")
        lines.append(f"   expected: {step.expectation}")
        begin += step.seconds
    return [*lines, f"all: {begin:.0f} s"]


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


def run_all(steps: Sequence["Step"], run: Run, gpu: Mapping[str, str], out: Path, seconds: float) -> list[Outcome]:
    """Run in order what has no final outcome in the folder, for `seconds`; `steps.json` is written after each."""
    out.mkdir(parents=True, exist_ok=True)
    before = {each["name"]: Outcome(**each) for each in earlier(out).get("steps", ())}
    end = time.monotonic() + seconds
    outcomes: dict[str, Outcome] = {}
    for number, step in enumerate(steps, 1):
        print(f"{number}. {step.title}\n   expected: {step.expectation}", flush=True)
        outcomes[step.name] = _outcome(step, run, out, end, before.get(step.name))
        each = outcomes[step.name]
        print(f"   seen: {each.seen or '-'}\n   {each.verdict.upper()} ({each.seconds:.0f} s)", flush=True)
        kept = [outcomes.get(other.name) or before.get(other.name) for other in steps]
        content = {
            "day": f"{datetime.now(UTC):%Y-%m-%d}",
            "gpu": dict(gpu),
            "steps": [asdict(other) for other in kept if other],
        }
        partial = out / "steps.json.part"
        partial.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
        partial.replace(out / "steps.json")
    return [*outcomes.values()]


def _outcome(step: "Step", run: Run, out: Path, end: float, before: Outcome | None) -> Outcome:
    if before and before.verdict in FINAL:
        return before
    start, spent = time.monotonic(), before.seconds if before else 0.0
    if end - start < (LEAST_S if step.in_parts else step.seconds):
        return before or Outcome(step.name, step.title, step.expectation, "", SKIPPED, 0.0)
    ended = run(step, out, min(PATIENCE * step.seconds, end - start))
    verdict, seen = judged(step, out, ended)
    return Outcome(step.name, step.title, step.expectation, seen, verdict, spent + time.monotonic() - start)


def judged(step: "Step", out: Path, ended: str = "") -> tuple[str, str]:
    """The verdict of a step on its files, and what it saw; `ended` says how its process ended otherwise than well."""
    from gpu_step import CannotRun

    try:
        found = step.judge(out)
    except CannotRun as reason:
        return COULD_NOT_RUN, "; ".join(filter(None, [ended, str(reason)]))
    except Exception as error:  # of damaged files: the other steps go on
        return COULD_NOT_RUN, "; ".join(filter(None, [ended, f"{type(error).__name__}: {error}"]))
    seen = "; ".join(filter(None, [found.seen, ended, f"left: {found.left}" if found.left else ""]))
    if not found.good:
        return (UNFINISHED if found.left else NOT_AS_EXPECTED), seen
    return (UNFINISHED if found.left else AS_EXPECTED), seen


def in_own_process(step: "Step", out: Path, timeout_s: float) -> str:
    """Measure a step in a process of its own, its output going to its log; "" if it ended well, else how.

    A process that crashes is followed by another one, which goes on behind the case that did it.
    """
    end, ended = time.monotonic() + timeout_s, ""
    for _ in range(TRIES):
        left = end - time.monotonic()
        if left < LEAST_S:
            break
        command = [sys.executable, __file__, "--step", step.name, "--out", str(out), "--seconds", f"{left - 5:.0f}"]
        ended = run_step(command, out / f"{step.name}.log", left)
        if not ended.startswith(("exit code", "killed")):
            break
    return ended


def run_step(command: Sequence[str], log: Path, timeout_s: float) -> str:
    """Run a step's process, its output going to `log`; "" if it ended well, else how."""
    with log.open("ab") as output:
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
        return f"stopped after {timeout_s:.0f} s"
    if process.returncode == 0:
        return ""
    lines = [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    last = lines[-1] if lines else "no output"
    if process.returncode and process.returncode < 0:
        return f"killed by {signal.Signals(-process.returncode).name}: {last}"
    return f"exit code {process.returncode}: {last}"


def end_process(process: "subprocess.Popen[bytes]") -> None:
    """End a step and what it started: Ctrl-C, then SIGKILL. One that is stuck in the driver is left behind."""
    for number in (signal.SIGINT, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GRACE_S)


@dataclass(frozen=True)
class Reading:
    """A step on an older run's files: today's verdict and what it sees, that of the day, and whose fault it was."""

    name: str
    now: str
    seen: str
    then: str
    fault: str


def told_apart(steps: Sequence["Step"], out: Path) -> list[Reading]:
    """Readings of an older run, last those of its steps that are none today."""
    then = {each.get("name", name_of(each["step"])): each["verdict"] for each in earlier(out).get("steps", ())}
    found = []
    for step in steps:
        now, seen = judged(step, out)
        before = then.pop(step.name, "")
        found.append(Reading(step.name, now, seen, before, whose_fault(before, now)))
    return found + [Reading(name, "", "", before, "") for name, before in then.items()]


def whose_fault(then: str, now: str) -> str:
    """Blame for an outcome that was not as expected, if today's expectation is asked about the same files."""
    if not then or then == AS_EXPECTED:
        return ""
    if now == AS_EXPECTED:
        return "the expectation's: the same files are as expected today"
    if then in (COULD_NOT_RUN, SKIPPED):
        return "ctxbench's: the step did not fit into its time"
    return "ctxbench's: today's prediction is not met either" if now == NOT_AS_EXPECTED else ""


def name_of(title: str) -> str:
    """The name of a step of the first program, whose outcomes have titles alone."""
    names = {
        "Predicted and measured peak memory": "peaks",
        "Table 3 under the interval and": "table3",
        "Host and device time": "time",
        "The gate's self-test": "gate",
    }
    return next((name for begin, name in names.items() if title.startswith(begin)), title)


def earlier(out: Path) -> dict[str, Any]:
    """Content of `steps.json` of a folder; nothing where there is none."""
    path = out / "steps.json"
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return found


def is_of(before: Mapping[str, Any], gpu: Mapping[str, str]) -> bool:
    """Return whether a run may go on: it is of this GPU and torch, and of a program that named its steps."""
    return not before or (before["gpu"] == dict(gpu) and all("name" in each for each in before["steps"]))


def next_folder(out: Path, gpu: Mapping[str, str]) -> Path:
    """The folder, or the first of `<folder>-2`, `<folder>-3`, ... that is free or has steps of this GPU left."""
    path, number = out, 2
    while path.exists() and not (is_of(earlier(path), gpu) and _has_left(earlier(path))):
        path, number = out.with_name(f"{out.name}-{number}"), number + 1
    return path


def _has_left(before: Mapping[str, Any]) -> bool:
    return any(each["verdict"] not in FINAL for each in before.get("steps", ()))


def slug(name: str) -> str:
    """`h100-80gb-hbm3` for `NVIDIA H100 80GB HBM3`."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower().removeprefix("nvidia ")).strip("-")


if __name__ == "__main__":
    sys.exit(main())
