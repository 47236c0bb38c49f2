"""`ctxbench check --baseline`: the modules at hand against what an earlier run left."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from ctxbench import devices, registry
from ctxbench.base.errors import UsageError
from ctxbench.base.temporary import temporary_folder
from ctxbench.engine.client import ForkServer
from ctxbench.engine.one_process import Plan
from ctxbench.engine.progress import Quiet
from ctxbench.engine.remote import ask
from ctxbench.engine.rounds import execute
from ctxbench.engine.run import machine
from ctxbench.model.case import Case, Measure
from ctxbench.model.messages import Failure
from ctxbench.model.metric import RecordRow
from ctxbench.plugins.check.baseline import Baseline, compare_exact, exact_of, load_baseline, process_logs, same_machine
from ctxbench.plugins.check.check import RunningCheck
from ctxbench.plugins.check.evidence import ProcessEvidence, ProcessLogs
from ctxbench.plugins.check.exact import measured
from ctxbench.plugins.check.request import Request
from ctxbench.plugins.check.result import EXACT_COLUMNS, GateResult
from ctxbench.plugins.check.rows import RowKey, RowVerdict, failed_now, unmeasured
from ctxbench.plugins.check.rules import judge
from ctxbench.plugins.trees.tree_cases import list_cases
from ctxbench.plugins.trees.trees import Modules, modules_here
from ctxbench.registry.reference import Reference
from ctxbench.registry.trust import check_settings
from ctxbench.results.run_folder import RunFolder
from ctxbench.results.sources import check_own_code

NO_LATENCY = (
    "no latency was compared, so nothing says whether a module is slower: the baseline has the latencies of too few "
    "processes; measure a baseline with `ctxbench run`"
)


@dataclass
class _Rounds(Quiet):
    """Shows the rounds of `cases` cases as those of a gate."""

    shown: Quiet
    cases: int
    number: int = 0
    index: int = 0

    def process(self, index: int, total: int, case: Case, number: int) -> None:
        if number == 0:
            self.shown.stage(f"measuring what needs one process: {case.id}")
            return
        self.index = self.index + 1 if number == self.number else 0
        self.number = number
        self.shown.row(number - 1, self.index, self.cases, case.id)


def check_stored(path: Path, request: Request, progress: Quiet | None = None, run_its_code: bool = False) -> GateResult:
    """Check present modules against the stored run `path`: its cases, or those of the modules that the request names.

    The modules are those of the git repository around the working folder, else the installed ones. Raises
    UsageError for a baseline that cannot be read, for a module that neither has, and for code that is not the
    reader's own (`run_its_code` runs it, as long as it is as recorded).
    """
    here, stored = modules_here(), load_baseline(path)
    folder, cases = path if path.is_dir() else path.parent, stored.cases.values()
    references = [] if request.suite.chosen else [case.reference for case in cases]
    check_own_code(folder, stored.meta, [*references, *(case.network for case in cases)], run_its_code)
    if not run_its_code:
        for case in cases if references else ():
            check_settings(Reference.read(case.reference, path), case.hparams)
    said = {_absolute(each) for each in references if not each.startswith(f"{registry.BUILT_IN}.")}
    return _StoredCheck(request, here, stored, path, [] if run_its_code else sorted(said)).run(progress)


class _StoredCheck(RunningCheck):
    """A check against the run `stored` in `path`, which alone names the modules `said`."""

    kind = "process"

    def __init__(
        self, request: Request, here: Modules, stored: Baseline, path: Path = Path(), said: Sequence[str] = ()
    ) -> None:
        super().__init__(request, here)
        self.stored, self.path, self.said = stored, path, said
        self.baseline, self.named = stored.name, [*stored.cases.values()]

    def prepare(self, stack: ExitStack, shown: Quiet) -> None:
        shown.stage("comparing exact quantities")
        self.server = stack.enter_context(ForkServer(self.here.root, malloc=self.measure.malloc))
        if self.said and (refused := "".join(ask(self.server, "refused", str, [*self.said], str(self.path)).told)):
            raise UsageError(f"{refused}; --run-its-code runs it")
        self.environment = machine(self.server)
        same, reason = same_machine(self.stored, self.environment)
        self.advisory = not same
        self.notes += [] if same else [reason]
        found = self._named_cases()
        self._compare(found)
        self.asked = self._to_time(found) if self.request.timed else []
        self.timed = any(map(self.stored.timed, found))
        timed = {name: case for name, case in found.items() if any(row.case == name for row in self.asked)}
        self.cases = timed or {name: _static(case) for name, case in found.items()}

    @property
    def measure(self) -> Measure:
        """The settings of the baseline, or the suite's where it has none, with the allocator that it tells of."""
        if self.stored.measure:
            return self.stored.measure
        kept = (self.stored.environment or {}).get("malloc", True)
        return self.suite.file.measure.model_copy(update={"malloc": "keep" if kept else "default"})

    def _named_cases(self) -> dict[str, Case]:
        """The baseline's cases that the request names, by their ids."""
        stored = self.stored.cases
        if not self.suite.chosen:
            return {name: replace(each, reference=_absolute(each.reference)) for name, each in stored.items()}
        found = list_cases(self.server, self.suite, "cpu", self.here)
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

    def _compare(self, cases: Mapping[str, Case]) -> None:
        """Compare the exact quantities that the baseline knows."""
        for name, case in cases.items():
            each = self.stored.rows[name]
            measure = _measure_of(each, self.suite.file.measure)
            known = exact_of(each).keys()
            metrics = [metric for metric, columns in EXACT_COLUMNS.items() if known & {*columns}] or [*EXACT_COLUMNS]
            record = measured(self.server, measure, metrics, _static(case))
            if isinstance(record, Failure):
                worked, row = each["status"] == "ok" or exact_of(each), RowKey(name)
                self.rows.append(failed_now(row, record) if worked else unmeasured(row, "not compared", str(record)))
                continue
            comparison = compare_exact(self.stored, name, record, self.environment["packages"]["torch"])
            self.exact += comparison.changes
            self.compared += comparison.compared
            self.notes += comparison.notes

    def _to_time(self, cases: Mapping[str, Case]) -> list[RowKey]:
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
            elif self.stored.timed(name) and not devices.present(case.device, self.environment):
                reason = f"It was measured on {case.device}; {devices.seen(case.device, self.environment)}."
                self.rows.append(unmeasured(RowKey(name), "not compared", reason))
            else:
                latencies = self.stored.latencies(name).items()
                asked += [RowKey(name, mode) for mode, logs in latencies if logs.enough]
                few += [_too_few(RowKey(name, mode), logs) for mode, logs in latencies if not logs.enough]
        self.notes += [NO_LATENCY] if few and not asked else []
        self.rows += few
        return asked

    def time(self, shown: Quiet) -> Sequence[RowVerdict]:
        """The verdicts on the latency rows `asked`, measured as the baseline was."""
        if not self.asked:
            return []
        cases = list(self.cases.values())
        expected_s = sum(self.stored.rows[case.id]["elapsed_s"] or 0.0 for case in cases)
        self.deadline.seconds = [expected_s]
        if not self.deadline.has_time():
            self.notes.append(
                f"the baseline took {expected_s:.0f} s for these rows, and as much is needed now; give more --budget, "
                "or fewer --modules"
            )

        def measure_now(rows: Sequence[RowKey]) -> dict[RowKey, ProcessLogs | Failure]:
            records = {record["case"]: record for record in self._execute(cases, shown)}
            return {row: _logs_or_failure(records[row.case], row.mode) for row in rows}

        before = {row: self.stored.latencies(row.case)[row.mode] for row in self.asked}
        rule = self.request.stored_rule(cases)
        return judge(self.asked, ProcessEvidence(before, measure_now), rule, self.deadline.has_time)

    def _execute(self, cases: Sequence[Case], shown: Quiet) -> list[RecordRow]:
        """The records of the cases with the medians of their processes, measured as a run does."""
        plan = Plan(self.measure, ["latency"], force=True)
        with temporary_folder() as path:
            folder = RunFolder.create(path, {})
            execute(
                cases,
                plan,
                self.server,
                lambda: ForkServer(self.here.root, static=False, malloc=self.measure.malloc),
                folder,
                _Rounds(shown, len(cases)),
            )
            return [*folder.rows()]


def _logs_or_failure(record: RecordRow, mode: str) -> ProcessLogs | Failure:
    if record["status"] == "ok":
        return process_logs(record, mode)
    no_room = any(note.code == "no_gpu_room" for note in record["notes"])
    return Failure(record["status"], record["message"], no_gpu_room=no_room)


def _too_few(row: RowKey, logs: ProcessLogs) -> RowVerdict:
    count = f"{len(logs.row)} processes" if len(logs.row) > 1 else "one process"
    reason = f"The baseline's latency is of {count}; `ctxbench run` measures a baseline in several."
    return unmeasured(row, "not compared", reason)


def _absolute(reference: str) -> str:
    """A reference to a file, which a run folder has from the working folder, from the root."""
    named = Reference.parse(reference)
    return str(named.at(str(Path(named.source).resolve()))) if named.is_file else reference


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
