"""Runs the tests marked `processor` under the caps on instruction sets that this machine can reach but `make test` does
not have, each with a number of threads of its own.

`python tests/under_caps.py [PYTEST ARGUMENT]...`; the list of what ran is printed at the end. A cap is set before torch
is imported (`tests/start/processors.py`); `none` is this machine's own processor.
"""

import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parent
sys.path.insert(0, str(TESTS / "start"))
import processors  # noqa: E402  # beside the tests' other starts

# One for each cap; `make test` has one thread.
THREADS = (2, 3, 1)


def main() -> int:
    within_reach = processors.within_reach()
    others = [cap for cap in within_reach if cap != processors.usual()]
    # Where there is no other cap, the usual one has more threads.
    surroundings = [*zip(others or [processors.usual()] * 2, map(str, THREADS), strict=False)]
    files = [str(path) for path in sorted(TESTS.rglob("test_*.py")) if "mark.processor" in path.read_text("utf-8")]
    outcomes = []
    for cap, threads in surroundings:
        named = f"{processors.VARIABLE}={cap} CTXBENCH_TEST_THREADS={threads}"
        print(f"under {named}", flush=True)
        command = [sys.executable, "-m", "pytest", "-m", "processor", *files, *sys.argv[1:]]
        environment = {**os.environ, processors.VARIABLE: cap, "CTXBENCH_TEST_THREADS": threads}
        outcomes.append((named, subprocess.run(command, env=environment, check=False).returncode))
    print("numbers of the processor:")
    for named, code in outcomes:
        print(f"  {named}: {'failed' if code else 'passed'}")
    for cap in processors.CAPS.keys() - set(within_reach):
        print(f"  {processors.VARIABLE}={cap}: this processor has no {processors.CAPS[cap][0]}, nothing ran")
    return max(code for _, code in outcomes)


if __name__ == "__main__":
    raise SystemExit(main())
