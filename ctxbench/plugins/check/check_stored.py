"""`ctxbench check --baseline`: the modules at hand against what an earlier run left."""

import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ctxbench import devices
from ctxbench.base.errors import UsageError
from ctxbench.engine.client import ForkServer
from ctxbench.engine.one_process import Plan
from ctxbench.engine.progress import Quiet, QuietGate
from ctxbench.engine.rounds import execute
from ctxbench.engine.run import machine
from ctxbench.model.case import Case, Measure
from ctxbench.model.messages import Failure
from ctxbench.model.metric import RecordRow
from ctxbench.plugins.check.baseline import Baseline, compare_exact, exact_of, load_baseline, process_logs, same_machine
from ctxbench.plugins.check.check import Check
from ctxbench.plugins.check.process_rules import ProcessLogs, judge_processes
from ctxbench.plugins.check.request import Request
from ctxbench.plugins.check.result import EXACT_COLUMNS, ExactChange, GateResult
from ctxbench.plugins.check.rows import UNKNOWN, RowKey, RowVerdict, failed_now, unmeasured
from ctxbench.plugins.check.tree_cases import list_cases, measured
from ctxbench.plugins.check.trees import Modules, modules_here
from ctxbench.results.run_folder import RunFolder

NO_LATENCY = (
    "no latency was compared, so nothing says whether a module is slower: the baseline has the latencies of too few "
    "processes; measure a baseline with `ctxbench run`"
)


@dataclass
class _Rounds(Quiet):
    """Shows the rounds of `cases` cases as those of a gate."""

    shown: QuietGate
    cases: int
    number: int = 0
    index: int = 0

    def process(self, index: int, total: int, case: Case, number: int, slot: str = "") -> None:
        if number == 0:
            self.shown.stage(f"measuring what needs one process: {case.id}")
            return
        self.index = self.index + 1 if number == self.number else 0
        self.number = number
        self.shown.row(number - 1, self.index, self.cases, case.id)


def check_stored(path: Path, request: Request, progress: QuietGate | None = None) -> GateResult:
    """Check present modules against the stored run `path`: its cases, or those of the modules that the request names.

    The modules are those of the git repository around the working folder, else the installed ones. Raises
    UsageError for a baseline that cannot be read, and for a module that neither has.
    """
    check = _StoredCheck(request, modules_here())
    check.stored = stored = load_baseline(path)
    with ExitStack() as stack:
        shown = stack.enter_context(progress or QuietGate())
        shown.stage("comparing exact quantities")
        server = stack.enter_context(ForkServer(check.here.root, malloc=check.measure.malloc))
        environment = machine(server)
        same, reason = same_machine(stored, environment)
        check.notes += [] if same else [reason]
        cases = check.cases(server)
        changes, compared = check.compare(server, cases, environment)
        asked = check.to_time(cases, environment) if request.timed else []
        timed_cases = [case for name, case in cases.items() if any(row.case == name for row in asked)]
        rows = [*check.time(asked, timed_cases, server, shown), *check.rows]
    return check.result(
        stored.name,
        rows,
        environment,
        timed_cases or [_static(case) for case in cases.values()],
        [*stored.cases.values()],
        changes,
        compared,
        timed=request.timed and any(map(stored.timed, cases)),
        advisory=not same,
        evidence="process",
    )


class _StoredCheck(Check):
    """A check against `stored`; `rows` are the verdicts on what is not timed."""

    stored: Baseline

    def __init__(self, request: Request, here: Modules) -> None:
        super().__init__(request, here)
        self.rows: list[RowVerdict] = []

    @property
    def measure(self) -> Measure:
        """The settings of the baseline, or the suite's where it has none, with the allocator that it tells of."""
        if self.stored.measure:
            return self.stored.measure
        kept = (self.stored.environment or {}).get("malloc", True)
        return self.suite.file.measure.model_copy(update={"malloc": "keep" if kept else "default"})

    def cases(self, server: ForkServer) -> dict[str, Case]:
        """The baseline's cases that the request names, by their ids."""
        if not self.suite.chosen:
            return self._all_cases()
        stored = self.stored.cases
        found = list_cases(server, self.suite, "cpu", self.here)
        for name in sorted(self.suite.named & found.missing.keys()):
            vanished = [case for case, each in stored.items() if _is_named(each, name)]
            if not vanished:
                raise UsageError(found.missing[name])
            self.rows += [unmeasured(RowKey(case), "broken", found.missing[name]) for case in vanished]
        references = {case.module: case.reference for case in found.cases.values()}
        for module in sorted(references.keys() - {each.module for each in stored.values()}):
            self.rows.append(unmeasured(RowKey(module), "not compared", "It is not in the baseline."))
        return {
            name: replace(each, reference=references[each.module])
            for name, each in stored.items()
            if each.module in references
        }

    def _all_cases(self) -> dict[str, Case]:
        cases = {}
        for name, each in self.stored.cases.items():
            case = replace(each, reference=_absolute(each.reference))
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
            each = self.stored.rows[name]
            measure = _measure_of(each, self.suite.file.measure)
            record = measured(server, measure, list(EXACT_COLUMNS), _static(case))
            if isinstance(record, Failure):
                worked, row = each["status"] == "ok" or exact_of(each), RowKey(name)
                self.rows.append(failed_now(row, record) if worked else unmeasured(row, "not compared", str(record)))
                continue
            comparison = compare_exact(self.stored, name, record, environment["packages"]["torch"])
            changes += comparison.changes
            compared += comparison.compared
            self.notes += comparison.notes
        return changes, compared

    def to_time(self, cases: Mapping[str, Case], environment: Mapping[str, Any]) -> list[RowKey]:
        """The rows whose latency the baseline has of enough processes and that can be timed here."""
        asked: list[RowKey] = []
        few: list[RowVerdict] = []
        settled = {row.row.case for row in self.rows}
        for name, case in cases.items():
            if name in settled:
                continue
            if (status := self.stored.rows[name]["status"]) != "ok":
                reason = f"It ended in {status} in the baseline."
                self.rows.append(unmeasured(RowKey(name), "not compared", reason))
            elif self.stored.timed(name) and not devices.present(case.device, environment):
                reason = f"It was measured on {case.device}; {devices.seen(case.device, environment)}."
                self.rows.append(unmeasured(RowKey(name), "not compared", reason))
            else:
                latencies = self.stored.latencies(name).items()
                asked += [RowKey(name, mode) for mode, logs in latencies if logs.enough]
                few += [_too_few(RowKey(name, mode), logs) for mode, logs in latencies if not logs.enough]
        self.notes += [NO_LATENCY] if few and not asked else []
        self.rows += few
        return asked

    def time(
        self, asked: Sequence[RowKey], cases: Sequence[Case], server: ForkServer, shown: QuietGate
    ) -> list[RowVerdict]:
        """The verdicts on the latency rows `asked`, which are of these cases, measured as the baseline was."""
        if not asked:
            return []
        expected_s = sum(self.stored.rows[case.id]["elapsed_s"] or 0.0 for case in cases)
        if not self.deadline.has_time_for(expected_s):
            self.notes.append(
                f"the baseline took {expected_s:.0f} s for these rows, and as much is needed now; give more --budget, "
                "or fewer --modules"
            )
            return [_undecided(row, "The time budget is too short to measure it.") for row in asked]
        records = {record["case"]: record for record in self.execute(cases, server, shown)}
        sides, failed = {}, []
        for row in asked:
            record = records[row.case]
            if record["status"] == "ok":
                sides[row] = self.stored.latencies(row.case)[row.mode], process_logs(record, row.mode)
            else:
                no_room = any(note.code == "no_gpu_room" for note in record["notes"])
                failed.append(failed_now(row, Failure(record["status"], record["message"], no_gpu_room=no_room)))
        return [*judge_processes(sides, self.request.rule(cases)), *failed]

    def execute(self, cases: Sequence[Case], server: ForkServer, shown: QuietGate) -> list[RecordRow]:
        """The records of the cases with the medians of their processes, measured as a run does."""
        plan = Plan(self.measure, ["latency"], force=True)
        with tempfile.TemporaryDirectory(prefix="ctxbench-") as path:
            folder = RunFolder.create(Path(path), {})
            execute(
                cases,
                plan,
                server,
                lambda: ForkServer(self.here.root, static=False, malloc=self.measure.malloc),
                folder,
                _Rounds(shown, len(cases)),
            )
            return [*folder.rows()]


def _undecided(row: RowKey, reason: str) -> RowVerdict:
    """The verdict on a row that could not be measured, through no fault of its module."""
    return UNKNOWN.verdict(row, "measured", "inconclusive", 0, reason)


def _too_few(row: RowKey, logs: ProcessLogs) -> RowVerdict:
    count = f"{len(logs.row)} processes" if len(logs.row) > 1 else "one process"
    reason = f"The baseline's latency is of {count}; `ctxbench run` measures a baseline in several."
    return unmeasured(row, "not compared", reason)


def _absolute(reference: str) -> str:
    """A reference to a file, which pytest-benchmark's JSON has from the working folder, from the root."""
    source, colon, class_name = reference.rpartition(":")
    return f"{Path(source).resolve()}{colon}{class_name}" if source.endswith(".py") else reference


def _in_tree(reference: str, root: Path) -> bool:
    source = reference.rpartition(":")[0]
    return not source.endswith(".py") or Path(source).is_relative_to(root.resolve())


def _is_named(case: Case, name: str) -> bool:
    """True if a request's name of a module means that of a case, which may be from another copy of the repository."""
    return name in (case.module, case.reference) or case.reference.endswith(f"/{name}")


def _static(case: Case) -> Case:
    """The case where its exact quantities are counted."""
    return replace(case, device=devices.META)


def _measure_of(stored: RecordRow, measure: Measure) -> Measure:
    """The settings under which memory is predicted for what the baseline's was."""
    target = stored["memory_predicted_for"]
    return measure.model_copy(update={"memory_device": target}) if target else measure
