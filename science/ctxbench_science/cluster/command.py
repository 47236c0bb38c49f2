"""`ctxbench cluster-run` and `cluster-resume`: a suite on the devices of a Ray cluster."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from ctxbench import api
from ctxbench.cli.commands.run import HOW, MEASURE
from ctxbench.cli.options import RunItsCode, asked_for
from ctxbench.cli.printing import print_runs, reporter
from ctxbench.cli.signature import command_of

Address = Annotated[
    str, typer.Argument(metavar="ADDRESS", help="HOST:PORT of a Ray cluster, or local for the devices of this host.")
]


@command_of(
    api.run,
    metrics=typer.Option(help=f"Metrics to measure, separated by commas: {', '.join(asked_for())}."),
    # A budget for a whole suite means nothing where each slot has cases of its own.
    measure={name: option for name, option in MEASURE.items() if name != "total_s"},
    static=None,
    in_process=None,
)
def run(
    asked: dict[str, Any],
    address: Address,
    each_device: Annotated[
        bool, typer.Option("--each-device", help="Every kind of device measures every case, in its own folder.")
    ] = False,
) -> None:
    """Measure the cases of a suite on the devices of a Ray cluster.

    Exit codes: 0 all cases are ok, 1 a case failed, 2 wrong input.
    """
    from ctxbench_science.cluster import cluster

    suite, how = asked.pop("suite"), {name: asked.pop(name) for name in HOW if name in asked}
    loaded = api.suite_of(suite, **asked)
    runs = cluster.run(loaded, address, each_device=each_device, **how, reporter=reporter())
    print_runs(runs)


def resume(
    address: Address,
    folder: Annotated[Path, typer.Argument(help="The run folder; of --each-device the folder of all its run folders.")],
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Also measure the failed cases again.")] = False,
    run_its_code: RunItsCode = False,
) -> None:
    """Continue an interrupted run on a Ray cluster.

    It may be another cluster, with devices of the same kind.

    Exit codes: 0 all cases are ok, 1 a case failed, 2 wrong input.
    """
    from ctxbench_science.cluster import cluster

    how: Mapping[str, Any] = {"retry_failed": retry_failed, "run_its_code": run_its_code}
    runs = cluster.resume(folder, address, **how, reporter=reporter())
    print_runs(runs)
