"""Description of a module, and its counted costs."""

from ctxbench.plugin import Command, Plugin

PLUGIN = Plugin(
    about="prints what is known of a module",
    needs=("macs",),
    functions={"show": "function:show"},
    commands={
        "show": Command(
            "Modules",
            "Print a module's paper, hyper-parameters and closed forms; with --shape also its params and MACs.",
            run="command:show",
            order=2,
        )
    },
    questions={"costs": "child:costs"},
)
