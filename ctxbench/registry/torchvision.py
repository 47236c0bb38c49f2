"""torchvision beside a torch that it is not built for, which many packages of networks import."""

from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

T = TypeVar("T")

# What torchvision's own code expects of its compiled part while it is imported.
_ASKED_FOR = ("nms", "qnms")


def with_torchvision(load: Callable[[], T]) -> T:
    """The result of a function that imports. If torchvision lacks its operators, they are declared, and it runs again.

    A torchvision that is built for CUDA, as PyPI has it, cannot load its operators into a torch for CPUs. Declared,
    they have no kernel: all that calls none of them works.
    """
    try:
        return load()
    except RuntimeError as error:
        if not any(f"operator torchvision::{each} " in str(error) for each in _ASKED_FOR):
            raise
        _declare()
        return load()


@cache
def _declare() -> Any:
    """Declare the operators; they last as long as what is returned."""
    import torch

    operators = torch.library.Library("torchvision", "FRAGMENT")
    for each in _ASKED_FOR:
        operators.define(f"{each}(Tensor boxes, Tensor scores, float threshold) -> Tensor")
    return operators
