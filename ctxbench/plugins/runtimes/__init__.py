"""Runtimes that execute an exported module."""

from ctxbench.plugin import Plugin

EXPORTER = ("onnx", "onnxscript")
PLUGIN = Plugin(
    about="runs modules in ONNX Runtime, OpenVINO and TensorRT",
    needs=("precision",),
    metrics=("file_size:METRIC",),
    executions=("onnxruntime:EXECUTION", "onnxruntime:DYNAMIC", "openvino:EXECUTION", "tensorrt:EXECUTION"),
    suites="suites",
    extras={"onnx": (*EXPORTER, "onnxruntime"), "openvino": (*EXPORTER, "openvino")},
)
