"""Numeric properties: gradients, spectra, attention."""

from ctxbench.plugin import Plugin

PLUGIN = Plugin(
    about="tells what spectrum, gradient and reach a module has",
    needs=("claims", "macs", "memory", "precision"),
    metrics=(
        "attention:METRIC",
        "gradient:METRIC",
        "jacobian:METRIC",
        "reconstruction:METRIC",
        "spectrum:METRIC",
    ),
    figures=("figure:FIGURES",),
    suites="suites",
)
