"""The contract of a context module: what one check says, and the inputs and limits of all checks."""

from ctxbench.plugin import Command, Plugin

PLUGIN = Plugin(
    about="checks that a module meets the contract of context modules",
    needs=("macs",),
    functions={"verify": "function:verify"},
    commands={
        "verify": Command(
            "Modules",
            "Check that a module meets the contract of context modules; print one line for each check.",
            run="command:verify",
            order=4,
        )
    },
    questions={"contract": "child:verify"},
    notes={
        "broken_contract": "The module does not meet the contract of context modules: see `ctxbench verify`.",
    },
)
