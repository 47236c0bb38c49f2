"""The targets: what converts a module for each, run on this CPU where that is possible."""

import re
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from ctxbench.base.extras import installed
from ctxbench.base.number import significant
from ctxbench.base.temporary import temporary_folder
from ctxbench.model.failures import describe_failure
from ctxbench.plugins.portable.found import Found
from ctxbench.plugins.portable.graph import GraphCall, blamed, calls_of, exported_calls, litert_calls, outside_of
from ctxbench.plugins.portable.mends import mend_of
from ctxbench.plugins.portable.rules import refused_by
from ctxbench.plugins.precision.metric import drawn, relative_error
from ctxbench.plugins.runtimes.exported import export
from ctxbench.plugins.runtimes.onnxruntime import EXECUTION as ONNX_RUNTIME
from ctxbench.plugins.runtimes.openvino import EXECUTION as OPENVINO

if TYPE_CHECKING:
    from torch import Tensor, nn

    from ctxbench.model.case import Case

# An output that is further from PyTorch's, relatively, is another one.
WRONG = 1e-3
# The same module's outputs that differ by more were drawn.
SAME = 1e-6
# The most axes of a Core ML tensor: https://github.com/apple/coremltools/issues/1723
CORE_ML_RANK = 5
# A line of an error that says where in the converter it was raised.
_PLACE = re.compile(r"Exception from |Check '.*' failed at ")
# Characters of an error that are told; all of it is in the run's log.txt.
_LONGEST = 160


@dataclass(frozen=True)
class Converted:
    """A converted module: its function (None: it does not run here), operators outside with lines, number of parts.

    `blamed` is the first call of the module that makes such an operator.
    """

    run: "Callable[[Tensor], Tensor] | None"
    outside: Sequence[str] = ()
    parts: int = 1
    blamed: GraphCall | None = None


@dataclass(frozen=True)
class Target:
    """A target: its name for people, its packages, the extra of ctxbench that brings them, and what converts.

    `any_size`, if there is one, converts for any height and width. A target of a `rule` has no converter here: rules
    say what it refuses of what another one makes. What it `imports` starts no thread.
    """

    title: str
    packages: Sequence[str]
    convert: "Callable[[nn.Module, Tensor], Converted]"
    extra: str = ""
    any_size: "Callable[[nn.Module, Tensor], Converted] | None" = None
    rule: bool = False
    imports: Sequence[str] = ()


def try_target(name: str, case: "Case", seed: int) -> Found:
    """Try a target on a case's module in float32, with the case's input."""
    return tried(TARGETS[name], *drawn(case, seed))


def tried(target: Target, model: "nn.Module", x: "Tensor") -> Found:
    """Try a target on a module. Raises what the module itself raises for this input."""
    import torch

    model.eval()
    versions = ", ".join(f"{each} {installed(each)}" for each in target.packages)
    with torch.no_grad():
        exact = model(x.clone())
        is_drawn = relative_error(model(x.clone()), exact) > SAME
        try:
            made = target.convert(model, x.clone())
            value = made.run(x.clone()) if made.run else None
        except Exception as error:  # converters have classes of their own
            traceback.print_exc()  # for the log
            reason, call = _reason(error, model, x)
            return Found("refused", reason, mend=mend_of(call), versions=versions)
        found = Found(
            "rule" if target.rule else "parts" if made.outside else "whole", outside=made.outside, parts=made.parts,
            mend=mend_of(made.blamed), ran=made.run is not None, versions=versions,
        )  # fmt: skip
        if value is not None and not is_drawn:
            found = replace(found, error=relative_error(value, exact))
        if value is not None and not value.isfinite().all():
            return replace(found, status="wrong", reason="its output holds NaN or infinity", error=None)
        if found.error is not None and found.error > WRONG:
            said = f"its output differs from PyTorch's by {significant(found.error, 2)}, relatively"
            return replace(found, status="wrong", reason=said)
        return replace(found, one_size=_one_size(target, model, x, is_drawn)) if target.any_size else found


def _one_size(target: Target, model: "nn.Module", x: "Tensor", is_drawn: bool) -> str:
    """Reason why a conversion is for one size only, tried with twice the height; "" where it is for any."""
    import torch

    assert target.any_size
    batch, channels, height, width = x.shape
    other = torch.randn(batch, channels, 2 * height, width, generator=torch.Generator().manual_seed(0))
    try:
        exact = model(other.clone())
    except Exception as error:
        return f"the module itself takes no other: {describe_failure(error).message}"
    try:
        run = target.any_size(model, x.clone()).run
        assert run
        value = run(other.clone())
    except Exception as error:
        return _reason(error, model, x)[0]
    if value.shape != exact.shape or not (is_drawn or relative_error(value, exact) <= WRONG):
        return "converted for any, its output at another size is not PyTorch's"
    return ""


def _reason(error: Exception, model: "nn.Module", x: "Tensor") -> tuple[str, GraphCall | None]:
    """Words of an error, after the operator that it is about, with its line; and that call, where one is known."""
    said = str(error)
    lines = [each.strip() for each in said.splitlines() if each.strip() and not _PLACE.match(each.strip())]
    first = lines[0] if lines else type(error).__name__
    first = first if len(first) <= _LONGEST else f"{first[:_LONGEST]} ..."
    call = blamed(said, exported_calls(model, x), CORE_ML_RANK)
    if call is None or (call.line and call.line in first):
        return first, call
    rank = f", rank {call.rank}" if call.rank > CORE_ML_RANK else ""
    return f"{call}{rank}: {first}", call


def _torch_export(model: "nn.Module", x: "Tensor", *, any_size: bool = False) -> Converted:
    import torch

    sizes = {2: torch.export.Dim.DYNAMIC, 3: torch.export.Dim.DYNAMIC}
    program = torch.export.export(model, (x,), dynamic_shapes=(sizes,) if any_size else None, strict=False)
    return Converted(program.module())


def _onnx(model: "nn.Module", x: "Tensor", *, any_size: bool = False) -> Converted:
    with temporary_folder() as folder:
        export(model, x, folder / "module.onnx", any_size)
        run, _ = ONNX_RUNTIME.open(folder / "module.onnx")
    return Converted(run)


def _openvino(model: "nn.Module", x: "Tensor") -> Converted:
    with temporary_folder() as folder:
        export(model, x, folder / "module.onnx")
        run, _ = OPENVINO.open(folder / "module.onnx")
    return Converted(run)


def _executorch(model: "nn.Module", x: "Tensor") -> Converted:
    import torch
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower
    from executorch.runtime import Runtime

    program = torch.export.export(model, (x,), strict=False)
    lowered = to_edge_transform_and_lower(program, partitioner=[XnnpackPartitioner()])
    outside, parts = outside_of(list(calls_of(lowered.exported_program().graph)))
    buffer = lowered.to_executorch().buffer

    def run(value: "Tensor") -> "Tensor":
        runtime_program = Runtime.get().load_program(buffer)  # a method does not keep it alive
        result: Tensor = runtime_program.load_method("forward").execute([value])[0]
        return result.clone()

    return Converted(run, outside, parts)


def _core_ml(model: "nn.Module", x: "Tensor") -> Converted:
    import coremltools
    import torch

    program = torch.export.export(model, (x,), strict=False).run_decompositions({})
    coremltools.convert(
        program,
        minimum_deployment_target=coremltools.target.iOS18,
        compute_precision=coremltools.precision.FLOAT32,
        skip_model_load=True,
    )
    return Converted(None)


def _litert(model: "nn.Module", x: "Tensor") -> Converted:
    import litert_torch
    import torch

    converted: Any = litert_torch.convert(model, (x,))
    return Converted(lambda value: torch.from_numpy(converted(value)))


def _litert_gpu(model: "nn.Module", x: "Tensor") -> Converted:
    import litert_torch

    converted: Any = litert_torch.convert(model, (x,))
    outside, call = refused_by("litert_gpu", litert_calls(converted.model_content()), exported_calls(model, x))
    return Converted(None, outside, blamed=call)


_EXPORT = ("torch._dynamo", "sympy")
_ONNX = (*_EXPORT, "torch.onnx", "onnx", "onnxscript")  # the runtimes start a thread when they are imported
_EXECUTORCH = (*_EXPORT, "executorch.exir", "executorch.backends.xnnpack.partition.xnnpack_partitioner")
_LITERT = (*_EXPORT, "litert_torch", "ai_edge_litert.interpreter")
TARGETS = {
    "export": Target(
        "torch.export",
        ("torch",),
        _torch_export,
        any_size=partial(_torch_export, any_size=True),
        imports=_EXPORT,
    ),
    "onnx": Target(
        "ONNX Runtime",
        ("onnx", "onnxscript", "onnxruntime"),
        _onnx,
        extra="onnx",
        any_size=partial(_onnx, any_size=True),
        imports=_ONNX,
    ),
    "openvino": Target("OpenVINO", ("onnx", "onnxscript", "openvino"), _openvino, extra="openvino", imports=_ONNX),
    "executorch": Target("ExecuTorch (XNNPACK)", ("executorch",), _executorch, extra="executorch", imports=_EXECUTORCH),
    "coreml": Target("Core ML", ("coremltools",), _core_ml, extra="coreml", imports=(*_EXPORT, "coremltools")),
    "litert": Target("LiteRT", ("litert-torch", "ai-edge-litert"), _litert, extra="litert", imports=_LITERT),
    "litert_gpu": Target("LiteRT's GPU", ("litert-torch",), _litert_gpu, extra="litert", rule=True, imports=_LITERT),
}
