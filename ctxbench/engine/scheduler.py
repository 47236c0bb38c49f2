"""Runs the cases of a suite one after the other, turns what each child reports into a record, and writes it down."""

import re
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from ctxbench import registry
from ctxbench.engine.client import Exit
from ctxbench.results import Held, Record, RunFolder, Sample
from ctxbench.suite import Case, Measure


class Executor(Protocol):
    """Performs a task somewhere and says how it ended: a fresh process, this process, or a test's script."""

    def run(
        self, task: Mapping[str, Any], on_event: Callable[[dict[str, Any]], None], timeout_s: float | None = None
    ) -> Exit: ...


class Reporter(Protocol):
    """Shows a person how far a run is."""

    def case(self, index: int, total: int, case: Case) -> None: ...

    def metric(self, name: str) -> None: ...

    def sample(self, name: str, count: int, ms: float) -> None: ...

    def done(self, record: Record) -> None: ...


class InProcess:
    """Performs tasks in this very process, for debugging: a crash ends the run, one case's state reaches the next."""

    def run(
        self, task: Mapping[str, Any], on_event: Callable[[dict[str, Any]], None], timeout_s: float | None = None
    ) -> Exit:
        from ctxbench.engine.worker import perform

        perform(task, on_event)
        return Exit(0, 0, False, "")


@dataclass(frozen=True)
class Plan:
    """What to do with each case."""

    measure: Measure
    metrics: Sequence[str]
    counter: str = "ctxbench"
    force: bool = False


def execute(
    cases: Sequence[Case], plan: Plan, executor: Executor, folder: RunFolder, reporter: Reporter
) -> list[Record]:
    """Measure the cases in order; each record is on disk before the next case begins."""
    records = []
    peaks: dict[tuple[str, str, int | None], float | None] = {}
    for index, case in enumerate(cases):
        reporter.case(index, len(cases), case)
        record, samples = measure_case(case, plan, executor, folder, reporter)
        if record.latency_infer_ms is not None:
            yardstick = (case.device, case.dtype, case.threads)
            if yardstick not in peaks:
                peaks[yardstick] = measure_peak_rate(case, plan, executor)
            record.matmul_peak_macs_per_s = peaks[yardstick]
        folder.append(record, samples)
        reporter.done(record)
        records.append(record)
    return records


def measure_case(
    case: Case, plan: Plan, executor: Executor, folder: RunFolder, reporter: Reporter
) -> tuple[Record, dict[str, list[Sample]]]:
    """One case through the executor. Whatever happens to the child becomes the record's status and message.

    What the child printed and the timeline of its memory are in the folder; the record and its samples are returned.
    """
    listener = _Listener(blank_record(case), reporter)
    start = time.monotonic()
    kills = _kernel_kills()
    ended = executor.run(_task("case", case, plan), listener, plan.measure.timeout_s)
    record = listener.record
    record.elapsed_s = round(time.monotonic() - start, 3)
    record.warnings = "; ".join(dict.fromkeys(listener.notes))
    if listener.traceback is None:
        record.status, record.message = exit_status(
            ended, plan.measure.timeout_s, listener.doing, _kernel_kills() > kills
        )
    for text in (listener.traceback, ended.output):
        if text and text.strip():
            folder.log(case.id, text)
    if listener.timelines:
        folder.append_timeline(case.id, listener.timelines)
    return record, listener.samples


def static_record(case: Case, plan: Plan, executor: Executor) -> Record:
    """What the static metrics of `plan` say of a case, measured on the meta device; nothing is written."""
    listener = _Listener(blank_record(case), None)
    executor.run(_task("case", replace(case, device="meta"), plan), listener, plan.measure.timeout_s)
    listener.record.warnings = "; ".join(dict.fromkeys(listener.notes))
    return listener.record


class _Listener:
    """Takes a child's messages down into a record."""

    def __init__(self, record: Record, reporter: Reporter | None) -> None:
        self.record = record
        self.reporter = reporter
        self.samples: dict[str, list[Sample]] = {}
        self.timelines: dict[str, list[Held]] = {}
        self.notes: list[str] = []
        self.traceback: str | None = None
        self.doing = "start"

    def __call__(self, event: dict[str, Any]) -> None:
        match event["event"]:
            case "values":
                for name, value in event["values"].items():
                    setattr(self.record, name, value)
                self.notes.extend(event.get("warnings", ()))
            case "metric":
                self.doing = event["metric"]
                if self.reporter:
                    self.reporter.metric(self.doing)
            case "sample":
                if self.reporter:
                    self.reporter.sample(event["metric"], event["count"], event["ms"])
            case "samples":
                self.samples[event["mode"]] = [Sample(**sample) for sample in event["samples"]]
            case "timeline":
                self.timelines[event["mode"]] = [Held(*held) for held in event["held"]]
            case "failed":
                self.record.status, self.record.message = event["status"], event["message"]
                self.traceback = event["traceback"]


def measure_peak_rate(case: Case, plan: Plan, executor: Executor) -> float | None:
    """MAC/s of a large matrix product under a case's device, dtype and threads, in a process of its own."""
    found: dict[str, float] = {}
    executor.run(_task("peak", case, plan), lambda event: found.update(event.get("values", {})), plan.measure.timeout_s)
    return found.get("matmul_peak_macs_per_s")


def _task(kind: str, case: Case, plan: Plan) -> dict[str, Any]:
    return {
        "task": kind,
        "case": asdict(case),
        "measure": plan.measure.model_dump(),
        "metrics": list(plan.metrics),
        "counter": plan.counter,
        "force": plan.force,
    }


def blank_record(case: Case) -> Record:
    """The record of a case before anything is measured."""
    batch, channels, height, width = case.shape
    entry = registry.get(case.module if case.module in registry.names() else case.reference)
    return Record(
        case=case.id,
        module=case.module,
        title=entry.title,
        family=entry.family,
        reference=case.reference,
        hparams=case.hparams_json,
        batch=batch,
        channels=channels,
        height=height,
        width=width,
        dtype=case.dtype,
        memory_format=case.memory_format,
        execution=case.execution,
        threads=case.threads,
        device=case.device,
    )


def exit_status(ended: Exit, timeout_s: float, doing: str, kernel_killed: bool) -> tuple[str, str]:
    """Status and sentence for a child that reported no failure of its own."""
    if ended.timed_out:
        return "timeout", f"still in {doing} after {timeout_s:g} s"
    if ended.signal == signal.SIGKILL and kernel_killed:
        return "oom", f"killed in {doing} by the kernel, which was out of memory"
    if ended.signal:
        return "crashed", f"killed in {doing} by {signal.Signals(ended.signal).name}; {_last_line(ended.output)}"
    if ended.code:
        return "crashed", f"the process ended in {doing} with exit code {ended.code}; {_last_line(ended.output)}"
    return "ok", ""


def _last_line(output: str) -> str:
    lines = output.strip().splitlines()
    return f"it last printed: {lines[-1]}" if lines else "it printed nothing"


def _kernel_kills() -> int:
    """How many processes the kernel's out-of-memory killer has ended since boot; 0 where that is not told."""
    try:
        found = re.search(r"^oom_kill (\d+)$", Path("/proc/vmstat").read_text(encoding="ascii"), re.MULTILINE)
    except OSError:
        return 0
    return int(found[1]) if found else 0
