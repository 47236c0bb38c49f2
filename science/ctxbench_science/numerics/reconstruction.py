"""The objective of a decomposition: how far its output is from the matrix that it factors, over several seeds."""

from statistics import mean, stdev
from typing import TYPE_CHECKING

from ctxbench.model.metric import Column, Measurement, Metric, diagnostic
from ctxbench_science.numerics.decomposition import (
    NO_DECOMPOSITION,
    Decomposition,
    decomposition,
    elements_in,
    low_rank_map,
)

if TYPE_CHECKING:
    from torch import Tensor

SEEDS = 8
# Training forwards of bases that are updated online before the error is taken, each of another map.
WARM_FORWARDS = 10
LARGEST = 2**20


def compute(measurement: Measurement) -> None:
    """Report mean and spread of the error and the least error of any matrix of this rank, or why there are none."""
    import torch

    model = decomposition(measurement)
    if model is None:
        measurement.report({"reconstruction_reason": NO_DECOMPOSITION})
        return
    if elements_in(measurement) > LARGEST:
        measurement.report({"reconstruction_reason": f"the input has more than {LARGEST:,} elements"})
        return
    with torch.no_grad():
        x = model.matrix(low_rank_map(measurement.case.shape)[1])
        errors = [relative_error(x, _reconstructed(measurement, model, x, seed)) for seed in range(SEEDS)]
    rank = model.initial_bases(x, measurement.case.shape[0]).shape[2]
    measurement.report(
        {
            "reconstruction_error": mean(errors),
            "reconstruction_spread": stdev(errors),
            "reconstruction_least": least_error(x, rank),
        }
    )


def relative_error(x: "Tensor", y: "Tensor") -> float:
    """|X - Y| / |X|, Frobenius, the mean over matrices `[batch, D, n]`."""
    ratios: Tensor = (x - y).norm(dim=(1, 2)) / x.norm(dim=(1, 2))
    return ratios.mean().item()


def least_error(x: "Tensor", rank: int) -> float:
    """The relative error of the best approximation of this rank (Eckart and Young, 1936), the mean over matrices."""
    import torch

    squares: Tensor = torch.linalg.svdvals(x).square()
    ratios: Tensor = (squares[:, rank:].sum(1) / squares.sum(1)).sqrt()
    return ratios.mean().item()


def _reconstructed(measurement: Measurement, breads: Decomposition, x: "Tensor", seed: int) -> "Tensor":
    """Reconstruction of X with bases drawn from `seed`; online ones are first updated on `breads` of maps."""
    import torch

    model, batch = decomposition(measurement, seed), measurement.case.shape[0]
    assert model is not None
    if measurement.case.hparams.get("init") == "online":
        for number in range(WARM_FORWARDS):
            model.solve(breads.matrix(low_rank_map(measurement.case.shape, 1 + number)[1]), batch)
    torch.manual_seed(seed)
    return model.solve(x, batch)


METRIC = Metric(
    name="reconstruction",
    order=82,
    about="relative error of a decomposition's reconstruction, its spread over seeds, and the least of its rank",
    columns=[
        *(Column(f"reconstruction_{name}", float) for name in ("error", "spread", "least")),
        Column("reconstruction_reason", str),
    ],
    quantities=[
        diagnostic("reconstruction_error", "Reconstruction error", "reconstruction", better="smaller"),
        diagnostic("reconstruction_spread", "Its spread over seeds", "reconstruction", better="smaller", decimals=None),
        diagnostic("reconstruction_least", "Least error of the rank", "reconstruction", better="smaller"),
    ],
    convention=(
        f"Reconstruction: |X - M Z^T| / |X| of the matrix that the ham factors, float64, of a non-negative feature "
        f"map of low rank with noise; mean and standard deviation over {SEEDS} seeds of the bases, online ones "
        f"after {WARM_FORWARDS} other maps; least: by the singular values of X"
    ),
    default=False,
    compute=compute,
)
