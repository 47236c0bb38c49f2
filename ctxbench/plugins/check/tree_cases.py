"""The cases that a suite has in one source tree: where their modules lie, and their exact costs."""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ctxbench.base.errors import UsageError
from ctxbench.base.notes import DRAWN
from ctxbench.devices import META
from ctxbench.engine.client import ForkServer
from ctxbench.engine.one_process import Plan, measure_case
from ctxbench.engine.remote import ask
from ctxbench.model.case import Case, Measure
from ctxbench.model.grid import Suite
from ctxbench.model.messages import Failure
from ctxbench.model.record import Record
from ctxbench.plugins.check.result import EXACT_COLUMNS, ExactChange
from ctxbench.plugins.check.trees import Modules, Tree
from ctxbench.plugins.check.wire import Cases
from ctxbench.registry.reference import Reference
from ctxbench.worker.tree import own_file


@dataclass
class TreeCases:
    """The cases that a tree has, by their ids, each module's file, and why a module cannot be had.

    `foreign` are files of the other tree that the modules load; of `without_class` the file lacks the class. `exact`
    are a case's exact costs by their column, None where one could not be had; `failures` says why a case has none at
    all. Of the `unchanged`, code and outputs are those of the other tree.
    """

    tree: Modules
    cases: dict[str, Case] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)
    foreign: Sequence[str] = ()
    without_class: Sequence[str] = ()
    exact: dict[str, dict[str, int | None]] = field(default_factory=dict)
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
        found.missing, found.foreign, found.without_class = listed.missing, listed.foreign, listed.without_class
        found.cases = {each.case.id: each.case for each in listed.cases}
        found.files = {each.case.id: each.file for each in listed.cases}
    return found


def count_exact(server: ForkServer, suite: Suite, found: TreeCases, cases: Iterable[str]) -> None:
    """Fill in the exact costs of the given cases, as far as the suite asks for them."""
    metrics = [metric for metric in suite.file.metrics if metric in EXACT_COLUMNS]
    for name in cases if metrics else ():
        record = measured(server, suite.file.measure, metrics, replace(found.cases[name], device=META))
        if isinstance(record, Failure):
            found.failures[name] = record
        else:
            drawn = {note.values["column"] for note in record.notes if note.code == DRAWN}
            columns = [column for metric in metrics for column in EXACT_COLUMNS[metric]]
            found.exact[name] = {column: None if column in drawn else record.get(column) for column in columns}


def measured(server: ForkServer, measure: Measure, metrics: Sequence[str], case: Case) -> Record | Failure:
    """The record of a case, measured as a run does it, or why there is none."""
    record = measure_case(case, Plan(measure, metrics, force=True), server).record
    return record if record.status == "ok" else Failure(record.status, record.message)


def exact_changes(
    baseline: Mapping[str, Mapping[str, int | None]], candidate: Mapping[str, Mapping[str, int | None]]
) -> tuple[list[ExactChange], int]:
    """The quantities that differ between the cases of both sides, and how many were compared."""
    changes = []
    compared = 0
    for case in [case for case in candidate if case in baseline]:
        for quantity, now in candidate[case].items():
            before = baseline[case].get(quantity)
            compared += before is not None or now is not None
            if before != now:
                changes.append(ExactChange(case, quantity, before, now))
    return changes, compared
