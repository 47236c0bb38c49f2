"""ONNX Runtime on the CPU: its default provider and all of its graph optimisations."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from ctxbench.executions.exported import EXPORTER, Exported

if TYPE_CHECKING:
    from torch import Tensor

# Of its log: errors alone.
_SEVERITY = 3


class OnnxRuntime(Exported):
    name = "onnxruntime"
    about = "exported to ONNX, run by ONNX Runtime on the CPU; inference only"
    place = 3
    packages = (*EXPORTER, "onnxruntime")
    extra = "onnx"

    def open(self, path: Path) -> "tuple[Callable[[Tensor], Tensor], int]":
        import onnx
        import onnxruntime
        import torch

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        options.inter_op_num_threads = 1
        options.log_severity_level = _SEVERITY
        optimised = path.with_name("optimised.onnx")
        options.optimized_model_filepath = str(optimised)
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        operators = len(onnx.load(optimised, load_external_data=False).graph.node)
        name = session.get_inputs()[0].name

        def forward(x: "Tensor") -> "Tensor":
            return torch.from_numpy(session.run(None, {name: x.numpy()})[0])

        return forward, operators


EXECUTION = OnnxRuntime()
