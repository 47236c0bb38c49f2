"""Whether a module survives a dtype: where its numbers first are not finite, and how a short training goes."""

import math
from functools import partial
from typing import TYPE_CHECKING

from ctxbench.failures import describe_failure
from ctxbench.metrics.base import Column, Measurement, Metric, Quantity, RecordRow, Unit
from ctxbench.metrics.decomposition import numbers_in
from ctxbench.metrics.precision import draw, relative_error
from ctxbench.mode import Mode

if TYPE_CHECKING:
    from torch import Tensor, nn

# Numbers of an input: on a CPU, many passes on larger ones take minutes.
LARGEST = 2**20
# Seconds for the passes of a row: the most, and about how many.
LIMIT_S, USUAL_S = 900.0, 5.0
# Two outputs of the same weights that differ by more, relatively, were drawn.
SAME = 1e-3
PARTS = {"forward": "forward pass", "gradient": "gradients"}


def measure(measurement: Measurement, mode: Mode) -> None:
    """Report both parts once, before a pass is checked, or why they are not known."""
    if mode != "infer":  # which each module has
        return
    if reason := _obstacle(measurement):
        measurement.report({"finite_reason": reason, "loss_reason": reason})
        return
    drawn, x = draw(measurement)
    for part, reason_column in ((_overflows, "finite_reason"), (_loss, "loss_reason")):
        try:
            part(measurement, drawn, x)
        except Exception as error:  # such as an operator that a CPU does not have in float16
            measurement.report({reason_column: describe_failure(error).message})


def _obstacle(measurement: Measurement) -> str:
    case = measurement.case
    if case.execution != "eager":
        return "it is told of eager execution"
    if case.network:
        return "it is told of a module alone"
    if measurement.device.kind == "cpu" and numbers_in(measurement) > LARGEST:
        return f"the input has more than {LARGEST:,} numbers, which takes minutes on a CPU"
    return ""


def _overflows(measurement: Measurement, drawn: "nn.Module", x: "Tensor") -> None:
    from ctxbench.stability import SCALES, overflows

    case = measurement.case
    found = overflows(drawn, x, case.parameter_dtype, case.autocast_dtype, measurement.settings.seed)
    finite = SCALES[-1]
    for part, overflow in zip(PARTS, found, strict=True):
        # the gradients are tried as far as the forward pass is finite
        finite = max((scale for scale in SCALES if overflow and scale < overflow.scale), default=0) if overflow else finite
        measurement.report({f"finite_{part}": finite, f"overflow_{part}": str(overflow or "")})


def _loss(measurement: Measurement, drawn: "nn.Module", x: "Tensor") -> None:
    import torch

    from ctxbench.stability import STEPS, losses

    case, settings = measurement.case, measurement.settings
    with torch.no_grad():
        twice = drawn(x), drawn(x)
    if relative_error(*twice) > SAME:
        measurement.report({"loss_reason": "the module draws random numbers in each forward"})
        return
    set_flags = partial(measurement.device.set_flags, threads=case.threads, cudnn_benchmark=settings.cudnn_benchmark)
    set_flags("float32")
    exact = losses(drawn, x, torch.float32, seed=settings.seed)
    set_flags(case.dtype)
    found = losses(drawn, x, case.parameter_dtype, case.autocast_dtype, settings.seed)
    for name, curve in {"float32": exact, case.dtype: found}.items():
        if not curve or not math.isfinite(curve[-1]):
            how = f"the loss in {name} is {curve[-1]} at step {len(curve)}" if curve else f"no step had finite gradients"
            measurement.report({"loss_reason": f"diverged: {how}"})
            return
    gap = max(abs(here / there - 1) for here, there in zip(found, exact))
    measurement.report({"loss_gap": gap, "loss_left_out": STEPS - len(found)})
