"""Comparison of new modules with those of the registry, and rankings."""

from ctxbench.plugin import Command, Plugin

PLUGIN = Plugin(
    about="compares new modules with those of the registry",
    needs=("verify",),
    functions={"compare": "function:compare"},
    commands={
        "compare": Command(
            "Measure",
            "Verify your modules, measure them with those of the registry, and print a ranking.",
            run="command:compare",
            order=3,
            examples=(
                "ctxbench compare my_module.py:MyContext --modules ham_nmf,sa --shape 1,64,32,32",
                "ctxbench compare my_module.py:MyContext --for h100-sxm --rank-by memory_train",
            ),
        )
    },
    notes={"reused": "reused from {path}"},
)
