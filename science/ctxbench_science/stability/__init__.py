"""Training in low precision."""

from ctxbench.plugin import Plugin

PLUGIN = Plugin(
    about="tells whether a module can be trained in 16 bits",
    needs=("claims", "memory", "numerics", "precision"),
    metrics=("metric:METRIC",),
    suites="suites",
)
