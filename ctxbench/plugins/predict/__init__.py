"""The time of a pass on a GPU that is not here: from data sheets, calibrated efficiencies and the operators on meta.

Imports no torch: suites check the names of devices.
"""

from ctxbench.plugin import Command, Plugin

# Codes of notes: on a pass that takes as long as its launches, on one in float32 unlike PyTorch's default.
LAUNCHES, NO_TF32 = "time_launches", "time_no_tf32"
PLUGIN = Plugin(
    about="predicts the time of a pass on a device that is not here, from its data sheet",
    needs=("macs", "memory"),
    functions={"predict_time": "function:predict_time"},
    commands={
        "predict": Command(
            "Predict",
            "Predict a module's time on a GPU that is not here; print by operator what bounds it. Nothing is measured.",
            run="command:predict",
            order=3,
        )
    },
    metrics=("metric:METRIC",),
    conventions=("metric:CONVENTION",),
    devices="listed:DEVICES",
    questions={"time": "child:time"},
    notes={
        "no_time": "no predicted time: {reason}",
        "no_time_mode": "no predicted time ({mode}): {reason}",
        LAUNCHES: (
            "Launch-bound: the host's time to launch the kernels ({us:.3g} us an operator, {origin}) is longer than "
            "theirs; a faster host, a CUDA graph or torch.compile changes this time."
        ),
        NO_TF32: (
            "Without TF32. PyTorch's default on this device, TF32 in convolutions, takes {ratio:.2f} times as long: "
            "--dtype tf32-convolutions.",
            "Without TF32. PyTorch's default on such devices has TF32 in convolutions: --dtype tf32-convolutions.",
        ),
        "time_era": "With the PyTorch {other}: {ms:.3g} ms.",
        "time_card": (
            "A part of the time is in kernels of which none was measured on this card in {dtype}: other cards stand "
            "for it, and the band is wider."
        ),
        "time_unknown": "Of no known class, their bytes alone are counted: {operators}.",
        "time_dtype": "No efficiencies of some classes were measured in {dtype}: those of another dtype stand in.",
        "time_layout": (
            "A part of the time is in kernels that were not measured in this layout: those of the other one stand in."
        ),
    },
)
