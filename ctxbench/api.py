"""`ctxbench.run` and `ctxbench.load`, and what functions of plugins share: from Python, the same as the commands do."""

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ctxbench import registry
from ctxbench.base.errors import UsageError, unknown
from ctxbench.base.number import Number
from ctxbench.engine.isolated import IsolatedLoader, KeptAnswers
from ctxbench.model.case import Case, one_case
from ctxbench.model.conditions import CONDITIONS, Counts, Names, Shape, Shapes
from ctxbench.model.read_suite import Overrides
from ctxbench.model.read_suite import load as load_suite
from ctxbench.plugin import loaded
from ctxbench.results.run_folder import RunFolder
from ctxbench.table.result import Result
from ctxbench.table.shown import Shown
from ctxbench.table.table import Table, plain_table

if TYPE_CHECKING:
    import pandas as pd
    from torch import nn

    from ctxbench.engine.progress import Quiet
    from ctxbench.model.grid import Suite

    # A name (a key, `path.py:Class`, `package.module:Class`), a class, a function of the number of channels, or an
    # instance.
    Module = str | Callable[..., nn.Module]

# Side in pixels of an image that a detector takes.
IMAGE_SIDE = 640


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

    def __str__(self) -> str:
        """The run's table as the command prints it, and its folder."""
        from ctxbench.table.terminal import as_text

        return as_text([self._table, f"run folder: {self.path}"])

    def table(self) -> str:
        """The run's table in Markdown, as `ctxbench report` writes it."""
        from ctxbench.table.markdown import render_markdown

        return render_markdown(self._table)

    def _repr_html_(self) -> str:
        """The same in a notebook."""
        from ctxbench.table.html import render_html

        return render_html(self._table)

    @property
    def _table(self) -> Table:
        from ctxbench.report.run_data import RunData
        from ctxbench.report.tables.suite import suite_table

        table: Table = suite_table(RunData.read(self.folder))
        return table

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
    """Load a run from its folder.

    Args:
        path: A run folder.

    Returns:
        The run; `frame` has a row for each case.

    Raises:
        UsageError: For a folder that is no run, or was written by a newer ctxbench.

    Warns:
        AlteredRun: If a table is not the one that the run wrote.

    Example:
        >>> _ = ctxbench.run("quick", modules=["se"], shape=(1, 16, 4, 4), static=True, out="se")
        >>> ctxbench.load("se")
        Run('se': 1 ok)
    """
    folder = RunFolder.open(Path(path))
    folder.warn_if_altered()
    return Run(folder)


def run(
    suite: str = "table3",
    *,
    modules: "Sequence[Module] | Module | None" = None,
    network: Names | None = None,
    shape: Shapes | None = None,
    dtype: Names | None = None,
    device: Names | None = None,
    memory_format: Names | None = None,
    execution: Names | None = None,
    threads: Counts | None = None,
    metrics: Sequence[str] | None = None,
    hparams: Mapping[str, Mapping[str, Any]] | None = None,
    processes: int | None = None,
    measure: Mapping[str, Any] | None = None,
    static: bool = False,
    counter: str = "ctxbench",
    out: str | Path | None = None,
    also_on: Sequence[str] = (),
    force: bool = False,
    in_process: bool = False,
    reporter: "Quiet | None" = None,
) -> Run:
    """Measure the cases of a suite, and write a run folder.

    What is None keeps the suite's value. A case that fails is a row with its status, no error here.

    Args:
        suite: A suite's name, or the path of a TOML file.
        modules: Names (keys, `path.py:Class`, `package.module:Class`), classes, functions of the number of channels, or
            instances; one or several.
        network: Names of networks, or `path.py:function`, into which the modules are put; "" is the module alone.
        shape: Input shape (B, C, H, W), or several.
        dtype, device, memory_format, execution, threads: One value of each condition, or several.
        metrics: Names of metrics instead of the suite's.
        hparams: Hyper-parameters by module, such as `{"ham_nmf": {"steps": 3}}`.
        processes: Fresh processes for each case's latency, whatever a suite's budget; fewer than 3 give no interval.
        measure: Other keys of the suite's `[measure]`, such as `{"sample_s": 0.5}`, in seconds.
        static: Only params, MACs and predicted memory; no module is timed.
        counter: What counts the MACs: ctxbench or torchprofile.
        out: The run folder; default: runs/<suite>-<time>.
        also_on: Further devices, whose times are predicted, such as `["h100-sxm"]`.
        force: Also measure cases that are predicted not to fit into memory.
        in_process: For debugging: measure in this process, not in fresh ones.
        reporter: Gets the progress.

    Returns:
        The run; `frame` has a row for each case.

    Raises:
        UsageError: For a wrong argument.

    Example:
        >>> found = ctxbench.run("quick", modules=["se"], shape=(1, 16, 4, 4), static=True, out="quick")
        >>> found.known[["module", "params", "macs"]].values.tolist()
        [['se', 49, 304]]
    """
    from ctxbench.engine.run import run_suite  # numpy, which --help does not need

    with nullcontext() if in_process else IsolatedLoader():
        loaded = suite_of(
            suite, modules=modules, metrics=metrics, hparams=hparams, processes=processes, measure=measure,
            also_on=also_on, network=network, shape=shape, dtype=dtype, device=device, memory_format=memory_format,
            execution=execution, threads=threads,
        )  # fmt: skip
        folder = run_suite(
            loaded, static=static, counter=counter, out=out, in_process=in_process, force=force, reporter=reporter
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
    """Names of modules, by which a fresh process finds them. UsageError for what is no module."""
    if value is None:
        return None
    several = value if isinstance(value, Sequence) and not isinstance(value, str) else [value]
    return registry.references_of(several)


def overrides_of(
    *,
    modules: "Sequence[Module] | Module | None" = None,
    metrics: Sequence[str] | None = None,
    hparams: Mapping[str, Mapping[str, Any]] | None = None,
    processes: int | None = None,
    measure: Mapping[str, Any] | None = None,
    also_on: Sequence[str] = (),
    conditions: Mapping[str, Any],
) -> Overrides:
    """Overrides of a suite's values by the arguments of a function; None keeps the suite's."""
    measured = {**(measure or {}), **({} if processes is None else {"processes": processes})}
    wanted = None if metrics is None else [*metrics]
    return Overrides(module_names(modules), conditions_of(conditions), wanted, hparams or {}, measured, also_on)


def inputs_at(at: str | None, side: int | None) -> tuple[dict[str, Shape], dict[str, Any]]:
    """Input of one image by the name of each place in a network, and keys of `[measure]` that let rows tell theirs.

    `side` is that of the network's image in pixels, IMAGE_SIDE where it is None. Without `at` there is none of either.
    UsageError for an unknown place, and for a side without a place.
    """
    if at is None:
        if side is not None:
            raise UsageError("--imgsz goes with --at")
        return {}, {}
    finders = loaded("places")
    if not finders:
        raise UsageError(f"--at {at}: no plugin that knows places of networks is installed")
    shapes, settings = finders[0](at, IMAGE_SIDE if side is None else side)
    return shapes, settings


def suite_of(name: str, **arguments: Any) -> "Suite":
    """The suite that a function is asked for: the arguments of `overrides_of`, and conditions by name."""
    conditions = {each: arguments.pop(each) for each in CONDITIONS if each in arguments}
    return load_suite(name, overrides_of(**arguments, conditions=conditions))


def _shapes(value: Any) -> list[Any]:
    several = isinstance(value, Sequence) and not isinstance(value, str) and value and not isinstance(value[0], int)
    return list(value) if several else [value]


def case_of(module: "Module", hparams: Mapping[str, Any] | None, **conditions: Any) -> Case:
    """A module under one value of each condition. UsageError for a wrong one."""
    given = {name: value for name, value in conditions.items() if value is not None}
    for name, value in given.items():
        if name not in CONDITIONS:
            raise unknown("condition", name, CONDITIONS)
        given[name] = CONDITIONS[name].checked(value)
    return one_case((module_names(module) or [""])[0], given, hparams or {})


def answer(
    loader: IsolatedLoader, case: Case, question: str, *arguments: Any, keep: KeptAnswers
) -> tuple[Number | None, list[Table | str]]:
    """Output of a child about a case: the number in its first item, and its tables and sentences."""
    found = loader.ask(case, question, list[Shown], *arguments, keep=keep)
    return found[0].value, [plain_table(each.columns, each.rows) if each.columns else each.text for each in found]


def number(loader: IsolatedLoader, case: Case, question: str, *arguments: Any, keep: KeptAnswers) -> Result[Number]:
    """Result with the number that a child gives about a case."""
    value, parts = answer(loader, case, question, *arguments, keep=keep)
    assert value is not None
    return Result(value, tuple(parts))
