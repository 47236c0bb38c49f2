"""What a suite has in one source tree: its cases, where their modules lie, and what they cost without a clock."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from ctxbench.engine.client import Exit, Zygote
from ctxbench.engine.scheduler import exit_status
from ctxbench.engine.tree import own_file
from ctxbench.errors import UsageError
from ctxbench.gate.finding import ExactChange
from ctxbench.gate.trees import Tree
from ctxbench.suite import Case, Suite

QUANTITIES = ("params", "macs", "memory_infer_predicted_bytes", "memory_train_predicted_bytes")
STATIC_METRICS = ("params", "macs", "memory")


@dataclass
class Survey:
    """The cases that a tree has, by their ids, each module's file, and why a module cannot be had.

    `foreign` are files of the other tree that the modules load. `quantities` are a case's exact costs, None where one
    could not be had; `failures` says why a case has none at all.
    """

    tree: Tree | None
    cases: dict[str, Case] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    foreign: list[str] = field(default_factory=list)
    quantities: dict[str, dict[str, int | None]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)

    def why_missing(self, case: Case, tree: Tree | None) -> str:
        """Why this tree lacks a case that `tree` has."""
        reference = case.reference.removeprefix(f"{tree.root}/") if tree else case.reference
        for name in (case.module, reference, reference.partition(":")[0]):
            if name in self.missing:
                return self.missing[name]
        return f"{self.tree.name if self.tree else 'what is installed'} has no such case"

    def outside(self) -> list[str]:
        """The ids of the cases whose module is not of this tree, such as an installed package's."""
        return [case for case, file in self.files.items() if self.tree and not own_file(file, self.tree.root)]


def survey(zygote: Zygote, suite: Suite, device: str, tree: Tree | None, other: Tree | None) -> Survey:
    """List the cases of a suite in the tree that the zygote takes modules from; `device` stands in for `auto`."""
    found = Survey(tree)
    problems: list[str] = []

    def collect(event: dict[str, Any]) -> None:
        if event["event"] == "usage":
            problems.append(event["message"])
        elif event["event"] == "cases":
            found.missing = event["missing"]
            for each in event["cases"]:
                case = Case(**{**each["case"], "shape": tuple(each["case"]["shape"])})
                found.cases[case.id] = case
                found.files[case.id] = each["file"]
                found.foreign += each["foreign"]

    task = {
        "task": "cases",
        "suite": suite.name,
        "path": str(suite.path.absolute()),
        "definition": suite.file.model_dump(mode="json"),
        "auto_device": device,
        "other": str(other.root) if other else None,
    }
    ended = zygote.run(task, collect, suite.file.measure.timeout_s)
    where = tree.name if tree else "the installed modules"
    if problems:
        raise UsageError(f"in {where}: {problems[0]}")
    status, message = _ending(ended, suite)
    if status != "ok":
        raise UsageError(f"the modules of {where} could not be listed: {message}")
    return found


def cost(zygote: Zygote, suite: Suite, found: Survey, cases: Iterable[str]) -> None:
    """Fill in the exact costs of the given cases, as far as the suite asks for them."""
    metrics = [metric for metric in suite.file.metrics if metric in STATIC_METRICS]
    for name in cases if metrics else ():
        values: dict[str, Any] = {}
        failures: list[str] = []

        def collect(event: dict[str, Any], values: dict[str, Any] = values, failures: list[str] = failures) -> None:
            if event["event"] == "values":
                values |= event["values"]
            elif event["event"] == "failed":
                failures.append(f"{event['status']}: {event['message']}")

        task = {
            "task": "case",
            "case": {**asdict(found.cases[name]), "device": "meta"},
            "measure": suite.file.measure.model_dump(),
            "metrics": metrics,
            "counter": "ctxbench",
            "force": True,
        }
        status, message = _ending(zygote.run(task, collect, suite.file.measure.timeout_s), suite)
        if status != "ok":
            failures.append(f"{status}: {message}")
        if failures:
            found.failures[name] = failures[0]
        else:
            wanted = [each for each in QUANTITIES if each.partition("_")[0] in metrics]
            found.quantities[name] = {each: values.get(each) for each in wanted}


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


def _ending(ended: Exit, suite: Suite) -> tuple[str, str]:
    return exit_status(ended, suite.file.measure.timeout_s, "the static metrics", kernel_killed=False)
