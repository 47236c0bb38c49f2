"""The gradient of an iterative module, cut off at its last step, against back-propagation through all steps."""

import json
import math
from collections.abc import Iterable, Mapping
from statistics import median
from typing import TYPE_CHECKING

from ctxbench.model.metric import Column, Measurement, Metric, diagnostic
from ctxbench_science.numerics.decomposition import elements_in, low_rank_map

if TYPE_CHECKING:
    from torch import Tensor

# Larger inputs would need too much memory in float64 with every step kept.
LARGEST = 2**20
INPUT = "input"
JOINED = (INPUT, "parameters")
# Of weights, maps and initial bases; the medians are reported.
SEEDS = 5
# Of float64: gradients that differ by less are the same.
ROUNDING = 1e-10


def compute(measurement: Measurement) -> None:
    """Report cosine and norm ratio for the input and the parameters, or why there are none."""
    if reason := _reason_not_measured(measurement):
        measurement.report({"gradient_reason": reason})
        return
    try:
        found = [_compared(measurement, seed) for seed in range(SEEDS)]
    except ValueError as error:  # such as learned bases, which the one-step gradient does not reach
        measurement.report({"gradient_reason": str(error)})
        return
    middle = {name: [median(each[name][at] for each in found) for at in (0, 1)] for name in found[0]}
    values = {f"gradient_{what}_{of}": middle[of][at] for of in JOINED for at, what in enumerate(("cosine", "ratio"))}
    parameters = {name: pair for name, pair in middle.items() if name not in JOINED}
    measurement.report({**values, "gradient_by_parameter": json.dumps(parameters)})


def _compared(measurement: Measurement, seed: int) -> dict[str, tuple[float, float]]:
    """Cosine and ratio of the input's gradients, of each parameter's by its name, and of those that differ, joined."""
    here, exact = (_gradients(measurement, gradient, seed) for gradient in ("one_step", "bptt"))
    found = {name: compared(here[name], exact[name]) for name in exact}
    names = [name for name in exact if name != INPUT]
    differing = [name for name in names if max(abs(1 - each) for each in found[name]) > ROUNDING] or names
    return {**found, JOINED[1]: compared(*(_joined(each, differing) for each in (here, exact)))}


def compared(one_step: "Tensor", exact: "Tensor") -> tuple[float, float]:
    """Cosine of two gradients, and the first's norm over the second's; 0 where one is zero up to rounding."""
    lengths = one_step.norm().item(), exact.norm().item()
    if min(lengths) <= ROUNDING * max(lengths):
        return 0.0, 0.0
    return (one_step * exact).sum().item() / (lengths[0] * lengths[1]), lengths[0] / lengths[1]


def _reason_not_measured(measurement: Measurement) -> str:
    defaults = {each.name: each.default for each in measurement.entry.hyperparameters}
    if defaults.get("gradient") not in ("one_step", "bptt"):
        return "the module has no choice between the gradients one_step and bptt"
    if measurement.case.hparams.get("gradient", defaults["gradient"]) == "bptt":
        return "it is the gradient through all steps that the other is compared with"
    if elements_in(measurement) > LARGEST:
        return f"the input has more than {LARGEST:,} elements, for which every step's memory in float64 is too much"
    return ""


def _gradients(measurement: Measurement, gradient: str, seed: int) -> "Mapping[str, Tensor]":
    """Gradients of a weighted sum of the output in training mode: of the input, and of each parameter by name."""
    import torch

    case = measurement.case
    torch.manual_seed(seed)
    model = measurement.entry.build(case.shape[1], {**case.hparams, "gradient": gradient}).double()
    x = low_rank_map(case.shape, seed)[1].requires_grad_()
    torch.manual_seed(seed)  # the same initial bases in both
    y: Tensor = model(x)
    weights = torch.randn(y.shape, dtype=y.dtype, generator=torch.Generator().manual_seed(seed + SEEDS))
    (y * weights).sum().backward()
    found = {INPUT: x.grad, **{name: parameter.grad for name, parameter in model.named_parameters()}}
    return {name: grad for name, grad in found.items() if grad is not None}


def _joined(gradients: "Mapping[str, Tensor]", names: Iterable[str]) -> "Tensor":
    import torch

    return torch.cat([gradients[name].flatten() for name in names])


METRIC = Metric(
    name="gradient",
    order=80,
    about="the one-step gradient against back-propagation through all steps, in float64",
    columns=[
        *(Column(f"gradient_cosine_{of}", float, least=-math.inf) for of in (INPUT, "parameters")),
        *(Column(f"gradient_ratio_{of}", float) for of in (INPUT, "parameters")),
        Column("gradient_by_parameter", str, json=dict),
        Column("gradient_reason", str),
    ],
    quantities=[
        diagnostic("gradient_cosine_input", "Cosine, input", "gradient"),
        diagnostic("gradient_ratio_input", "Norm ratio, input", "gradient"),
        diagnostic("gradient_cosine_parameters", "Cosine, parameters", "gradient"),
        diagnostic("gradient_ratio_parameters", "Norm ratio, parameters", "gradient"),
    ],
    convention=(
        "Gradient: one-step against all steps, cosine and ratio of lengths, of a randomly weighted sum of the "
        f"output in training mode, float64, medians over {SEEDS} seeds; parameters: all whose gradients differ"
    ),
    default=False,
    compute=compute,
)
