"""Multiply-accumulates: torchprofile's convention operator by operator, without data."""

from ctxbench.plugin import Plugin

PLUGIN = Plugin(
    about="counts multiply-accumulates operator by operator, by torchprofile's convention, without data",
    needs=("memory",),
    metrics=("metric:METRIC",),
    counters=("ctxbench", "torchprofile"),
    composites=("rules:COMPOSITES",),
    preload=("preload:preload",),
    notes={
        "macs_differ": "MAC counters disagree: counted {counted}, closed form {declared}",
        "macs_differ_uncounted": (
            "MAC counters disagree: counted {counted}, closed form {declared} (not counted: {operators})"
        ),
        "no_macs": "{reason}",
        "no_macs_train": "no MACs of a training step: {reason}",
    },
)
