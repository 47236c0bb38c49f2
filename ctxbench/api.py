"""`ctxbench.run` and `ctxbench.load`, and what functions of plugins share: from Python, the same as the commands do."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ctxbench import registry
from ctxbench.base.errors import UsageError, unknown
from ctxbench.base.number import Number
from ctxbench.engine import progress
from ctxbench.engine.isolated import IsolatedLoader
from ctxbench.engine.run import run_suite
from ctxbench.model.case import Case, one_case
from ctxbench.model.conditions import CONDITIONS, Shape, parse_shape
from ctxbench.model.read_suite import Overrides
from ctxbench.model.read_suite import load as load_suite
from ctxbench.results.run_folder import RunFolder
from ctxbench.table.result import Result
from ctxbench.table.shown import Shown
from ctxbench.table.table import plain_table

if TYPE_CHECKING:
    import pandas as pd
    from torch import nn

    from ctxbench.model.grid import Suite

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
        """One row a case: the columns of `ctxbench.model.record.columns()`, then `hparams.NAME` for each setting."""
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
        from ctxbench.report.tables.suite import comparison_table
        from ctxbench.table.markdown import render_markdown

        text: str = render_markdown(comparison_table([self.folder]))
        return text

    def _repr_html_(self) -> str:
        """The same in a notebook."""
        from ctxbench.report.tables.suite import comparison_table
        from ctxbench.table.html import render_html

        text: str = render_html(comparison_table([self.folder]))
        return text

    @property
    def samples(self) -> "pd.DataFrame":
        """Every timed block in time order within a process; the control workload is a mode, too."""
        return self.folder.samples()

    @property
    def failed(self) -> int:
        """Number of cases with another status than `ok`."""
        return self.folder.failed


def _holds(value: Any) -> bool:
    """Return whether a cell of a frame is not empty."""
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
    with nullcontext() if in_process else IsolatedLoader():
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
    with IsolatedLoader():
        return load_suite(name, Overrides(modules=names, hparams=hparams or {}, conditions=values))


def _shapes(value: Any) -> list[Shape]:
    several = isinstance(value, Sequence) and not isinstance(value, str) and value and not isinstance(value[0], int)
    return [parse_shape(item) for item in value] if several else [parse_shape(value)]


def case_of(module: "Module", hparams: Mapping[str, Any] | None, **conditions: Any) -> Case:
    """A module under one value of each condition. UsageError for a wrong one."""
    given = {name: value for name, value in conditions.items() if value is not None}
    for name, value in given.items():
        if name not in CONDITIONS:
            raise unknown("condition", name, CONDITIONS)
        given[name] = CONDITIONS[name].checked(value)
    return one_case((module_names(module) or [""])[0], given, hparams or {})


def shown(loader: IsolatedLoader, case: Case, question: str, *arguments: Any) -> Result[Number]:
    """Output of a child about a case; the number is in its first item."""
    parts: list[Shown] = loader.ask(case, question, list[Shown], *arguments)
    told = [plain_table(each.columns, each.rows) if each.columns else each.text for each in parts]
    assert parts[0].value is not None
    return Result(parts[0].value, tuple(told))
