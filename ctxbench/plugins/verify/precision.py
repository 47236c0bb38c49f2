"""Checks of other number formats and layouts, and, for information, of torch's compiler and exporter."""

from contextlib import suppress

import torch
from torch import Tensor, nn

from ctxbench.base.errors import UsageError
from ctxbench.devices import Unsupported
from ctxbench.executions import execution
from ctxbench.meta.built import converted
from ctxbench.meta.influence import forward
from ctxbench.model.failures import describe_failure
from ctxbench.plugins.verify.contract import CheckResult
from ctxbench.plugins.verify.subject import Subject, difference, failed, not_applicable, passed, step_input

# Another layout sums in another order: this many times what is taken for equal.
ORDER_OF_SUMS = 1e4
# Relative to the maximum: float32, sums in another order.
ONNX_AGREES = 1e-3
DTYPES = (torch.bfloat16, torch.float16, torch.float64)


def other_dtypes(subject: Subject) -> CheckResult:
    """bfloat16, float16 and float64: the dtype is kept and the output finite, also of a single image."""
    kept, unsupported = [], []
    for dtype in DTYPES:
        name = str(dtype).removeprefix("torch.")
        module = converted(subject.build(), "cpu", dtype).eval()
        try:
            with torch.no_grad():
                y = forward(module, subject.image(dtype=dtype))
                finite = bool(torch.isfinite(y).all()) and _is_finite_alone(module, subject.image(batch=1, dtype=dtype))
        except Exception as error:  # whatever the module raises is what the check reports
            failure = describe_failure(error)
            if failure.status != "unsupported":
                return failed(
                    f"{name}: {failure.message}",
                    "create new tensors with dtype=x.dtype, and use float32 only for the operations that need it",
                )
            unsupported.append(f"{name} is not supported here: {failure.message}")
            continue
        if y.dtype != dtype:
            return failed(
                f"{name} in, {str(y.dtype).removeprefix('torch.')} out", "convert the output back: y.to(x.dtype)"
            )
        if not finite:
            return failed(
                f"the output in {name} holds NaN or infinity",
                "in float16 an epsilon below 6e-8 is zero and a sum above 65504 is infinite: use float32 for it",
            )
        kept.append(name)
    if not kept:
        return not_applicable("; ".join(unsupported))
    return passed("; ".join([f"{', '.join(kept)}: dtype kept, output finite", *unsupported]))


def _is_finite_alone(module: nn.Module, x: Tensor) -> bool:
    """Return whether the output of one image is finite, in both layouts.

    Of one image views are strided that are copies of several: grid_sample of PyTorch 2.13 reads wrong memory there.
    """
    found = [forward(module, x)]
    with suppress(RuntimeError):  # one that cannot read the layout fails in `channels_last`
        found.append(forward(module, x.to(memory_format=torch.channels_last)))
    return all(bool(torch.isfinite(each).all()) for each in found)


def channels_last(subject: Subject) -> CheckResult:
    """An input in channels_last gives the same values."""
    module, x = subject.randomised(), subject.image()
    with torch.no_grad():
        y = forward(module, x)
        torch.nn.utils.convert_conv2d_weight_memory_format(module, torch.channels_last)
        try:
            other = forward(module, x.to(memory_format=torch.channels_last))
        except RuntimeError as error:
            return failed(
                describe_failure(error).message,
                "use reshape or flatten instead of a view, which needs contiguous memory",
            )
    moved = difference(y, other)
    if moved > ORDER_OF_SUMS * subject.agrees:
        if difference(y, forward(module, x, seed=2)) > subject.agrees:
            return not_applicable("it draws random numbers, which another layout has in another order")
        return failed(
            f"the output differs by {moved:.2g} of its maximum",
            "an operation depends on the order of the elements in memory: look for as_strided or view",
        )
    layout = "channels_last" if other.is_contiguous(memory_format=torch.channels_last) else "contiguous"
    return passed(
        f"the values differ by at most {moved:.1g} of the largest; the memory format of the output is {layout}"
    )


def compiles(subject: Subject) -> CheckResult:
    """torch.compile captures the module as one graph (backend aot_eager, which generates no machine code)."""
    import torch._dynamo

    module = subject.build()
    x = step_input(subject, module)
    torch._dynamo.reset()
    try:
        y = forward(torch.compile(module, fullgraph=True, backend="aot_eager"), x)  # type: ignore[arg-type]  # a module, compiled
        y.sum().backward()
    except Exception as error:  # whatever the compiler raises is what the check reports
        return failed(
            f"cannot be captured as one graph: {_reason(error)}",
            "torch.compile splits it into several graphs or does not run it",
        )
    finally:
        torch._dynamo.reset()
    return passed("one graph, forward and backward (backend aot_eager, which generates no machine code)")


def exports(subject: Subject) -> CheckResult:
    """torch.export captures the module."""
    module, x = subject.build().eval(), subject.image(dtype=torch.float32)
    try:
        torch.export.export(module, (x,), strict=False)
    except Exception as error:  # whatever the exporter raises is what the check reports
        return failed(
            f"torch.export: {_reason(error)}",
            "torch.export cannot follow a branch that depends on the values of a tensor",
        )
    return passed("torch.export captures it at a fixed size")


def onnx(subject: Subject) -> CheckResult:
    """The module can be exported to ONNX, and ONNX Runtime computes the same."""
    module, x = converted(subject.randomised(), "cpu", torch.float32).eval(), subject.image(dtype=torch.float32)
    try:
        runtime = execution("onnxruntime")
        runtime.check("cpu", "float32", "contiguous")
    except (UsageError, Unsupported) as error:
        return not_applicable(str(error))
    try:
        with torch.inference_mode():
            expected = forward(module, x)
        y = runtime.build(module, x).forward(x)
    except Exception as error:  # whatever the exporter or the runtime raises is what the check reports
        return failed(
            describe_failure(error).message,
            "torch.onnx.export(module.eval(), (x,), dynamo=True) prints all that the exporter says"
            if "exported to ONNX" in str(error)
            else "",
        )
    moved = difference(expected, y)
    if moved > ONNX_AGREES:
        return failed(
            f"the output differs by {moved:.2g} of its maximum",
            "an export keeps what was drawn or chosen while it was made: draw random numbers once, in the constructor",
        )
    return passed(f"the values differ by at most {moved:.1g} of the largest")


def _reason(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
