"""Runs on a Ray cluster."""

from ctxbench.plugin import Command, Plugin

PLUGIN = Plugin(
    about="spreads the cases of a run over a Ray cluster",
    commands={
        "cluster-run": Command(
            "Measure",
            "Measure the cases of a suite on the devices of a Ray cluster.",
            run="command:run",
            order=8,
            examples=("ctxbench cluster-run local --suite field", "ctxbench cluster-run HOST:6379 --suite field"),
        ),
        "cluster-resume": Command(
            "Measure", "Continue an interrupted run on a Ray cluster.", run="command:resume", order=9
        ),
    },
    metrics=("metric:METRIC",),
    extras={"ray": ("ray",)},
)
