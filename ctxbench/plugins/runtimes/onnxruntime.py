"""ONNX Runtime on the CPU: its default provider and all of its graph optimisations."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ctxbench.plugins.runtimes.exported import Exported

if TYPE_CHECKING:
    from torch import Tensor

# Of its log: errors alone.
_SEVERITY = 3


class OnnxRuntime(Exported):
    name = "onnxruntime"
    about = "exported to ONNX, run by ONNX Runtime on the CPU; inference only"
    order = 3
    extra = "onnx"

    def open(self, path: Path) -> "tuple[Callable[[Tensor], Tensor], int]":
        import onnx
        import onnxruntime
        import torch

        optimised = path.with_name("optimised.onnx")
        options = session_options()
        options.optimized_model_filepath = str(optimised)
        # A file of more than 2 GB keeps its weights beside it.
        options.add_session_config_entry("session.optimized_model_external_initializers_file_name", "weights.bin")
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        operators = len(onnx.load(optimised, load_external_data=False).graph.node)
        name = session.get_inputs()[0].name

        def forward(x: "Tensor") -> "Tensor":
            return torch.from_numpy(session.run(None, {name: x.numpy()})[0])

        return forward, operators


class OnnxRuntimeDynamic(OnnxRuntime):
    name = "onnxruntime-dynamic"
    about = "as onnxruntime, exported for any height and width"
    order = 4
    dynamic = True


def session_options() -> Any:
    """Options of a session with torch's number of threads."""
    import onnxruntime
    import torch

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.inter_op_num_threads = 1
    options.log_severity_level = _SEVERITY
    return options


EXECUTION = OnnxRuntime()
DYNAMIC = OnnxRuntimeDynamic()
