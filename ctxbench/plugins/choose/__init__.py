"""Choosing: what fits into a memory, and what is fastest, all predicted."""

from ctxbench.plugin import Command, Plugin

PLUGIN = Plugin(
    about="tells which modules fit into a memory, the fastest first",
    needs=("memory", "predict"),
    functions={"choose": "function:choose"},
    commands={
        "choose": Command(
            "Predict",
            "Print which modules fit into a memory at an input, the fastest first. "
            "All is predicted; nothing is measured.",
            run="command:choose",
            order=1,
            examples=(
                "ctxbench choose --shape 1,512,64,64 --device t4",
                "ctxbench choose --memory 2GiB --shape 2,512,96,96 --device a100-40gb,t4",
            ),
        )
    },
)
