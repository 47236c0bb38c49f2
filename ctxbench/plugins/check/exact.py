"""The exact costs of both sides of a check: what is compared without statistics."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from ctxbench.base.notes import DRAWN
from ctxbench.devices import META
from ctxbench.engine.client import ForkServer
from ctxbench.engine.one_process import Plan, measure_case
from ctxbench.model.case import Case, Measure
from ctxbench.model.grid import Suite
from ctxbench.model.messages import Failure
from ctxbench.model.record import Record
from ctxbench.plugins.check.result import EXACT_COLUMNS, ExactChange
from ctxbench.plugins.trees.tree_cases import TreeCases


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
            found.notes[name] = [str(note) for note in record.notes]
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
