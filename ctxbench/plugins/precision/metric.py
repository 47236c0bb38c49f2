"""The numeric price of a dtype or an execution: how far output and gradient are from those in float64."""

import copy
from typing import TYPE_CHECKING, Any

from ctxbench.base.mode import MODES, Mode
from ctxbench.model.metric import Column, Measurement, Metric, Quantity, TimedPass, Unit, by_mode

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor, nn

    from ctxbench.model.case import Case

# Relative: two float64 outputs of the same weights that differ by more were drawn.
SAME = 1e-9
TITLES = {"infer": "Error of the output, infer", "train": "Error of the gradient, train"}


def time(measurement: Measurement, mode: Mode, one_pass: TimedPass) -> None:
    """Report the relative error of a mode's output (infer) or of all parameters' gradients (train), or why none."""
    reason = _reason_not_measured(measurement)
    if not reason:
        found = _error(measurement, mode)
        if isinstance(found, float):
            measurement.report({f"error_{mode}": found})
            return
        reason = found
    measurement.report({"error_reason": reason})


def relative_error(value: "Tensor", exact: "Tensor") -> float:
    """|value - exact| / |exact|, Euclidean, in float64; 0 for two zero vectors."""
    import torch

    value, exact = value.double(), exact.double()
    difference = torch.linalg.vector_norm(value - exact).item()
    length: float = torch.linalg.vector_norm(exact).item()
    return difference / length if difference else 0.0


def draw(measurement: Measurement) -> "tuple[nn.Module, Tensor]":
    """Module and input in float32 on the case's device, the same for every dtype and execution."""
    model, x = drawn(measurement.case, measurement.settings.seed)
    return model.to(measurement.device.torch), x.to(measurement.device.torch)


def drawn(case: "Case", seed: int) -> "tuple[nn.Module, Tensor]":
    """Module and input in float32 on the CPU; no branch is off."""
    import torch

    torch.manual_seed(seed)
    model = case.build()
    draw_zeros(model)
    return model, torch.randn(case.shape)


def draw_zeros(model: "nn.Module") -> None:
    """Draw parameters that are zero at first, such as the factor of a residual branch, from [0, 1)."""
    import torch

    with torch.no_grad():
        for parameter in model.parameters():
            if not parameter.any():
                parameter.uniform_()


def _reason_not_measured(measurement: Measurement) -> str:
    if reason := measurement.execution.no_error:
        return reason
    if measurement.predicted_bytes is None:
        return ""
    needed = measurement.predicted_bytes * 8 // measurement.case.parameter_dtype.itemsize
    if needed > measurement.device.free_bytes():
        return f"the same in float64 takes {needed / 2**30:.1f} GiB, more than is free"
    return ""


def _error(measurement: Measurement, mode: Mode) -> float | str:
    """The relative error, or why there is none. The weights that the case is measured with are put back."""
    import torch

    from ctxbench.meta.built import converted

    drawn, x = draw(measurement)
    reference, model = converted(copy.deepcopy(drawn), "cpu", torch.float64), measurement.model
    exact = _result(reference, x.double(), mode)
    again = converted(copy.deepcopy(drawn), "cpu", torch.float64)
    if relative_error(_result(again, x.double(), mode), exact) > SAME:
        return "the module draws random numbers in every forward pass"
    kept: dict[str, Any] = copy.deepcopy(model.state_dict())
    try:
        model.load_state_dict(drawn.state_dict())
        with measurement.autocast():
            run = measurement.execution.build(model, measurement.x).forward if mode == "infer" else model
            value = _result(model, x.to(measurement.x.dtype, copy=True), mode, run)
    finally:
        model.load_state_dict(kept)
    return relative_error(value, exact) if torch.isfinite(value).all() else "the result holds NaN or infinity"


def _result(model: "nn.Module", x: "Tensor", mode: Mode, run: "Callable[[Tensor], Tensor] | None" = None) -> "Tensor":
    """The output in inference; in training all gradients of a randomly weighted sum of the output, as one vector.

    They are those of the weights, or of the input where there is none. `run` is what computes the output, the module
    itself if it is left out.
    """
    import torch

    model.train(mode == "train")
    if mode == "infer":
        with torch.inference_mode():
            found: Tensor = (run or model)(x)
            return found
    trained: list[Tensor] = [each for each in model.parameters() if each.requires_grad]
    trained = trained or [x.requires_grad_()]
    y: Tensor = model(x)
    weights = torch.randn(y.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).to(y.device)
    gradients = torch.autograd.grad((y.double() * weights).sum(), trained, materialize_grads=True)
    return torch.cat([each.double().flatten() for each in gradients])


METRIC = Metric(
    name="precision",
    order=75,
    about="relative error of output and gradients against float64",
    columns=[*by_mode("error_{mode}", float), Column("error_reason", str)],
    quantities=[
        Quantity(
            key=f"error_{mode}",
            column=f"error_{mode}",
            title=TITLES[mode],
            unit=Unit(""),
            origin="measured",
            part="error",
            noun=f"numeric error ({mode})",
            reason_column="error_reason",
        )
        for mode in MODES
    ],
    convention=(
        "Error: |value - exact| / |exact|; exact is the same module in float64, with weights and input drawn in "
        "float32, which the case rounds to its dtype; parameters that start at 0 are drawn from [0, 1); gradient: of "
        "all parameters, of a randomly weighted sum of the output"
    ),
    default=False,
    time=time,
)
