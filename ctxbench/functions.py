"""Commands as Python functions: each returns what it found, which a notebook shows as the command prints it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ctxbench import api
from ctxbench.contract import CHANNELS, SIZE, CheckResult
from ctxbench.contract.lines import summary
from ctxbench.engine.apart import Apart
from ctxbench.engine.client import ForkServer
from ctxbench.engine.progress import QuietGate
from ctxbench.engine.verify import verify as check_contract
from ctxbench.errors import UsageError
from ctxbench.gate import history_table
from ctxbench.gate.check_against import check_against
from ctxbench.gate.check_stored import check_stored
from ctxbench.gate.history import History
from ctxbench.gate.history import history as costs
from ctxbench.gate.request import Request, parse_accepted, parse_outputs
from ctxbench.gate.result import GateResult
from ctxbench.gate.tables import exact_table, row_table
from ctxbench.gate.texts import remarks, title_of
from ctxbench.gate.texts import summary as summary_of
from ctxbench.report.formats.html import render_html
from ctxbench.report.formats.markdown import render_markdown
from ctxbench.report.run_data import RunData, open_run
from ctxbench.report.tables.difference import difference_table
from ctxbench.report.tables.table import Table, plain_table
from ctxbench.suite.read import Overrides, load

if TYPE_CHECKING:
    import pandas as pd

    from ctxbench.api import Module
    from ctxbench.suite.cases import Suite

Value = TypeVar("Value")


@dataclass(frozen=True, repr=False)
class Found(Generic[Value]):
    """What a command found: `value` as it is, and the tables and sentences that the command prints."""

    value: Value
    tables: tuple[Table, ...]
    lines: tuple[str, ...] = ()

    @property
    def frame(self) -> "pd.DataFrame":
        """The first table as a data frame."""
        return self.tables[0].data

    def __repr__(self) -> str:
        """Tables in Markdown, and the sentences."""
        return "\n".join([*map(render_markdown, self.tables), *self.lines])

    def _repr_html_(self) -> str:
        """The same in a notebook."""
        tables = (render_html(table, f"table{number}") for number, table in enumerate(self.tables))
        return "".join([*tables, *(f"<p>{escape(line)}</p>" for line in self.lines)])


def verify(
    module: str,
    *,
    channels: int = CHANNELS,
    size: tuple[int, int] = SIZE,
    hparams: Mapping[str, Any] | None = None,
    timeout_s: float = 60.0,
) -> Found[list[CheckResult]]:
    """Check that a module (a key, `path.py:Class` or `package.module:Class`) meets the contract of context modules.

    It is made for so many `channels`, and its usual input has height and width `size`. A check that takes more than
    `timeout_s` seconds of processor time is not decided. UsageError if there is nothing to check.
    """
    with ForkServer(static=False) as server:
        results = check_contract(module, server, channels=channels, size=size, hparams=hparams, timeout_s=timeout_s)
    rows = [[each.name, each.outcome, "yes" if each.required else "no", each.fact, each.hint] for each in results]
    headings = {"check": "label", "outcome": "label", "required": "label", "fact": "text", "hint": "text"}
    return Found(results, (plain_table(headings, rows),), (summary(module, results).plain,))


def check(
    against: str | None = None,
    modules: "Sequence[Module] | Module | None" = None,
    *,
    baseline: str | Path | None = None,
    suite: str = "ci",
    hparams: Mapping[str, Mapping[str, Any]] | None = None,
    accept: Sequence[str] = (),
    outputs: str = "tell",
    margin: float | None = None,
    budget_s: float = 300.0,
    progress: QuietGate | None = None,
    **conditions: Any,
) -> Found[GateResult]:
    """Check whether a change made modules slower, larger or broken, or altered their outputs.

    The working tree is held against a commit, branch or tag (`against`), or a stored run (`baseline`). `accept` names
    metrics whose growth is no regression; `outputs` is `tell` or `must-match`; `margin` is the smallest relative change
    that matters (None: the suite's); `conditions` are `shape`, `dtype`, ... as in `ctxbench.run`. The exit code of the
    command is `value.exit_code`. Raises UsageError for a wrong argument.
    """
    request = Request(
        _suite(suite, modules, hparams, conditions),
        margin,
        budget_s,
        accepted=parse_accepted(accept),
        must_match=parse_outputs(outputs),
    )
    if (against is None) == (baseline is None):
        raise UsageError("check takes one of against and baseline")
    result = (
        check_stored(Path(baseline), request, progress) if baseline else check_against(str(against), request, progress)
    )
    tables = (row_table(result, result.rows, reasons=True), exact_table(result))
    return Found(result, tables, (title_of(result), *remarks(result), summary_of(result)))


def diff(first: str | Path, second: str | Path) -> Found[tuple[RunData, RunData]]:
    """The numbers in which two run folders differ, as ratios of the second to the first, exact ones first.

    Raises UsageError for a folder that is no run, and for runs without a common case.
    """
    runs = open_run(Path(first)), open_run(Path(second))
    return Found(runs, (difference_table(*runs),))


def history(
    modules: "Sequence[Module] | Module",
    span: str = "HEAD",
    *,
    last: int = 20,
    runs: Sequence[str | Path] = (),
    suite: str = "ci",
    hparams: Mapping[str, Mapping[str, Any]] | None = None,
    progress: QuietGate | None = None,
    **conditions: Any,
) -> Found[History]:
    """What modules cost at the last commits of a range such as `v1..main`, and where a cost changed.

    `runs` are run folders, whose times stand at their commits; `conditions` are `shape`, `device`, ... as in
    `ctxbench.run`. Raises UsageError outside of a git repository, and for an unknown range or module.
    """
    found = costs(_suite(suite, modules, hparams, conditions), span, last, [*map(Path, runs)], progress)
    return Found(found, tuple(history_table.history_tables(found)), tuple(history_table.sentences(found)))


def _suite(
    name: str,
    modules: "Sequence[Module] | Module | None",
    hparams: Mapping[str, Mapping[str, Any]] | None,
    conditions: Mapping[str, Any],
) -> "Suite":
    names, values = api.module_names(modules), api.conditions_of(conditions)
    with Apart():
        return load(name, Overrides(modules=names, hparams=hparams or {}, conditions=values))
