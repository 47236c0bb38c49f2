"""`ctxbench.run` and `ctxbench.profile`: from Python, the same things that the commands do."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ctxbench import registry
from ctxbench.conditions import CONDITIONS, Shape, parse_shape
from ctxbench.devices.sheet import sheet
from ctxbench.engine import progress
from ctxbench.engine.apart import Apart
from ctxbench.engine.run import run_suite
from ctxbench.errors import UsageError, unknown
from ctxbench.mode import MODES, Mode
from ctxbench.results.run_folder import RunFolder
from ctxbench.suite.read import Overrides
from ctxbench.suite.read import load as load_suite

if TYPE_CHECKING:
    import pandas as pd
    from torch import nn

    from ctxbench.attribution.profile import Profile
    from ctxbench.suite.cases import Suite

    # A name (a key, `path.py:Class`, `package.module:Class`) or a class.
    Module = str | type[nn.Module]


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
        """One row a case: the columns of `ctxbench.results.record.columns()`, then `hparams.NAME` for each setting."""
        import pandas as pd

        frame = self.folder.frame()
        settings = pd.DataFrame([json.loads(text) for text in frame["hparams"]], index=frame.index)
        return frame.join(settings.add_prefix("hparams."))

    @property
    def known(self) -> "pd.DataFrame":
        """`frame` with the columns alone in which a row holds something."""
        frame = self.frame
        return frame[[name for name in frame if any(_holds(value) for value in frame[name])]]

    def table(self) -> str:
        """The run's table in Markdown, as `ctxbench report` writes it."""
        from ctxbench.report.formats.markdown import render_markdown
        from ctxbench.report.tables.suite import comparison_table

        text: str = render_markdown(comparison_table([self.folder]))
        return text

    def _repr_html_(self) -> str:
        """The same in a notebook."""
        from ctxbench.report.formats.html import render_html
        from ctxbench.report.tables.suite import comparison_table

        text: str = render_html(comparison_table([self.folder]))
        return text

    @property
    def samples(self) -> "pd.DataFrame":
        """Every timed block in time order within a process; the control workload is a mode, too."""
        return self.folder.samples()

    @property
    def failed(self) -> int:
        """How many cases have another status than `ok`."""
        return self.folder.failed


def _holds(value: Any) -> bool:
    """Whether a cell of a frame is not empty."""
    import pandas as pd

    return bool(len(value)) if isinstance(value, str | list | dict) else not pd.isna(value)


def load(path: str | Path) -> Run:
    """The run in a folder. UsageError if it is none, or was written by a newer ctxbench.

    Warns with AlteredRun if a table is not the one that the run wrote.
    """
    folder = RunFolder.open(Path(path))
    folder.warn_if_altered()
    return Run(folder)


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
    network: Sequence[str] | str | None = None,
    metrics: Sequence[str] | None = None,
    hparams: Mapping[str, Mapping[str, Any]] | None = None,
    measure: Mapping[str, Any] | None = None,
    processes: int | None = None,
    static: bool = False,
    counter: str = "ctxbench",
    out: str | Path | None = None,
    in_process: bool = False,
    force: bool = False,
    reporter: progress.Quiet | None = None,
) -> Run:
    """Measure a suite (a name, or the path of a TOML file) and return the run.

    `modules` (names or classes), `shape` (B, C, H, W, or several), `dtype`, `device`, `memory_format`, `execution`,
    `threads`, `network`, `metrics` and `measure` replace the suite's values; `processes` is short for
    `measure={"processes": ...}`, and `hparams={"ham_nmf": {"steps": 3}}` sets hyper-parameters. `static` measures
    params, MACs and predicted memory only: no clock, no real tensor. `counter` is `ctxbench` or `torchprofile`. `out`
    is the run folder (default `results/<suite>-<time>`). `force` measures cases that are predicted not to fit. Raises
    UsageError for a wrong argument; what a case does is a row's status.
    """
    asked = {
        "shape": shape,
        "dtype": dtype,
        "device": device,
        "memory_format": memory_format,
        "execution": execution,
        "threads": threads,
        "network": network,
    }
    overrides = Overrides(
        modules=module_names(modules),
        conditions=conditions_of(asked),
        metrics=list(metrics) if metrics is not None else None,
        hparams=hparams or {},
        measure={**(measure or {}), **({} if processes is None else {"processes": processes})},
    )
    with nullcontext() if in_process else Apart():
        folder = run_suite(
            load_suite(suite, overrides),
            static=static,
            counter=counter,
            out=out,
            in_process=in_process,
            force=force,
            reporter=reporter,
        )
    return Run(folder)


def conditions_of(asked: Mapping[str, Any]) -> dict[str, list[Any]]:
    """The values of conditions as a suite takes them, from one or several of each; None asks for nothing.

    UsageError for a name that is no condition.
    """
    for name in asked:
        if name not in CONDITIONS:
            raise unknown("condition", name, CONDITIONS)
    given = {name: value for name, value in asked.items() if value is not None}
    return {
        name: _shapes(value) if name == "shape" else [value] if isinstance(value, str | int) else list(value)
        for name, value in given.items()
    }


def module_names(value: "Sequence[Module] | Module | None") -> list[str] | None:
    """Names of modules; a class is named by its file, or by its package, so that a fresh process finds it."""
    if value is None:
        return None
    several = value if isinstance(value, Sequence) and not isinstance(value, str) else [value]
    for each in several:
        if not isinstance(each, str | type):
            raise UsageError(f"modules holds {each!r}; it takes names such as 'sa' or 'path.py:Class', and classes")
    return [each if isinstance(each, str) else registry.reference_of(each) for each in several]


def suite_of(
    name: str,
    modules: "Sequence[Module] | Module | None",
    hparams: Mapping[str, Mapping[str, Any]] | None,
    conditions: Mapping[str, Any],
) -> "Suite":
    """The suite that a function is asked for, read without running users' code in this process."""
    names, values = module_names(modules), conditions_of(conditions)
    with Apart():
        return load_suite(name, Overrides(modules=names, hparams=hparams or {}, conditions=values))


def _shapes(value: Any) -> list[Shape]:
    several = isinstance(value, Sequence) and not isinstance(value, str) and value and not isinstance(value[0], int)
    return [parse_shape(item) for item in value] if several else [parse_shape(value)]


def profile(
    module: "Module | nn.Module",
    shape: Sequence[int] | str,
    *,
    mode: str | None = None,
    dtype: str = "float32",
    target: str | None = None,
    hparams: Mapping[str, Any] | None = None,
) -> "Profile":
    """Take a module's passes on an input [B, C, H, W] apart, by line, submodule and operator; in this process.

    `module` is a name, a class or a module; it is measured on its own device, or with `target` (such as `a100-40gb`)
    predicted for that one. `mode` is `infer` or `train`, by default both. A name or a class is built with `hparams`,
    in `dtype`, which is also that of the input. Raises UsageError for a wrong argument.
    """
    from ctxbench.worker.profiling import profile_module

    if not isinstance(module, str | type) and not callable(getattr(module, "named_modules", None)):
        raise UsageError(f"module is {module!r}; profile takes a module, a class or a name such as 'sa'")
    if mode not in (None, *MODES):
        raise unknown("mode", str(mode), MODES)
    size = parse_shape(shape)
    CONDITIONS["dtype"].checked(dtype)
    if isinstance(module, str | type):
        entry = registry.get(module if isinstance(module, str) else registry.reference_of(module))
        module = entry.build(size[1], entry.check_hparams(hparams or {}))
    asked: Sequence[Mode] = MODES if mode is None else (mode,)
    return profile_module(module, size, asked, dtype, sheet(target) if target else None)
