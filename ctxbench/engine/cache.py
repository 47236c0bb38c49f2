"""Cache of counts on this machine: counts depend on code, versions and settings, never on time.

Runs keep counts of ctxbench's own modules alone: of another one, no list of files tells all that its counts depend on.
A torch that is edited where it is installed, or patched as Python starts, is not known from another.
"""

import hashlib
import json
import os
import platform
import shutil
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import cached_property
from importlib.metadata import distribution, distributions
from itertools import takewhile
from pathlib import Path
from typing import Any

from platformdirs import user_cache_path

from ctxbench import devices, registry
from ctxbench.base import disk, terminal
from ctxbench.base.call_sites import is_library
from ctxbench.base.clocks import usable_cores
from ctxbench.base.errors import UsageError
from ctxbench.engine.client import is_of_machine
from ctxbench.engine.exit import WENT_ON, Exit
from ctxbench.engine.one_process import Executor
from ctxbench.model.case import Case
from ctxbench.model.messages import Failure
from ctxbench.plugin import loaded
from ctxbench.registry import networks
from ctxbench.results.sources import OF_A_TERMINAL, code_digest
from ctxbench.worker.lines import ProtocolError, decode, encode
from ctxbench.worker.protocol import Imported, MeasureCase, MeasureCases, Measured, Reply, Task

# Set to anything, it has all counted anew.
NO_CACHE_ENV = "CTXBENCH_NO_CACHE"
# What counts besides ctxbench.
PACKAGES = ("torch", "torchprofile", "numpy")
# No entry that was written is larger.
MOST_BYTES = 2**24
# Bytes of all entries of one name, from which on those that were used longest ago go.
MOST_KEPT = 2**28


class Cache:
    """Contents by key, for this code of ctxbench and these versions alone; never a reason to stop.

    A file that is not, to the byte, what was written for its key is not there, nor is one where others may write.
    """

    def __init__(self, name: str, note: Callable[[str], object] = lambda text: None) -> None:
        self._name, self._note = name, note
        self.is_off = bool(os.environ.get(NO_CACHE_ENV))
        self._is_trimmed = False

    def read(self, key: bytes) -> bytes | None:
        """Content kept for a key; None if nothing is."""
        path = self._path(key)
        if self.is_off or not self._is_private():
            return None
        try:
            found = disk.read_bytes(path, MOST_BYTES)
        except disk.NoFile:
            return None
        except UsageError as error:
            terminal.detail(f"{error}: counted again")
            return None
        content = found[: -len(_sealed(path, b""))]
        if found == _sealed(path, content):
            with suppress(OSError):
                os.utime(path)  # the time of its last use
            return content
        terminal.detail(f"{path} is not what was kept: counted again")
        return None

    def write(self, key: bytes, content: bytes) -> None:
        """Keep a content; where that fails, say so once and keep no more."""
        path = self._path(key)
        if self.is_off:
            return
        try:
            if not path.parent.exists():
                shutil.rmtree(path.parent.parent, ignore_errors=True)  # that of other code is of no more use
                disk.make_folder(path.parent, mode=0o700)
            if not self._is_private():
                raise UsageError("others may write there")
            if not self._is_trimmed:
                self._trim()
            disk.replace(path, _sealed(path, content))
        except (OSError, UsageError) as error:
            self.is_off = True
            reason = getattr(error, "strerror", None) or error
            self._note(f"what is counted is not kept for the next run: {path.parent}: {reason}")

    def _trim(self) -> None:
        """Remove what was used longest ago, down to MOST_KEPT; once, since one command adds little."""
        self._is_trimmed = True
        found = []
        for path in self._folder.iterdir():
            with suppress(FileNotFoundError):  # another command trims, too
                about = path.stat()
                found.append((about.st_mtime, about.st_size, path))
        found.sort()
        left = sum(size for _, size, _ in found)
        for _, size, path in found:
            if left <= MOST_KEPT:
                break
            path.unlink(missing_ok=True)
            left -= size

    def _path(self, key: bytes) -> Path:
        return self._folder / hashlib.sha256(_variables() + key).hexdigest()

    def _is_private(self) -> bool:
        """Return whether nobody else may write into the folder: who can could seal any number."""
        return disk.is_own(self._folder) and not self._folder.stat().st_mode & 0o022

    @cached_property
    def _folder(self) -> Path:
        return user_cache_path("ctxbench") / self._name / counting_code()


class CachedExecutor:
    """An executor that keeps what a task without a clock told, and tells it again without the process.

    With `on`, a description of this machine, it also keeps what was told of the machine, and rates of its products.
    """

    def __init__(
        self, executor: Executor, note: Callable[[str], object] = lambda text: None, *, on: bytes = b""
    ) -> None:
        self._executor, self._cache, self._on = executor, Cache("counted", note), on

    def run(self, task: Task, on_message: Callable[[Reply], None], timeout_s: float | None = None) -> Exit:
        tasks: list[Any] = [*task.tasks] if isinstance(task, MeasureCases) else [task]
        if self._cache.is_off or not all(map(self._is_fixed, tasks)):
            return self._executor.run(task, on_message, timeout_s)
        left, ended = [(each, self._kept(each)) for each in tasks], WENT_ON
        while left:
            fresh = [each for each, _ in takewhile(lambda pair: not pair[1], left)]
            if fresh:
                ended, did_each = self._counted(fresh, on_message, timeout_s)
                if not did_each:
                    return ended
            for message in left[0][1]:
                on_message(message)
            if left := left[len(fresh) or 1 :]:
                on_message(Measured())
        return ended

    def _counted(
        self, tasks: Sequence[Any], on_message: Callable[[Reply], None], timeout_s: float | None
    ) -> tuple[Exit, bool]:
        """Have tasks done in one process, and keep what it tells; how it ended, and whether it did each well."""
        told: list[list[Reply]] = [[]]

        def take(message: Reply) -> None:
            if not isinstance(message, Measured):
                told[-1].append(message)
                on_message(message)
            elif len(told) < len(tasks):
                self._keep(tasks[len(told) - 1], told[-1])
                told.append([])
                on_message(message)

        ended = self._executor.run(MeasureCases(tasks) if tasks[1:] else tasks[0], take, timeout_s)
        if is_well := ended == WENT_ON:
            self._keep(tasks[len(told) - 1], told[-1])
        has_failed = any(isinstance(message, Failure) for message in told[-1])
        return ended, is_well and len(told) == len(tasks) and not has_failed

    def _keep(self, task: Task, told: Sequence[Reply]) -> None:
        if not any(isinstance(message, Failure | Imported) for message in told):
            self._cache.write(self._key(task), b"".join(map(encode, told)))

    def _kept(self, task: Task) -> list[Reply]:
        """Messages kept for a task; none where nothing is, or where a line is no message, whoever sealed it."""
        try:
            return [decode(line) for line in (self._cache.read(self._key(task)) or b"").splitlines()]
        except ProtocolError as error:
            terminal.detail(f"{error}: counted again")
            return []

    def _is_fixed(self, task: Task) -> bool:
        """Return whether the task measures nothing and is about a module that ctxbench brings, or about the machine."""
        if isinstance(task, MeasureCase):
            return is_own(task.case) and not devices.has_clock(task.case.device)
        return bool(self._on) and is_of_machine(task)

    def _key(self, task: Task) -> bytes:
        return encode(task) + (sheets_key([task.case.device]) if isinstance(task, MeasureCase) else self._on)


def is_own(case: Case) -> bool:
    """Return whether a case is of a module that ctxbench brings, alone."""
    return not case.network and case.reference.startswith(f"{registry.BUILT_IN}.")


def is_installed(case: Case) -> bool:
    """Return whether all code of a case is ctxbench's own or of libraries, whose versions are known."""

    def is_known(name: str) -> bool:
        if name.startswith("ctxbench.") or name in networks.names():
            return True
        return is_library(Path(case.entry.file if name == case.reference else case.sources[name]))

    return all(map(is_known, filter(None, (case.reference, case.network))))


def _sealed(path: Path, content: bytes) -> bytes:
    """Content of a file: what is kept, and a last line with a checksum over it and what the file is for."""
    identity = f"{path.parent.name}/{path.name}\n".encode()
    return content + hashlib.sha256(identity + content).hexdigest().encode() + b"\n"


def sheets_key(names: Iterable[str]) -> bytes:
    """A part of the key of what is predicted for devices: their data sheets, and the libraries asked about them."""
    sheets = {name: sheet.model_dump(mode="json") for name, sheet in devices.sheets(names).items()}
    return json.dumps([sheets, libraries() if sheets else []], sort_keys=True).encode()


def libraries() -> list[str]:
    """The libraries of this machine that predictions ask."""
    return [text for told_by in loaded("libraries") for text in told_by()]


def installed_key() -> bytes:
    """All that is installed: a part of the key of what a person's module counts."""
    texts = sorted(each.read_text("METADATA") or each.read_text("PKG-INFO") or "" for each in distributions())
    return hashlib.sha256(json.dumps(texts).encode()).digest()  # their names and versions; to parse them takes long


def _variables() -> bytes:
    """The environment's variables, of which PyTorch, its allocator and a module may read any."""
    found = sorted((name, value) for name, value in os.environ.items() if not OF_A_TERMINAL.fullmatch(name))
    return json.dumps(found).encode()


def machine_key() -> bytes:
    """The cores that may be used, the GPUs, and the start of this machine; empty where the last is not told."""
    try:
        start = disk.read_text(Path("/proc/sys/kernel/random/boot_id"))
    except UsageError:
        return b""
    return json.dumps([start, usable_cores(), gpus()]).encode() + installed_key()


def gpus() -> list[str]:
    """The devices of NVIDIA's driver."""
    return sorted(map(str, Path("/dev").glob("nvidia*")))


def counting_code() -> str:
    """A hash of all files of ctxbench, and of what is installed of Python and of the packages that count."""
    installed = [platform.python_version(), *map(_installed, PACKAGES)]
    return hashlib.sha256(json.dumps([*installed, code_digest()]).encode()).hexdigest()


def _installed(package: str) -> list[str]:
    """The version of a package, and the list of its files with their hashes, which is another one for another build."""
    found = distribution(package)
    return [found.version, found.read_text("RECORD") or ""]
