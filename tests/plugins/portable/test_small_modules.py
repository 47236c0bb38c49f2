"""Answers of targets on twelve small modules, each with one thing that a target may refuse."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from ctxbench.plugins.portable.found import Found
from ctxbench.plugins.portable.isolated import isolated
from ctxbench.plugins.portable.targets import TARGETS, tried

pytestmark = pytest.mark.slow
X = torch.randn(1, 8, 6, 4, generator=torch.Generator().manual_seed(0))


class SixAxes(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        batch, channels, height, width = x.shape
        six = x.view(batch, channels, height // 2, 2, width // 2, 2)
        return (six.softmax(3) * six.sum(5, keepdim=True)).reshape(x.shape)


class PackedHeads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.packed = nn.Linear(8, 24)

    def forward(self, x: Tensor) -> Tensor:
        batch, channels, height, width = x.shape
        five = self.packed(x.flatten(2).transpose(1, 2)).view(batch, height * width, 3, 2, channels // 2)
        q, k, v = five.permute(2, 0, 3, 1, 4)
        attended: Tensor = (q @ k.transpose(-2, -1)).softmax(-1) @ v
        return attended.transpose(2, 3).reshape(x.shape)


class GridSample(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.place = nn.Conv2d(8, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        place = self.place(x).permute(0, 2, 3, 1).tanh()
        return functional.grid_sample(x, place, align_corners=False)


class Rolled(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + torch.roll(x, (1, -1), (2, 3))


class SizeFromData(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * x[x > 0].mean()


class Complex(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = torch.fft.irfft2(2 * torch.fft.rfft2(x), s=x.shape[-2:])
        return result


class Scan(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        state, found = torch.zeros_like(x[..., 0]), []
        for column in x.unbind(-1):
            state = 0.5 * state + column
            found.append(state)
        return torch.stack(found, -1)


class TopK(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * x.flatten(2).topk(3).values.mean(-1)[..., None, None]


class CumSum(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.cumsum(-1)


class FusedAttention(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return functional.scaled_dot_product_attention(x, x, x)


class GroupNorm(nn.GroupNorm):
    def __init__(self) -> None:
        super().__init__(2, 8)


class UnitClamp(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.clamp(0, 1)


MODULES = (
    SixAxes, PackedHeads, GridSample, Rolled, SizeFromData, Complex, Scan, TopK, CumSum, FusedAttention, GroupNorm,
    UnitClamp,
)  # fmt: skip


def said(target: str, module: type[nn.Module]) -> Found:
    torch.manual_seed(0)
    return tried(TARGETS[target], module(), X)


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_torch_export_takes_them_and_a_scan_for_one_size(module: type[nn.Module]) -> None:
    found = said("export", module)
    assert found.short == ("one size" if module.__name__ == "Scan" else "whole")
    assert found.error == 0


@pytest.mark.extra("executorch")
@pytest.mark.parametrize(("module", "short"), [(SixAxes, "3 parts"), (PackedHeads, "7 parts")])
def test_xnnpack_leaves_operators_outside(module: type[nn.Module], short: str) -> None:
    assert isolated(said, "executorch", module, limit_s=60).short == short
