"""Parts shared by blocks with loadable published weights: their layers, and the values that these start from."""

import math
from collections import OrderedDict
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


class ChannelLinear(nn.Linear):
    """A linear layer over the channels of [B, C, H, W]; its weight is [outputs, inputs], as a published one is."""

    def forward(self, x: Tensor) -> Tensor:
        return functional.conv2d(x, self.weight[:, :, None, None], self.bias)


def depthwise(channels: int, kernel: int | tuple[int, int], *, dilation: int = 1, bias: bool = True) -> nn.Conv2d:
    """A convolution that mixes no channels and keeps H and W; `kernel` is odd."""
    height, width = (kernel, kernel) if isinstance(kernel, int) else kernel
    padding = dilation * (height // 2), dilation * (width // 2)
    return nn.Conv2d(
        channels, channels, (height, width), padding=padding, dilation=dilation, groups=channels, bias=bias
    )


def with_norm(conv: nn.Conv2d) -> nn.Sequential:
    """A convolution without bias, `c`, and its batch normalisation, `bn`."""
    return nn.Sequential(OrderedDict(c=conv, bn=nn.BatchNorm2d(conv.out_channels)))


def gradient_in_order(y: Tensor) -> Tensor:
    """`y` [B, C, H, W], whose gradient arrives contiguous where that of one image would be read in a wrong order.

    PyTorch's backward of batch normalisation does so on the CPU (docs/upstream.md). A view; the backward pass copies
    only a gradient that has another order.
    """
    if not y.requires_grad or y.size(0) > 1 or not y.is_contiguous():
        return y
    return y.flatten(1).view_as(y)


def largest(x: Tensor, dim: int) -> Tensor:
    """The maximum along a dimension, which stays; its place, which takes longer to find, only for a gradient."""
    if torch.is_grad_enabled() and x.requires_grad:
        return x.max(dim, keepdim=True).values
    return x.amax(dim, keepdim=True)


def normalised(norm: nn.LayerNorm, tokens: Tensor) -> Tensor:
    """Layer normalisation over the channels of [B, n, C], in the dtype of `tokens`."""
    weight, bias = norm.weight.to(tokens.dtype), norm.bias.to(tokens.dtype)
    return functional.layer_norm(tokens, norm.normalized_shape, weight, bias, norm.eps)


def without_autocast(x: Tensor) -> AbstractContextManager[Any]:
    """Disable autocast for the device of `x`: products keep the dtype of their inputs."""
    device = x.device.type
    if not torch.amp.is_autocast_available(device):  # of meta, unless it stands for a device
        return nullcontext()
    return torch.autocast(device, enabled=False) if torch.is_autocast_enabled(device) else nullcontext()


def step_bias(*shape: int) -> Tensor:
    """The inverse softplus of steps drawn log-uniformly from 0.001 to 0.1."""
    step = torch.empty(shape).uniform_(math.log(1e-3), math.log(1e-1)).exp().clamp(min=1e-4)
    return step + torch.log(-torch.expm1(-step))


def start_small(*layers: nn.Conv2d | nn.Linear) -> None:
    """Weights from a truncated normal distribution of 0.02 and biases of zero, as vision transformers start."""
    for layer in layers:
        nn.init.trunc_normal_(layer.weight, std=0.02)
        _no_bias(layer)


def start_xavier(*layers: nn.Linear) -> None:
    """Weights from Xavier's uniform distribution, and biases of zero."""
    for layer in layers:
        nn.init.xavier_uniform_(layer.weight)
        _no_bias(layer)


def start_by_outputs(layers: Iterable[nn.Module]) -> None:
    """Weights of the convolutions among `layers` by the values that an input value enters, and biases of zero."""
    for layer in layers:
        if isinstance(layer, nn.Conv2d):
            entered = layer.weight[0, 0].numel() * layer.out_channels // layer.groups
            nn.init.normal_(layer.weight, std=math.sqrt(2 / entered))
            _no_bias(layer)


def _no_bias(layer: nn.Conv2d | nn.Linear) -> None:
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
