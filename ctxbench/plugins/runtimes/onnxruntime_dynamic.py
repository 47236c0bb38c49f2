"""ONNX Runtime on the CPU, with a file that takes any height and width."""

from ctxbench.plugins.runtimes.onnxruntime import OnnxRuntime


class OnnxRuntimeDynamic(OnnxRuntime):
    name = "onnxruntime-dynamic"
    about = "as onnxruntime, exported for any height and width"
    order = 4
    dynamic = True


EXECUTION = OnnxRuntimeDynamic()
