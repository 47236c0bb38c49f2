"""One line that says what an exception of a module's code was, and where in that code it came from."""

import traceback
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from ctxbench.base.call_sites import INSTALLED, is_harness, is_library
from ctxbench.base.errors import text_of

# Lines of a text that are told whole: einops and others give the reason in the last one.
_WHOLE = 4
# Modules whose exceptions say what happened in the first line, and advice after it.
_FIRST_LINE = ("builtins", "torch")
# What to do, by words of a text.
_ADVICE = {"Expected more than 1 value per channel when training": "; a batch of 2 images has more"}


def frame_of(error: BaseException) -> traceback.FrameSummary | None:
    """The innermost frame of a person's own code; else the innermost of the package whose block was called."""
    frames = [each for each in traceback.extract_tb(error.__traceback__) if not is_harness(each.filename)]
    own = [each for each in frames if not is_library(_whole(each))]
    packages = [(package, each) for each in frames for package in _package(each)]
    of_block = [each for package, each in packages if package == packages[0][0]]
    return next(reversed(own or of_block), None)


def reason(error: BaseException) -> str:
    """The text of an exception in one line; without one, the line of code that raised it; "" if there is neither."""
    lines = [each.strip() for each in text_of(error).strip().split("\n")]
    if not lines[0]:
        frame = frame_of(error)
        return (frame.line or "") if frame else ""
    is_whole = len(lines) <= _WHOLE and type(error).__module__.partition(".")[0] not in _FIRST_LINE
    text = " ".join(filter(None, lines)) if is_whole else lines[0]
    return text + next((advice for words, advice in _ADVICE.items() if words in text and advice not in text), "")


def said(error: BaseException) -> str:
    """The type of an exception, and what it says, in one line."""
    return ": ".join(filter(None, [type(error).__name__, reason(error)]))


def _whole(frame: traceback.FrameSummary) -> Path:
    return Path(frame.filename).resolve()


def _package(frame: traceback.FrameSummary) -> Iterator[str]:
    """The name of the package that a frame is of, unless that is PyTorch."""
    parts = _whole(frame).parts
    for folder, name in pairwise(parts):
        if folder in INSTALLED and name != "torch":
            yield name
