"""A run from its first to its last case: the folder and its lock, the machine, what may be resumed."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from ctxbench.base import clocks as this_machine
from ctxbench.base import disk
from ctxbench.base.errors import EngineError, UsageError, unknown
from ctxbench.base.extras import with_science
from ctxbench.engine import progress
from ctxbench.engine.cache import CachedExecutor, gpus, machine_key
from ctxbench.engine.client import ForkServer
from ctxbench.engine.in_process import InProcess
from ctxbench.engine.isolated import tell_calls
from ctxbench.engine.one_process import Executor, Plan
from ctxbench.engine.remote import ask
from ctxbench.engine.rounds import Launch, execute
from ctxbench.model.case import Case, Measure
from ctxbench.model.failures import last_line
from ctxbench.model.grid import Suite
from ctxbench.model.metrics import metrics as known_metrics
from ctxbench.model.read_suite import code_beside, restore
from ctxbench.plugin import brought, loaded
from ctxbench.results.environment import differences, moment
from ctxbench.results.plan import RunPlan, check_installed, prepare
from ctxbench.results.run_folder import RunFolder, default_path
from ctxbench.results.run_meta import CONTINUED
from ctxbench.results.sources import PACKAGE, changed_files, check_own_code, named_code, row_name
from ctxbench.table.result import Stopped

# The counter of MACs where none is chosen.
COUNTER = "ctxbench"


def stopped(path: Path, done: int, total: int, going_on: str = "ctxbench resume") -> Stopped:
    """Ctrl-C when `done` of the planned processes are in the folder `path`, from which a command goes on."""
    known = f"{done} of {max(done, total)} processes are in {path}"
    return Stopped(f"interrupted; {known}\ncontinue with: {going_on} {path}", path=path)


def run_suite(
    suite: Suite,
    *,
    static: bool = False,
    counter: str = "ctxbench",
    out: str | Path | None = None,
    in_process: bool = False,
    force: bool = False,
    reporter: progress.Quiet | None = None,
    before: Callable[[RunFolder, Sequence[Case]], None] = lambda folder, cases: None,
) -> RunFolder:
    """Measure a suite that is already loaded; see `ctxbench.run`. `before` gets the new folder and the cases."""
    counters = [name for _, name in brought("counters")] or [COUNTER]
    if counter not in counters:
        raise unknown("counter", counter, counters)
    counted = [name for name, each in known_metrics().items() if each.count]
    metrics = [name for name in suite.file.metrics if not static or name in counted]
    if not metrics:
        raise UsageError(f"--static measures {', '.join(counted)}, and the suite asks for none of them")
    check_installed(suite.file, static)
    _ = suite.points  # wrong names end here, before a process is started
    if reporter and reporter.is_watched:
        tell_calls(suite.cases())
    with ExitStack() as stack:
        shown = stack.enter_context(reporter or progress.Quiet())
        measure = _measure_of(suite, in_process)
        executor, launch = _executors(stack, measure, in_process, static, shown)
        environment = machine(executor) | (moment() if static else {})
        plan = prepare(suite, environment, static)
        settings = Plan(measure, metrics, counter, force)
        path = Path(out) if out is not None else default_path(suite.name)
        stack.enter_context(locked(path))
        meta = plan.meta(environment, static=static, counter=counter, metrics=metrics, force=force)
        folder = RunFolder.create(path, meta)
        before(folder, plan.cases)
        _measure(plan.cases, settings, executor, launch, folder, shown)
    return folder


def resume(
    path: str | Path,
    *,
    retry_failed: bool = False,
    in_process: bool = False,
    run_its_code: bool = False,
    reporter: progress.Quiet | None = None,
) -> RunFolder:
    """Continue a run that was interrupted: measure what is missing, with `retry_failed` also the failed cases again.

    Raises UsageError if the folder holds no run, another process writes in it, this machine or torch is another one, or
    it names code that is not the reader's own (`run_its_code` runs it).
    """
    folder = RunFolder.open(Path(path))
    meta = folder.meta
    check_own_code(folder.path, meta, named_code(meta), run_its_code)
    if command := meta.get("continued_by"):
        raise UsageError(f"{path} is continued by another command: {command} {path}")
    folder.require(CONTINUED)
    suite = restore(meta["suite"], folder.path / "run.json", meta["definition"], run_its_code)
    with ExitStack() as stack:
        stack.enter_context(locked(folder.path))
        shown = stack.enter_context(reporter or progress.Quiet())
        measure = _measure_of(suite, in_process)
        executor, launch = _executors(stack, measure, in_process, meta["static"], shown)
        environment = machine(executor)
        if changed := differences(meta["environment"], environment):
            raise UsageError(f"{path} was measured elsewhere ({'; '.join(changed)}): its rows and new ones do not mix")
        plan = prepare(suite, environment, meta["static"])
        settings = reopen(folder, plan, measure, retry_failed, shown)
        _measure(plan.cases, settings, executor, launch, folder, shown)
    return folder


def reopen(folder: RunFolder, plan: RunPlan, measure: Measure, retry_failed: bool, shown: progress.Quiet) -> Plan:
    """Make a folder ready for what it lacks; how each case was measured when it was begun.

    UsageError if a source has changed, or a table that the run wrote has been.
    """
    meta = folder.meta
    if sentence := folder.altered():
        raise UsageError(f"{sentence}; it cannot be resumed: start a new run")
    for sentence in folder.recover():
        shown.note(sentence)
    failed = {row["case"] for row in folder.rows() if retry_failed and row["status"] != "ok"}
    kept = [case for case in plan.cases if case.id in folder.finished().keys() - failed]
    changed = changed_files(meta, kept) + _changed_suite(meta)
    if changed := changed + [
        name for name, now in plan.sheets.items() if (meta.get("sheets") or {}).get(name, now) != now
    ]:
        raise UsageError(
            f"{folder.path} cannot be resumed: {', '.join(changed)} changed since it began, and one table would hold "
            "the numbers of both; start a new run"
        )
    rows = {row_name(case.module, case.network) for case in kept}
    imports = {row: files for row, files in (meta.get("imports") or {}).items() if row in rows}
    sources = dict(plan.sources)
    if kept and PACKAGE not in (meta.get("sources") or {}):
        del sources[PACKAGE]  # the rows of an older run may be of another ctxbench
    folder.save_meta(sources=sources, imports=imports, state="running", tables={})
    folder.drop(failed)
    return Plan(measure, meta["metrics"], meta["counter"], meta["force"])


def _changed_suite(meta: Mapping[str, Any]) -> list[str]:
    """The suite's file, if it is another than a run began with."""
    suite = meta.get("suite_file") or {}
    is_other = suite and os.path.isfile(suite["file"]) and disk.sha256(Path(suite["file"])) != suite["sha256"]
    return [suite["file"]] if is_other else []


def _measure_of(suite: Suite, in_process: bool) -> Measure:
    """The suite's settings; in this very process there is one process."""
    if suite.file.measure.memory_limit_gib and not this_machine.FORKS:
        raise UsageError("memory_limit_gib in [measure] is held on Linux only: take it out of the suite")
    return suite.file.measure.model_copy(update={"processes": 1} if in_process else {})


def _executors(
    stack: ExitStack, measure: Measure, in_process: bool, static: bool, shown: progress.Quiet
) -> tuple[Executor, Launch]:
    """Executor that measures once, and launcher of a new interpreter for each round.

    A static run starts no process for what is kept: the machine's description, too, where it has no GPU, whose settings
    may change.
    """
    if in_process:
        return InProcess(), lambda: nullcontext(InProcess())
    server = stack.enter_context(ForkServer(malloc=measure.malloc, soon=not static))
    on = b"" if gpus() or not static else machine_key()
    on = on and on + measure.malloc.encode()
    return CachedExecutor(server, shown.note, on=on), lambda: ForkServer(static=False, malloc=measure.malloc)


def _measure(
    cases: Sequence[Case], plan: Plan, executor: Executor, launch: Launch, folder: RunFolder, shown: progress.Quiet
) -> None:
    try:
        execute(cases, plan, executor, launch, folder, shown)
    except KeyboardInterrupt:
        folder.finish("interrupted")
        done = sum(map(len, folder.finished().values()))
        raise stopped(folder.path, done, len(cases) * plan.processes) from None
    except UsageError as error:
        with suppress(UsageError):  # a disk may be full
            folder.finish("interrupted")
        kind = EngineError if isinstance(error, EngineError) else UsageError
        raise kind(f"{error}; continue with: ctxbench resume {folder.path}") from None
    finish(folder, shown)


def finish(folder: RunFolder, shown: progress.Quiet) -> None:
    """Keep in `run.json` what plugins say of a run that has ended; what fails in a person's own code is a note."""
    suite = (folder.meta.get("suite_file") or {}).get("file")
    if suite and (beside := code_beside(Path(suite))).is_file() and (more := with_science("claims of suites")):
        shown.note(f"{beside} is not asked for claims{more}")
    for keys_of in loaded("finished"):
        try:
            folder.save_meta(**keys_of(folder))
        except UsageError as error:
            shown.note(str(error))
    folder.finish("finished")


def machine(executor: Executor) -> dict[str, Any]:
    """The environment as a child sees it: this process neither imports torch nor touches CUDA.

    Raises EngineError with the child's output if it could not tell.
    """
    answered = ask(executor, "machine", dict[str, Any])
    if not answered.told:
        why = answered.failure.message if answered.failure else last_line(answered.ended.output)
        raise EngineError(f"the machine could not be described: {why}")
    found: dict[str, Any] = answered.told[0]
    return found


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the folder, which is made if it is not there, for this process alone."""
    disk.make_folder(path)
    disk.refuse_link(path / ".lock")
    lock = FileLock(path / ".lock", timeout=0)
    try:
        lock.acquire()
    except Timeout:
        raise UsageError(f"another ctxbench is writing in {path}") from None
    except OSError as error:
        raise UsageError(f"cannot write to {path}: {error.strerror or error}") from None
    try:
        yield
    finally:
        lock.release()
        (path / ".lock").unlink(missing_ok=True)
