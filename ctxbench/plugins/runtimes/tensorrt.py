"""TensorRT on an NVIDIA GPU, as a provider of ONNX Runtime: on torch's stream, with torch's own tensors."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from ctxbench.plugins.runtimes.exported import Exported
from ctxbench.plugins.runtimes.onnxruntime import session_options

if TYPE_CHECKING:
    from torch import Tensor

_PROVIDER = "TensorrtExecutionProvider"


class TensorRt(Exported):
    name = "tensorrt"
    about = "exported to ONNX, run by TensorRT on an NVIDIA GPU; inference only"
    order = 6
    extra = "onnx"
    dtypes = ("float32", "float16")
    device_type = "cuda"
    takes_s = 20.0  # it times kernels to choose among them

    def check(self, device: str, dtype: str, memory_format: str) -> None:
        from ctxbench.devices import Unsupported

        super().check(device, dtype, memory_format)
        import onnxruntime

        if _PROVIDER not in onnxruntime.get_available_providers():
            raise Unsupported(
                "this ONNX Runtime has no TensorRT: pip uninstall onnxruntime; pip install onnxruntime-gpu tensorrt"
            )

    def open(self, path: Path) -> "tuple[Callable[[Tensor], Tensor], None]":
        import onnxruntime
        import torch

        index = torch.cuda.current_device()
        settings = {
            "device_id": index,
            # Where the clock's events are; an own stream would run beside them.
            "user_compute_stream": str(torch.cuda.current_stream().cuda_stream),
            "trt_fp16_enable": False,
        }
        options = session_options()
        # What TensorRT does not take would run on the CPU without a word.
        options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
        session = onnxruntime.InferenceSession(path, options, providers=[(_PROVIDER, settings)])
        (source,), (result,) = session.get_inputs(), session.get_outputs()

        def forward(x: "Tensor") -> "Tensor":
            y = torch.empty(result.shape, dtype=x.dtype, device=x.device)
            binding = session.io_binding()
            for bind, each, tensor in ((binding.bind_input, source, x), (binding.bind_output, result, y)):
                element = str(tensor.dtype).removeprefix("torch.")  # numpy has the same names
                bind(each.name, "cuda", index, element, tuple(tensor.shape), tensor.data_ptr())
            session.run_with_iobinding(binding)
            return y

        return forward, None


EXECUTION = TensorRt()
