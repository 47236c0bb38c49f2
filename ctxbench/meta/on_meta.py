"""A copy of a module on PyTorch's meta device, where tensors have a shape but no data."""

import copy
from itertools import chain
from typing import Any

import torch
from torch import nn

from ctxbench.meta.without_compiler import without_compiler


@without_compiler()
def on_meta(module: nn.Module) -> nn.Module:
    """A deep copy whose parameters and buffers are on the meta device; only the data of scripted parts is copied.

    Shapes, dtypes, strides and `requires_grad` are kept, and a shared tensor stays shared. Whatever `copy.deepcopy`
    raises is passed on.
    """
    copies: dict[int, Any] = {}
    for tensor in chain(module.parameters(), module.buffers()):
        empty = torch.empty_like(tensor, device="meta")
        is_parameter = isinstance(tensor, nn.Parameter)
        copies[id(tensor)] = nn.Parameter(empty, tensor.requires_grad) if is_parameter else empty
    duplicate = copy.deepcopy(module, copies)
    for own, other in zip(module.modules(), duplicate.modules(), strict=True):
        if isinstance(own, torch.jit.ScriptModule):  # copied by PyTorch's own code, which knows no `copies`
            for name, tensor in chain(own.named_parameters(recurse=False), own.named_buffers(recurse=False)):
                setattr(other, name, copies[id(tensor)])
    return duplicate
