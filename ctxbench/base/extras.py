"""The packages that only some commands need, and the sentence for those who lack one."""

import sys
from collections.abc import Sequence
from importlib.util import find_spec

from ctxbench.base.texts import listed
from ctxbench.plugin import brought

# Package of the distribution in science/.
SCIENCE = "ctxbench_science"
# What is imported, by the extra of ctxbench that brings it.
PACKAGES = {
    "networks": ("timm", "torchvision"),
    "detectors": ("ultralytics",),
    "public": (
        "monai",
        "axial_attention",
        "local_attention",
        "timm",
        "diffusers",
        "segmentation_models_pytorch",
        "vit_pytorch",
        "ultralytics",
    ),
}


def packages_of(extra: str) -> Sequence[str]:
    """Import names of the packages of an extra of ctxbench or of a plugin; without an `extra`, nothing."""
    known: dict[str, Sequence[str]] = {**PACKAGES, **dict(each for _, each in brought("extras"))}
    return known.get(extra, ())


def installed(package: str) -> str:
    """Version of an installed package, `2.13.0+cpu` of torch. PackageNotFoundError if it is not there.

    The wheels of torch on PyPI leave the build out of their name, so torch, where it is imported, is asked itself.
    """
    from importlib.metadata import version  # slow to import, needed only here

    return str(sys.modules["torch"].__version__) if package == "torch" and "torch" in sys.modules else version(package)


def lacking(who: str, extra: str) -> str:
    """`onnxruntime needs onnx: in the clone, pip install -c constraints.txt ".[onnx]"`, if it is not there; else "".

    Nothing is imported. Without an `extra` nothing is needed.
    """
    missing = [name for name in packages_of(extra) if find_spec(name) is None]
    if not missing:
        return ""
    return f'{who} needs {listed(missing)}: in the clone, pip install -c constraints.txt ".[{extra}]"'


def with_science(what: str) -> str:
    """`; more suites come with ctxbench-science: in the clone, pip install ...`, where it is not installed; else ""."""
    if find_spec(SCIENCE):
        return ""
    return f"; {what} come with ctxbench-science: in the clone, pip install -c constraints.txt ./science"
