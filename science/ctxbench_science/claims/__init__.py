"""The claims of suites, decided from the rows of a run."""

from ctxbench.plugin import Plugin

PLUGIN = Plugin(
    about="tells of each claim of a suite what a run says of it",
    finished=("own_claims:decided",),
    tables={"table:claim_tables": 20},
    lines=("table:run_lines",),
)
