"""Reason why a pass cannot run on the meta device, as a clause that names the line of the module's code."""

import re
from pathlib import Path

import torch

from ctxbench.base.errors import text_of
from ctxbench.base.reasons import frame_of, said

# What PyTorch says where the numbers of a tensor without data are asked for.
_ASKS_FOR_NUMBERS = (
    "item() cannot be called on meta", "no data!", "meta device type tensor to numpy", "without output_size"
)  # fmt: skip
_NO_KERNEL = ("attempted to run this operator with Meta tensors", "Could not run", "is only supported on")
_MENTIONS_META = re.compile(r"(?<![a-z])meta(?!data)", re.IGNORECASE)
_OF_VALUES = (torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape)


def reads_values(error: BaseException, operator: str = "") -> bool:
    """True if the pass asked for the numbers of a tensor; `operator` was the innermost one that had not returned."""
    if any(words in text_of(error) for words in _ASKS_FOR_NUMBERS):
        return True
    return isinstance(error, NotImplementedError) and _depends_on_values(operator)


def lacks_kernel(error: BaseException) -> bool:
    """True if PyTorch has no kernel without data of what was called."""
    return any(words in text_of(error) for words in _NO_KERNEL)


def _depends_on_values(operator: str) -> bool:
    namespace, _, name = operator.partition("::")
    packet = getattr(getattr(torch.ops, namespace, None), name, None) if name else None
    overloads = [getattr(packet, each) for each in packet.overloads()] if packet else []
    return any(tag in each.tags for each in overloads for tag in _OF_VALUES)


def is_of_meta(error: BaseException, operator: str = "") -> bool:
    """True if the pass failed since its tensors have no data, and not since it is wrong."""
    is_said = _MENTIONS_META.search(text_of(error)) is not None
    return is_said or lacks_kernel(error) or reads_values(error, operator)


def where(error: BaseException) -> str:
    """` at FILE:LINE` of the module's code; "" if there is none."""
    frame = frame_of(error)
    return f" at {Path(frame.filename).name}:{frame.lineno}" if frame else ""


def why(error: BaseException, operator: str = "") -> str:
    """A clause such as `block.py:8 reads the values of a tensor (aten::nonzero)`."""
    line, called = where(error).removeprefix(" at "), f" ({operator})" if operator else ""
    if reads_values(error, operator):
        return f"{line or 'its forward'} reads the values of a tensor{called}"
    if lacks_kernel(error):
        what = operator or said(error)
        return f"{what}{where(error)} has no kernel without data" if operator else f"{what}{where(error)}"
    return f"it fails on the meta device{where(error)}: {said(error)}"
