"""Crossovers: from which input size on one module is cheaper than another."""

from ctxbench.plugin import Plugin, SuiteKey

PLUGIN = Plugin(
    about="tells from which input size on one module is cheaper than another",
    suites="suites",
    keys={
        "crossover": SuiteKey(
            "pair:parse_pair",
            "FIRST:SECOND[,...]",
            "From which n = H x W on the first module is cheaper than the second; default: the suite's pairs.",
        )
    },
    figures=("figure:FIGURES",),
    tables={"table:crossover_tables": 30},
    printed={"table:crossover_tables": 20},
    checks=("table:check_pairs",),
)
