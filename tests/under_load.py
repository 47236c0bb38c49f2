"""Runs tests beside busy loops and at half a core's speed: a test that fails then depends on how fast the machine is.

`python tests/under_load.py [PYTEST ARGUMENT]...`: once beside a busy loop on each core, with the files in a random
order, then once while the tests and all that they start are stopped (SIGSTOP) for half of the time on one core. Without
arguments it starts `make test` itself, and at half a core's speed what waits for processes most. Needs Linux and
nothing else, no cgroup and no rights.
"""

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil

ROOT = Path(__file__).parent.parent
MARKS = "not timing and not long"
# What waits for processes most.
FILES = [
    "test_engine.py",
    "test_sweep.py",
    "test_rounds.py",
    "plugins/check/test_gate_check.py",
    "plugins/check/test_gate_trees.py",
]
BUSY = "while True: pass"
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


def main() -> int:
    pytest = [sys.executable, "-m", "pytest", *sys.argv[1:]]
    parallel = ["-n", "2", "--dist", "loadscope", "--no-loadscope-reorder"]
    # On the machine of the tests alone: beside busy loops no real time is judged.
    shuffled = {"CTXBENCH_TEST_ORDER": "random", **os.environ, "CTXBENCH_TEST_MACHINE": "quiet"}
    beside = [*pytest, *parallel, "-m", MARKS] if sys.argv[1:] else ["make", "-C", str(ROOT), "test"]
    with busy_loops():
        print(f"beside {len(os.sched_getaffinity(0))} busy loops", flush=True)
        failed = subprocess.run(beside, env=shuffled, check=False).returncode
    print("at half a core's speed", flush=True)
    core = min(os.sched_getaffinity(0))
    files = [] if sys.argv[1:] else [str(Path(__file__).parent / name) for name in FILES]
    command = [*pytest, *files, "-m", MARKS]
    with subprocess.Popen(command, preexec_fn=lambda: os.sched_setaffinity(0, {core})) as tests:
        hold_to_half(tests)
    return failed or tests.returncode


if __name__ == "__main__":
    raise SystemExit(main())
