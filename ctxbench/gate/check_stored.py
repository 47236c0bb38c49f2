"""`ctxbench check --baseline`: the modules at hand against what an earlier run left."""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ctxbench import devices
from ctxbench.api import machine
from ctxbench.engine.client import ForkServer
from ctxbench.errors import UsageError
from ctxbench.gate.baseline import (
    Baseline,
    RelativeLatency,
    StoredCase,
    compare_exact,
    load_baseline,
    relative_latency,
    same_machine,
)
from ctxbench.gate.check import Check, task_rows
from ctxbench.gate.pairs import Processes, Round, Source, TimeBlock, Worker
from ctxbench.gate.request import Request
from ctxbench.gate.result import EXACT_COLUMNS, ExactChange, GateResult
from ctxbench.gate.rows import RowKey, RowVerdict, unmeasured
from ctxbench.gate.stored import ProcessFailure, ProcessResult, run_stored
from ctxbench.gate.tree_cases import list_cases, measured
from ctxbench.gate.trees import Modules, modules_here
from ctxbench.progress import QuietGate
from ctxbench.results import Record
from ctxbench.suite import Case, Measure

# Blocks of a row in a process, where pytest-benchmark has its rounds.
BLOCKS = 6


@dataclass
class LikeRun(Processes[ProcessResult]):
    """Measures rows as a run does, for `run_stored`: one fresh fork server a call, a child of it for each case.

    `metrics` are all of the run's: what a process has allocated before, as for measured memory, moves its latency.
    """

    tree: Path | None
    measure: Measure
    metrics: Sequence[str]
    cases: Mapping[str, Case]

    def take(self, rows: Sequence[RowKey]) -> Mapping[RowKey, ProcessResult]:
        found: dict[str, Record | str] = {}
        results: dict[RowKey, ProcessResult] = {}
        with ForkServer(self.tree) as server:
            for index, row in enumerate(rows):
                self.show(index, len(rows), str(row))
                if row.case not in found:
                    found[row.case] = measured(server, self.measure, self.metrics, self.cases[row.case])
                record = found[row.case]
                results[row] = ProcessFailure(record) if isinstance(record, str) else _latency_of(record, row.mode)
        return results


@dataclass
class LikePytest(Processes[ProcessResult]):
    """Measures rows as pytest-benchmark does, for `run_stored`: in one fresh process, the control before and after."""

    source: Source
    measure: Measure
    launch: Callable[[Path | None], Worker] = ForkServer

    def take(self, rows: Sequence[RowKey]) -> Mapping[RowKey, ProcessResult]:
        return Round((self.source,), self.measure, self.launch, self.show).take(rows, _latency_around, _failure)


def check_stored(path: Path, request: Request, progress: QuietGate | None = None) -> GateResult:
    """What is at hand against the stored run `path`: its cases, or those of the modules that the request names.

    The modules are those of the git repository around the working folder, else the installed ones. Raises
    UsageError for a baseline that cannot be read, and for a module that neither has.
    """
    check = _StoredCheck(request, modules_here())
    check.stored = stored = load_baseline(path)
    with ExitStack() as stack:
        shown = stack.enter_context(progress or QuietGate())
        shown.stage("comparing exact quantities")
        with ForkServer(check.here.root) as server:
            environment = machine(server)
            same, reason = same_machine(stored, environment)
            check.notes += [] if same else [reason]
            cases = check.cases(server)
            changes, compared = check.compare(server, cases, environment)
        asked = check.to_time(cases, environment) if request.timed else []
        rows = [*check.time(asked, cases, shown), *check.rows]
    timed_cases = [case for name, case in cases.items() if any(row.case == name for row in asked)]
    return check.result(
        stored.name,
        rows,
        environment,
        timed_cases or [_static(case) for case in cases.values()],
        [each.case for each in stored.cases.values()],
        changes,
        compared,
        timed=request.timed and any(stored.cases[name].timed for name in cases),
        advisory=not same,
        evidence="process",
    )


class _StoredCheck(Check):
    """A check against `stored`; `rows` are the verdicts on what cannot be timed."""

    stored: Baseline

    def __init__(self, request: Request, here: Modules) -> None:
        super().__init__(request, here)
        self.rows: list[RowVerdict] = []

    def cases(self, server: ForkServer) -> dict[str, Case]:
        """The baseline's cases that the request names, by their ids."""
        if self.suite.file.modules == ["*"]:
            return self._all_cases()
        stored = self.stored.cases
        found = list_cases(server, self.suite, "cpu", self.here)
        for name in sorted(self.suite.named & found.missing.keys()):
            vanished = [case for case, each in stored.items() if _is_named(each.case, name)]
            if not vanished:
                raise UsageError(found.missing[name])
            self.rows += [unmeasured(RowKey(case), "broken", found.missing[name]) for case in vanished]
        references = {case.module: case.reference for case in found.cases.values()}
        for module in sorted(references.keys() - {each.case.module for each in stored.values()}):
            self.rows.append(unmeasured(RowKey(module), "not compared", "It is not in the baseline."))
        return {
            name: replace(each.case, reference=references[each.case.module])
            for name, each in stored.items()
            if each.case.module in references
        }

    def _all_cases(self) -> dict[str, Case]:
        cases = {}
        for name, each in self.stored.cases.items():
            case = replace(each.case, reference=_absolute(each.case.reference))
            if self.here.root and not _in_tree(case.reference, self.here.root):
                reason = f"Its {case.reference} lies outside this repository; name it with --module path.py:Class."
                self.rows.append(unmeasured(RowKey(name), "not compared", reason))
            else:
                cases[name] = case
        return cases

    def compare(
        self, server: ForkServer, cases: Mapping[str, Case], environment: Mapping[str, Any]
    ) -> tuple[list[ExactChange], int]:
        """The exact quantities that differ, and the count of all."""
        changes: list[ExactChange] = []
        compared = 0
        for name, case in cases.items():
            each = self.stored.cases[name]
            measure = _measure_of(each, self.suite.file.measure)
            record = measured(server, measure, list(EXACT_COLUMNS), _static(case))
            if isinstance(record, str):
                worked = each.status == "ok" or each.exact
                self.rows.append(unmeasured(RowKey(name), "broken" if worked else "not compared", record))
                continue
            comparison = compare_exact(self.stored, name, record.values, environment["packages"]["torch"])
            changes += comparison.changes
            compared += comparison.compared
            self.notes += comparison.notes
        return changes, compared

    def to_time(self, cases: Mapping[str, Case], environment: Mapping[str, Any]) -> list[RowKey]:
        """The rows whose latency the baseline has and that can be timed here."""
        asked: list[RowKey] = []
        settled = {row.row.case for row in self.rows}
        for name, case in cases.items():
            each = self.stored.cases[name]
            if name in settled:
                continue
            if each.status != "ok":
                reason = f"It ended in {each.status} in the baseline."
                self.rows.append(unmeasured(RowKey(name), "not compared", reason))
            elif each.timed and not devices.present(case.device, environment):
                reason = f"It was measured on {case.device}; {devices.seen(case.device, environment)}."
                self.rows.append(unmeasured(RowKey(name), "not compared", reason))
            else:
                asked += [RowKey(name, mode) for mode, row in each.rows.items() if row.worked]
        return asked

    def time(self, asked: Sequence[RowKey], cases: Mapping[str, Case], shown: QuietGate) -> tuple[RowVerdict, ...]:
        """The verdicts on the latency rows `asked`, measured as the baseline was."""
        stored, root = self.stored, self.here.root
        measure = stored.measure or self.suite.file.measure
        processes: Processes[ProcessResult]
        if stored.by_run:
            processes = LikeRun(root, measure, stored.metrics or self.suite.file.metrics, cases, progress=shown.row)
        else:
            tasks = task_rows(cases[name] for name in dict.fromkeys(row.case for row in asked))
            processes = LikePytest(Source(root, tasks), measure, progress=shown.row)
        timed = dict.fromkeys(row.case for row in asked)
        rule = self.request.rule(cases[name] for name in timed)
        expected_s = sum(stored.cases[name].elapsed_s for name in timed)
        self.deadline.seconds, self.deadline.first_s = processes.seconds, expected_s
        if asked and not self.deadline.has_time():
            self.notes.append(
                f"the baseline took {expected_s:.0f} s for these rows, and {rule.looks[0]} processes or more are "
                "needed; give more --budget, or fewer --modules"
            )
        latencies = {row: stored.row(row) for row in asked}
        return run_stored(asked, latencies, processes, rule, self.deadline.has_time)


def _latency_of(record: Record, mode: str) -> ProcessResult:
    return relative_latency(record.values, mode) or ProcessFailure("no interval of its latency could be measured")


def _latency_around(block: TimeBlock) -> ProcessResult:
    """A row's latency over all blocks, in units of the control before and after them."""
    blocks = [block(0) for _ in range(BLOCKS)]
    control = math.log(statistics.median([*blocks[0].control, *blocks[-1].control]))
    row = math.log(statistics.median([ms for each in blocks for ms in each.row]))
    return RelativeLatency(row - control, control)


def _failure(messages: Sequence[str | None], process_ended: bool) -> ProcessResult:
    return ProcessFailure(messages[0] or "")


def _absolute(reference: str) -> str:
    """A reference to a file, which pytest-benchmark's JSON has from the working folder, from the root."""
    source, colon, class_name = reference.rpartition(":")
    return f"{Path(source).resolve()}{colon}{class_name}" if source.endswith(".py") else reference


def _in_tree(reference: str, root: Path) -> bool:
    source = reference.rpartition(":")[0]
    return not source.endswith(".py") or Path(source).is_relative_to(root.resolve())


def _is_named(case: Case, name: str) -> bool:
    """Whether a request's name of a module means that of a case, which may be from another copy of the repository."""
    return name in (case.module, case.reference) or case.reference.endswith(f"/{name}")


def _static(case: Case) -> Case:
    """The case where its exact quantities are counted."""
    return replace(case, device=devices.META)


def _measure_of(stored: StoredCase, measure: Measure) -> Measure:
    """The settings under which memory is predicted for what the baseline's was."""
    target = stored.memory_predicted_for
    return measure.model_copy(update={"memory_device": target}) if target else measure
