"""Published cost tables, recounted: each figure beside what ctxbench counts, with a verdict."""

from ctxbench.plugin import Command, Plugin

PLUGIN = Plugin(
    about="recounts published cost tables, with a verdict on each figure",
    needs=("macs", "memory"),
    functions={"audit": "function:audit", "card": "card:card"},
    commands={
        "audit": Command(
            "Read and decide",
            "Recount a published cost table, or figures of one line; print a verdict on each. Nothing is measured.",
            run="command:audit",
            order=5,
            examples=(
                "ctxbench audit hamburger",
                "ctxbench audit paper.toml --block mine=my_module.py:MyContext    # a table of your own",
                "ctxbench audit 0.526M,17.6G --of ham_nmf --shape 1,512,128,128    # a line of a paper",
            ),
        ),
        "card": Command(
            "Read and decide",
            "Write the costs of blocks into a file for a supplement, which `audit` recounts. Nothing is measured.",
            run="command:card",
            order=6,
            examples=("ctxbench card ham_nmf sa --shape 1,64,32,32",),
        ),
    },
    questions={"counts": "child:count_case"},
)
