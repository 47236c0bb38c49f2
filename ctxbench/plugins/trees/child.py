"""The cases that a suite has in one source tree, and the files that their modules come from."""

import contextlib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ctxbench import registry
from ctxbench.base.errors import ModuleCodeError, UnknownClass, UsageError
from ctxbench.model.read_suite import restore
from ctxbench.plugins.trees.wire import Cases, ListedCase
from ctxbench.results.sources import own_files
from ctxbench.worker.tree import own_file


def list_cases(
    suite_name: str, path: str, definition: Mapping[str, Any], chosen: bool, device: str, other: str | None
) -> Cases:
    """The cases that a suite has in this source tree, and why a module has none; `device` stands in for `auto`.

    `foreign` are the files below `other` that loading the modules brought in: a tree that loads another tree's
    code shares it with that one.
    """
    suite = restore(suite_name, Path(path), definition, chosen)
    missing: dict[str, UsageError] = {}
    listed: list[ListedCase] = []
    before = set(sys.modules)
    for case in suite.cases_here(device, missing):
        entry = case.entry
        with contextlib.suppress(Exception):  # what does not load fails as a case, with its message
            entry.load()
        listed.append(ListedCase(case, entry.file))
    registered = registry.entries() if "*" in suite.file.modules else []
    broken = {entry.key: entry.broken for entry in registered if entry.broken}
    # The harness is one for both sides, wherever it lies.
    files = own_files(sys.modules.keys() - before)
    foreign = sorted(file for file in files if other and own_file(file, Path(other)))
    reasons = {**broken, **{name: str(error) for name, error in missing.items()}}
    without_class, raising = (
        [name for name, error in missing.items() if isinstance(error, kind)] for kind in (UnknownClass, ModuleCodeError)
    )
    return Cases(listed, reasons, foreign, without_class, raising)
