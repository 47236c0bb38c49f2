"""Input and output of a pass; the output is one tensor or, of a whole network, several in tuples, lists and dicts."""

from functools import reduce
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves


def trained_input(module: nn.Module, x: Tensor) -> Tensor:
    """`x`, which asks for a gradient where no weight of `module` does: a training step is then of that gradient."""
    return x.requires_grad_(not any(each.requires_grad for each in module.parameters()))


def tensors_of(output: Any) -> list[Tensor]:
    """The tensors of an output, in their order."""
    return [each for each in tree_leaves(output) if isinstance(each, Tensor)]


def trained(output: Any) -> list[Tensor]:
    """The tensors of an output that depend on something with a gradient."""
    return [each for each in tensors_of(output) if each.requires_grad]


def loss_of(output: Any) -> Tensor:
    """The loss of a training step: the sum of the output; of several tensors, of all that have a gradient."""
    return output.sum() if isinstance(output, Tensor) else reduce(torch.add, [each.sum() for each in trained(output)])
