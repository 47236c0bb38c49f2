"""The cases that a suite has in one source tree, and the files that their modules come from."""

import contextlib
import sys
from collections.abc import Callable
from pathlib import Path

from ctxbench import registry
from ctxbench.base.errors import UnknownClass, UsageError
from ctxbench.model.read_suite import restore
from ctxbench.results.sources import own_files
from ctxbench.worker.protocol import Cases, ListCases, ListedCase, Reply, WrongInput
from ctxbench.worker.tree import own_file


def list_cases(task: ListCases, emit: Callable[[Reply], object]) -> None:
    """Report the cases that a suite has in this source tree, and why a module has none.

    `foreign` are the files below `task.other` that loading the modules brought in: a tree that loads another tree's
    code shares it with that one.
    """
    suite = restore(task.suite, Path(task.path), task.definition)
    missing: dict[str, UsageError] = {}
    listed: list[ListedCase] = []
    before = set(sys.modules)
    try:
        found = suite.cases_here(task.auto_device, missing)
    except UsageError as error:
        emit(WrongInput(str(error)))
        return
    for case in found:
        entry = case.entry
        with contextlib.suppress(Exception):  # what does not load fails as a case, with its message
            entry.load()
        listed.append(ListedCase(case, entry.file))
    registered = registry.entries() if "*" in suite.file.modules else []
    broken = {entry.key: entry.broken for entry in registered if entry.broken}
    # The harness is one for both sides, wherever it lies.
    files = own_files(sys.modules.keys() - before)
    foreign = sorted(file for file in files if task.other and own_file(file, Path(task.other)))
    reasons = {**broken, **{name: str(error) for name, error in missing.items()}}
    without_class = [name for name, error in missing.items() if isinstance(error, UnknownClass)]
    emit(Cases(listed, reasons, foreign, without_class))
