"""The time of a pass on a GPU that is not here: from data sheets, calibrated efficiencies and the operators on meta.

Imports no torch: suites check the names of devices.
"""

from ctxbench.plugin import Command, Plugin

# The code of the note on a pass that takes as long as its launches.
LAUNCHES = "time_launches"
# What the gradient of a training step begins with, and whose step may follow: see `ctxbench.plugins.predict.training`.
LOSSES = ("sum", "cross-entropy")
OPTIMIZERS = ("sgd", "adamw")
PLUGIN = Plugin(
    about="predicts the time of a pass on a device that is not here, from its data sheet",
    needs=("macs", "memory"),
    functions={"predict_time": "function:predict_time"},
    commands={
        "predict": Command(
            "Predict",
            "Predict a module's time on a GPU that is not here; print by operator what bounds it. Nothing is measured.",
            run="command:predict",
            place=3,
        )
    },
    metrics=("metric:METRIC",),
    conventions=("metric:CONVENTION",),
    devices="sheet:DEVICES",
    questions={"time": "child:time"},
)
