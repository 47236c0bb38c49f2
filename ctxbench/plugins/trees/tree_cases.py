"""The cases that a suite has in one source tree: where their modules lie, and what is known of their costs."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ctxbench.base import disk
from ctxbench.base.errors import UsageError
from ctxbench.engine.client import ForkServer
from ctxbench.engine.remote import ask
from ctxbench.model.case import Case
from ctxbench.model.grid import Suite
from ctxbench.model.messages import Failure
from ctxbench.plugins.trees.trees import Modules, Tree
from ctxbench.plugins.trees.wire import Cases
from ctxbench.registry.reference import Reference
from ctxbench.worker.tree import own_file


@dataclass
class TreeCases:
    """The cases that a tree has, by their ids, each module's file, and why a module is not available.

    `foreign` are files of the other tree that the modules load; of `without_class` the file lacks the class, and
    the code of the `raising` ones fails where it is loaded. `exact`
    are a case's exact costs by their column, None where one could not be had, with `notes` on them; `failures` says why
    a case has none at all. Of the `unchanged`, code and outputs are those of the other tree.
    """

    tree: Modules
    cases: dict[str, Case] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)
    foreign: Sequence[str] = ()
    without_class: Sequence[str] = ()
    raising: Sequence[str] = ()
    exact: dict[str, dict[str, int | None]] = field(default_factory=dict)
    notes: dict[str, list[str]] = field(default_factory=dict)
    failures: dict[str, Failure] = field(default_factory=dict)
    unchanged: set[str] = field(default_factory=set)

    def why_missing(self, case: Case, other: Modules) -> str:
        """Reason why this tree lacks a case that the `other` tree has."""
        if case.id in self.cases:
            return f"its module would come from {self.files[case.id]}"
        reference = case.reference.removeprefix(f"{other.root}{os.sep}")
        for name in (case.module, reference, reference.partition(":")[0]):
            if name in self.missing:
                hint = "; if the class was renamed, add --renamed OLD=NEW" if name in self.without_class else ""
                return self.missing[name] + hint
        return f"{self.tree.name} has no such case"

    def renamed(self, renamed: Mapping[str, str]) -> "TreeCases":
        """The same with the new names of classes, from a mapping of new names to old ones."""
        new = {old: name for name, old in renamed.items()}
        ids = {key: replace(case, module=new.get(case.module, case.module)).id for key, case in self.cases.items()}
        cases = {ids[key]: case for key, case in self.cases.items()}
        return replace(self, cases=cases, files={ids[key]: file for key, file in self.files.items()})

    def own(self) -> list[str]:
        """The ids of the cases whose module is of this tree, not of an installed package."""
        root = self.tree.root
        return [case for case, file in self.files.items() if root is None or own_file(file, root)]


def with_old_names(suite: Suite, renamed: Mapping[str, str]) -> Suite:
    """The suite with the modules' old names, from a mapping of new names to old ones."""

    def old(name: str) -> str:
        named = Reference.parse(name)
        return str(replace(named, name=renamed.get(named.name, named.name)))

    file = suite.file
    cases = [{**case, "module": old(str(case.get("module", "")))} for case in file.cases]
    hparams = {old(name): values for name, values in file.hparams.items()}
    changes = {"modules": [old(name) for name in file.modules], "cases": cases, "hparams": hparams}
    return replace(suite, file=file.model_copy(update=changes))


def list_cases(server: ForkServer, suite: Suite, device: str, tree: Modules, other: Tree | None = None) -> TreeCases:
    """List the cases of a suite in the tree that the fork server takes modules from; `device` stands in for `auto`."""
    found = TreeCases(tree)
    definition, limit_s = suite.file.model_dump(mode="json"), suite.file.measure.timeout_s
    answered = ask(
        server, "cases", Cases, suite.name, str(suite.path.absolute()), definition, suite.chosen, device,
        str(other.root) if other else None, timeout_s=limit_s,
    )  # fmt: skip
    if answered.wrong:
        raise UsageError(f"in {tree.name}: {answered.wrong}")
    status, message = answered.ended.status(limit_s, "listing", kernel_killed=False)
    if answered.failure:
        status, message = answered.failure.status, answered.failure.message
    if status != "ok":
        raise UsageError(f"the modules of {tree.name} could not be listed: {message}")
    for listed in answered.told:
        found.missing, found.foreign = listed.missing, listed.foreign
        found.without_class, found.raising = listed.without_class, listed.raising
        found.cases = {each.case.id: each.case for each in listed.cases}
        found.files = {each.case.id: each.file for each in listed.cases}
    return found


def suite_in_tree(suite: Suite, root: Path) -> Suite:
    """The suite with its modules' and networks' files named from the tree's root, so that each side finds its own."""

    def name_in_tree(name: str) -> str:
        named = Reference.parse(name)
        if not named.is_file:
            return name
        path = disk.whole(Path(named.source))
        if not path.is_relative_to(root.resolve()):
            raise UsageError(f"{named.source} lies outside the repository {root}: no other commit has it")
        return str(named.at(path.relative_to(root.resolve()).as_posix()))

    found_from_root: dict[str, Callable[[Any], Any]] = {
        "module": name_in_tree,
        "network": name_in_tree,
        "device": lambda given: [*map(_absolute_sheet, given)] if isinstance(given, list) else _absolute_sheet(given),
    }
    modules = [name_in_tree(name) for name in suite.file.modules]
    cases = [
        {**case, **{key: found_from_root[key](case[key]) for key in case.keys() & found_from_root.keys()}}
        for case in suite.file.cases
    ]
    given = suite.file.axes
    found = {"network": [*map(name_in_tree, given.network)], "device": [*map(_absolute_sheet, given.device)]}
    axes = given.model_copy(update=found)
    return replace(suite, file=suite.file.model_copy(update={"modules": modules, "cases": cases, "axes": axes}))


def _absolute_sheet(device: str) -> str:
    """The name of a device; that of a data sheet's file from the root, as another tree does not have it."""
    return os.path.abspath(device) if ".toml" in device else device


def labels(cases: Iterable[Case]) -> dict[str, str]:
    """A short name for each case: the module alone where that is enough."""
    unique = {case.id: case for case in cases}
    modules = [case.module for case in unique.values()]
    return {name: case.module if modules.count(case.module) == 1 else name for name, case in unique.items()}
