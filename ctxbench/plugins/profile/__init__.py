"""Costs by place in a module: each operator call booked to its submodule, its source line and its operator."""

from ctxbench.plugin import Command, Plugin

PLUGIN = Plugin(
    about="tells where in a module its time goes: by line, submodule and operator",
    needs=("macs", "memory", "predict"),
    functions={"profile": "function:profile"},
    commands={
        "profile": Command(
            "Measure",
            "Measure, or predict for a device, where in a module the time goes: by source line, submodule and "
            "operator.",
            run="command:profile",
            order=4,
            examples=(
                "ctxbench profile my_module.py:MyContext --shape 1,256,64,64 --html profile.html",
                "ctxbench profile sa --for a100-40gb --mode train      # predicted: nothing is measured",
            ),
        )
    },
    questions={"profile": "child:profile_case"},
)
