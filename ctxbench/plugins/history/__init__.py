"""Costs over the commits of a repository."""

from ctxbench.plugin import Command, Plugin

PLUGIN = Plugin(
    about="tells what modules cost at each commit of a repository",
    needs=("trees",),
    functions={"history": "function:history"},
    commands={
        "history": Command(
            "Read and decide",
            "Print what modules cost at each commit of a repository, and where a cost changed.",
            run="command:history",
            order=4,
        )
    },
)
