"""`ctxbench.check`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ctxbench import api
from ctxbench.base import clocks as this_machine
from ctxbench.base.errors import UsageError
from ctxbench.engine.isolated import IsolatedLoader
from ctxbench.engine.progress import Quiet
from ctxbench.model.conditions import Counts, Names, Shapes
from ctxbench.plugins.check.request import Request, parse_accepted, parse_outputs
from ctxbench.plugins.check.result import GateResult, InconclusiveIs
from ctxbench.registry.reference import Reference
from ctxbench.table.result import Result

if TYPE_CHECKING:
    from ctxbench.api import Module


def check(
    against: str | None = None,
    modules: "Sequence[Module] | Module | None" = None,
    *,
    baseline: str | Path | None = None,
    suite: str = "ci",
    network: Names | None = None,
    shape: Shapes | None = None,
    dtype: Names | None = None,
    device: Names | None = None,
    also_on: Sequence[str] = (),
    memory_format: Names | None = None,
    execution: Names | None = None,
    threads: Counts | None = None,
    hparams: Mapping[str, Mapping[str, Any]] | None = None,
    accept: Sequence[str] = (),
    renamed: Mapping[str, str] | None = None,
    adapters: Sequence[str | Path] = (),
    outputs: str = "must-match",
    margin: float | None = None,
    predicted_margin: float | None = None,
    budget_s: float = 600.0,
    inconclusive_is: InconclusiveIs = "ok",
    run_its_code: bool = False,
    progress: Quiet | None = None,
) -> Result[GateResult]:
    """Check whether a change made a module slower, larger or broken, or altered its outputs.

    Args:
        against: Compare the working tree with this commit, branch or tag.
        modules: Names (keys, `path.py:Class`, `package.module:Class`) or classes; default: the suite's.
        baseline: Compare with a stored run: a run folder or a records.csv.
        suite: A suite's name, or the path of a TOML file.
        network, shape, dtype, device, memory_format, execution, threads: Conditions instead of the suite's, as in
            `ctxbench.run`.
        also_on: Further devices, whose launches and times are predicted, such as `["t4"]`.
        hparams: Hyper-parameters by module, such as `{"ham_nmf": {"steps": 3}}`.
        accept: Exact costs that may grow, such as params,macs=5%; their growth is still shown.
        renamed: Classes that the other commit has under another name, by the new name.
        adapters: Files of the working tree that the other commit gets, too, such as a wrapper of a block.
        outputs: must-match fails where outputs or gradients changed, may-change only tells.
        margin: The smallest change that matters, such as 0.05; default: the suite's, else 0.05.
        predicted_margin: Fail where a predicted time grew by more than this, such as 0.2, by its whole band; default:
            predicted times decide nothing.
        budget_s: Seconds for the whole check.
        inconclusive_is: Whether rows that stay inconclusive are ok, fail, or skip the commit in a bisection.
        run_its_code: Run the code that a baseline names wherever it lies.
        progress: Gets the progress.

    Returns:
        The verdicts; `value.exit_code` is the code of the command.

    Raises:
        UsageError: For a wrong argument, and outside of a git repository.

    Example:
        >>> ctxbench.check("HEAD", "block.py:Block", suite="tiny.toml").value.exit_code
        <ExitCode.OK: 0>
    """
    if against is not None and not isinstance(against, str):
        raise UsageError(
            f"against is {type(against).__name__}; it takes a commit, branch or tag. Modules are the second argument: "
            'ctxbench.check("HEAD", "path.py:Class")'
        )
    names = api.module_names(modules)
    if any(Reference.parse(each).is_object for each in names or ()):
        raise UsageError("check takes classes of files, or their names: an instance or a function is in no commit")
    if (against is None) == (baseline is None):
        raise UsageError("check takes one of against and baseline")
    request = request_of(
        modules=names, suite=suite, hparams=hparams, accept=accept, renamed=renamed, adapters=adapters,
        outputs=outputs, margin=margin, also_on=also_on,
        predicted_margin=predicted_margin, budget_s=budget_s, inconclusive_is=inconclusive_is, network=network,
        shape=shape, dtype=dtype, device=device, memory_format=memory_format, execution=execution, threads=threads,
    )  # fmt: skip
    from ctxbench.plugins.check.check_against import check_against  # pandas, which --help does not need
    from ctxbench.plugins.check.check_stored import check_stored
    from ctxbench.plugins.check.tables import exact_table, row_table
    from ctxbench.plugins.check.texts import remarks, summary, title_of

    if baseline:
        result = check_stored(Path(baseline), request, progress, run_its_code)
    else:
        result = check_against(str(against), request, progress)
    tables = (row_table(result, result.rows, reasons=True), exact_table(result))
    return Result(result, (*tables, title_of(result), *remarks(result), summary(result)))


def request_of(
    *,
    suite: str,
    accept: Sequence[str] = (),
    renamed: Mapping[str, str] | None = None,
    adapters: Sequence[str | Path] = (),
    outputs: str,
    margin: float | None = None,
    predicted_margin: float | None = None,
    budget_s: float,
    inconclusive_is: InconclusiveIs,
    **of_suite: Any,
) -> Request:
    """The request of these arguments of `check`; the others are those of `api.suite_of`."""
    begun_s = this_machine.here.wall_s()
    with IsolatedLoader():
        loaded = api.suite_of(suite, **of_suite)
    accepted, must_match = parse_accepted(accept), parse_outputs(outputs)
    return Request(
        loaded, margin, budget_s, inconclusive_is, predicted_margin, accepted, renamed or {}, adapters, must_match,
        begun_s,
    )  # fmt: skip
