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
    notes={
        "no_time": "no predicted time: {reason}",
        "no_time_mode": "no predicted time ({mode}): {reason}",
        "time_launches": (
            (
                "Launch-bound: the host takes about {host_ms:.3g} ms ({us:.3g} us an operator, {origin}) to launch "
                "kernels that take {device_ms:.3g} ms; a faster host, a CUDA graph or torch.compile changes this time."
            ),
            (
                "Launch-bound: the host's time to launch the kernels ({us:.3g} us an operator, {origin}) is longer "
                "than theirs; a CUDA graph or torch.compile changes this time."
            ),
        ),
        "time_era": "With the PyTorch {other}: {ms:.3g} ms.",
        "time_assumed": (
            "{share:.0%} of the time is in classes without measurements: {classes}.",
            "A part of the time is in classes without measurements: {classes}.",
        ),
        "time_unknown": "Of no known class, their bytes alone are counted: {operators}.",
        "time_dtype": "No efficiencies of some classes were measured in {dtype}: those of another dtype stand in.",
        "time_layout": "The efficiencies were measured on contiguous tensors, not on {memory_format}.",
    },
)
