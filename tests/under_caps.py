"""Runs the tests marked `processor` under each cap on instruction sets that this machine can reach, and with 2 and 3
threads.

`python tests/under_caps.py [PYTEST ARGUMENT]...`; the list of what ran is printed at the end. A cap is set before torch
is imported (`tests/start/processors.py`); `none` is this machine's own processor.
"""

import os
import subprocess
import sys
from pathlib import Path

START = Path(__file__).parent / "start"
sys.path.insert(0, str(START))
import processors  # noqa: E402  # beside the tests' other starts

THREADS = (2, 3)


def main() -> int:
    within_reach = processors.within_reach()
    surroundings = [{processors.VARIABLE: cap} for cap in within_reach]
    surroundings += [{"CTXBENCH_TEST_THREADS": str(threads)} for threads in THREADS]
    outcomes = []
    for each in surroundings:
        named = ", ".join(f"{name}={value}" for name, value in each.items())
        print(f"under {named}", flush=True)
        command = [sys.executable, "-m", "pytest", "-n", "2", "-m", "processor", *sys.argv[1:]]
        code = subprocess.run(command, env={**os.environ, **each}, check=False).returncode
        outcomes.append((named, code))
    print("numbers of the processor:")
    for named, code in outcomes:
        print(f"  {named}: {'failed' if code else 'passed'}")
    for cap in processors.CAPS.keys() - set(within_reach):
        print(f"  {processors.VARIABLE}={cap}: this processor has no {processors.CAPS[cap][0]}, nothing ran")
    return max(code for _, code in outcomes)


if __name__ == "__main__":
    raise SystemExit(main())
