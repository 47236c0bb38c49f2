"""Other counters, each a convention of ctxbench's own: a file has the rules of one tool, from documents and behaviour.

What a tool prints for a module is `count(calls)` of its `Tool`, in its `unit`.
"""

# By the name of the option, in the order of tables; see `table.py`.
NAMES = (
    *("thop", "thop-at-32", "ptflops", "ptflops-layers", "fvcore", "mmengine", "torchprofile"),
    *("calflops", "deepspeed", "torchinfo", "flop-counter-mode"),
)
