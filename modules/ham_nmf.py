"""Hamburger whose ham is non-negative matrix factorisation by multiplicative updates.

Source: Geng et al., Is Attention Better Than Matrix Decomposition?, ICLR 2021. As published, with the steps of Table 3:
6 in training and in eval, where the public class takes 7 in eval.
"""

from typing import Literal

import torch
from torch import Tensor

from ctxbench.registry import register

from ._ham import EPSILON, Hamburger


@register(
    "ham_nmf",
    title="Ham (NMF)",
    paper="Geng et al., Is Attention Better Than Matrix Decomposition?, ICLR 2021",
    year=2021,
    family="matrix decomposition",
    params="(C*d + d if without != 'lower' and without != 'breads' else 0)"
    " + (C*d if without != 'upper' and without != 'breads' else 0) + 2*C"
    " + (d*rank if init == 'learned' and without != 'ham' else 0)",
    macs="N*C*d*(2 if without == 'nothing' or without == 'ham' else 0 if without == 'breads' else 1) + N*C"
    " + (0 if without == 'ham' else (2*steps + 3)*N*d*rank + (2*steps + 1)*(B*d + heads*N)*rank**2 "
    "+ steps*(B*d + heads*N)*rank + 2*(heads*N if layout == 'spatial' else B*d)*rank)",
    complexity="n*d*rank + n*C*d",
    stops_gradient="gradient == 'one_step' and without != 'ham'",
    public_code="Gsunshine/Enjoy-Hamburger, MIT",
)
class HamNMF(Hamburger):
    """Minimise |X - M Z^T| over non-negative M and Z (the paper's Algorithm 2); arguments as in `Hamburger`.

    `[B, C, H, W]` to `[B, C, H, W]`. The input of the ham passes a ReLU; the bases start uniform, in unit columns, and
    are not normalised again. The Gram matrices, rank x rank, are formed first. With the ReLU in place and nothing of
    X's size built in the steps, memory peaks at 202 MiB to train and 98 MiB to infer at `[1, 512, 128, 128]`.
    """

    non_negative = True
    carries_codes = True

    def __init__(
        self,
        channels: int,
        *,
        d: int | None = None,
        rank: int = 64,
        steps: int = 6,
        temperature: float = 1.0,
        heads: int = 1,
        layout: Literal["spatial", "channel"] = "spatial",
        init: Literal["random", "fixed", "learned", "online"] = "random",
        gradient: Literal["one_step", "bptt"] = "one_step",
        eta: float = 0.9,
        without: Literal["nothing", "ham", "lower", "upper", "breads"] = "nothing",
    ) -> None:
        super().__init__(
            channels, d=d, rank=rank, steps=steps, temperature=temperature, heads=heads, layout=layout, init=init,
            gradient=gradient, eta=eta, without=without,
        )  # fmt: skip

    def decompose(self, x: Tensor, bases: Tensor) -> tuple[Tensor, Tensor]:
        """From X and initial bases to `M Z^T` and the final bases."""
        with self.solving():
            codes = torch.softmax(self.sharpness * (x.transpose(1, 2) @ bases), dim=2)
            for _ in range(self.steps):
                codes = _update(codes, x.transpose(1, 2), bases)
                bases = _update(bases, x, codes)
        codes = _update(codes, x.transpose(1, 2), bases)
        return bases @ codes.transpose(1, 2), bases


def _update(factor: Tensor, x: Tensor, other: Tensor) -> Tensor:
    """One multiplicative update of a factor of `x = factor other^T`."""
    return factor * (x @ other) / (factor @ (other.transpose(1, 2) @ other) + EPSILON)
