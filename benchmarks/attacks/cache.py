"""The cache of counts, damaged or of other code and data: a run counts anew, and has the numbers of one without it."""

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import ctxbench
from ctxbench.engine.counted import SWITCH
from ctxbench.results.run_folder import RunFolder

from .folders import cut, flip
from .tally import Tally, run

SUITE = """
title = "counted"
modules = ["linear", "acf"]
metrics = ["params", "macs", "memory", "latency"]
[axes]
shape = [4, 64, 128, 128]
device = ["t4"]
"""
NUMBERS = (
    "status", "message", "params", "macs", "macs_train", "memory_infer_predicted_bytes", "memory_train_predicted_bytes",
    "latency_infer_ms", "latency_train_ms",
)  # fmt: skip
DAMAGED, DAMAGED_SHORT = 40, 4
Rows = list[tuple[object, ...]]
# What a count depends on: a file of an installed ctxbench, and a text in it with what takes its place everywhere.
INPUTS = {
    "data of a prediction": ("predict/efficiencies.csv", ",1,0.", ",1,0.0"),
    "a device's sheet": ("devices/sheets.toml", "bandwidth_gb_s = 320", "bandwidth_gb_s = 32"),
    "a module": ("modules/linear.py", "channels // reduction, 1)", "channels // reduction, 1, bias=False)"),
}


def attack(folder: Path, short: bool, seed: int) -> Tally:
    """Damage what a run has kept, then change what it depends on in an installed copy; run again each time."""
    tally = Tally()
    chance = random.Random(seed)
    suite = folder / "counted.toml"
    suite.write_text(SUITE)
    installed = install(folder / "installed")
    command = Command(suite, folder, installed, tally)
    truth = command("the first run")
    kept = {path: path.read_bytes() for path in sorted((folder / "cache").rglob("*.jsonl"))}
    if len(kept) < 2:
        tally.wrong.append(f"{len(kept)} entries are in the cache")
        return tally
    for number in range(DAMAGED_SHORT if short else DAMAGED):
        damage = [flip, cut, cut_at_a_line, foreign(kept)][number % 4]
        for path, content in kept.items():
            path.write_bytes(damage(content, chance))
        what = f"{damage.__name__} of the cache ({number})"
        if (found := command(what)) != truth:
            tally.wrong.append(f"{what}: the run has {found}")
    for what in chance.sample([*INPUTS], 1 if short else len(INPUTS)):
        change(installed, what)
        found, counted = command(f"{what} changed"), command(f"{what} changed, without a cache", {SWITCH: "1"})
        if found != counted or counted == truth:
            tally.wrong.append(f"{what} changed: the run has {found}, without a cache {counted}, before {truth}")
        truth = counted
    return tally


class Command:
    """Runs the suite with the installed copy and one cache; its numbers."""

    def __init__(self, suite: Path, folder: Path, installed: Path, tally: Tally) -> None:
        self._suite, self._folder, self._tally = suite, folder, tally
        cache = str(folder / "cache")
        # Without the working folder, which may hold another ctxbench, at the start of Python's path.
        self._environment = {"PYTHONPATH": str(installed), "PYTHONSAFEPATH": "1", "XDG_CACHE_HOME": cache}

    def __call__(self, what: str, more: dict[str, str] | None = None) -> Rows:
        self._tally.tried += 1
        out = self._folder / f"run{self._tally.tried}"
        arguments = ["run", "--suite", str(self._suite), "--static", "--out", str(out)]
        code = run(arguments, self._tally, what, self._folder, {**self._environment, **(more or {})})
        if code:
            self._tally.wrong.append(f"{what}: exit code {code}: {(self._folder / 'output').read_text()[-300:]}")
            return []
        frame = RunFolder.open(out).frame()
        return [*frame[[*NUMBERS]].fillna("").itertuples(index=False, name=None)]


def install(place: Path) -> Path:
    """ctxbench as a wheel holds it, to be changed; the folder that goes on Python's path."""
    package = Path(ctxbench.__file__).parent
    no_bytecode = shutil.ignore_patterns("__pycache__")
    shutil.copytree(package, place / "ctxbench", ignore=no_bytecode)
    for name in ("modules", "networks", "published", "report", "suites"):
        if not (place / "ctxbench" / name).exists():
            shutil.copytree(package.parent / name, place / "ctxbench" / name, ignore=no_bytecode)
    return place


def change(installed: Path, what: str) -> None:
    """Change one input of a count."""
    name, old, new = INPUTS[what]
    path = installed / "ctxbench" / name
    path.write_text(path.read_text().replace(old, new))


def cut_at_a_line(content: bytes, chance: random.Random) -> bytes:
    lines = content.splitlines(keepends=True)
    return b"".join(lines[: chance.randrange(len(lines))])


def foreign(kept: dict[Path, bytes]) -> Callable[[bytes, random.Random], bytes]:
    """Puts another entry, whole, in the place of one."""

    def another_entry(content: bytes, chance: random.Random) -> bytes:
        return chance.choice([each for each in kept.values() if each != content])

    return another_entry
