"""Numeric properties: precision, gradients, spectra, attention."""

from ctxbench.plugin import Plugin

PLUGIN = Plugin(
    about="tells how exact a module computes, and what spectrum, gradient and reach it has",
    needs=("macs", "memory"),
    metrics=(
        "attention:METRIC",
        "gradient:METRIC",
        "jacobian:METRIC",
        "precision:METRIC",
        "reconstruction:METRIC",
        "spectrum:METRIC",
    ),
    figures=("figure:FIGURES",),
    suites="suites",
)
