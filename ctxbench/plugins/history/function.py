"""`ctxbench.history`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ctxbench import api
from ctxbench.engine.isolated import IsolatedLoader
from ctxbench.engine.progress import Quiet
from ctxbench.model.conditions import Counts, Names, Shapes
from ctxbench.table.result import Result, Stopped

if TYPE_CHECKING:
    from ctxbench.api import Module
    from ctxbench.plugins.history.costs import History


def history(
    modules: "Sequence[Module] | Module",
    span: str = "HEAD",
    *,
    network: Names | None = None,
    shape: Shapes | None = None,
    dtype: Names | None = None,
    device: Names | None = None,
    memory_format: Names | None = None,
    execution: Names | None = None,
    threads: Counts | None = None,
    last: int = 20,
    runs: Sequence[str | Path] = (),
    adapters: Sequence[str | Path] = (),
    suite: str = "ci",
    hparams: Mapping[str, Mapping[str, Any]] | None = None,
    progress: Quiet | None = None,
) -> "Result[History]":
    """Count what modules cost at the last commits of a repository, and find the commits that changed a cost.

    Args:
        modules: Names (`path.py:Class` of this repository, or keys) or classes, one or several.
        span: Commits as git names them: v1..main, or the last one.
        network, shape, dtype, device, memory_format, execution, threads: Conditions instead of the suite's, as in
            `ctxbench.run`; times are predicted for a device such as `h100-sxm`.
        last: At most so many commits, the latest of the range that changed a file which the modules import or read.
        runs: Run folders, whose times stand at their commits.
        adapters: Files of the working tree that each commit gets, such as a wrapper of a block.
        suite: Inputs and settings: a suite's name, or the path of a TOML file.
        hparams: Hyper-parameters by module, such as `{"ham_nmf": {"steps": 3}}`.
        progress: Gets the progress.

    Returns:
        The costs at each commit; they are also in `tables`.

    Raises:
        Stopped: At Ctrl-C, with the commits that are counted by then.
        UsageError: Outside of a git repository, and for an unknown range or module.

    Example:
        >>> found = ctxbench.history("block.py:Block", shape=(1, 8, 4, 4))
        >>> found.frame["Params (M)"].tolist()
        ['8.0e-6']
    """
    from ctxbench.plugins.history import costs, table  # pandas and matplotlib, which --help does not need

    with IsolatedLoader():
        loaded = api.suite_of(
            suite, modules=modules, hparams=hparams, network=network, shape=shape, dtype=dtype, device=device,
            memory_format=memory_format, execution=execution, threads=threads,
        )  # fmt: skip
    found = costs.history(loaded, span, last, [*map(Path, runs)], progress, adapters)
    result = Result(found, (*table.history_tables(found), *table.sentences(found)))
    if not found.is_whole:
        counted = f"{len(found.commits)} of at most {last} commits are counted, and are kept for the next time"
        raise Stopped(f"interrupted; {counted}", result)
    return result
