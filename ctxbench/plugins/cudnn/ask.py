"""cuDNN in a process of its own, asked about the convolutions of a pass on a card; its answers are kept."""

import json
import os
import signal
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ctxbench.base import disk
from ctxbench.plugins.cudnn.library import NAME, CudnnChoice, CudnnConvolution

if TYPE_CHECKING:
    from ctxbench.engine.cache import Cache

PROGRAM = Path(__file__).with_name("library.py")
CARDS = Path(__file__).with_name("cards.toml")
# Folders of `libcudnn.so.9` to ask, in place of that beside torch; further ones are compared with the first.
FOLDER_ENV = "CTXBENCH_CUDNN"
# Its value with which none is asked; where the library is in a folder into which pip has put the wheel.
NOBODY, IN_A_WHEEL = "none", Path("nvidia/cudnn/lib")
# Seconds for the library to be loaded, and for each convolution: hundreds of times what one takes.
LOAD_S, EACH_S = 60.0, 5.0
# What is there where a driver is: cuDNN then asks it, and answers a little otherwise.
DRIVER = Path("/dev/nvidiactl")


class NoAnswerError(RuntimeError):
    """cuDNN was not asked or did not answer; a clause says why."""


@dataclass(frozen=True)
class Answers:
    """The version of the library that was asked, such as 9.19.0, and what it chose for each convolution or said."""

    version: str
    choices: dict[CudnnConvolution, CudnnChoice | str]


@cache
def cards() -> dict[str, dict[str, Any]]:
    """The properties of each card that is known, as cuDNN reads them, by the name of its data sheet."""
    known = tomllib.loads(disk.read_text(CARDS))
    common = known.pop("common")
    return {name: {**common, **{key: own[key] for key in own if key != "source"}} for name, own in known.items()}


def folders() -> list[Path]:
    """The folders of libraries: those that a person names, else that of the installed wheel. NoAnswerError."""
    named = [each for each in os.environ.get(FOLDER_ENV, "").split(os.pathsep) if each]
    if named == [NOBODY]:
        raise NoAnswerError(f"{FOLDER_ENV} is {NOBODY}")
    if named:
        return [_named(Path(each)) for each in named]
    try:
        found = find_spec("nvidia.cudnn")
    except ModuleNotFoundError:
        found = None
    for place in (found and found.submodule_search_locations) or ():
        if (Path(place) / "lib" / NAME).is_file():
            return [Path(place).resolve() / "lib"]
    raise NoAnswerError('there is none here: in the clone, pip install -c constraints.txt ".[cudnn]"')


def _named(folder: Path) -> Path:
    """The folder of the library that a person names by it, or by where pip has put the wheel. NoAnswerError."""
    for each in (folder, folder / IN_A_WHEEL):
        if (each / NAME).is_file():
            return each.resolve()
    raise NoAnswerError(
        f"{FOLDER_ENV} names {str(folder)!r}, where there is no {NAME}: "
        'pip install --target FOLDER "nvidia-cudnn-cu13==9.20.*" brings one with its cuBLAS'
    )


def ask(card: str, questions: Sequence[CudnnConvolution]) -> list[Answers]:
    """Each library's choices for convolutions on a card, kept by library, card and convolution. NoAnswerError."""
    if card not in cards():
        raise NoAnswerError(f"the properties that it reads are known of {', '.join(cards())}, not of {card}")
    return [_answers(card, questions, where) for where in folders()]


def identities() -> list[str]:
    """Texts that tell the libraries which are asked here from others, or why none is."""
    try:
        return [_identity(each) for each in folders()]
    except NoAnswerError as error:
        return [str(error)]


def _identity(where: Path) -> str:
    """Place, size and dates of a library, and of the folder of what is installed beside it; whether a driver is."""
    states = [(where / NAME).stat(), where.parents[1].stat()]
    return json.dumps([str(where), *((each.st_size, each.st_mtime_ns) for each in states), DRIVER.exists()])


def _answers(card: str, questions: Sequence[CudnnConvolution], where: Path) -> Answers:
    properties, library, kept = cards()[card], _identity(where), _kept()
    keys = {each: json.dumps([library, properties, vars(each)]).encode() for each in questions}
    told = {each: json.loads(found) for each, key in keys.items() if (found := kept.read(key))}
    if left := [each for each in keys if each not in told]:
        lines = [{"folder": str(where), "properties": properties}, *map(vars, left)]
        version, *choices = map(json.loads, _run("\n".join(map(json.dumps, lines)), len(left)).splitlines())
        for each, choice in zip(left, choices, strict=True):
            told[each] = [version, choice]
            kept.write(keys[each], json.dumps(told[each]).encode())
    return Answers(
        _version(max((version for version, _ in told.values()), default=0)),
        {each: choice if isinstance(choice := told[each][1], str) else _choice(*choice) for each in questions},
    )


def _choice(engine: int, size: int, refused: Sequence[int]) -> CudnnChoice:
    return CudnnChoice(engine, size, tuple(refused))


@cache
def _kept() -> "Cache":
    from ctxbench.engine.cache import Cache

    return Cache("cudnn")


def _run(text: str, count: int) -> bytes:
    """Return what the library's process writes about so many convolutions. NoAnswerError where that is not all."""
    # its log must not go into the answers
    variables = {name: value for name, value in os.environ.items() if not name.startswith("CUDNN_")}
    try:
        ended = subprocess.run(
            [sys.executable, "-I", str(PROGRAM)],
            input=text.encode(),
            capture_output=True,
            timeout=LOAD_S + EACH_S * count,
            env=variables,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise NoAnswerError(f"it did not answer within {error.timeout:.0f} s") from None
    except OSError as error:
        raise NoAnswerError(f"no process could be started for it: {error.strerror}") from None
    if ended.returncode == 0 and len(ended.stdout.splitlines()) == count + 1:
        return ended.stdout
    said = (ended.stderr.decode(errors="replace").strip().splitlines() or ["without a word"])[-1]
    how = _signal(-ended.returncode) if ended.returncode < 0 else f"exit code {ended.returncode}"
    advice = " (it needs cuBLAS: pip install nvidia-cublas)" if "cublas" in said else ""
    raise NoAnswerError(f"its process ended by {how}: {said}{advice}")


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _version(number: int) -> str:
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"
