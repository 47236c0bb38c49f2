"""Multiply-accumulates: torchprofile's convention operator by operator, without data."""

from ctxbench.plugin import Plugin

PLUGIN = Plugin(
    about="counts multiply-accumulates operator by operator, by torchprofile's convention, without data",
    metrics=("metric:METRIC",),
    counters=("ctxbench", "torchprofile"),
    preload=("preload:preload",),
)
