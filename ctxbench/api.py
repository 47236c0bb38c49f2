"""`ctxbench.run`: a suite from Python, the same thing that the command does."""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock, Timeout

from ctxbench import devices, progress, registry, results
from ctxbench.engine.client import EngineError, ForkServer
from ctxbench.engine.rounds import Launch, execute
from ctxbench.engine.scheduler import Executor, InProcess, Plan, matmul_rate, measure_static
from ctxbench.environment import command_line, differences, source_of
from ctxbench.errors import UsageError, unknown
from ctxbench.failures import last_line
from ctxbench.metrics import static_metrics
from ctxbench.metrics.macs import COUNTERS
from ctxbench.mode import MODES
from ctxbench.results import RunFolder
from ctxbench.suite import Case, Measure, Overrides, Shape, Suite, parse_shape, restore
from ctxbench.suite import load as load_suite
from ctxbench.worker.protocol import DescribeEnvironment, Environment, Reply

if TYPE_CHECKING:
    import pandas as pd
    from torch import nn

    # A name (a key, `path.py:Class`, `package.module:Class`) or a class.
    Module = str | type[nn.Module]


class Interrupted(KeyboardInterrupt):
    """Ctrl-C: `done` of `total` planned processes are in the folder `path`, which can be resumed."""

    def __init__(self, path: Path, done: int, total: int) -> None:
        super().__init__(f"{done} of {total} processes are in {path}")
        self.path, self.done, self.total = path, done, total


@dataclass(frozen=True, repr=False)
class Run:
    """A run: its folder and its content as data frames."""

    folder: RunFolder

    def __repr__(self) -> str:
        counts = Counter(self.frame["status"])
        ended = ", ".join(f"{count} {status}" for status, count in counts.items()) or "no case yet"
        return f"Run({str(self.path)!r}: {ended})"

    @property
    def path(self) -> Path:
        return self.folder.path

    @property
    def frame(self) -> "pd.DataFrame":
        """One row a case: the columns of `ctxbench.results.columns()`, then `hparams.NAME` for each setting."""
        import pandas as pd

        frame = self.folder.frame()
        settings = pd.DataFrame([json.loads(text) for text in frame["hparams"]], index=frame.index)
        return frame.join(settings.add_prefix("hparams."))

    @property
    def samples(self) -> "pd.DataFrame":
        """Every timed block in time order within a process; the control workload is a mode, too."""
        return self.folder.samples()

    @property
    def predictions(self) -> "pd.DataFrame":
        """The times that were predicted for devices that are not here: one row for each case and device."""
        return self.folder.predictions()

    @property
    def failed(self) -> int:
        """How many cases have another status than `ok`."""
        return int((self.frame["status"] != "ok").sum())


def load(path: str | Path) -> Run:
    """The run in a folder. UsageError if it is none, or was written by a newer ctxbench."""
    return Run(RunFolder.open(Path(path)))


def run(
    suite: str = "table3",
    *,
    modules: "Sequence[Module] | Module | None" = None,
    shape: Sequence[int] | Sequence[Sequence[int]] | str | None = None,
    dtype: Sequence[str] | str | None = None,
    device: Sequence[str] | str | None = None,
    memory_format: Sequence[str] | str | None = None,
    execution: Sequence[str] | str | None = None,
    threads: Sequence[int] | int | None = None,
    metrics: Sequence[str] | None = None,
    hparams: Mapping[str, Mapping[str, Any]] | None = None,
    measure: Mapping[str, Any] | None = None,
    static: bool = False,
    counter: str = "ctxbench",
    out: str | Path | None = None,
    in_process: bool = False,
    force: bool = False,
    reporter: progress.Quiet | None = None,
) -> Run:
    """Measure a suite (a name, or the path of a TOML file) and return the run.

    `modules` (names or classes), `shape` (B, C, H, W, or several), `dtype`, `device`, `memory_format`, `execution`,
    `threads`, `metrics` and `measure` replace the suite's values; `hparams={"ham_nmf": {"steps": 3}}` sets
    hyper-parameters. `static` measures params, MACs and predicted memory only: no clock, no real tensor. `counter` is
    `ctxbench` or `torchprofile`. `out` is the run folder (default `results/<suite>-<time>`). `force` measures cases
    that are predicted not to fit. Raises UsageError for a wrong argument; what a case does is a row's status.
    """
    overrides = Overrides(
        modules=_module_names(modules),
        shape=_shapes(shape),
        dtype=_listed(dtype),
        device=_listed(device),
        memory_format=_listed(memory_format),
        execution=_listed(execution),
        threads=[threads] if isinstance(threads, int) else list(threads) if threads is not None else None,
        metrics=list(metrics) if metrics is not None else None,
        hparams=hparams or {},
        measure=measure or {},
    )
    return run_suite(
        load_suite(suite, overrides),
        static=static,
        counter=counter,
        out=out,
        in_process=in_process,
        force=force,
        reporter=reporter,
    )


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
) -> Run:
    """Measure a suite that is already loaded; see `run`. `before` is called with the new folder and the cases."""
    if counter not in COUNTERS:
        raise unknown("counter", counter, COUNTERS)
    metrics = [name for name in suite.file.metrics if not static or name in static_metrics()]
    suite.cases()  # wrong names end here, before a process is started
    path = Path(out) if out is not None else results.default_path(suite.name)
    with ExitStack() as stack:
        shown = stack.enter_context(reporter or progress.Quiet())
        measure = _measure_of(suite, in_process)
        executor, launch = _executors(stack, measure, in_process)
        environment = machine(executor)
        cases = _cases(suite, environment, static)
        plan = Plan(measure, metrics, counter, force)
        folder = RunFolder.create(path, meta_of(suite, plan, cases, environment, static))
        stack.enter_context(locked(path))
        before(folder, cases)
        _measure(cases, plan, executor, launch, folder, shown)
    return Run(folder)


def meta_of(
    suite: Suite, plan: Plan, cases: Sequence[Case], environment: Mapping[str, Any], static: bool = False
) -> dict[str, Any]:
    """What `run.json` says of a run that begins."""
    return {
        "suite": suite.name,
        "state": "running",
        "command": command_line(),
        "static": static,
        "counter": plan.counter,
        "metrics": plan.metrics,
        "force": plan.force,
        "definition": suite.file.model_dump(mode="json"),
        "suite_file": source_of(suite.path),
        "sources": sources_of(cases),
        "environment": environment,
    }


def resume(
    path: str | Path, *, retry_failed: bool = False, in_process: bool = False, reporter: progress.Quiet | None = None
) -> Run:
    """Continue a run that was interrupted: measure what is missing, with `retry_failed` also the failed cases again.

    Raises UsageError if the folder holds no run, another process writes in it, or this machine or torch is another one.
    """
    folder = RunFolder.open(Path(path))
    meta = folder.meta
    if "environments" in meta:
        raise UsageError(f"{path} was measured on a cluster; continue it with --ray ADDRESS")
    suite = restore(meta["suite"], folder.path / "run.json", meta["definition"])
    with ExitStack() as stack:
        stack.enter_context(locked(folder.path))
        shown = stack.enter_context(reporter or progress.Quiet())
        measure = _measure_of(suite, in_process)
        executor, launch = _executors(stack, measure, in_process)
        environment = machine(executor)
        if changed := differences(meta["environment"], environment):
            raise UsageError(f"{path} was measured elsewhere ({'; '.join(changed)}): its rows and new ones do not mix")
        cases = _cases(suite, environment, meta["static"])
        plan = reopen(folder, cases, measure, retry_failed)
        _measure(cases, plan, executor, launch, folder, shown)
    return Run(folder)


def reopen(folder: RunFolder, cases: Sequence[Case], measure: Measure, retry_failed: bool) -> Plan:
    """Make a folder ready for what it lacks; the plan that it was begun with. UsageError if a source has changed."""
    meta = folder.meta
    folder.recover()
    frame = folder.frame()
    failed = set(frame.loc[frame["status"] != "ok", "case"]) if retry_failed else set()
    kept = [case for case in cases if case.id in folder.finished().keys() - failed]
    if changed := _changed_sources(meta, kept):
        raise UsageError(
            f"{folder.path} cannot be resumed: {', '.join(changed)} changed since it began, and one table would hold "
            "the numbers of both; start a new run"
        )
    folder.drop(failed)
    folder.save_meta(sources=sources_of(cases), state="running")
    return Plan(measure, meta["metrics"], meta["counter"], meta["force"])


def sources_of(cases: Sequence[Case]) -> dict[str, dict[str, Any]]:
    """The source file of each module, by the module's key."""
    return {case.module: source_of(Path(case.entry.file)) for case in {case.module: case for case in cases}.values()}


def changed_modules(meta: Mapping[str, Any], cases: Sequence[Case]) -> dict[str, str]:
    """The modules whose source is another than a run began with, and its file; what a run does not tell is the same."""
    then, now = meta.get("sources") or {}, sources_of(cases)
    return {key: now[key]["file"] for key in now if key in then and then[key]["sha256"] != now[key]["sha256"]}


def _changed_sources(meta: Mapping[str, Any], cases: Sequence[Case]) -> list[str]:
    """Which source files of these cases, and the suite's, are others than a run began with."""
    changed = list(dict.fromkeys(changed_modules(meta, cases).values()))
    suite = meta.get("suite_file") or {}
    if suite and Path(suite["file"]).is_file() and source_of(Path(suite["file"]))["sha256"] != suite["sha256"]:
        changed.append(suite["file"])
    return changed


def _measure_of(suite: Suite, in_process: bool) -> Measure:
    """The suite's settings; in this very process there is one process."""
    return suite.file.measure.model_copy(update={"processes": 1} if in_process else {})


def _executors(stack: ExitStack, measure: Measure, in_process: bool) -> tuple[Executor, Launch]:
    """What measures once, and what starts a new interpreter for each round."""
    if in_process:
        return InProcess(), lambda: nullcontext(InProcess())
    server = stack.enter_context(ForkServer(malloc=measure.malloc))
    return server, lambda: ForkServer(static=False, malloc=measure.malloc)


def _measure(
    cases: Sequence[Case], plan: Plan, executor: Executor, launch: Launch, folder: RunFolder, shown: progress.Quiet
) -> None:
    try:
        execute(cases, plan, executor, launch, folder, shown)
    except KeyboardInterrupt:
        folder.save_meta(state="interrupted")
        done = sum(map(len, folder.finished().values()))
        raise Interrupted(folder.path, done, max(done, len(cases) * plan.processes)) from None
    folder.save_meta(state="finished")


@dataclass(frozen=True)
class Planned:
    """One case of a dry run: the larger predicted peak on CUDA (bytes), and about how many seconds it will take."""

    case: Case
    memory_bytes: int | None
    seconds: float | None
    note: str


# Share of the device's matmul rate that a context module is taken to reach in an estimate.
ASSUMED_EFFICIENCY = 0.3
# A backward pass does twice the forward's products.
TRAIN_PASSES = 3


def plan(suite: Suite, *, static: bool = False) -> list[Planned]:
    """What `run_suite` would measure, without measuring it: static metrics and one matrix product a device.

    The seconds are warm-up, budget or the least number of samples, whichever is longer, at the pass time that the MACs
    and the device's matmul rate suggest: an order of magnitude.
    """
    measure = suite.file.measure
    settings = Plan(measure, static_metrics())
    planned = []
    rates: dict[tuple[str, str, int | None], float | None] = {}
    with ForkServer() as server:
        for case in _cases(suite, machine(server), static):
            record = measure_static(case, settings, server)
            macs, seconds = record.get("macs"), None
            if macs is not None and not static and "latency" in suite.file.metrics:
                yardstick = (case.device, case.dtype, case.threads)
                if yardstick not in rates:
                    rates[yardstick] = matmul_rate(case, measure, server)
                rate = rates[yardstick]
                seconds = None if rate is None else _estimate(measure, macs / (rate * ASSUMED_EFFICIENCY))
            peaks = [record.get(f"memory_{mode}_predicted_bytes") for mode in MODES]
            note = record.message or "; ".join(record.warnings)
            planned.append(Planned(case, max((b for b in peaks if b is not None), default=None), seconds, note))
    return planned


def _estimate(measure: Measure, pass_s: float) -> float:
    def mode(seconds: float) -> float:
        if measure.protocol == "paper":
            blocks = measure.repeats * measure.passes * seconds
        else:
            blocks = max(measure.budget_s, measure.min_samples * seconds)
        return 2 * seconds + max(measure.warmup_s, seconds) + blocks

    return measure.processes * (mode(pass_s) + mode(TRAIN_PASSES * pass_s))


def _listed(value: Sequence[str] | str | None) -> list[str] | None:
    return [value] if isinstance(value, str) else list(value) if value is not None else None


def _module_names(value: "Sequence[Module] | Module | None") -> list[str] | None:
    """Names of modules; a class is named by its file, or by its package, so that a fresh process finds it."""
    if value is None:
        return None
    several = value if isinstance(value, Sequence) and not isinstance(value, str) else [value]
    return [each if isinstance(each, str) else registry.reference_of(each) for each in several]


def _shapes(value: Any) -> list[Shape] | None:
    if value is None:
        return None
    several = isinstance(value, Sequence) and not isinstance(value, str) and value and not isinstance(value[0], int)
    return [parse_shape(item) for item in value] if several else [parse_shape(value)]


def machine(executor: Executor) -> dict[str, Any]:
    """The environment as a child sees it: this process neither imports torch nor touches CUDA.

    Raises EngineError with the child's output if it could not tell.
    """
    found: dict[str, Any] = {}

    def take(message: Reply) -> None:
        if isinstance(message, Environment):
            found.update(message.environment)

    ended = executor.run(DescribeEnvironment(), take)
    if not found:
        raise EngineError(f"the machine could not be described: {last_line(ended.output)}")
    return found


def _cases(suite: Suite, environment: Mapping[str, Any], static: bool) -> list[Case]:
    """The suite's cases for this machine; without a device, each once, when static."""
    if static:
        return list({case.id: case for case in (replace(c, device=devices.META) for c in suite.cases())}.values())
    cases = suite.cases(devices.auto(environment))
    for name in dict.fromkeys(case.device for case in cases):
        devices.check(name, environment)
    return cases


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the folder for this process alone."""
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
