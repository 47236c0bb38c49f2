"""Checks of other number formats and layouts, and, for information, of torch's compiler and exporter."""

import torch

from ctxbench.contract.subject import AGREES, Finding, Subject, difference, failed, forward, not_applicable, passed
from ctxbench.engine.failures import describe_failure

DTYPES = (torch.bfloat16, torch.float16, torch.float64)


def other_dtypes(subject: Subject) -> Finding:
    """bfloat16, float16 and float64: the dtype is kept and the output finite."""
    kept, unsupported = [], []
    for dtype in DTYPES:
        name = str(dtype).removeprefix("torch.")
        module = subject.build().eval().to(dtype)
        try:
            with torch.no_grad():
                y = forward(module, subject.image(dtype=dtype))
        except Exception as error:  # whatever the module raises is what the check reports
            failure = describe_failure(error)
            if failure["status"] != "unsupported":
                return failed(
                    f"{name}: {failure['message']}",
                    "make new tensors with dtype=x.dtype, and widen only around what needs it",
                )
            unsupported.append(f"{name} is not offered here: {failure['message']}")
            continue
        if y.dtype != dtype:
            return failed(
                f"{name} in, {str(y.dtype).removeprefix('torch.')} out", "cast back what was widened: y.to(x.dtype)"
            )
        if not torch.isfinite(y).all():
            return failed(
                f"the output in {name} holds NaN or infinity",
                "an epsilon below 6e-8 is zero in float16 and a sum above 65504 is infinite: widen there",
            )
        kept.append(name)
    if not kept:
        return not_applicable("; ".join(unsupported))
    return passed("; ".join([f"{', '.join(kept)} kept and finite", *unsupported]))


def channels_last(subject: Subject) -> Finding:
    """An input in channels_last gives the same numbers."""
    module, x = subject.opened(), subject.image()
    with torch.no_grad():
        y = forward(module, x)
        try:
            other = forward(module.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last))  # type: ignore[call-overload]  # torch's stub lacks it
        except RuntimeError as error:
            return failed(
                describe_failure(error)["message"], "use reshape or flatten where a view needs contiguous memory"
            )
    moved = difference(y, other)
    # Another layout sums in another order.
    if moved > 1e4 * AGREES:
        return failed(
            f"the output differs by {moved:.2g} of its size", "something reads memory in its order: view, as_strided"
        )
    layout = "channels_last" if other.is_contiguous(memory_format=torch.channels_last) else "contiguous"
    return passed(f"the same numbers to {moved:.1g}; the output comes out {layout}")


def compiles(subject: Subject) -> Finding:
    """torch.compile captures the module as one graph (backend aot_eager: no machine code is made)."""
    import torch._dynamo

    module, x = subject.build(), subject.image(dtype=torch.float32)
    torch._dynamo.reset()
    try:
        y = forward(torch.compile(module, fullgraph=True, backend="aot_eager"), x)  # type: ignore[arg-type]  # a module, compiled
        y.sum().backward()
    except Exception as error:  # whatever the compiler raises is what the check reports
        return failed(f"not as one graph: {_reason(error)}", "torch.compile will run it in pieces, or not at all")
    finally:
        torch._dynamo.reset()
    return passed("one graph, forward and backward (backend aot_eager, which makes no machine code)")


def exports(subject: Subject) -> Finding:
    """torch.export captures the module."""
    module, x = subject.build().eval(), subject.image(dtype=torch.float32)
    try:
        torch.export.export(module, (x,), strict=False)
    except Exception as error:  # whatever the exporter raises is what the check reports
        return failed(f"torch.export: {_reason(error)}", "values that decide what runs cannot be exported")
    return passed("torch.export captures it at a fixed size")


def _reason(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
