"""What is no file that can be read, in the place of each file that a command reads: a sentence, and never a wait."""

import ctypes
import itertools
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

from . import small
from .tally import Tally, run

TRIALS_SHORT = 12
# Seconds. A command that only refuses takes one.
LONGEST_S = 120.0
# From linux/prctl.h and linux/capability.h.
DROP, OVERRIDE, SEARCH = 24, 1, 2


def circle(path: Path) -> None:
    path.symlink_to(path.name)


def deep(path: Path) -> None:
    path.write_text("a = " * (path.suffix == ".toml") + "[" * 100_000)


def no_right(path: Path) -> None:
    path.write_text("")
    path.chmod(0)


KINDS: dict[str, Callable[[Path], object]] = {
    "a folder": Path.mkdir,
    "a pipe": os.mkfifo,
    "a device": lambda path: path.symlink_to("/dev/zero"),
    "a circle of links": circle,
    "what is nested": deep,
    "bytes": lambda path: path.write_bytes(b"\xff\xfe\x00" * 100),
    "a file of another": no_right,
}
MODULE = "{path}:Mine"
# The file in whose place it lies, and the command that reads that.
READERS: dict[str, tuple[str, ...]] = {
    "x.toml of run": ("run", "--suite", "{path}", "--static", "--out", "{out}"),
    "x.toml of predict": ("predict", "linear", "--for", "{path}", "--shape", "1,8,6,5"),
    "x.toml of report": ("report", "{run}", "--published", "{path}", "--out", "{out}"),
    "x.py of show": ("show", MODULE),
    "x.py of memory": ("memory", MODULE, "--shape", "1,8,6,5"),
    "x.py of verify": ("verify", MODULE),
    "x.py of a network": ("memory", "linear", "--network", "{path}:net", "--shape", "1,3,8,8"),
    "run.json of report": ("report", "{run}", "--out", "{out}"),
    "run.json of resume": ("resume", "{run}"),
    "run.json of check": ("check", "--baseline", "{run}"),
    "records.csv of report": ("report", "{run}", "--out", "{out}"),
    "records.csv of resume": ("resume", "{run}"),
    "records.csv of check": ("check", "--baseline", "{run}"),
    "processes.csv of resume": ("resume", "{run}"),
}


def attack(folder: Path, short: bool, seed: int) -> Tally:
    """Put each kind in the place of each file; in short some of both at random."""
    tally = Tally()
    whole = folder / "whole"
    small.suite(folder)
    run(["run", "--suite", str(folder / "small.toml"), "--out", str(whole)], tally, "a run", folder)
    pairs = [*itertools.product(KINDS, READERS)]
    for number, (kind, reader) in enumerate(random.Random(seed).sample(pairs, TRIALS_SHORT if short else len(pairs))):
        where = folder / str(number)
        place = Path(shutil.copytree(whole, where / "run"))
        name = reader.partition(" ")[0]
        path = (where if name.startswith("x.") else place) / name
        path.unlink(missing_ok=True)
        KINDS[kind](path)
        arguments = [each.format(path=path, run=place, out=where / "out") for each in READERS[reader]]
        what = f"{kind} in the place of {reader}"
        tally.tried += 1
        code = run(arguments, tally, what, where, before=without_rights, longest_s=LONGEST_S)
        said = (where / "output").read_text(errors="replace")
        if code != 2 or name not in said:
            tally.wrong.append(f"{what}: exit code {code}: {said.strip()[-300:] or 'nothing printed'}")
        if not path.is_symlink():
            path.chmod(0o700)
        shutil.rmtree(where)
    return tally


def without_rights() -> None:
    """In the process to be: root, too, may not read what it has no right to. OSError where that cannot be had."""
    if os.geteuid():
        return
    system = ctypes.CDLL(None, use_errno=True)
    for right in (OVERRIDE, SEARCH):
        if system.prctl(DROP, right, 0, 0, 0):
            raise OSError(ctypes.get_errno(), "the rights of root cannot be dropped")
