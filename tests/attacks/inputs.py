"""Generated inputs, each tried in this process: command lines, suite files, damaged run folders and cache files."""

import functools
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from random import Random
from unittest import mock

import damages
import generated_suites
import world
from trials import LONG, refuse, try_command

from ctxbench.engine.cache import NO_CACHE_ENV, Cache
from ctxbench.engine.client import ForkServer
from ctxbench.plugin import plugins

from . import small
from .tally import Tally

# How many of a kind.
WHOLE, SHORT = 250, 8
READERS = (
    ["report", "run", "--figures", "samples"],
    ["report", "run", "--columns", "params,latency_infer", "--figures", "samples"],
    ["diff", "run", "run"],
    ["check", "--baseline", "run", "--modules", "linear", "--device", "t4"],
    ["resume", "run"],
    ["resume", "run", "--retry-failed"],
)
# A trial: of the working folder, a run that was measured, and what chooses; sentences on what was wrong.
Trial = Callable[[Path, Path, Random], list[str]]


@contextmanager
def quick(place: Path) -> Iterator[None]:
    """One fork server in `place` for all commands of this process, and none that measures for minutes."""
    here = Path.cwd()
    os.chdir(place)
    with ExitStack() as stack:
        server = stack.enter_context(ForkServer())
        os.chdir(here)
        one = mock.Mock(return_value=nullcontext(server))
        stack.callback(give_back, one)
        for module in ("ctxbench.engine.run", "ctxbench.engine.client"):
            stack.enter_context(mock.patch(f"{module}.ForkServer", one))
        for name in LONG:
            if name.split(".")[2] in plugins():
                stack.enter_context(mock.patch(name, refuse))
        if "verify" in plugins():
            from ctxbench.plugins.verify.verify import verify

            # Compilers take seconds for each module.
            without = functools.partial(verify, compilers=False)
            stack.enter_context(mock.patch("ctxbench.plugins.verify.verify.verify", without))
        yield


def give_back(stand_in: mock.Mock) -> None:
    """Give the fork server's class to the modules that were imported meanwhile and took the stand-in."""
    for module in list(sys.modules.values()):
        if getattr(module, "__dict__", {}).get("ForkServer") is stand_in:
            module.__dict__["ForkServer"] = ForkServer


def emptied(place: Path) -> Path:
    for each in place.iterdir():
        shutil.rmtree(each) if each.is_dir() and not each.is_symlink() else each.unlink()
    return place


def command_line(place: Path, measured: Path, chance: Random) -> list[str]:
    world.make(place, measured)
    return tried(world.command_line(chance), place)


def suite_file(place: Path, measured: Path, chance: Random) -> list[str]:
    (place / "suite.toml").write_text(generated_suites.text(chance), errors="surrogatepass")
    return tried(["run", "--suite", "suite.toml", "--dry-run"], place)


def run_folder(place: Path, measured: Path, chance: Random) -> list[str]:
    damages.damage(Path(shutil.copytree(measured, place / "run")), chance)
    return tried(chance.choice([each for each in READERS if each[0] != "check" or "check" in plugins()]), place)


def cache_file(place: Path, measured: Path, chance: Random) -> list[str]:
    """Trial of a damage: a file that is not, to the byte, what was kept is not there."""
    environment = {name: value for name, value in os.environ.items() if name != NO_CACHE_ENV}
    with mock.patch.dict(os.environ, {**environment, "XDG_CACHE_HOME": str(place)}, clear=True):
        kept = Cache("history")
        content = chance.randbytes(chance.randint(1, 300))
        kept.write(b"key", content)
        (path,) = (each for each in place.rglob("*") if each.is_file())
        whole = path.read_bytes()
        while path.is_file() and not path.is_symlink() and path.stat().st_size < 2**20 and path.read_bytes() == whole:
            if chance.random() < 0.5:
                path.write_bytes(chance.choice([damages.cut, damages.flip, damages.tear])(whole, chance))
            else:
                damages.replace_file(path.parent, chance)
        return ["the cache believed a damaged file"] if kept.read(b"key") is not None else []


def tried(words: list[str], place: Path) -> list[str]:
    """Sentences on what a command did that none may do, with the command and its last line."""
    *wrong, printed = try_command(words, place) or [""]
    return [f"{each}: {words}: {printed.strip().rpartition(chr(10))[2]}" for each in wrong]


def attack(trial: Trial, folder: Path, short: bool, seed: int) -> Tally:
    """Try as many of a kind as are asked for."""
    tally, chance = Tally(), Random(seed)
    measured, place = folder / "measured", folder / "place"
    place.mkdir()
    small.begin(folder, measured)
    with quick(place):
        for _ in range(SHORT if short else WHOLE):
            tally.tried += 1
            for each in trial(emptied(place), measured, chance):
                found = tally.left if "left" in each[:5] else tally.tracebacks if "traceback" in each else tally.wrong
                found.append(each)
    return tally


KINDS = {
    "command lines": functools.partial(attack, command_line),
    "suite files": functools.partial(attack, suite_file),
    "damaged run folders": functools.partial(attack, run_folder),
    "damaged cache files": functools.partial(attack, cache_file),
}
