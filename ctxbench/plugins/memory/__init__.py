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
            order=2,
        )
    },
    metrics=("metric:METRIC", "metric_2020:METRIC"),
    figures=("figure:FIGURES",),
    preload=("preload:preload",),
    questions={"memory": "child:memory", "largest_batch": "child:largest"},
    notes={
        "no_memory": "no memory prediction: {reason}",
        "no_memory_autocast": "no memory prediction under autocast",
        "no_peak_autocast": "the peak is not measured under autocast",
        "autocast_cuda": "Under autocast the casts are those of PyTorch's lists for CUDA; no GPU has confirmed them.",
        "no_memory_mode": "no memory prediction ({mode}): {reason}",
        "memory_changed": (
            "predicted {mode} memory under the installed PyTorch: {now:.0f} MiB, under that of 2020 {then:.0f} MiB "
            "(see docs/plugins/memory.md)"
        ),
        "memory_workspace": (
            "Up to {mib:.0f} MiB if cuDNN takes a workspace for wide 3x3 convolutions (Winograd's algorithm in steps)."
        ),
        "memory_unchecked": "{reason}",
        "not_certain": "Not certain, the peak may be higher or lower: {operators} cannot be predicted in full.",
        "lower_bound": "A lower bound: what these operators hold inside their kernels is not known: {operators}.",
    },
)
