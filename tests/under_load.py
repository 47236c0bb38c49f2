"""Runs tests beside busy loops and at half speed: a test that fails then depends on how fast the machine is.

`python tests/under_load.py [PYTEST ARGUMENT]...`: in the copy of the tracked files, once beside a busy loop on each
core, with the files in a random order, then once while the tests and all that they start are stopped (SIGSTOP) for
half of the time. Without arguments it starts `make test` with the tests of `make science` and `make long`, and at half
speed what waits for processes most, beside the tests for other processors (`under_caps.py`), of tests with many cases
those of changed files and a tenth. Needs Linux and nothing else, no cgroup and no rights.
"""

import contextlib
import os
import shlex
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil
from tracked import COPY, PYTHON

ROOT = Path(__file__).parent.parent
PARALLEL = ("-n", "2", "--dist", "loadscope", "--no-loadscope-reorder")
# What waits for processes most.
FILES = [
    "test_engine.py",
    "test_rounds.py",
    "plugins/check/test_gate_check.py",
    "plugins/trees/test_trees.py",
    "science/cluster/test_sweep.py",
]
# It leaves most of the core to the tests, which are many.
BUSY = "import os; os.nice(10)\nwhile True: pass"
# Seconds of a stop, and between two.
STOP_S = 0.05


@contextlib.contextmanager
def busy_loops() -> Iterator[None]:
    """A loop that never rests on each core that this process may use."""
    loops = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in os.sched_getaffinity(0)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def hold_to_half(tests: "subprocess.Popen[bytes]") -> None:
    """Stop and continue the tests and all that they started, until they end."""
    ended = threading.Event()

    def wait() -> None:
        tests.wait()
        ended.set()

    threading.Thread(target=wait, daemon=True).start()
    root = psutil.Process(tests.pid)
    stopped: list[psutil.Process] = []
    while not ended.wait(STOP_S):
        with contextlib.suppress(psutil.NoSuchProcess):
            stopped = [root, *root.children(recursive=True)]
        for process in stopped:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.suspend()
        ended.wait(STOP_S)
        for process in stopped:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.resume()


@contextlib.contextmanager
def beside(command: Sequence[str], environment: Mapping[str, str]) -> Iterator["subprocess.Popen[bytes]"]:
    """A command in the copy. When the block ends, so has it, and what it printed is printed."""
    with tempfile.TemporaryFile() as printed:
        options: dict[str, Any] = {"stdout": printed, "stderr": subprocess.STDOUT}
        with subprocess.Popen(command, env=environment, cwd=COPY, **options) as process:
            yield process
        printed.seek(0)
        print(printed.read().decode(errors="replace"), flush=True)


def main() -> int:
    python, make, chosen = str(PYTHON / "bin" / "python"), ["make", "-C", str(ROOT)], sys.argv[1:]
    pytest = [python, "-m", "pytest", *chosen, *PARALLEL]
    # All cases, in another order each time; on a machine of the tests, since beside busy loops no real time is judged.
    usual = {"CTXBENCH_TEST_ORDER": "random", "CTXBENCH_TEST_CASES": "all"}
    environment = {**usual, **os.environ, "CTXBENCH_TEST_MACHINE": "quiet"}
    cores = len(os.sched_getaffinity(0))
    all_tests = ["-m", "not timing"]
    # Some of them wait long for wheels, clusters and copies without plugins: more workers then have the cores.
    started = [*make, "test", f"TESTED={shlex.join(all_tests)}", f"WORKERS={cores + 3}"]
    ended: list[subprocess.Popen[bytes]] = []
    with busy_loops():
        print(f"beside {cores} busy loops", flush=True)
        ended.append(subprocess.Popen([*pytest, *all_tests] if chosen else started, env=environment, cwd=COPY))
        ended[-1].wait()
    print("at half speed", flush=True)
    if not chosen:  # all cases have just run
        environment["CTXBENCH_TEST_CASES"] = "drawn"
    files = [] if chosen else [f"tests/{name}" for name in FILES]
    with contextlib.ExitStack() as stack:
        if not chosen:
            ended.append(stack.enter_context(beside([python, "tests/under_caps.py"], environment)))
        ended.append(subprocess.Popen([*pytest, *files, "-m", "not timing and not long"], env=environment, cwd=COPY))
        hold_to_half(ended[-1])
    return int(any(each.returncode for each in ended))


if __name__ == "__main__":
    raise SystemExit(main())
