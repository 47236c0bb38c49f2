"""torch.compile, with its default backend."""

from typing import TYPE_CHECKING

from ctxbench.executions.base import Execution

if TYPE_CHECKING:
    from torch import nn


class Compile(Execution):
    name = "compile"
    about = "torch.compile with its default backend"
    order = 1
    no_memory = "the compiler chooses the kernels"
    compiles = True
    takes_s = 5.0  # median of the suite `compile`, both modes, of the processes that find it compiled

    def load(self, model: "nn.Module") -> None:
        model.compile()


EXECUTION = Compile()
