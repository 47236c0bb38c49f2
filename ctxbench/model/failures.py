"""Failure of a case: its exception as status, sentence and traceback, and the last line that it printed."""

import re
import signal
import traceback
from pathlib import Path

from ctxbench.base.errors import ModuleCodeError, cut, text_of
from ctxbench.base.reasons import frame_of, reason
from ctxbench.devices import Unsupported
from ctxbench.model.messages import Failure

# cuBLAS, cuSOLVER, cuSPARSE and cuFFT fail with ALLOC_FAILED, cuDNN 9 with ALLOCATION_FAILED.
_LIBRARY_OUT_OF_MEMORY = re.compile(r"\bCU[A-Z]+_(STATUS_)?\w*ALLOC(ATION)?_FAILED\b")
_OUT_OF_MEMORY = ("DefaultCPUAllocator", "not enough memory", "out of memory", "Cannot allocate memory")
_NOT_IMPLEMENTED = ("not implemented for", "is not supported", "not supported on", "NOT_IMPLEMENTED")
_GPU_ERROR = re.compile(r"\b(CUDA|CUDA driver|cuDNN|cuSOLVER|cuSPARSE|cuFFT|Triton) Error\b", re.IGNORECASE)
# What Python, GNU's OpenMP and OpenBLAS say where the system has no thread left.
_NO_THREAD = re.compile(r"can't start new thread|Thread creation failed|pthread_create failed")
NO_THREAD = "the machine could start no more threads"
# CUDA's words for the errors after which every later call of the process fails, and what its libraries then say.
_CONTEXT_LOST = (
    "illegal memory access",
    "device-side assert",
    "unspecified launch failure",
    "launch timed out",
    "misaligned address",
    "illegal instruction",
    "global/shared address space",
    "invalid program counter",
    "hardware stack error",
    "uncorrectable",
    "_EXECUTION_FAILED",
    "error: unknown error",
)


class NotFinite(Exception):
    """A module's output or gradient holds NaN or infinity."""


class StaleOutput(Exception):
    """A module's output is that of an input which is no longer there."""


class OutOfTime(Exception):
    """A part of a measurement with a limit of its own took longer than that."""


class DoesNotFit(MemoryError):
    """The predicted peak exceeds the memory that the device has free."""


# What PyTorch adds to an operator that a backend lacks, for those who build PyTorch.
_ADVICE = re.compile(r"(?<=\.) (This could be because|You may have run into this message).*", re.DOTALL)


def describe_failure(error: BaseException) -> Failure:
    """Status, sentence (with the user's own frame) and traceback of what a case raised.

    `crashed` is a GPU error after which the process can compute nothing more; other GPU errors are `error`.
    """
    said = text_of(error)
    if isinstance(error, ModuleCodeError):  # it has its traceback in the text: what happened is the last line
        lines = _ADVICE.sub("", said).strip().split("\n")
        words = f"{lines[0]} {lines[-1]}"
    else:
        words = _ADVICE.sub("", reason(error))
    frame = frame_of(error)
    where = f" ({Path(frame.filename).name}, line {frame.lineno}, in {frame.name})" if frame else ""
    kind = type(error).__name__
    text = words or kind
    if isinstance(error, DoesNotFit):
        status, message = "oom", f"out of memory (predicted): {text}"
    elif kind == "OutOfMemoryError" or isinstance(error, MemoryError) or _is_out_of_memory(text):
        status, message = "oom", f"out of memory: {text}{where}"
    elif lacks_threads(said):
        status, message = "error", f"{NO_THREAD}: {kind}: {text}{where}"
    elif isinstance(error, NotFinite):
        status, message = "nan", text
    elif isinstance(error, OutOfTime):
        status, message = "timeout", text
    elif isinstance(error, Unsupported | NotImplementedError):
        status, message = "unsupported", f"{text}{where}"
    elif _GPU_ERROR.search(said):
        lost = any(part in said for part in _CONTEXT_LOST)
        status, message = "crashed" if lost else "error", f"{kind}: {text}{where}"
    elif any(part in text for part in _NOT_IMPLEMENTED):
        status, message = "unsupported", f"{text}{where}"
    else:
        status, message = "error", f"{kind}: {text}{where}" if words else f"{kind}{where}"
    trace = cut("".join(traceback.format_exception(error)))
    return Failure(status, message, trace, _is_no_gpu_room(text))


def lacks_threads(text: str) -> bool:
    """Return whether a text says that the system had no thread left, which is no fault of a module."""
    return bool(_NO_THREAD.search(text))


def _is_no_gpu_room(text: str) -> bool:
    """True if CUDA or its library says that the GPU had no memory left, or that another process has it to itself."""
    full = "CUDA out of memory" in text or "CUDA error: out of memory" in text
    return full or bool(_LIBRARY_OUT_OF_MEMORY.search(text)) or "busy or unavailable" in text


def signal_name(number: int) -> str:
    """`SIGKILL`; a real-time signal has a number only."""
    return next((each.name for each in signal.Signals if each == number), f"signal {number}")


def last_line(output: str) -> str:
    """The last line that a process printed, as a clause; it says so if there is none."""
    lines = output.strip().splitlines()
    return f"it last printed: {lines[-1]}" if lines else "it printed nothing"


def _is_out_of_memory(text: str) -> bool:
    return any(part in text for part in _OUT_OF_MEMORY) or bool(_LIBRARY_OUT_OF_MEMORY.search(text))
