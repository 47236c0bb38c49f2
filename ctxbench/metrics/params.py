"""The parameter count of a module."""

from torch import nn


def count_params(module: nn.Module) -> int:
    """Number of scalars in all parameters of `module`, trainable and frozen.

    Buffers (running statistics, bases that are no parameters) are not counted; a parameter shared by several submodules
    counts once. Parameters on the meta device count like any other.
    """
    return sum(parameter.numel() for parameter in module.parameters())
