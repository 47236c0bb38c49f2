"""`ctxbench.run`: a suite from Python, the same thing that the command does."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ctxbench import progress, results
from ctxbench.engine.client import Zygote
from ctxbench.engine.scheduler import Executor, InProcess, Plan, execute
from ctxbench.environment import command_line
from ctxbench.errors import UsageError, unknown
from ctxbench.results import RunFolder
from ctxbench.suite import Case, Overrides, Shape, Suite, load, parse_shape

if TYPE_CHECKING:
    import pandas as pd

COUNTERS = ("ctxbench", "torchprofile")
STATIC_METRICS = ("params", "macs", "memory")


@dataclass(frozen=True)
class Run:
    """A finished run: its folder and its content as data frames."""

    folder: RunFolder
    suite: Suite

    @property
    def path(self) -> Path:
        return self.folder.path

    @property
    def frame(self) -> "pd.DataFrame":
        """One row a case; the columns of `ctxbench.results.Record`."""
        return self.folder.frame()

    @property
    def samples(self) -> "pd.DataFrame":
        """Every timed block in time order: case, mode, index, at_s, passes, ms."""
        return self.folder.samples()


def run(
    suite: str = "table3",
    *,
    modules: Sequence[str] | None = None,
    shape: Sequence[int] | str | None = None,
    dtype: Sequence[str] | str | None = None,
    device: Sequence[str] | str | None = None,
    metrics: Sequence[str] | None = None,
    hparams: Mapping[str, Mapping[str, Any]] | None = None,
    measure: Mapping[str, Any] | None = None,
    static: bool = False,
    counter: str = "ctxbench",
    out: str | Path | None = None,
    in_process: bool = False,
    reporter: progress.Quiet | None = None,
) -> Run:
    """Measure a suite (a name, or the path of a TOML file) and return the run.

    `modules`, `shape` (B, C, H, W), `dtype`, `device`, `metrics` and `measure` replace the suite's values;
    `hparams={"ham_nmf": {"steps": 3}}` sets hyper-parameters. `static` measures params, MACs and predicted memory only:
    no clock, no real tensor. `counter` is `ctxbench` or `torchprofile`. `out` is the run folder (default
    `results/<suite>-<time>`). Raises UsageError for a wrong argument; what a case does is a row's status.
    """
    if counter not in COUNTERS:
        raise unknown("counter", counter, COUNTERS)
    overrides = Overrides(
        modules=list(modules) if modules is not None else None,
        shape=[parse_shape(shape)] if shape is not None else None,
        dtype=_listed(dtype),
        device=_listed(device),
        metrics=list(metrics) if metrics is not None else None,
        hparams=hparams or {},
        measure=measure or {},
    )
    loaded = load(suite, overrides)
    wanted = [m for m in loaded.file.metrics if m in STATIC_METRICS] if static else list(loaded.file.metrics)
    loaded.cases()  # wrong names end here, before a process is started
    folder_path = Path(out) if out is not None else results.default_path(loaded.name)
    with ExitStack() as stack:
        shown = stack.enter_context(reporter or progress.Quiet())
        executor: Executor = InProcess() if in_process else stack.enter_context(Zygote())
        environment = _environment(executor)
        cases = loaded.cases("meta") if static else loaded.cases(_auto_device(environment))
        if static:
            cases = loaded_static(cases)
        check_devices(cases, environment)
        meta = {
            "suite": loaded.name,
            "state": "running",
            "command": command_line(),
            "counter": counter,
            "metrics": wanted,
            "definition": loaded.file.model_dump(mode="json"),
            "environment": environment,
        }
        folder = RunFolder.create(folder_path, meta)
        plan = Plan(loaded.file.measure, wanted, counter)
        execute(cases, plan, executor, folder, shown)
        folder.save_meta(state="finished")
    return Run(folder, loaded)


def _listed(value: Sequence[str] | str | None) -> list[str] | None:
    return [value] if isinstance(value, str) else list(value) if value is not None else None


def loaded_static(cases: Sequence[Case]) -> list[Case]:
    """The cases with the device `meta`, each once."""
    from dataclasses import replace

    return list({case.id: case for case in (replace(c, device="meta") for c in cases)}.values())


def _environment(executor: Executor) -> dict[str, Any]:
    """The environment as a child sees it: this process neither imports torch nor touches CUDA."""
    found: dict[str, Any] = {}
    executor.run({"task": "environment"}, lambda event: found.update(event.get("environment", {})))
    return found


def _auto_device(environment: Mapping[str, Any]) -> str:
    return "cuda" if environment["gpus"] else "cpu"


def check_devices(cases: Sequence[Case], environment: Mapping[str, Any]) -> None:
    """UsageError for a device that is unknown or not on this machine."""
    count = len(environment["gpus"])
    for device in {case.device for case in cases}:
        kind, _, index = device.partition(":")
        if kind not in ("cpu", "cuda", "meta") or (index and not index.isdigit()):
            raise unknown("device", device, ["auto", "cpu", "cuda"])
        if kind == "cuda" and count == 0:
            raise UsageError("the device 'cuda' was asked for, but torch sees no GPU here; use --device cpu or --static")
        if kind == "cuda" and index and int(index) >= count:
            raise UsageError(f"the device {device!r} was asked for, but torch sees {count} GPU(s)")


__all__ = ["Run", "Shape", "run"]
