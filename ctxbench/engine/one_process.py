"""Has a case measured in one process, and turns what that process reports into a record."""

import math
import os
import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Protocol

from ctxbench.base import clocks as this_machine
from ctxbench.base import disk
from ctxbench.base.errors import UsageError
from ctxbench.base.mode import MODES
from ctxbench.base.notes import Note
from ctxbench.devices import has_clock
from ctxbench.engine.exit import Exit
from ctxbench.engine.progress import Quiet
from ctxbench.executions import execution
from ctxbench.model.case import Case, Measure
from ctxbench.model.conditions import to_columns
from ctxbench.model.control import STREAM
from ctxbench.model.failures import NO_THREAD
from ctxbench.model.messages import (
    Doing,
    Failure,
    MissingColumns,
    Progress,
    Sample,
    Samples,
    Timeline,
    TimelineStep,
    Values,
)
from ctxbench.model.metrics import metrics, wanted
from ctxbench.model.record import LONGEST, STATUSES, Record, columns, metric_columns
from ctxbench.results.run_folder import RunFolder
from ctxbench.results.sources import relative, relative_reference, row_name
from ctxbench.results.tables import PHASES
from ctxbench.worker.processes import WAITS_S
from ctxbench.worker.protocol import Imported, MatmulRate, MeasureCase, Reply, Task


class Executor(Protocol):
    """Performs a task somewhere and says how it ended: a fresh process, this process, or a test's script."""

    def run(self, task: Task, on_message: Callable[[Reply], None], timeout_s: float | None = None) -> Exit: ...


@dataclass(frozen=True)
class Plan:
    """Plan for each case. Its processes share what was compiled or exported for it, if there is a folder `kept`."""

    measure: Measure
    metrics: Sequence[str]
    counter: str = "ctxbench"
    force: bool = False
    kept: Path | None = None

    def once(self) -> "Plan":
        """Part of the plan that one process of a case measures for all of them."""
        return replace(self, metrics=[name for name in self.metrics if not metrics()[name].combine])

    def repeated(self) -> "Plan":
        """Part of the plan that every process of a case measures."""
        return replace(self, metrics=[name for name in self.metrics if metrics()[name].combine])

    @property
    def processes(self) -> int:
        """Number of processes planned for a case: one, and those of the rounds."""
        return 1 + (self.measure.processes if self.repeated().metrics else 0)

    def task(self, case: Case) -> MeasureCase:
        runs = self.kept is not None and has_clock(case.device)
        own = f"{self.kept}{os.sep}{sha256(case.id.encode()).hexdigest()[:16]}" if runs else ""
        return MeasureCase(case, self.measure, self.metrics, self.counter, self.force, own)


@dataclass(slots=True)
class CaseOutcome:
    """Outcome of one case: its record, its samples by stream, its memory over a pass, what it printed.

    `imports` are the files of a person's own that were imported for it, with their SHA-256.
    """

    record: Record
    samples: Mapping[str, Sequence[Sample]]
    timelines: Mapping[str, Sequence[TimelineStep]]
    log: Sequence[str] = ()
    imports: Mapping[str, str] = field(default_factory=dict)

    def write(self, folder: RunFolder, number: int) -> None:
        """Put it into the run folder, as process `number` of its case; without numbers, if they are of other code."""
        if changed := folder.keep_imports(row_name(self.record.module, self.record.network), self.imports):
            self.record.status, self.record.values = "error", {}
            self.record.message = f"{', '.join(changed)} changed since the run began; start a new run"
            self.samples, self.timelines = {}, {}
        for text in self.log:
            folder.log(self.record.case, text)
        folder.append(number, self.record, self.samples, self.timelines)


def measure_case(case: Case, plan: Plan, executor: Executor, reporter: Quiet | None = None) -> CaseOutcome:
    """One case through the executor. Whatever happens to the child becomes the record's status and message.

    Where the machine could start no more threads, it is measured once more after a short wait.
    """
    reporter = reporter or Quiet()
    outcome = _measured(case, plan, executor, reporter)
    if NO_THREAD in outcome.record.message:
        time.sleep(WAITS_S[-1])
        outcome = _measured(case, plan, executor, reporter)
    return outcome


def _measured(case: Case, plan: Plan, executor: Executor, reporter: Quiet) -> CaseOutcome:
    begun = Begun(case, plan, reporter)
    return begun.outcome(executor.run(plan.task(case), begun.listener, begun.timeout_s))


class Begun:
    """A case whose measurement has begun: `listener` takes its messages, of which `outcome` makes a record."""

    def __init__(self, case: Case, plan: Plan, reporter: Quiet) -> None:
        self.case, self.plan = case, plan
        self.listener = _Listener(blank_record(case), reporter)
        self.timeout_s = _timeout_s(case, plan)
        self._start, self._kills = this_machine.here.wall_s(), _kernel_kills()

    def outcome(self, ended: Exit) -> CaseOutcome:
        """Outcome of the case, whose process ended, or went on to another case, in this way."""
        listener, record = self.listener, self.listener.record
        record.elapsed_s = round(this_machine.here.wall_s() - self._start, 3)
        record.note(*ended.notes)
        if listener.refused:
            record.status, record.message = "crashed", f"the process sent in {listener.doing} {listener.refused}"
        elif listener.traceback is None:
            killed = _kernel_kills() > self._kills
            record.status, record.message = ended.status(self.timeout_s, listener.doing, killed)
        if record.status == "ok" and (lacking := _lacking(record, self.plan, listener.missing)):
            record.status, record.message = "error", f"{', '.join(lacking)}: missing, and no reason was given"
        texts = (*_shorten(record), listener.traceback, ended.output)
        log = [text for text in texts if text and text.strip()]
        return CaseOutcome(record, listener.samples, listener.timelines, log, listener.imports)


def _shorten(record: Record) -> list[str]:
    """Cut the message and the texts in notes to LONGEST characters; what was cut, as it was."""
    whole = [text for text in (record.message, *map(str, record.notes)) if len(text) > LONGEST]
    record.message = _cut(record.message)
    record.notes = [
        replace(note, values={n: _cut(v) if isinstance(v, str) else v for n, v in note.values.items()})
        for note in record.notes
    ]
    return whole


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} ... (all of it is in log.txt)"


def _lacking(record: Record, plan: Plan, missing: Collection[str]) -> list[str]:
    """The columns that the metrics of `plan` promise, without a number and without a reason for that."""
    promised = [each for name in plan.metrics for each in metrics()[name].promised(static=not has_clock(record.device))]
    return [
        column
        for column, reason_column in promised
        if record.get(column) is None and column not in missing and not (reason_column and record.get(reason_column))
    ]


# What a child says of its case beside the columns of metrics.
_TOLD = ("title", "family", "machine_state", "others_share", "built")


class _Listener:
    """Takes a child's messages down into a record; what no metric of ctxbench sends is `refused`, with all after it."""

    def __init__(self, record: Record, reporter: Quiet) -> None:
        self.record = record
        self.reporter = reporter
        self.samples: dict[str, Sequence[Sample]] = {}
        self.timelines: dict[str, Sequence[TimelineStep]] = {}
        self.missing: set[str] = set()
        self.imports: dict[str, str] = {}
        self.traceback: str | None = None
        self.refused = ""
        self.doing = "start"

    def __call__(self, message: Reply) -> None:
        self.refused = self.refused or _invalid(message)
        if self.refused:
            return
        match message:
            case Values(values, notes):
                self.record.take(values)
                self.record.note(*notes)
            case MissingColumns(columns, note):
                self.missing |= set(columns)
                self.record.note(*[note] if note else [])
            case Doing(what):
                self.doing = what
                self.reporter.metric(what)
            case Progress(what, count, ms):
                self.reporter.sample(what, count, ms)
            case Samples(stream, samples):
                self.samples[stream] = samples
            case Timeline(mode, steps):
                self.timelines[mode] = steps
            case Imported(files):
                self.imports |= {relative(Path(file)): sha256 for file, sha256 in files.items()}
            case Failure(status, sentence, traceback, no_gpu_room):
                self.record.note(*[Note("no_gpu_room")] * no_gpu_room)
                self.record.status, self.record.message, self.traceback = status, sentence, traceback


_KINDS = {int: "whole number", float: "finite number", str: "text"}


def _invalid(message: Reply) -> str:
    """Invalid content of a message, as a clause; empty if it is valid."""
    match message:
        case Values(values):
            own, metric = columns(), metric_columns()
            for name, value in values.items():
                if name not in metric and name not in _TOLD:
                    return f"a value for {name!r}, which is no column of a metric"
                if not own[name].takes(value):
                    return f"{value!r} for {name}, which is no {_KINDS[own[name].type]}"
        case Samples(stream, samples):
            if stream not in (*MODES, STREAM):
                return f"samples of an unknown stream {stream!r}"
            if not all(0 <= each.at_s < math.inf and 0 < each.ms < math.inf and each.passes > 0 for each in samples):
                return "samples that are no times"
        case Timeline(_, steps) if not all(each.step >= 0 <= each.bytes and each.phase in PHASES for each in steps):
            return "a timeline that is none"
        case Failure(status) if status not in STATUSES or status == "ok":
            return f"a failure with the unknown status {status!r}"
    return ""


def matmul_rate(case: Case, measure: Measure, executor: Executor) -> float | None:
    """MAC/s of a large matrix product under a case's device, dtype and threads, in a process of its own."""
    listener = _Listener(blank_record(case), Quiet())
    executor.run(MatmulRate(case, measure), listener, measure.timeout_s)
    rate: float | None = listener.record.get("matmul_macs_per_s")
    return rate


def blank_record(case: Case) -> Record:
    """The record of a case before anything is measured, without title and family: those may need the module's code."""
    return Record(
        case=case.id,
        module=case.module,
        title="",
        family="",
        reference=relative_reference(case.reference),
        hparams=case.hparams_json,
        changed=case.changed,
        **to_columns(replace(case, network=relative_reference(case.network))),
    )


def _timeout_s(case: Case, plan: Plan) -> float:
    """Compilation has a time of its own, once for each mode, and so have some metrics."""
    way, measure = execution(case.execution), plan.measure
    own = sum(metric.limit_s(measure) for metric in wanted(plan.metrics))
    return measure.timeout_s + own + (len(way.modes) * measure.compile_timeout_s if way.has_limit else 0.0)


def _kernel_kills() -> int:
    """Number of processes ended by the kernel's out-of-memory killer since boot; 0 where unknown."""
    try:
        found = re.search(r"^oom_kill (\d+)$", disk.read_text(Path("/proc/vmstat")), re.MULTILINE)
    except UsageError:
        return 0
    return int(found[1]) if found else 0
