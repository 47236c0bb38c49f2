"""OpenVINO on the CPU: one stream, in the precision of the case."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from ctxbench.plugins.runtimes.exported import Exported

if TYPE_CHECKING:
    from torch import Tensor


class OpenVino(Exported):
    name = "openvino"
    about = "exported to ONNX, run by OpenVINO on the CPU; inference only"
    order = 5
    extra = "openvino"
    dtypes = ("float32",)

    def open(self, path: Path) -> "tuple[Callable[[Tensor], Tensor], int]":
        import openvino
        import torch

        core = openvino.Core()
        settings = {
            # On some processors it would compute in bfloat16.
            "INFERENCE_PRECISION_HINT": "f32",
            "INFERENCE_NUM_THREADS": torch.get_num_threads(),
            "NUM_STREAMS": 1,
            "PERFORMANCE_HINT": "LATENCY",
        }
        compiled = core.compile_model(core.read_model(path), "CPU", settings)
        request = compiled.create_infer_request()

        def forward(x: "Tensor") -> "Tensor":
            return torch.from_numpy(request.infer([x.numpy()], share_inputs=True, share_outputs=True)[0])

        return forward, len(compiled.get_runtime_model().get_ops())


EXECUTION = OpenVino()
