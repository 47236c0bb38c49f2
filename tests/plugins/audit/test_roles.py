"""Roles of parameters: what a pass does with them, whatever they are called."""

import pytest
import torch
from torch import Tensor, nn

from ctxbench.plugins.audit.roles import Roles, roles_of
from ctxbench.plugins.macs.tools.calls import Calls
from ctxbench.plugins.macs.watch import UncountableError

C, N = 8, 5


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(C, 2, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.attention(x, x, x)[0]
        return out


class LayerScale(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(C))
        self.inner = nn.Linear(C, C)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = x + self.gamma * self.inner(x)
        return out


class GRN(nn.Module):
    """Global response normalisation, whose parameters have other names."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Parameter(torch.zeros(1, 1, C)), nn.Parameter(torch.zeros(1, 1, C))

    def forward(self, x: Tensor) -> Tensor:
        size = x.norm(dim=1, keepdim=True)
        out: Tensor = self.one * (x * size / (size.mean(-1, keepdim=True) + 1e-6)) + self.two + x
        return out


class Positions(nn.Module):
    """A map of positions that is added is no bias; nor is a vector that is not used."""

    def __init__(self) -> None:
        super().__init__()
        self.bias, self.unused = nn.Parameter(torch.zeros(1, N, C)), nn.Parameter(torch.zeros(C))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.bias


class ByHand(nn.Module):
    """A layer norm that is written out."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Parameter(torch.ones(C)), nn.Parameter(torch.zeros(C))

    def forward(self, x: Tensor) -> Tensor:
        off = x - x.mean(-1, keepdim=True)
        return self.a * off / (off.pow(2).mean(-1, keepdim=True) + 1e-6).sqrt() + self.b


class Cosine(nn.Module):
    """Attention over unit vectors is no normalisation: it has weights."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.inner = nn.Parameter(torch.ones(1)), nn.Linear(C, C)

    def forward(self, x: Tensor) -> Tensor:
        q = nn.functional.normalize(self.inner(x), dim=-1)
        return (q @ q.mT * self.scale) @ x


class Data(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * x.sum().item()


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
        (Attention(), 4 * C, 0, 4 * C),
        (LayerScale(), C, 0, 2 * C),
        (GRN(), C, 2 * C, 2 * C),
        (ByHand(), C, 2 * C, 2 * C),
        (Positions(), 0, 0, 0),
        (Cosine(), C, 0, C + 1),
        (nn.Sequential(nn.Linear(C, C), GRN(), nn.LayerNorm(C)), 3 * C, 4 * C, 5 * C),
    ],
)
def test_roles(module: nn.Module, bias: int, norm: int, vectors: int) -> None:
    module.to("meta").train()
    assert roles_of(Calls(module, (2, N, C))) == Roles(bias, norm, vectors)
    assert module.training
    assert not any(each._forward_hooks or each._forward_pre_hooks for each in module.modules())


def test_a_pass_that_needs_data_gives_none() -> None:
    with pytest.raises(UncountableError, match="Data: "):
        roles_of(Calls(Data(), (2, N, C)))
