"""Roles of parameters: what a pass does with them, whatever they are called."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from wrapped import Wrapped

from ctxbench.plugins.audit.roles import Roles, roles_of
from ctxbench.plugins.macs.tools.calls import Calls
from ctxbench.plugins.macs.watch import UncountableError

C, N = 8, 5


def grn(x: Tensor, one: Tensor, two: Tensor) -> Any:
    """Global response normalisation, whose parameters have other names."""
    size = x.norm(dim=1, keepdim=True)
    return one * (x * size / (size.mean(-1, keepdim=True) + 1e-6)) + two + x


def norm_by_hand(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
    off = x - x.mean(-1, keepdim=True)
    return a * off / (off.pow(2).mean(-1, keepdim=True) + 1e-6).sqrt() + b


def cosine(x: Tensor, scale: Tensor, inner: nn.Module) -> Tensor:
    """Attention over unit vectors is no normalisation: it has weights."""
    q = nn.functional.normalize(inner(x), dim=-1)
    return (q @ q.mT * scale) @ x


def weight(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.ones(shape))


GRN = Wrapped(grn, weight(1, 1, C), weight(1, 1, C))


@pytest.mark.parametrize(
    ("module", "bias", "norm", "vectors"),
    [
        (nn.Linear(C, C), C, 0, C),
        (nn.Linear(C, C, bias=False), 0, 0, 0),
        (nn.Conv1d(N, N, 1), N, 0, N),
        (nn.LayerNorm(C), C, 2 * C, 2 * C),
        (nn.BatchNorm1d(N), N, 2 * N, 2 * N),
        (nn.GroupNorm(1, N), N, 2 * N, 2 * N),
        (nn.RMSNorm(C), 0, C, C),
        (Wrapped(lambda x, layer: layer(x, x, x)[0], nn.MultiheadAttention(C, 2, batch_first=True)), 4 * C, 0, 4 * C),
        (Wrapped(lambda x, gamma, inner: x + gamma * inner(x), weight(C), nn.Linear(C, C)), C, 0, 2 * C),
        (GRN, C, 2 * C, 2 * C),
        (Wrapped(norm_by_hand, weight(C), weight(C)), C, 2 * C, 2 * C),
        # A map of positions that is added is no bias; nor is a vector that is not used.
        (Wrapped(lambda x, positions, unused: x + positions, weight(1, N, C), weight(C)), 0, 0, 0),
        (Wrapped(cosine, weight(1), nn.Linear(C, C)), C, 0, C + 1),
        (nn.Sequential(nn.Linear(C, C), GRN, nn.LayerNorm(C)), 3 * C, 4 * C, 5 * C),
    ],
)
def test_roles(module: nn.Module, bias: int, norm: int, vectors: int) -> None:
    module.to("meta").train()
    assert roles_of(Calls(module, (2, N, C))) == Roles(bias, norm, vectors)
    assert module.training
    assert not any(each._forward_hooks or each._forward_pre_hooks for each in module.modules())


def test_a_pass_that_needs_data_gives_none() -> None:
    with pytest.raises(UncountableError, match="Wrapped: "):
        roles_of(Calls(Wrapped(lambda x: x * x.sum().item()), (2, N, C)))
