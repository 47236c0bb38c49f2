"""`ctxbench.compare`."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ctxbench import api, registry
from ctxbench.base.errors import UsageError
from ctxbench.engine.client import ForkServer
from ctxbench.engine.isolated import tell_calls
from ctxbench.engine.progress import Quiet
from ctxbench.engine.run import machine
from ctxbench.model.conditions import Counts, Names, Shapes
from ctxbench.model.hparams import of_configs
from ctxbench.model.read_suite import load
from ctxbench.plugin import loaded
from ctxbench.plugins.compare import comparison
from ctxbench.plugins.compare.comparison import BrokenModules
from ctxbench.plugins.compare.ranking import sentences
from ctxbench.plugins.verify.contract import CheckResult
from ctxbench.plugins.verify.lines import line, summary
from ctxbench.table.result import Result
from ctxbench.table.table import Table

if TYPE_CHECKING:
    from rich.text import Text

    from ctxbench.api import Module

# At a place of a network: the metrics, and the card of the predicted times if none is named.
AT_A_PLACE, CARD = ("params", "macs", "memory"), "t4"


def compare(
    candidates: "Sequence[Module] | Module",
    modules: "Sequence[Module] | Module | None" = None,
    *,
    network: Names | None = None,
    shape: Shapes | None = None,
    at: str | None = None,
    imgsz: int | None = None,
    dtype: Names | None = None,
    device: Names | None = None,
    memory_format: Names | None = None,
    execution: Names | None = None,
    threads: Counts | None = None,
    suite: str = "compare",
    also_on: Sequence[str] = (),
    metrics: Sequence[str] | None = None,
    processes: int | None = None,
    measure: Mapping[str, Any] | None = None,
    hparams: Mapping[str, Mapping[str, Any]] | None = None,
    rank_by: str = "latency_infer",
    reuse: str | Path | None = None,
    anyway: bool = False,
    out: str | Path | None = None,
    progress: Quiet | None = None,
    reporter: Quiet | None = None,
    on_part: "Callable[[Text | str], object]" = lambda part: None,
) -> Result[api.Run]:
    """Verify new modules, measure them together with modules of the registry, and rank all.

    A candidate that fails a check without which its numbers would be wrong is left out, but with `anyway`. What is None
    keeps the suite's value. At a place of a network all is counted and predicted, and nothing is measured.

    Args:
        candidates: Names (`path.py:Class`, `package.module:Class`, keys), classes, functions of the number of
            channels, or instances. Their code is run.
        modules: Registry modules to compare with; default: all, and none at a place of a network.
        network, shape, dtype, device, memory_format, execution, threads: Conditions instead of the suite's, as in
            `ctxbench.run`.
        at: A place of a network instead of a shape: `yolo11n` (all its places), `yolo11n:P5`, `resnet50:stage3`,
            `my_net.yaml:model.10`, `my_net.py:Net:layer3`.
        imgsz: Side in pixels of the image that the network of `at` gets; default: 640.
        suite: Inputs and settings: a suite's name, or the path of a TOML file.
        also_on: Further devices, whose times are predicted, such as `["h100-sxm"]`.
        metrics: Names of metrics instead of the suite's.
        processes: Fresh processes for each case's latency, whatever a suite's budget; fewer than 3 give no interval.
        measure: Other keys of the suite's `[measure]`, such as `{"sample_s": 0.5}`, in seconds.
        hparams: Hyper-parameters by module; the key "" stands for all candidates.
        rank_by: The quantity to rank by, such as `params` or `latency_train`.
        reuse: Copy the rows of registry modules from this earlier run folder.
        anyway: Also measure modules that do not meet the contract.
        out: The run folder; default: runs/compare-<time>.
        progress, reporter: Told of the progress of the checks, and of the run.
        on_part: Gets what is known before the end: contract lines, and sentences.

    Returns:
        The run; the ranking is in `tables`.

    Raises:
        UsageError: For a wrong argument.
        BrokenModules: If no candidate is left.

    Example:
        >>> asked = {"shape": (1, 16, 8, 8), "metrics": ["params", "macs"], "rank_by": "params"}
        >>> ctxbench.compare("block.py:Block", ["sa", "se"], **asked).frame["module"].tolist()
        ['Block', 'se', 'sa']
    """
    from ctxbench.plugins.compare.table import execution_table, ranking_table  # pandas, which --help does not need
    from ctxbench.report.run_data import RunData

    names, earlier = api.module_names(candidates) or [], Path(reuse) if reuse else None
    if at is not None and (shape is not None or network is not None):
        raise UsageError("--at tells the input: leave out --shape and --network")
    places, told = api.inputs_at(at, imgsz)
    if places:
        shape, measure = list(places.values()), {**told, **(measure or {})}
        metrics, device, also_on = metrics or AT_A_PLACE, device or also_on or CARD, ()
        modules = modules if modules is not None else ()
    conditions = {
        "network": network, "shape": shape, "dtype": dtype, "device": device, "memory_format": memory_format,
        "execution": execution, "threads": threads,
    }  # fmt: skip
    overrides = api.overrides_of(
        metrics=metrics, processes=processes, measure=measure, also_on=also_on, conditions=conditions
    )
    plan = comparison.ComparisonPlan(load(suite, overrides), names, api.module_names(modules), hparams or {})
    comparison.check_names(plan, rank_by, earlier)
    plan = comparison.loadable(plan, on_part)
    if hparams:
        configs = {config for each in plan.candidates for config in registry.get(each).configs}
        plan = replace(plan, settings=of_configs(hparams, configs))
    if shape is None and network is None:
        plan = comparison.at_own_width(plan)
    with ForkServer() as server:
        environment = machine(server)
        if progress and progress.is_watched:
            with suppress(UsageError):  # what is wrong is told after the contract
                tell_calls(plan.suite.cases())
        with progress or Quiet() as shown:
            checked = comparison.check_contract(plan, server, shown.stage)
    for found in checked.values():
        for name, results in found:
            _tell(name, results, on_part)
    broken = [each for each, found in checked.items() if any(one.misleads for _, own in found for one in own)]
    if broken and not anyway:
        plan = plan.without(broken)
        if not plan.candidates:
            raise BrokenModules(line(one) for each in checked.values() for _, own in each for one in own if one.broken)
        on_part(f"left out: {', '.join(broken)}; {comparison.AS_IT_IS}")
    cases, seconds = comparison.expected_s(plan.suite)
    duration = f"{seconds / 60:.1f} minutes" if seconds >= 60 else f"{seconds:.0f} s"
    on_part(
        f"{cases} cases: about {duration} on a machine at rest, more where a pass is longer than the time for samples"
    )
    finished = comparison.measure(
        plan, environment, broken=broken if anyway else (), reuse=earlier,
        marks={each: comparison.marks_of(found) for each, found in checked.items()},
        out=Path(out) if out else None, reporter=reporter,
    )  # fmt: skip
    parts: list[Table | str] = []
    for ranking in comparison.rankings(finished, places):
        parts += [ranking_table(ranking, rank_by), *sentences(ranking.standings)]
        parts += [execution_table(ranking)] if ranking.others else []
    parts += comparison.abilities(finished)
    run = RunData.read(finished)
    parts += [table for tables_of in loaded("printed") for table in tables_of(run)]
    return Result(api.Run(finished), tuple(parts))


def _tell(name: str, results: Sequence[CheckResult], on_part: "Callable[[Text | str], object]") -> None:
    """Tell what a contract's checks have found: a line for each that breaks it or is open, and for all in sum."""
    for result in results:
        if result.broken or result.outcome == "not decided":
            on_part(line(result))
    on_part(summary(name, results))
