"""Runs commands that need no clock, in a new folder, and prints what they print: `python tests/without_a_clock.py`.

Without arguments these are COMMANDS; an argument is a command. CI runs it on macOS; `test_other_systems.py` where the
functions that another system lacks are hidden. The exit code is 1 if a command fails.
"""

import contextlib
import os
import sys
import tempfile

from ctxbench import cli

COMMANDS = (
    "list",
    "show sa --shape 1,8,6,5",
    "memory sa --shape 1,8,6,5 --mode train",
    "predict sa --for t4 --shape 1,8,6,5",
    "profile sa --for t4 --shape 1,8,6,5",
    "choose --device t4 --memory 2GiB --modules linear,sa --shape 1,8,6,5",
    "run --static --modules linear,sa --shape 1,8,6,5 --out run",
    "report run --out page",
    "diff run run",
    "audit restormer",
)


def code_of(command: str) -> int:
    """Exit code of a command that runs in this process."""
    sys.argv = ["ctxbench", *command.split()]
    try:
        cli.main()
    except SystemExit as ended:
        return int(ended.code or 0)
    return 0


def main() -> int:
    commands, failed = sys.argv[1:] or COMMANDS, False
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for command in commands:
            print(f"$ ctxbench {command}", flush=True)
            code = code_of(command)
            sys.stdout.flush()
            failed |= code != 0
            print(f"exit code {code}", flush=True)
    return failed


if __name__ == "__main__":
    os.environ["CTXBENCH_NO_CACHE"] = "1"
    sys.exit(main())
