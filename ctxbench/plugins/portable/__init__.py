"""Deployment of a module, as the converters themselves say."""

from ctxbench.plugin import Plugin

PLUGIN = Plugin(
    about="says where a module can be deployed, by converters that run here",
    needs=("precision", "runtimes"),
    metrics=("metric:METRIC",),
    suites="suites",
    beside=("beside:on_targets",),
    extras={
        "executorch": ("executorch",),
        "coreml": ("coremltools",),
        "litert": ("litert_torch",),
        "portable": ("onnx", "onnxscript", "onnxruntime", "openvino", "executorch", "coremltools", "litert_torch"),
    },
)
