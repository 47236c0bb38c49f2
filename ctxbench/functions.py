"""Commands that measure or check, as Python functions."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ctxbench import api, comparison
from ctxbench.comparison import BrokenModules
from ctxbench.contract import CHANNELS, SIZE, CheckResult, judged
from ctxbench.contract.lines import line, summary
from ctxbench.engine.client import ForkServer
from ctxbench.engine.progress import Quiet, QuietGate
from ctxbench.engine.run import machine
from ctxbench.engine.verify import verify as check_contract
from ctxbench.errors import UsageError
from ctxbench.found import Found
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
from ctxbench.ranking import sentences
from ctxbench.report.run_data import RunData, open_run
from ctxbench.report.tables.difference import difference_table
from ctxbench.report.tables.network import network_tables
from ctxbench.report.tables.ranking import ranking_table
from ctxbench.report.tables.table import Table, plain_table
from ctxbench.suite.read import Overrides

if TYPE_CHECKING:
    from rich.text import Text

    from ctxbench.api import Module


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
    return Found(results, (plain_table(headings, rows), summary(module, results).plain))


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
        api.suite_of(suite, modules, hparams, conditions),
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
    return Found(result, (*tables, title_of(result), *remarks(result), summary_of(result)))


def compare(
    candidates: "Sequence[Module] | Module",
    modules: "Sequence[Module] | Module | None" = None,
    *,
    suite: str = "compare",
    metrics: Sequence[str] | None = None,
    rank_by: str = "latency_infer",
    hparams: Mapping[str, Mapping[str, Any]] | None = None,
    measure: Mapping[str, Any] | None = None,
    also_on: Sequence[str] = (),
    reuse: str | Path | None = None,
    anyway: bool = False,
    out: str | Path | None = None,
    progress: QuietGate | None = None,
    reporter: Quiet | None = None,
    on_part: "Callable[[Text | str], object]" = lambda part: None,
    **conditions: Any,
) -> Found[api.Run]:
    """Verify new modules, measure them beside those of the registry (or `modules` of it), and rank them all.

    A candidate that breaks the contract is left out, but with `anyway`. `hparams` are by module, and with the key ""
    of each candidate; `also_on` names devices to predict for; the other arguments are as in `ctxbench.run`. `reuse` is
    an earlier run, whose rows of registry modules are copied. `on_part` is told what is known before the end: contract
    lines, and sentences. Raises UsageError for a wrong argument, and BrokenModules if no candidate is left.
    """
    names, earlier = api.module_names(candidates) or [], Path(reuse) if reuse else None
    request = comparison.Request(names, api.module_names(modules), hparams or {})
    overrides = Overrides(
        conditions=api.conditions_of(conditions),
        metrics=None if metrics is None else list(metrics),
        measure=measure or {},
        also_on=list(also_on),
    )
    comparison.check_names(request, suite, overrides, rank_by, earlier)
    with ForkServer() as server:
        environment = machine(server)
        channels = comparison.channels_of(suite, overrides)
        broken = [
            each for each in dict.fromkeys(names) if _is_broken(request, each, server, channels, progress, on_part)
        ]
    if broken and not anyway:
        request = request.without(broken)
        if not request.candidates:
            raise BrokenModules("nothing was measured; fix the module, or use --anyway to measure it as it is")
        on_part(f"left out: {', '.join(broken)}; fix it, or use --anyway to measure it as it is")
    cases, seconds = comparison.expected_s(request, suite, overrides)
    on_part(f"{cases} cases: about {seconds / 60:.1f} minutes, more where a pass is longer than the time for samples")
    finished = comparison.measure(
        request, environment, suite=suite, overrides=overrides, broken=broken if anyway else (), reuse=earlier,
        out=Path(out) if out else None, reporter=reporter,
    )  # fmt: skip
    parts: list[Table | str] = []
    for ranking in comparison.rankings(finished):
        parts += [ranking_table(ranking, rank_by), *sentences(ranking.standings)]
    parts += [*comparison.abilities(finished), *network_tables(RunData.read(finished))]
    return Found(api.Run(finished), tuple(parts))


def _is_broken(
    request: comparison.Request,
    candidate: str,
    server: ForkServer,
    channels: int,
    progress: QuietGate | None,
    on_part: "Callable[[Text | str], object]",
) -> bool:
    """Whether a candidate breaks the contract with any of its settings; `on_part` is told what was checked."""
    with progress or QuietGate() as shown:
        checked = list(comparison.check_contract(request, candidate, server, channels, shown.stage))
    for name, results in checked:
        for result in results:
            if result.outcome in ("failed", "not decided"):
                on_part(line(result))
        on_part(summary(name, results))
    return any(judged(results) == "broken" for _, results in checked)


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
    found = costs(api.suite_of(suite, modules, hparams, conditions), span, last, [*map(Path, runs)], progress)
    return Found(found, (*history_table.history_tables(found), *history_table.sentences(found)))
