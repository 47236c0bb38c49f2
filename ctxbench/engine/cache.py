"""Cache of counts on this machine: counts depend on code, versions and settings, never on time.

Only of ctxbench's own modules: of another one, no list of files tells all that its counts depend on. A torch that is
edited where it is installed, or patched as Python starts, is not known from another.
"""

import hashlib
import json
import os
import platform
import shutil
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property
from importlib.metadata import distribution
from pathlib import Path

from platformdirs import user_cache_path

from ctxbench import devices, registry
from ctxbench.engine.exit import Exit
from ctxbench.engine.one_process import Executor
from ctxbench.model.messages import Failure
from ctxbench.results.csv_file import replace_file
from ctxbench.results.sources import code_digest
from ctxbench.worker.lines import decode, encode
from ctxbench.worker.protocol import Imported, MeasureCase, Reply, Task

# Set to anything, it has all counted anew.
NO_CACHE_ENV = "CTXBENCH_NO_CACHE"
# What counts besides ctxbench.
PACKAGES = ("torch", "torchprofile", "numpy")


class CachedExecutor:
    """An executor that keeps what a task without a clock told, and tells it again without the process."""

    def __init__(self, executor: Executor, note: Callable[[str], object] = lambda text: None) -> None:
        self._executor, self._note = executor, note
        self._is_off = bool(os.environ.get(NO_CACHE_ENV))

    def run(self, task: Task, on_message: Callable[[Reply], None], timeout_s: float | None = None) -> Exit:
        if self._is_off or not isinstance(task, MeasureCase) or not _is_fixed(task):
            return self._executor.run(task, on_message, timeout_s)
        path = self._folder / f"{_key(task)}.jsonl"
        if told := _read(path):
            for message in told:
                on_message(message)
            return Exit(0, 0, False, "")
        told = []

        def take(message: Reply) -> None:
            told.append(message)
            on_message(message)

        ended = self._executor.run(task, take, timeout_s)
        if ended == Exit(0, 0, False, "") and not any(isinstance(each, Failure | Imported) for each in told):
            self._write(path, told)
        return ended

    @cached_property
    def _folder(self) -> Path:
        """Cache folder of this code and these versions; one of other code is of no more use."""
        return user_cache_path("ctxbench") / "counted" / counting_code()

    def _write(self, path: Path, told: list[Reply]) -> None:
        try:
            if not path.parent.exists():
                shutil.rmtree(path.parent.parent, ignore_errors=True)
                path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(path, _sealed(path, b"".join(map(encode, told))))
        except OSError as error:
            self._is_off = True
            self._note(f"what is counted is not kept for the next run: {path.parent}: {error.strerror or error}")


def _is_fixed(task: MeasureCase) -> bool:
    """Return whether the task measures nothing and is about a module that ctxbench brings."""
    case = task.case
    return (
        not devices.has_clock(case.device) and not case.network and case.reference.startswith(f"{registry.BUILT_IN}.")
    )


def _read(path: Path) -> list[Reply]:
    """Cached replies; none if the file is missing or was altered."""
    with suppress(OSError):
        found = path.read_bytes()
        lines = found[: -len(_sealed(path, b""))]
        if found == _sealed(path, lines):
            return [decode(line) for line in lines.splitlines()]
    return []


def _sealed(path: Path, lines: bytes) -> bytes:
    """The content of a file: the lines, and a last one with a checksum over them and what the file is for."""
    identity = f"{path.parent.name}/{path.name}\n".encode()
    return lines + hashlib.sha256(identity + lines).hexdigest().encode() + b"\n"


def _key(task: MeasureCase) -> str:
    sheets = {name: sheet.model_dump(mode="json") for name, sheet in devices.sheets([task.case.device]).items()}
    return hashlib.sha256(encode(task) + json.dumps(sheets, sort_keys=True).encode()).hexdigest()


def counting_code() -> str:
    """A hash of all files of ctxbench, and of what is installed of Python and of the packages that count."""
    installed = [platform.python_version(), *map(_installed, PACKAGES)]
    return hashlib.sha256(json.dumps([*installed, code_digest()]).encode()).hexdigest()


def _installed(package: str) -> list[str]:
    """The version of a package, and the list of its files with their hashes, which is another one for another build."""
    found = distribution(package)
    return [found.version, found.read_text("RECORD") or ""]
