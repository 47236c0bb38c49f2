"""torch as it is: each operator as the module calls it."""

from ctxbench.executions.base import Execution


class Eager(Execution):
    name = "eager"
    about = "each operator as the module calls it"
    order = 0


EXECUTION = Eager()
