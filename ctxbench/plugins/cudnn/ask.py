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
    for each in named:
        if not (Path(each) / NAME).is_file():
            raise NoAnswerError(f"{FOLDER_ENV} names {each!r}, where there is no {NAME}")
    if named:
        return [Path(each).resolve() for each in named]
    try:
        found = find_spec("nvidia.cudnn")
    except ModuleNotFoundError:
        found = None
    for place in (found and found.submodule_search_locations) or ():
        if (Path(place) / "lib" / NAME).is_file():
            return [Path(place).resolve() / "lib"]
    raise NoAnswerError('there is none here: in the clone, pip install -c constraints.txt ".[cudnn]"')


def ask(card: str, questions: Sequence[CudnnConvolution]) -> list[Answers]:
    """Each library's choices for convolutions on a card, kept by library, card and convolutions. NoAnswerError."""
    if card not in cards():
        raise NoAnswerError(f"the properties that it reads are known of {', '.join(cards())}, not of {card}")
    return [_answers(card, questions, where) for where in folders()]


def _answers(card: str, questions: Sequence[CudnnConvolution], where: Path) -> Answers:
    lines = [{"folder": str(where), "properties": cards()[card]}, *map(vars, questions)]
    text = "\n".join(map(json.dumps, lines))
    state = (where / NAME).stat()
    key = json.dumps([text, state.st_size, state.st_mtime_ns, DRIVER.exists()]).encode()
    kept = _kept()
    told = kept.read(key)
    if told is None:
        told = _run(text, len(questions))
        kept.write(key, told)
    version, *choices = map(json.loads, told.splitlines())
    found = [each if isinstance(each, str) else CudnnChoice(each[0], each[1], tuple(each[2])) for each in choices]
    return Answers(_version(version), dict(zip(questions, found, strict=True)))


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
    raise NoAnswerError(f"its process ended by {how}: {said}")


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _version(number: int) -> str:
    """The version 9.19.0 of the number 91900."""
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"
