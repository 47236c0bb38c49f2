"""Standard output and error in odd places: closed, on a full disk, read by nobody, with few characters."""

import errno
import os
import sys
from typing import Any, TextIO, cast

STREAMS = ("stdin", "stdout", "stderr")


class Output:
    """A stream that drops what cannot be written, so that the work goes on; `error` says why, once."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.error: OSError | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except OSError as error:
            self._drop(error)
            return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError as error:
            self._drop(error)

    def _drop(self, error: OSError) -> None:
        self.error = self.error or error
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._stream.fileno())
        os.close(nowhere)


def prepare() -> None:
    """Open what is closed, so that no file takes its place; show `?` for characters that the encoding lacks.

    COLUMNS of 0 says nothing of the width, and is taken out of the environment.
    """
    if not os.environ.get("COLUMNS", "1").strip("0"):
        del os.environ["COLUMNS"]
    for descriptor, name in enumerate(STREAMS):
        if getattr(sys, name) is not None:
            continue
        opened = os.open(os.devnull, os.O_RDWR)
        if opened != descriptor:
            os.dup2(opened, descriptor)
            os.close(opened)
        setattr(sys, name, os.fdopen(descriptor, "r" if name == "stdin" else "w", encoding="utf-8", closefd=False))
    for name in STREAMS[1:]:
        stream = getattr(sys, name)
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
        setattr(sys, name, Output(stream))


def unwritten() -> str:
    """Reason for incomplete standard output, as a sentence; "" if it is complete, or if its reader has left."""
    output = cast(Output, sys.stdout)
    output.flush()
    if output.error is None or output.error.errno == errno.EPIPE:
        return ""
    return f"cannot write to standard output: {output.error.strerror}"
