"""Disks that are full: a run on one of 4 to 100 KB, then on the same with room, where `resume` continues it."""

import os
import resource
import subprocess
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ctxbench.base.errors import UsageError
from ctxbench.engine.run import resume
from ctxbench.results.run_folder import RunFolder

from .small import begin, counted
from .tally import Tally

SIZES, SIZES_SHORT = range(4, 104, 4), (4, 16, 60)
KIB = 1024


def attack(folder: Path, short: bool, seed: int) -> Tally:
    """Run on disks of each size, and continue each run after room was made."""
    tally = Tally()
    whole = counted(begin(folder, folder / "whole"))
    for size in SIZES_SHORT if short else SIZES:
        tally.tried += 1
        what = f"a disk of {size} KB"
        try:
            fill_and_continue(folder, size, whole, tally)
        except UsageError as error:
            tally.wrong.append(f"{what}: it cannot be continued: {error}")
        except Exception as error:
            tally.tracebacks.append(f"{what}: {traceback.format_exception_only(error)[-1].strip()}")
    return tally


def fill_and_continue(folder: Path, size: int, whole: list[tuple[object, ...]], tally: Tally) -> None:
    disk = folder / f"disk{size}"
    out = disk / "run"
    with small_disk(disk, size) as make_room:
        try:
            begin(folder, out)
        except UsageError as error:
            if "cannot write to" not in str(error):
                raise
        make_room()
        before = rows(out)
        run = resume(out, in_process=True) if (out / "run.json").exists() else begin(folder, out)
        after = rows(out)
        tally.lost += [f"a disk of {size} KB: {key}" for key in before if after.get(key) != before[key]]
        if counted(run) != whole:
            tally.wrong.append(f"a disk of {size} KB: the run has {counted(run)}")


@contextmanager
def small_disk(path: Path, size: int) -> Iterator[Callable[[], object]]:
    """A folder for so many KB, and a function that makes room: a disk of its own, else a limit on each file."""
    path.mkdir()
    if os.geteuid() == 0 and mount("-t", "tmpfs", "-o", f"size={size}k", "tmpfs", str(path)):
        try:
            yield lambda: mount("-o", "remount,size=20m", str(path))
        finally:
            subprocess.run(["umount", str(path)], check=True)
        return
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size * KIB, limits[1]))
    try:
        yield lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def mount(*arguments: str) -> bool:
    return subprocess.run(["mount", *arguments], capture_output=True, check=False).returncode == 0


def rows(out: Path) -> dict[tuple[str, int], list[str]]:
    """The whole lines of `processes.csv`, read as `resume` does."""
    if not (out / "processes.csv").exists() or not (out / "run.json").exists():
        return {}
    run = RunFolder.open(out)
    if not run.recover():
        return {
            (case, number): [*record.row().values()]
            for case, each in run.finished().items()
            for number, record in each.items()
        }
    raise UsageError(f"{out} has torn lines before its last")
