"""`ctxbench.compare`."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ctxbench import api
from ctxbench.engine.client import ForkServer
from ctxbench.engine.progress import Quiet, QuietGate
from ctxbench.engine.run import machine
from ctxbench.model.read_suite import Overrides
from ctxbench.plugin import loaded
from ctxbench.plugins.compare import comparison
from ctxbench.plugins.compare.comparison import BrokenModules
from ctxbench.plugins.compare.ranking import sentences
from ctxbench.plugins.compare.table import ranking_table
from ctxbench.plugins.verify.contract import judged
from ctxbench.plugins.verify.lines import line, summary
from ctxbench.report.run_data import RunData
from ctxbench.table.result import Result
from ctxbench.table.table import Table

if TYPE_CHECKING:
    from rich.text import Text

    from ctxbench.api import Module


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
) -> Result[api.Run]:
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
    parts += comparison.abilities(finished)
    run = RunData.read(finished)
    parts += [table for tables_of in loaded("printed") for table in tables_of(run)]
    return Result(api.Run(finished), tuple(parts))


def _is_broken(
    request: comparison.Request,
    candidate: str,
    server: ForkServer,
    channels: int,
    progress: QuietGate | None,
    on_part: "Callable[[Text | str], object]",
) -> bool:
    """Return whether a candidate breaks the contract with any of its settings; `on_part` is told what was checked."""
    with progress or QuietGate() as shown:
        checked = list(comparison.check_contract(request, candidate, server, channels, shown.stage))
    for name, results in checked:
        for result in results:
            if result.outcome in ("failed", "not decided"):
                on_part(line(result))
        on_part(summary(name, results))
    return any(judged(results) == "broken" for _, results in checked)
