"""Error of a module against float64."""

from ctxbench.plugin import Plugin

PLUGIN = Plugin(about="tells how exact a module computes", metrics=("metric:METRIC",))
