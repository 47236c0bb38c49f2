"""Hamburger whose ham is concept decomposition: spherical k-means, then ridge regression for the codes.

Source: Geng et al., Is Attention Better Than Matrix Decomposition?, ICLR 2021. As published, with the 6 steps of
Table 3. The normalised input is built once, where the public code builds it in each step.
"""

from typing import Literal

import torch
from torch import Tensor

from ctxbench.registry import register

from ._ham import EPSILON, Hamburger, assign_columns, require_positive, unit_columns
from ._onnx import inverse


@register(
    "ham_cd",
    title="Ham (CD)",
    paper="Geng et al., Is Attention Better Than Matrix Decomposition?, ICLR 2021",
    year=2021,
    family="matrix decomposition",
    params="(C*d + d if without != 'lower' and without != 'breads' else 0)"
    " + (C*d if without != 'upper' and without != 'breads' else 0) + 2*C"
    " + (d*rank if init == 'learned' and without != 'ham' else 0)",
    macs="N*C*d*(2 if without == 'nothing' or without == 'ham' else 0 if without == 'breads' else 1) + N*C"
    " + (0 if without == 'ham' else (2*steps + 2)*N*d*rank + (B*d + heads*N)*rank**2 + rank**2 "
    "+ steps*(heads*N if layout == 'spatial' else B*d)*rank)",
    complexity="n*d*rank + n*C*d",
    stops_gradient="gradient == 'one_step' and without != 'ham'",
    public_code="Gsunshine/Enjoy-Hamburger, MIT",
)
class HamCD(Hamburger):
    """Minimise |X - M Z^T|^2 + beta |Z|^2 over Z, the unit columns of M found by soft spherical k-means.

    `[B, C, H, W]` to `[B, C, H, W]`; arguments as in `Hamburger`. The bases start normal, in unit columns. The codes of
    step 0 in the published code reach no result and are not computed. The normalised input is built once and lives
    until the output product: memory peaks at 162 MiB to train and 102 MiB to infer at `[1, 512, 128, 128]`, the paper's
    figures. The published code normalises in each step, which is slower and peaks at 98 MiB to infer.
    """

    def __init__(
        self,
        channels: int,
        *,
        d: int | None = None,
        rank: int = 64,
        steps: int = 6,
        temperature: float = 0.01,
        heads: int = 1,
        beta: float = 0.1,
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
        require_positive("beta", beta)
        self.beta = beta

    def decompose(self, x: Tensor, bases: Tensor) -> tuple[Tensor, Tensor]:
        """From X and initial bases to `M Z^T` and the final bases."""
        with self.solving():
            directions = unit_columns(x)
            for _ in range(self.steps):
                codes = assign_columns(directions, bases, self.sharpness)
                bases = unit_columns(x @ codes, EPSILON)
        codes = x.transpose(1, 2) @ bases @ self._inverse_gram(bases)
        return bases @ codes.transpose(1, 2), bases

    def _inverse_gram(self, bases: Tensor) -> Tensor:
        """(M^T M + beta I)^-1, `[batch, rank, rank]`."""
        gram = bases.transpose(1, 2) @ bases
        gram = gram + self.beta * torch.eye(self.rank, dtype=gram.dtype, device=gram.device)
        widened = gram.to(torch.promote_types(gram.dtype, torch.float32))  # torch inverts nothing below float32
        # the columns of M have at most unit length, so that the trace of M^T M is at most the rank
        return inverse(widened, self.beta, self.rank + self.beta).to(gram.dtype)
