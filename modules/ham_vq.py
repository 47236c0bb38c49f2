"""Hamburger whose ham is soft vector quantisation: k-means with softmax assignments.

Source: Geng et al., Is Attention Better Than Matrix Decomposition?, ICLR 2021. As published, with the 6 steps that
Table 3 has for the others.
"""

import torch
from torch import Tensor

from ctxbench.registry import register

from ._ham import EPSILON, Hamburger, assign_columns, unit_columns


@register(
    "ham_vq",
    title="Ham (VQ)",
    paper="Geng et al., Is Attention Better Than Matrix Decomposition?, ICLR 2021",
    year=2021,
    family="matrix decomposition",
    params="(C*d + d if without != 'lower' and without != 'breads' else 0)"
    " + (C*d if without != 'upper' and without != 'breads' else 0) + 2*C"
    " + (d*rank if init == 'learned' and without != 'ham' else 0)",
    macs="N*C*d*(2 if without == 'nothing' or without == 'ham' else 0 if without == 'breads' else 1) + N*C"
    " + (0 if without == 'ham' else (2*steps + 2)*N*d*rank + (steps "
    "+ 1)*(heads*N if layout == 'spatial' else B*d)*rank)",
    complexity="n*d*rank + n*C*d",
    stops_gradient="gradient == 'one_step' and without != 'ham'",
    public_code="Gsunshine/Enjoy-Hamburger, MIT",
)
class HamVQ(Hamburger):
    """Replace each column of X by a softmax-weighted mean of the bases nearest in angle (the paper's Algorithm 1).

    `[B, C, H, W]` to `[B, C, H, W]`; arguments as in `Hamburger`. The bases start normal, in unit columns; later they
    are weighted means of columns of X. The one-step gradient takes the length of a column of X for a constant, as the
    published code does. The codes of step 0 in the published code reach no result and are not computed.
    """

    def decompose(self, x: Tensor, bases: Tensor) -> tuple[Tensor, Tensor]:
        """From X and initial bases to `M Z^T` and the final bases."""
        with self.solving():
            directions = unit_columns(x)
            for _ in range(self.steps):
                bases = x @ assign_columns(directions, unit_columns(bases, EPSILON), self.sharpness)
            lengths = EPSILON + torch.linalg.vector_norm(x, dim=1, keepdim=True)
        directions = x / lengths
        codes = torch.softmax(self.sharpness * (directions.transpose(1, 2) @ unit_columns(bases, EPSILON)), dim=2)
        return bases @ codes.transpose(1, 2), bases
