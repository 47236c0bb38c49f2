"""`ctxbench show`: what is known of a module."""

from collections.abc import Mapping
from typing import Annotated

import typer

from ctxbench.cli.options import Settings, complete_module, with_conditions
from ctxbench.cli.printing import render, render_told
from ctxbench.engine.apart import Apart
from ctxbench.errors import UsageError


@with_conditions("shape")
def show(
    module: Annotated[
        str, typer.Argument(help="A key, path.py:Class or package.module:Class.", autocompletion=complete_module)
    ],
    conditions: Mapping[str, list[str]],
    chosen: Settings = None,
    by_operator: Annotated[
        bool, typer.Option("--by-operator", help="With --shape: also the MACs of each operator.")
    ] = False,
) -> None:
    """Print a module's paper, hyper-parameters and closed forms; with --shape also its params and MACs."""
    from ctxbench import registry
    from ctxbench.case import Case
    from ctxbench.cli import describe
    from ctxbench.conditions import parse_shape
    from ctxbench.suite import settings

    with Apart() as apart:
        entry = registry.get(module)
        names = module, entry.key, settings.class_name(entry.reference)
        hparams = entry.check_hparams(settings.of_one_module(chosen or [], *names))
        for option, given in (("--set", hparams), ("--by-operator", by_operator)):
            if given and not conditions:
                raise UsageError(f"{option} goes with --shape: without an input shape, no cost is computed")
        for part in describe.module(entry):
            render(part)
        for each in conditions.get("shape", []):
            from ctxbench.worker.protocol import TellCosts

            case = Case(entry.key, entry.reference, hparams, parse_shape(each), defaults=entry.defaults)
            apart.tell(TellCosts(case, by_operator), case, render_told)
