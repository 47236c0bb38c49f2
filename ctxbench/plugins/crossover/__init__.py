"""Crossovers: from which input size on one module is cheaper than another."""

from ctxbench.plugin import Plugin

PLUGIN = Plugin(
    about="tells from which input size on one module is cheaper than another",
    figures=("figure:FIGURES",),
    tables={"table:crossover_tables": 30},
    printed={"table:crossover_tables": 20},
    checks=("table:check_pairs",),
)
