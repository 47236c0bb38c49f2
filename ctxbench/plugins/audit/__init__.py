"""Published cost tables, recounted: each figure beside what ctxbench counts, with a verdict."""

from ctxbench.plugin import Command, Plugin

PLUGIN = Plugin(
    about="recounts published cost tables, with a verdict on each figure",
    needs=("macs", "memory"),
    functions={"audit": "function:audit"},
    commands={
        "audit": Command(
            "Read and decide",
            "Recount a published cost table; print a verdict on each figure. Nothing is measured.",
            run="command:audit",
            order=5,
            examples=(
                "ctxbench audit hamburger",
                "ctxbench audit paper.toml --block mine=my_module.py:MyContext    # a table of your own",
            ),
        )
    },
    questions={"counts": "child:count_case"},
)
