"""The packages that only some commands need, and the sentence for those who lack one."""

from importlib.util import find_spec

_EXPORTER = ("onnx", "onnxscript")
# What is imported, by the extra of ctxbench that brings it.
PACKAGES = {
    "networks": ("timm", "torchvision"),
    "recall": ("sklearn",),
    "onnx": (*_EXPORTER, "onnxruntime"),
    "openvino": (*_EXPORTER, "openvino"),
    "ray": ("ray",),
}


def lacking(who: str, extra: str) -> str:
    """`recall needs sklearn: pip install "ctxbench[recall]"`, where a package is not installed; else "".

    Nothing is imported. Without an `extra` nothing is needed.
    """
    missing = [name for name in PACKAGES.get(extra, ()) if find_spec(name) is None]
    return f'{who} needs {" and ".join(missing)}: pip install "ctxbench[{extra}]"' if missing else ""
