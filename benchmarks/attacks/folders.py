"""Damaged run folders: each reader says so in a sentence; `resume` mends what a killed writer can leave, or refuses."""

import csv
import io
import random
import shutil
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path

import ctxbench
from ctxbench.comparison import reusable
from ctxbench.engine.run import resume
from ctxbench.errors import AlteredRun, UsageError
from ctxbench.gate.baseline import load_baseline
from ctxbench.report.write import write_report
from ctxbench.results.csv_file import csv_line
from ctxbench.results.run_folder import RunFolder
from ctxbench.results.tables import tables

from .small import begin, counted, suite
from .tally import Tally

SEEDS, SEEDS_SHORT = 500, 12
CELLS = ("-1", "inf", "nan", "zz", "", "1e999", "\x1b[2J")
# Every RESUMED-th damage is one that a killed writer leaves, in a run that has not ended.
RESUMED = 5


def attack(folder: Path, short: bool, seed: int) -> Tally:
    """Damage copies of one run, and have every reader read them."""
    tally = Tally()
    whole = begin(folder, folder / "whole")
    for number in range(SEEDS_SHORT if short else SEEDS):
        chance = random.Random(f"{seed} {number}")
        path = folder / f"run{number}"
        shutil.copytree(whole.path, path)
        tally.tried += 1
        if number % RESUMED == 0:
            tear_and_resume(path, chance, whole, tally)
        else:
            damage_and_read(path, chance, folder, tally)
        shutil.rmtree(path)
    return tally


def damage_and_read(path: Path, chance: random.Random, folder: Path, tally: Tally) -> None:
    """Damage a finished run: every reader of a damaged table warns, or refuses it."""
    file = path / chance.choice([*tables(), "run.json"])
    damage = chance.choice(DAMAGES if file.suffix == ".csv" else DAMAGES[:2])
    before = file.read_bytes()
    file.write_bytes(damage(before, chance))
    if file.read_bytes() == before:
        return
    readers: dict[str, Callable[[], object]] = {
        "load": lambda: read_all(path),
        "report": lambda: write_report([path], folder / "report", []),
        "check --baseline": lambda: load_baseline(path),
        "compare --reuse": lambda: reusable(path, suite(folder), (), RunFolder.open(path).meta.get("environment", {})),
        "resume": lambda: resume(path, in_process=True),
    }
    for name, read in readers.items():
        what = f"{name} of {path.name} after {damage.__name__} of {file.name}"
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            said = outcome(read, what, tally) or any(issubclass(each.category, AlteredRun) for each in told)
        if not said and file.suffix == ".csv":
            tally.wrong.append(f"{what}: nothing was said")


def tear_and_resume(path: Path, chance: random.Random, whole: RunFolder, tally: Tally) -> None:
    """Leave a run as a killed writer does: the tables end anywhere, or lack the end of a line before the last."""
    run = RunFolder.open(path)
    run.save_meta(state="running", tables={})
    for name in chance.sample([*tables()], chance.randint(1, len(tables()))):
        file = path / name
        file.write_bytes(chance.choice((cut, tear))(file.read_bytes(), chance))
    what = f"resume of {path.name}"
    if outcome(lambda: resume(path, in_process=True), what, tally):
        return
    if counted(RunFolder.open(path)) != counted(whole):
        tally.wrong.append(f"{what}: the run has {counted(run)}")


def outcome(read: Callable[[], object], what: str, tally: Tally) -> bool:
    """Whether it was refused in a sentence."""
    try:
        read()
    except UsageError:
        return True
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        last = traceback.format_exception_only(error)[-1].strip()
        tally.tracebacks.append(f"{what}: {last} ({Path(frame.filename).name}, line {frame.lineno})")
        return True
    return False


def read_all(path: Path) -> None:
    run = ctxbench.load(path)
    for read in (lambda: run.frame, lambda: run.samples, run.folder.timeline, run.folder.finished):
        read()


def cut(content: bytes, chance: random.Random) -> bytes:
    return content[: chance.randrange(len(content))]


def flip(content: bytes, chance: random.Random) -> bytes:
    changed = bytearray(content)
    for _ in range(chance.randint(1, 8)):
        changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def tear(content: bytes, chance: random.Random) -> bytes:
    """Without the end of one line, line feed included."""
    lines = content.splitlines(keepends=True)
    index = chance.randrange(1, len(lines)) if len(lines) > 1 else 0
    lines[index] = lines[index][: chance.randrange(len(lines[index]))]
    return b"".join(lines)


def exchange(content: bytes, chance: random.Random) -> bytes:
    """Two cells in each other's place."""
    rows = [*csv.reader(io.StringIO(content.decode()))]
    (row, i), (other, j) = [(each := chance.choice(rows), chance.randrange(len(each))) for _ in range(2)]
    row[i], other[j] = other[j], row[i]
    return "".join(map(csv_line, rows)).encode()


def replace(content: bytes, chance: random.Random) -> bytes:
    """Something else in one cell."""
    rows = [*csv.reader(io.StringIO(content.decode()))]
    row = chance.choice(rows)
    row[chance.randrange(len(row))] = chance.choice(CELLS)
    return "".join(map(csv_line, rows)).encode()


def drop_line(content: bytes, chance: random.Random) -> bytes:
    lines = content.splitlines(keepends=True)
    lines.pop(chance.randrange(len(lines)))
    return b"".join(lines)


DAMAGES = [cut, flip, tear, exchange, replace, drop_line]
