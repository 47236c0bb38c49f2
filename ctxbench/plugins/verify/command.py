"""`ctxbench verify`: does a module meet the contract?"""

from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any

import typer

from ctxbench.base import limits
from ctxbench.base.errors import UsageError
from ctxbench.base.extras import with_science
from ctxbench.base.temporary import temporary_folder
from ctxbench.base.terminal import say
from ctxbench.cli.options import EXIT_FAILED_CASES, EXIT_UNDECIDED, OF_MODULE, Given, complete_module
from ctxbench.cli.printing import render
from ctxbench.cli.signature import command_of
from ctxbench.plugins.verify import function, lines
from ctxbench.plugins.verify.contract import CHANNELS, judged

# The metrics of `--deep`, and what it tries after float32.
DEEP = ("recall", "stability")
LOW_DTYPES = ("bfloat16", "float16", "autocast-float16")


@command_of(
    function.verify,
    module=Annotated[
        str,
        typer.Argument(
            help="path.py:Class, package.module:Class or a key. Its code is run.", autocompletion=complete_module
        ),
    ],
    hparams=OF_MODULE,
    channels=typer.Option(min=1),
    size=Annotated[tuple[int, int] | None, typer.Option(metavar="H W")],
    timeout_s=Given(
        Annotated[float, typer.Option("--timeout", min=1)], partial(limits.SECONDS.check_option, "--timeout")
    ),
)
def verify(
    asked: Mapping[str, Any],
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
    from ctxbench.model.metrics import metrics

    if deep and not metrics().keys() >= {*DEEP}:
        raise UsageError(f"--deep needs the metrics {' and '.join(DEEP)}{with_science('both')}")
    results = function.verify(**asked, on_result=lambda result: render(lines.line(result))).value
    render(lines.summary(asked["module"], results))
    if judged(results) == "broken":
        raise typer.Exit(EXIT_FAILED_CASES)
    if deep:
        channels, _ = function.channels_and_size(asked.get("shape"), asked.get("channels"), None)
        _print_deep(asked["module"], channels or CHANNELS, asked.get("hparams", {}))
    if judged(results) == "not decided":
        raise typer.Exit(EXIT_UNDECIDED)


def _print_deep(module: str, channels: int, hparams: Mapping[str, Any]) -> None:
    """A line on what a small network around the module can learn, with one seed, and one on each dtype."""
    import ctxbench
    from ctxbench.model.metrics import metrics

    asked: dict[str, Mapping[str, Any]] = {
        "recall": {"measure": {"recall_seeds": 1, "recall_shape": [channels, 8, 8]}},
        "stability": {"shape": (1, channels, 32, 32), "dtype": LOW_DTYPES},
    }
    for metric, how in asked.items():
        with temporary_folder() as folder:
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
