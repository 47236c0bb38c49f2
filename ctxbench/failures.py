"""How a case failed: what it raised as status, sentence and traceback, and the last line that it printed."""

import sys
import traceback
from pathlib import Path

from ctxbench.devices import Unsupported
from ctxbench.errors import ModuleCodeError
from ctxbench.messages import Failure

_OUT_OF_MEMORY = ("DefaultCPUAllocator", "not enough memory", "out of memory", "Cannot allocate memory")
_NOT_IMPLEMENTED = ("not implemented for", "is not supported", "not supported on")


class NotFinite(Exception):
    """A module's output or gradient holds NaN or infinity."""


class OutOfTime(Exception):
    """A part of a measurement with a limit of its own took longer than that."""


class DoesNotFit(MemoryError):
    """The predicted peak exceeds the memory that the device has free."""


def describe_failure(error: BaseException) -> Failure:
    """Status, sentence (with the user's own frame) and traceback of what a case raised."""
    lines = str(error).strip().split("\n")
    # A module's own exception has its traceback in the text: what happened is the last line.
    text = f"{lines[0]} {lines[-1]}" if isinstance(error, ModuleCodeError) else lines[0] or type(error).__name__
    frame = _user_frame(error)
    where = f" ({Path(frame.filename).name}, line {frame.lineno}, in {frame.name})" if frame else ""
    kind = type(error).__name__
    if isinstance(error, DoesNotFit):
        status, message = "oom", f"out of memory (predicted): {text}"
    elif kind == "OutOfMemoryError" or isinstance(error, MemoryError) or any(part in text for part in _OUT_OF_MEMORY):
        status, message = "oom", f"out of memory: {text}{where}"
    elif isinstance(error, NotFinite):
        status, message = "nan", text
    elif isinstance(error, OutOfTime):
        status, message = "timeout", text
    elif isinstance(error, Unsupported | NotImplementedError) or any(part in text for part in _NOT_IMPLEMENTED):
        status, message = "unsupported", f"{text}{where}"
    else:
        status, message = "error", f"{kind}: {text}{where}"
    return Failure(status, message, "".join(traceback.format_exception(error)))


def last_line(output: str) -> str:
    """The last line that a process printed, as a clause; it says so if there is none."""
    lines = output.strip().splitlines()
    return f"it last printed: {lines[-1]}" if lines else "it printed nothing"


def _user_frame(error: BaseException) -> traceback.FrameSummary | None:
    """The innermost frame outside torch, ctxbench's harness and the standard library: where the user would look."""
    harness = Path(__file__).resolve().parent
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = Path(frame.filename).resolve()
        inside = harness in path.parents and path.parent.name != "modules"
        if not inside and "site-packages" not in path.parts and sys.base_prefix not in map(str, path.parents):
            return frame
    return None
