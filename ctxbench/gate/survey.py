"""What a suite has in one source tree: its cases, where their modules lie, and what they cost without a clock."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from ctxbench.engine.client import Zygote
from ctxbench.engine.scheduler import exit_status
from ctxbench.engine.tree import own_file
from ctxbench.errors import UsageError
from ctxbench.gate.finding import ExactChange
from ctxbench.gate.trees import Tree
from ctxbench.suite import Case, Measure, Suite

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
        """Why this tree has no such case of its own, which `tree` has."""
        if case.id in self.cases:
            return f"its module would come from {self.files[case.id]}"
        reference = case.reference.removeprefix(f"{tree.root}/") if tree else case.reference
        for name in (case.module, reference, reference.partition(":")[0]):
            if name in self.missing:
                return self.missing[name]
        return f"{self.tree.name if self.tree else 'what is installed'} has no such case"

    def own(self) -> list[str]:
        """The ids of the cases whose module is of this tree, not of an installed package."""
        return [case for case, file in self.files.items() if not self.tree or own_file(file, self.tree.root)]


def survey(zygote: Zygote, suite: Suite, device: str, tree: Tree | None, other: Tree | None) -> Survey:
    """List the cases of a suite in the tree that the zygote takes modules from; `device` stands in for `auto`."""
    found = Survey(tree)
    problems: list[str] = []

    def collect(event: dict[str, Any]) -> None:
        if event["event"] == "usage":
            problems.append(event["message"])
        elif event["event"] == "cases":
            found.missing, found.foreign = event["missing"], event["foreign"]
            for each in event["cases"]:
                case = Case.of(each["case"])
                found.cases[case.id] = case
                found.files[case.id] = each["file"]

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
    status, message = exit_status(ended, suite.file.measure.timeout_s, "listing", kernel_killed=False)
    if status != "ok":
        raise UsageError(f"the modules of {where} could not be listed: {message}")
    return found


def cost(zygote: Zygote, suite: Suite, found: Survey, cases: Iterable[str]) -> None:
    """Fill in the exact costs of the given cases, as far as the suite asks for them."""
    metrics = [metric for metric in suite.file.metrics if metric in STATIC_METRICS]
    for name in cases if metrics else ():
        values = measured(zygote, suite.file.measure, metrics, replace(found.cases[name], device="meta"))
        if isinstance(values, str):
            found.failures[name] = values
        else:
            wanted = [each for each in QUANTITIES if each.partition("_")[0] in metrics]
            found.quantities[name] = {each: values.get(each) for each in wanted}


def measured(zygote: Zygote, measure: Measure, metrics: Sequence[str], case: Case) -> dict[str, Any] | str:
    """The columns of a record that measuring a case fills, as a run does it, or why there are none."""
    values: dict[str, Any] = {}
    failures: list[str] = []

    def collect(event: dict[str, Any]) -> None:
        values.update(event.get("values", {}))
        if event["event"] == "failed":
            failures.append(f"{event['status']}: {event['message']}")

    task = {
        "task": "case",
        "case": asdict(case),
        "measure": measure.model_dump(),
        "metrics": list(metrics),
        "counter": "ctxbench",
        "force": True,
    }
    ended = zygote.run(task, collect, measure.timeout_s)
    status, message = exit_status(ended, measure.timeout_s, "the measurement", kernel_killed=False)
    if status != "ok":
        failures.append(f"{status}: {message}")
    return failures[0] if failures else values


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
