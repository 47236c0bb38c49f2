"""`ctxbench show`: what is known of a module."""

from collections.abc import Mapping
from typing import Annotated

import typer

from ctxbench.base.errors import UsageError
from ctxbench.cli.options import Module, Settings, Texts, cases_of, with_conditions
from ctxbench.cli.printing import render, render_shown
from ctxbench.engine.isolated import IsolatedLoader
from ctxbench.model.conditions import CONDITIONS


@with_conditions("shape", "dtype", "memory_format")
def show(
    module: Module,
    conditions: Mapping[str, Texts],
    chosen: Settings = None,
    by_operator: Annotated[
        bool, typer.Option("--by-operator", help="With --shape: also the MACs of each operator.")
    ] = False,
) -> None:
    """Print a module's paper, hyper-parameters and closed forms; with --shape also its params and MACs."""
    from ctxbench import registry
    from ctxbench.cli import describe

    others = {CONDITIONS[name].option: text for name, text in conditions.items()}
    for option, given in {**others, "--set": chosen, "--by-operator": by_operator}.items():
        if given and "shape" not in conditions:
            raise UsageError(f"{option} goes with --shape: without an input shape, no cost is computed")
    with IsolatedLoader() as loader:
        cases = cases_of(module, conditions, chosen) if conditions else []
        for part in describe.module(registry.get(module)):
            render(part)
        for case in cases:
            from ctxbench.table.shown import Shown

            for shown in loader.ask(case, "costs", list[Shown], by_operator):
                render_shown(shown)
