"""A module's copy on the meta device: no data is copied, and everything else is as in the module."""

import torch
from torch import nn

from ctxbench.meta.on_meta import on_meta


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = nn.Linear(4, 4, bias=False)
        self.second.weight = self.first.weight
        self.first.bias.requires_grad_(False)
        self.image: torch.Tensor
        self.register_buffer("image", torch.zeros(1, 2, 3, 5).to(memory_format=torch.channels_last))


def test_shapes_strides_dtypes_and_gradients_are_kept() -> None:
    module = Tied().double()
    copied = on_meta(module)
    found = {**dict(copied.named_parameters()), **dict(copied.named_buffers())}
    for name, tensor in {**dict(module.named_parameters()), **dict(module.named_buffers())}.items():
        twin = found[name]
        assert twin.is_meta
        assert (twin.shape, twin.stride(), twin.dtype) == (tensor.shape, tensor.stride(), tensor.dtype)
        assert twin.requires_grad == tensor.requires_grad
    assert not next(module.parameters()).is_meta


def test_a_shared_weight_stays_shared_and_a_copy_on_meta_has_its_own() -> None:
    module = Tied()
    copied = on_meta(module)
    assert isinstance(copied, Tied)
    assert copied.first.weight is copied.second.weight
    again = on_meta(copied)
    assert isinstance(again, Tied)
    assert again.first.weight is again.second.weight
    assert again.first.weight is not copied.first.weight
