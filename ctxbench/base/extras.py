"""The packages that only some commands need, and the sentence for those who lack one."""

from collections.abc import Sequence
from importlib.util import find_spec

from ctxbench.plugin import brought

# What is imported, by the extra of ctxbench that brings it.
PACKAGES = {"networks": ("timm", "torchvision"), "detectors": ("ultralytics",)}


def packages_of(extra: str) -> Sequence[str]:
    """Import names of the packages of an extra of ctxbench or of a plugin; without an `extra`, nothing."""
    known: dict[str, Sequence[str]] = {**PACKAGES, **dict(each for _, each in brought("extras"))}
    return known.get(extra, ())


def lacking(who: str, extra: str) -> str:
    """`recall needs sklearn: in the clone, pip install -c constraints.txt ".[recall]"`, if it is not there; else "".

    Nothing is imported. Without an `extra` nothing is needed.
    """
    missing = [name for name in packages_of(extra) if find_spec(name) is None]
    if not missing:
        return ""
    return f'{who} needs {" and ".join(missing)}: in the clone, pip install -c constraints.txt ".[{extra}]"'
