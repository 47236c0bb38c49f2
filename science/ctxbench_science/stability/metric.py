"""Stability of a module in a dtype: its first values that are not finite, and a short training."""

import copy
import math
from functools import partial
from typing import TYPE_CHECKING

from ctxbench.base.mode import Mode
from ctxbench.model.failures import describe_failure
from ctxbench.model.metric import Column, Measurement, Metric, Quantity, RecordRow, Unit, diagnostic
from ctxbench.plugins.precision.metric import draw, relative_error
from ctxbench_science.numerics.decomposition import elements_in

if TYPE_CHECKING:
    from collections.abc import Callable

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
    if reason := _reason_not_measured(measurement):
        measurement.report({"finite_reason": reason, "loss_reason": reason})
        return
    drawn, x = draw(measurement)
    for part, reason_column in ((_overflows, "finite_reason"), (_loss, "loss_reason")):
        try:
            part(measurement, drawn, x)
        except Exception as error:  # such as an operator that a CPU does not have in float16
            measurement.report({reason_column: describe_failure(error).message})


def _reason_not_measured(measurement: Measurement) -> str:
    case = measurement.case
    if case.execution != "eager":
        return "it is measured in eager execution only"
    if case.network:
        return "it is measured of a module alone"
    if measurement.device.kind == "cpu" and elements_in(measurement) > LARGEST:
        return f"the input has more than {LARGEST:,} elements, which takes minutes on a CPU"
    return ""


def _overflows(measurement: Measurement, drawn: "nn.Module", x: "Tensor") -> None:
    from ctxbench_science.stability.stability import SCALES, overflows

    case = measurement.case
    found = overflows(drawn, x, case.parameter_dtype, case.autocast_dtype, measurement.settings.seed)
    finite = SCALES[-1]
    for part, overflow in zip(PARTS, found, strict=True):
        # the gradients are tried as far as the forward pass is finite
        finite = max([0, *(scale for scale in SCALES if scale < overflow.scale)]) if overflow else finite
        measurement.report({f"finite_{part}": finite, f"overflow_{part}": str(overflow or "")})


def _loss(measurement: Measurement, drawn: "nn.Module", x: "Tensor") -> None:
    import torch

    from ctxbench_science.stability.stability import STEPS, losses

    case, settings = measurement.case, measurement.settings
    with torch.no_grad():  # of copies: training mode may update state
        first, second = (copy.deepcopy(drawn).train()(x) for _ in range(2))
    if relative_error(first, second) > SAME:
        measurement.report({"loss_reason": "the module draws random numbers in every forward pass"})
        return
    set_flags = partial(measurement.device.set_flags, threads=case.threads, cudnn_benchmark=settings.cudnn_benchmark)
    set_flags("float32")
    exact = losses(drawn, x, torch.float32, seed=settings.seed)
    set_flags(case.dtype)
    found = losses(drawn, x, case.parameter_dtype, case.autocast_dtype, settings.seed)
    for name, curve in {"float32": exact, case.dtype: found}.items():
        if not curve:
            measurement.report({"loss_reason": f"in {name} no step has finite gradients"})
            return
        if not math.isfinite(curve[-1]):
            measurement.report({"loss_reason": f"the loss in {name} was {curve[-1]} after {len(curve) - 1} updates"})
            return
    gap = max(abs(here / there - 1) for here, there in zip(found, exact, strict=False))
    measurement.report({"loss_gap": gap, "loss_left_out": STEPS - len(found)})


def sentence(row: RecordRow) -> str:
    """Sentence on the stability of a row's module in its dtype; "" if not asked for."""
    clauses = [_clause(row, part) for part in PARTS if row[f"finite_{part}"] is not None]
    if row["loss_gap"] is not None:
        left_out = f", {row['loss_left_out']} steps left out" if row["loss_left_out"] else ""
        clauses.append(f"loss of a short training within {100 * row['loss_gap']:.2g} % of float32's{left_out}")
    clauses += dict.fromkeys(f"not known: {row[each]}" for each in ("finite_reason", "loss_reason") if row[each])
    return f"in {row['dtype']}: {'; '.join(clauses)}." if clauses else ""


def _clause(row: RecordRow, part: str) -> str:
    overflow = row[f"overflow_{part}"]
    if part == "gradient" and row["overflow_forward"] and row["finite_gradient"] == row["finite_forward"]:
        return "gradients finite as far"
    return f"{PARTS[part]} finite up to scale {row[f'finite_{part}']}" + (f" ({overflow})" if overflow else "")


def _beside(part: str) -> "Callable[[RecordRow], str]":
    """Reader of the operator that ended a part, as `(exp at block.py:12)`."""

    def read(row: RecordRow) -> str:
        overflow = row[f"overflow_{part}"]
        return f"({overflow.partition(' gives ')[0]})" if overflow else ""

    return read


METRIC = Metric(
    name="stability",
    order=76,
    about="input scale and line at which a pass first gives infinity or NaN, and the loss of a short training",
    columns=[
        *(Column(f"finite_{part}", int) for part in PARTS),
        *(Column(f"overflow_{part}", str) for part in PARTS),
        Column("finite_reason", str),
        Column("loss_gap", float),
        Column("loss_left_out", int),
        Column("loss_reason", str),
    ],
    quantities=[
        *(
            Quantity(
                key=f"finite_{part}",
                column=f"finite_{part}",
                title=f"Finite up to scale, {part}",
                unit=Unit(""),
                origin="measured",
                part="finite",
                noun=f"input scale up to which the {noun} stays finite",
                comparative="more",
                better="larger",
                reason_column="finite_reason",
                beside=_beside(part),
            )
            for part, noun in PARTS.items()
        ),
        diagnostic("loss_gap", "Distance of the loss from float32's", "loss", decimals=None, better="smaller"),
    ],
    convention=(
        "Finite up to: the largest scale of a standard normal input (0 and the powers of 4 to 4096 are tried) at "
        "which no operator makes infinity or NaN of finite numbers, and the operator that does at the next; in a "
        "training pass, whose output gets a standard normal gradient; gradients are tried as far as the forward pass "
        "is finite; masks, which are infinite in float32 too, do not count; loss: the largest relative distance from "
        "float32's after the same number of updates of a short training, with weights kept in float32; with float16 "
        "the loss is scaled, and steps without finite gradients are left out; autocast on a CPU is with the lists for "
        "CUDA, but the kernels are the CPU's, which may add up in another width than a GPU's"
    ),
    default=False,
    measure=measure,
    limit_s=lambda measure: LIMIT_S,
    takes_s=lambda measure: USUAL_S,
    sentence=sentence,
)
