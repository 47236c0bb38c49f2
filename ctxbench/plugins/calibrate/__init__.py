"""Calibration: kernels measured here, for times predicted of this device."""

from ctxbench.plugin import Command, Plugin

PLUGIN = Plugin(
    about="measures a few kernels, so that times are predicted for this device",
    needs=("predict",),
    commands={
        "calibrate": Command(
            "Predict",
            "Measure a few kernels on this GPU or CPU and write a file that --device takes.",
            run="command:calibrate",
            order=4,
            examples=(
                "ctxbench calibrate --out my_gpu.toml                  # then: ctxbench predict sa --for my_gpu.toml",
                "ctxbench calibrate --device cpu --threads 1 --out my_cpu.toml",
            ),
        )
    },
    questions={"kernels": "child:time_kernels"},
)
