"""The matrix by which an attention mixes the positions: its entropy, its rank, how far it is from softmax."""

import math
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from ctxbench.model.metric import Column, Measurement, Metric, diagnostic

if TYPE_CHECKING:
    from torch import Tensor

# Positions; the singular values of larger matrices take long.
LARGEST = 1024
NO_MATRIX = "the module gives no attention matrix"
NO_CONVOLUTION = "the module has no convolution besides its attention"


@runtime_checkable
class Attention(Protocol):
    """A module whose context is a matrix of weights over the positions times the values."""

    def attention(self, x: "Tensor") -> "tuple[Tensor, Tensor]":
        """The weights of an input `[B, C, H, W]` and the logits of the softmax that they stand for.

        Both are `[B, heads, n queries, n keys]`.
        """
        ...


@runtime_checkable
class Convolving(Protocol):
    """An attention with a depthwise convolution of the values beside it."""

    def convolution(self, height: int, width: int) -> "Tensor":
        """The convolution as matrices `[channels, n outputs, n values]`."""
        ...


def compute(measurement: Measurement) -> None:
    """Report entropy, rank and error of the untrained module's weights, means over images and heads, or why none."""
    import torch

    _, channels, height, width = measurement.case.shape
    torch.manual_seed(measurement.settings.seed)
    model = measurement.entry.build(channels, measurement.case.hparams).double().eval()
    reason = "" if isinstance(model, Attention) else NO_MATRIX
    if not reason and height * width > LARGEST:
        reason = f"the input has more than {LARGEST:,} positions"
    if reason or not isinstance(model, Attention):
        measurement.report({"attention_reason": reason, "convolution_reason": reason})
        return
    x = torch.randn(measurement.case.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        weights, logits = model.attention(x)
        softmax = torch.softmax(logits, dim=3)
        measurement.report(
            {
                "attention_entropy": entropy(weights),
                "attention_entropy_softmax": entropy(softmax),
                "attention_error": ((weights - softmax).norm(dim=(2, 3)) / softmax.norm(dim=(2, 3))).mean().item(),
                "attention_rank": rank(weights),
            }
        )
        if isinstance(model, Convolving):
            first = model.convolution(height, width)[0]
            measurement.report({"attention_rank_convolution": rank(weights + first)})
        else:
            measurement.report({"convolution_reason": NO_CONVOLUTION})


def entropy(weights: "Tensor") -> float:
    """The mean entropy of the rows `[..., n, n]` over that of n equal weights: 1 is uniform, 0 is one position."""
    import torch

    terms: Tensor = torch.special.entr(weights / weights.sum(-1, keepdim=True))
    return terms.sum(-1).mean().item() / math.log(weights.shape[-1])


def rank(weights: "Tensor") -> float:
    """The mean rank of matrices `[..., n, n]`, by torch's tolerance: n * epsilon * the largest singular value."""
    import torch

    found: Tensor = torch.linalg.matrix_rank(weights).double()
    return found.mean().item()


METRIC = Metric(
    name="attention",
    order=84,
    about="entropy, rank and error against softmax of an attention's equivalent matrix",
    columns=[
        # Of weights that are not rounded, an entropy is at least 0.
        *(Column(f"attention_{of}", float, least=-math.inf) for of in ("entropy", "entropy_softmax")),
        Column("attention_error", float),
        *(Column(f"attention_{of}", float) for of in ("rank", "rank_convolution")),
        *(Column(name, str) for name in ("attention_reason", "convolution_reason")),
    ],
    quantities=[
        diagnostic("attention_entropy", "Entropy of the attention's rows", "attention"),
        diagnostic("attention_entropy_softmax", "Entropy of softmax's rows", "attention"),
        diagnostic("attention_error", "Error against softmax", "attention"),
        diagnostic("attention_rank", "Rank of the attention matrix", "attention", decimals=1),
        diagnostic(
            "attention_rank_convolution",
            "Rank with the convolution",
            "attention",
            reason="convolution_reason",
            decimals=1,
        ),
    ],
    convention=(
        "Attention: matrix by which the untrained module mixes the positions of a normal input, float64, means over "
        "heads; entropy: 1 is uniform; error: |A - S| / |S|, Frobenius, S the softmax of the same queries and keys; "
        "with the convolution: A plus that of the first channel"
    ),
    default=False,
    compute=compute,
)
