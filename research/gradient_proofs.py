"""Gradients that PyTorch computes on the CPU, each beside central differences or a closed form in float64.

`python research/gradient_proofs.py` writes results/gradient-proofs/proofs.csv in a minute. `error` is the relative
distance from the right gradient. That one is `confirmed` by its closed form, or by central differences of the eager
values along three random directions of the input, which it meets up to `slope_error`. What stops a gradient on purpose
is held constant.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pandas as pd
import torch
from stamp import stamp, write_stamp
from torch import Tensor, nn
from torch.nn import functional

from ctxbench import registry
from ctxbench.meta.differences import INPUT, Point
from ctxbench.modules import area

OUT = Path(__file__).resolve().parents[1] / "results" / "gradient-proofs"
SEEDS = (0, 1, 2)
Norm = Callable[[], nn.Module]


class BeforeTokens(nn.Module):
    """A norm, then layer normalisation of its tokens; `in_order` hands on a view whose gradient is contiguous."""

    def __init__(self, norm: nn.Module, in_order: bool = False) -> None:
        super().__init__()
        self.norm, self.in_order = norm, in_order

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(x)
        y = y.flatten(1).view_as(y) if self.in_order else y
        return functional.layer_norm(y.flatten(2).transpose(1, 2), y.shape[1:2])


NORMS: dict[str, Norm] = {
    "batch norm": lambda: nn.BatchNorm2d(4),
    "batch norm, eval": lambda: nn.BatchNorm2d(4).eval(),
    "instance norm": lambda: nn.InstanceNorm2d(4),
    "group norm": lambda: nn.GroupNorm(2, 4),
}


def compared(
    case: str, images: int, right: Point, found: dict[str, Point], held: bool = False
) -> Iterator[dict[str, object]]:
    """A row for each of the points that compute the same function as `right`, which differences confirm."""
    exact = right.gradients()
    slopes = []
    for seed in SEEDS:
        (direction,) = (each for each in right.directions(exact, seed) if INPUT in each)
        verdict, share = right.judged(exact, direction, held)
        if verdict != "same":
            raise SystemExit(f"{case}: central differences do not confirm the gradient: {verdict}, {share:.2g}")
        slopes.append(share)
    for by, point in found.items():
        off = (point.gradients()[INPUT] - exact[INPUT]).norm() / exact[INPUT].norm()
        yield {
            "case": case, "images": images, "by": by, "error": float(off), "confirmed": "central differences",
            "slope_error": max(slopes),
        }  # fmt: skip


def norms() -> Iterator[dict[str, object]]:
    for case, make in NORMS.items():
        for images in (1, 2):
            x = drawn(images, 4, 5, 6)
            norm = make().double()
            points = [Point(BeforeTokens(norm, in_order), x) for in_order in (True, False)]
            yield from compared(case, images, points[0], {"eager": points[1]})


def blocks() -> Iterator[dict[str, object]]:
    settings: dict[str, dict[str, Any]] = {
        "area": {"head_width": 8, "area": 3, "kernel_size": 5},
        "ham_vq": {"init": "fixed"},
    }
    shapes = {"area": (1, 16, 6, 6), "ham_vq": (1, 64, 32, 32)}
    for key, hparams in settings.items():
        torch.manual_seed(0)
        entry = registry.get(key)
        block = entry.build(shapes[key][1], hparams).double()
        right = Point(block, drawn(*shapes[key]))
        found = {"eager": right, "compiled": right.of(cast(nn.Module, torch.compile(block)))}
        yield from compared(key, 1, right, found, entry.stops(hparams))
    in_order, area.gradient_in_order = area.gradient_in_order, lambda y: y
    block = registry.get("area").build(16, settings["area"]).double()
    x = drawn(*shapes["area"])
    before = Point(block, x).gradients()[INPUT]
    area.gradient_in_order = in_order
    right = Point(block, x)
    for row in compared("area, before it was mended", 1, right, {"eager": right}):
        exact = right.gradients()[INPUT]
        yield {**row, "error": float((before - exact).norm() / exact.norm())}


def softmax() -> Iterator[dict[str, object]]:
    def transposed(x: Tensor) -> Tensor:
        return torch.softmax(x, dim=2).transpose(1, 2).contiguous()

    x, given = drawn(1, 1024, 64), drawn(1, 64, 1024)
    share, arriving = torch.softmax(x, 2), given.transpose(1, 2)
    exact = share * (arriving - (arriving * share).sum(2, keepdim=True))
    for by, function in (("eager", transposed), ("compiled", torch.compile(transposed))):
        leaf = x.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(function(leaf), leaf, given)
        error = float((gradient - exact).norm() / exact.norm())
        yield {"case": "softmax, transposed", "images": 1, "by": by, "error": error, "confirmed": "closed form"}


def drawn(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


if __name__ == "__main__":
    torch.set_num_threads(1)
    evidence = stamp()
    rows = pd.DataFrame([*norms(), *softmax(), *blocks()]).assign(torch=torch.__version__)
    print(rows.to_string())
    write_stamp(OUT, evidence)
    rows.to_csv(OUT / "proofs.csv", index=False, float_format="%.3g")
