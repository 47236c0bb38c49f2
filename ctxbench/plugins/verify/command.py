"""`ctxbench verify`: does a module meet the contract?"""

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from ctxbench.base.errors import UsageError
from ctxbench.base.terminal import say
from ctxbench.cli.options import (
    EXIT_FAILED_CASES,
    EXIT_UNDECIDED,
    Settings,
    complete_module,
)
from ctxbench.cli.printing import render

# The metrics of `--deep`, and what it tries after float32.
DEEP = ("recall", "stability")
LOW_DTYPES = ("bfloat16", "float16", "autocast-float16")


def verify(
    module: Annotated[
        str,
        typer.Argument(
            help="path.py:Class, package.module:Class or a key. Its code is run.", autocompletion=complete_module
        ),
    ],
    chosen: Settings = None,
    channels: Annotated[int, typer.Option(min=1, help="Number of channels of the inputs.")] = 64,
    size: Annotated[tuple[int, int], typer.Option(metavar="H W", help="Height and width of the usual input.")] = (
        11,
        9,
    ),
    timeout: Annotated[float, typer.Option(min=1, help="Stop a check after so many seconds of processor time.")] = 60.0,
    deep: Annotated[
        bool,
        typer.Option(
            "--deep", help="Also train it on small tasks, and try 16 bits: what can it bring? A minute or two."
        ),
    ] = False,
) -> None:
    """Check that a module meets the contract of context modules; print one line for each check.

    A failed check has a hint. One that is stopped is undecided. Exit codes: 0 the contract is met, 1 it is broken,
    2 nothing to check, 3 not decided.
    """
    from ctxbench.base import limits
    from ctxbench.engine.client import ForkServer
    from ctxbench.model import hparams as settings
    from ctxbench.model.metrics import metrics
    from ctxbench.plugins.verify import lines
    from ctxbench.plugins.verify.contract import judged
    from ctxbench.plugins.verify.verify import verify as check_module

    if deep and (gone := [name for name in DEEP if name not in metrics()]):
        raise UsageError(f"--deep needs plugins that are not there: {', '.join(gone)}")
    if deep and (sentence := metrics()["recall"].lacking()):
        raise UsageError(sentence)
    limits.SECONDS.check_option("--timeout", timeout)
    with ForkServer(static=False) as server:
        results = check_module(
            module,
            server,
            channels=channels,
            hparams=settings.of_one_module(chosen or [], module, settings.class_name(module)),
            size=size,
            timeout_s=timeout,
            on_result=lambda result: render(lines.line(result)),
        )
    render(lines.summary(module, results))
    if judged(results) == "broken":
        raise typer.Exit(EXIT_FAILED_CASES)
    if deep:
        _print_deep(module, channels, settings.of_one_module(chosen or [], module, settings.class_name(module)))
    if judged(results) == "not decided":
        raise typer.Exit(EXIT_UNDECIDED)


def _print_deep(module: str, channels: int, hparams: Mapping[str, Any]) -> None:
    """A line on what a small network around the module can learn, with one seed, and one on each dtype."""
    from tempfile import TemporaryDirectory

    import ctxbench
    from ctxbench.model.metrics import metrics

    asked: dict[str, Mapping[str, Any]] = {
        "recall": {"measure": {"recall_seeds": 1, "recall_shape": [channels, 8, 8]}},
        "stability": {"shape": (1, channels, 32, 32), "dtype": LOW_DTYPES},
    }
    for metric, how in asked.items():
        with TemporaryDirectory() as folder:
            run = ctxbench.run(
                "recall",
                modules=[module],
                hparams={module: hparams} if hparams else None,
                metrics=[metric],
                threads=1,
                device="cpu",
                out=f"{folder}/run",
                **how,
            )
            rows = run.folder.rows()
        for row in rows:
            said = metrics()[metric].sentence(row) or f"has no {metric} in {row['dtype']}: {row['message']}"
            say(f"{module.rpartition(':')[2]} {said}")
