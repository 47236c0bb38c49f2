"""Tally of attacks, and the commands that all kinds run: each is watched for tracebacks and for what it leaves."""

import os
import secrets
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

# Processes that are still there after so many seconds are left.
LEFT_S = 6.0
# Set for all that an attack starts, so that it is found wherever it went.
MARK = "CTXBENCH_ATTACK"


@dataclass
class Tally:
    """Of one kind of attack: how many were tried, and a sentence for each that did harm."""

    tried: int = 0
    lost: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    tracebacks: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)

    def read(self, what: str, output: str) -> None:
        """Note a traceback in what a command printed."""
        if "Traceback (most recent call last)" in output:
            self.tracebacks.append(f"{what}: {output.strip().splitlines()[-1]}")

    def look(self, what: str, mark: str) -> None:
        """Note, and end, the processes with a mark that are there after a while."""
        deadline = time.monotonic() + LEFT_S
        while (found := marked(mark)) and time.monotonic() < deadline:
            time.sleep(0.1)
        for process in found:
            self.left.append(f"{what}: {process.name()}")
            process.kill()


def marked(mark: str) -> list[psutil.Process]:
    """The processes that run with a mark in their environment."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == mark and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found


def start(arguments: Sequence[str], mark: str, folder: Path) -> subprocess.Popen[str]:
    """The command `ctxbench` with a mark; what it prints goes to the file `output` of the folder."""
    with (folder / "output").open("w") as output:
        return subprocess.Popen(
            [sys.executable, "-m", "ctxbench", *arguments],
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, MARK: mark, "OMP_NUM_THREADS": "1"},
            text=True,
        )


def new_mark() -> str:
    return secrets.token_hex(8)


def run(arguments: Sequence[str], tally: Tally, what: str, folder: Path) -> int:
    """Run the command to its end, note tracebacks and what it leaves; its exit code."""
    mark = new_mark()
    code = start(arguments, mark, folder).wait()
    tally.read(what, (folder / "output").read_text(errors="replace"))
    tally.look(what, mark)
    return code
