"""Peak memory of a module: predicted on the meta device, measured on its own device, explained."""

from ctxbench.plugin import Command, Plugin

PLUGIN = Plugin(
    about="predicts, measures and explains the peak memory of a pass",
    functions={"predict_memory": "function:predict_memory"},
    commands={
        "memory": Command(
            "Predict",
            "Predict a module's peak memory without a GPU; print what is in memory at the peak and what would "
            "lower it.",
            run="command:memory",
            place=2,
        )
    },
    metrics=("metric:METRIC", "metric_2020:METRIC"),
    figures=("figure:FIGURES",),
    preload=("preload:preload",),
    questions={"memory": "child:memory"},
)
