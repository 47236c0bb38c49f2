"""The exact Jacobians of a decomposition: of its output at X and at the initial bases, and of one step at its state."""

import json
from collections.abc import Callable
from statistics import median
from typing import TYPE_CHECKING, Any

from ctxbench.model.metric import Column, Measurement, Metric, diagnostic
from ctxbench_science.numerics.decomposition import NO_DECOMPOSITION, decomposition, low_rank_map

if TYPE_CHECKING:
    from torch import Tensor

# Elements of the largest Jacobian, X by X: its singular values take seconds.
LARGEST = 2**21
# Of weights, maps and initial bases.
SEEDS = 5
SPECTRA = ("jacobian_x_spectrum", "jacobian_bases_spectrum")
SAME_STEPS = 'the steps are those of gradient = "bptt"'
CODES_CARRIED = "its codes are part of the state that a step maps"


def compute(measurement: Measurement) -> None:
    """Report norms, spectra and effective ranks, the medians over SEEDS, or why there are none."""
    model = decomposition(measurement)
    reason = "" if model else NO_DECOMPOSITION
    if model and (size := model.matrix(low_rank_map(measurement.case.shape)[1]).numel()) ** 2 > LARGEST:
        reason = f"the Jacobian, {size:,} by {size:,}, has more than {LARGEST:,} elements"
    if reason or model is None:
        measurement.report({"jacobian_reason": reason, "step_reason": reason})
        return
    found = [_of_seed(measurement, seed) for seed in range(SEEDS)]
    spectra = {
        name: [median(values) for values in zip(*(each.pop(name) for each in found), strict=True)] for name in SPECTRA
    }
    values = {name: median(each[name] for each in found) for name in found[0]}
    measurement.report({**values, **{name: json.dumps(spectrum) for name, spectrum in spectra.items()}})
    if "step_norm" not in values:
        measurement.report({"step_reason": CODES_CARRIED if model.carries_codes else SAME_STEPS})


def _of_seed(measurement: Measurement, seed: int) -> dict[str, Any]:
    """The numbers of one draw of weights, map and initial bases, and the quartiles of the spectra."""
    import torch

    model = decomposition(measurement, seed)
    assert model is not None
    with torch.no_grad():
        x = model.matrix(low_rank_map(measurement.case.shape, seed)[1])
        bases = model.initial_bases(x, measurement.case.shape[0])
    at_x = torch.linalg.svdvals(jacobian(lambda x: model.decompose(x, bases)[0], x))
    at_bases = torch.linalg.svdvals(jacobian(lambda bases: model.decompose(x, bases)[0], bases))
    found = {
        "jacobian_x": at_x[0].item(),
        "jacobian_x_rank": effective_rank(at_x),
        "jacobian_bases": at_bases[0].item(),
        SPECTRA[0]: _quartiles(at_x),
        SPECTRA[1]: _quartiles(at_bases),
    }
    alone = model.carries_codes or measurement.case.hparams.get("gradient") != "bptt"
    return found if alone else {**found, **_of_step(measurement, model.steps, x, bases)}


def _of_step(measurement: Measurement, steps: int, x: "Tensor", bases: "Tensor") -> dict[str, float]:
    """The Jacobian of the last step: of the bases after it at those before it."""
    import torch

    one = decomposition(measurement, steps=1, gradient="bptt")
    assert one is not None
    with torch.no_grad():
        for _ in range(steps - 1):
            bases = one.decompose(x, bases)[1]
    step = jacobian(lambda bases: one.decompose(x, bases)[1], bases)
    return {
        "step_norm": torch.linalg.matrix_norm(step, 2).item(),
        "step_radius": torch.linalg.eigvals(step).abs().max().item(),
        "step_condition": torch.linalg.cond(torch.eye(len(step), dtype=step.dtype) - step).item(),
    }


def jacobian(function: "Callable[[Tensor], Tensor]", at: "Tensor") -> "Tensor":
    """The Jacobian `[outputs, inputs]` of a function of one tensor, by back-propagation."""
    import torch

    found: Tensor = torch.autograd.functional.jacobian(function, at, vectorize=True)
    return found.reshape(-1, at.numel())


def effective_rank(values: "Tensor") -> float:
    """The exponential of the entropy of the singular values as shares of their sum (Roy and Vetterli, 2007); 0 of 0."""
    shares = values[values > 0] / values.sum()
    return (-(shares * shares.log()).sum()).exp().item() if len(shares) else 0.0


def _quartiles(values: "Tensor") -> list[float]:
    """Largest, upper quartile, median, lower quartile and smallest."""
    import torch

    return [torch.quantile(values, share).item() for share in (1.0, 0.75, 0.5, 0.25, 0.0)]


METRIC = Metric(
    name="jacobian",
    order=81,
    about="norms and spectra of a decomposition's exact Jacobians, in float64 at small sizes",
    columns=[
        *(Column(name, float) for name in ("jacobian_x", "jacobian_x_rank", "jacobian_bases")),
        *(Column(f"step_{name}", float) for name in ("norm", "radius", "condition")),
        *(Column(name, str, json=list) for name in SPECTRA),
        Column("jacobian_reason", str),
        Column("step_reason", str),
    ],
    quantities=[
        diagnostic("jacobian_x", "Norm of dY/dX", "jacobian", decimals=None),
        diagnostic("jacobian_x_rank", "Effective rank of dY/dX", "jacobian", decimals=None),
        diagnostic("jacobian_bases", "Norm of dY/dM0", "jacobian", decimals=None),
        diagnostic("step_norm", "Norm of dF/dM", "jacobian", reason="step_reason", decimals=None),
        diagnostic("step_radius", "Spectral radius of dF/dM", "jacobian", reason="step_reason", decimals=None),
        diagnostic("step_condition", "Condition of I - dF/dM", "jacobian", reason="step_reason", decimals=None),
    ],
    convention=(
        "Jacobian: largest singular values of the derivative of the ham's output Y at its input X and at the initial "
        "bases M0, and of the last step's bases at those before it (F), float64, medians over "
        f"{SEEDS} seeds; a one-step gradient leaves out the steps before the last"
    ),
    default=False,
    compute=compute,
)
