"""Slots of a network for the module under test."""

import torch
from torch import Tensor, nn


class Slot(nn.Module):
    """The module, [B, C, H, W] to the same. ValueError where it is given or returns anything else."""

    def __init__(self, module: nn.Module, channels: int, network: str) -> None:
        super().__init__()
        self.module, self.channels, self.network = module, channels, network

    def forward(self, x: Tensor) -> Tensor:
        if x.dim() != 4 or x.shape[1] != self.channels:
            raise ValueError(
                f"the slot of network {self.network} asked for a module of {self.channels} channels and is given "
                f"{list(x.shape)}; a module takes [B, C, H, W]"
            )
        y: Tensor = self.module(x)
        if y.shape != x.shape:
            name = type(self.module).__name__
            raise ValueError(
                f"the slot of network {self.network} takes as many channels out as in, and {name} maps "
                f"{list(x.shape)} to {list(y.shape)}; choose hyper-parameters that keep them, as bottleneck=true of "
                "apc and dm"
            )
        return y


def uses(model: nn.Module, x: Tensor) -> list[tuple[nn.Module, Tensor]]:
    """The module of each slot with the input that it gets in a pass of the network, in order."""
    found: list[tuple[nn.Module, Tensor]] = []
    handles = [
        each.register_forward_pre_hook(lambda slot, given: found.append((slot.module, given[0].detach().clone())))
        for each in model.modules()
        if isinstance(each, Slot)
    ]
    with torch.no_grad():
        model(x)
    for handle in handles:
        handle.remove()
    return found
