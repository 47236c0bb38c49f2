"""What modules with states share: a norm of wide tokens, and the bias that a step starts from."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional


def normalised(norm: nn.LayerNorm, tokens: Tensor) -> Tensor:
    """Layer normalisation over the channels of [B, C, n], in the dtype of `tokens`."""
    weight, bias = norm.weight.to(tokens.dtype), norm.bias.to(tokens.dtype)
    return functional.layer_norm(tokens.transpose(1, 2), norm.normalized_shape, weight, bias, norm.eps).transpose(1, 2)


def step_bias(*shape: int) -> Tensor:
    """The inverse softplus of steps drawn log-uniformly from 0.001 to 0.1."""
    step = torch.empty(shape).uniform_(math.log(1e-3), math.log(1e-1)).exp().clamp(min=1e-4)
    return step + torch.log(-torch.expm1(-step))
