"""Interface of a module that factors its input, and the feature map that metrics give it."""

import math
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from ctxbench.model.metric import Measurement

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

# Of the feature map: the rank of its signal, and the noise's standard deviation for a signal with mean square 1.
RANK, NOISE = 8, 0.5
NO_DECOMPOSITION = "the module does not factor its input"


@runtime_checkable
class Decomposition(Protocol):
    """A module that factors X `[B*heads, D, n]` into bases `[B*heads, D, rank]` and codes, in `steps` updates."""

    steps: int
    # Whether an update of the bases also reads the codes of the update before.
    carries_codes: bool

    def matrix(self, x: "Tensor") -> "Tensor":
        """X of an input `[B, C, H, W]`."""
        ...

    def initial_bases(self, x: "Tensor", batch: int) -> "Tensor":
        """The bases that a forward starts from."""
        ...

    def solve(self, x: "Tensor", batch: int) -> "Tensor":
        """The reconstruction of X of `batch` images; in training, bases that are updated online move."""
        ...

    def decompose(self, x: "Tensor", bases: "Tensor") -> "tuple[Tensor, Tensor]":
        """From X and bases to the reconstruction, of X's shape, and the final bases."""
        ...


def decomposition(measurement: Measurement, seed: int = 0, **changed: Any) -> "Decomposition | None":
    """The case's module in float64 on the CPU, drawn from `seed`, with `changed` hyper-parameters; None if it is none.

    Leaves torch's generator where the draw ended.
    """
    import torch

    torch.manual_seed(seed)
    hparams: Mapping[str, Any] = {**measurement.case.hparams, **changed}
    model = measurement.entry.build(measurement.case.shape[1], hparams).double()
    return model if isinstance(model, Decomposition) and hparams.get("without") != "ham" else None


def low_rank_map(shape: tuple[int, int, int, int], seed: int = 0) -> "tuple[Tensor, Tensor]":
    """A feature map of low rank and the same with noise, both `[B, C, H, W]` in float64 and non-negative.

    Signal of an image: `U V^T` with U `[C, RANK]` and V `[H*W, RANK]` of absolute values of normal numbers, scaled to a
    mean square of 1. Noise: normal with standard deviation NOISE, then what is negative is set to 0, as by the ReLU
    after which Geng et al. put the block (section 3.1).
    """
    import torch

    batch, channels, height, width = shape
    generator = torch.Generator().manual_seed(seed)

    def draw(*size: int) -> "Tensor":
        return torch.randn(*size, dtype=torch.float64, generator=generator)

    clean = draw(batch, channels, RANK).abs() @ draw(batch, RANK, height * width).abs()
    clean = clean / clean.square().mean((1, 2), keepdim=True).sqrt()
    noisy = (clean + NOISE * draw(*clean.shape)).clamp(min=0)
    return clean.reshape(shape), noisy.reshape(shape)


def elements_in(measurement: Measurement) -> int:
    """Number of elements of the case's input."""
    return math.prod(measurement.case.shape)
