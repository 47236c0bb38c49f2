"""The gate: baseline against candidate, in pairs of fresh processes, with three verdicts a row."""

from ctxbench.plugin import Command, Plugin

PLUGIN = Plugin(
    about="tells whether a change made a module slower, larger or broken",
    needs=("memory", "precision", "predict", "trees"),
    functions={"check": "function:check"},
    commands={
        "check": Command(
            "Read and decide",
            "Check whether a change made a module slower, larger or broken, or changed its outputs.",
            run="command:check",
            order=3,
            examples=(
                "ctxbench check --against main --module my_module.py:MyContext",
                "ctxbench check --self-test --inject 10%              # which changes can this machine detect?",
            ),
        )
    },
    questions={
        "refused": "child.refused:refused",
        "side": "child.pair:take_side",
        "outputs": "child.outputs:take_outputs",
        "operators": "child.operators:list_operators",
        "passes": "child.predicted:list_passes",
        "predicted": "child.predicted:compare_passes",
    },
)
