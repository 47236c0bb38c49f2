"""Passes on the meta device of what PyTorch runs there in another way than on a device, or refuses to run."""

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.distributions import Distribution

from ctxbench.meta.without_compiler import has_compiler

_FLEX, _KERNEL = "torch.nn.attention.flex_attention", "flex_attention_hop"
# Gets the kernel whose place it takes, and query, key, value, the change of a score, the mask, the scale and options of
# `flex_attention`; gives the context, the logarithm of the sums, and the largest scores.
Flex = Callable[..., tuple[Tensor, Tensor, Tensor]]


def unchecked_distributions() -> AbstractContextManager[Any]:
    """A context in which distributions do not look at the numbers of their arguments, which meta has not."""
    return patch.object(Distribution, "_validate_args", False)


@contextmanager
def as_written() -> Iterator[set[str]]:
    """Have compiled parts run as they are written, and `flex_attention` by all scores; yields sentences on such calls.

    PyTorch's own `flex_attention` without a compiler computes all scores, too, and it refuses the meta device.
    """
    said: set[str] = set()

    def dense(
        _: Any, query: Tensor, key: Tensor, value: Tensor, change: Any, mask: Any, scale: float, options: Any
    ) -> Any:
        from torch._higher_order_ops.flex_attention import math_attention

        if getattr(mask[-1], "__name__", "") != "noop_mask":
            said.add("flex_attention counts on all scores: its mask takes nothing off")
        return math_attention(query, key, value, change, mask, scale, options)

    with ExitStack() as patched:
        patched.enter_context(unchecked_distributions())
        if has_compiler():
            patched.enter_context(torch.compiler.set_stance("force_eager"))
        if flex := sys.modules.get(_FLEX):
            patched.enter_context(patch.object(flex, "_validate_device", lambda *_: None))
            patched.enter_context(patch.object(flex, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True))
            patched.enter_context(patch.object(flex.BlockMask, "kv_num_blocks", _ON_META, create=True))
        patched.enter_context(flex_by(dense))
        yield said


# The tensor of a mask whose device `flex_attention` compares with the query's; a mask that was made before is on a CPU.
_ON_META = property(
    lambda mask: vars(mask)["kv_num_blocks"].to("meta"), lambda mask, given: vars(mask).update(kv_num_blocks=given)
)


@contextmanager
def flex_by(function: Flex) -> Iterator[None]:
    """Have `flex_attention`, if it is imported, call a function in place of its kernel."""
    flex = sys.modules.get(_FLEX)
    with patch.object(flex, _KERNEL, partial(function, getattr(flex, _KERNEL))) if flex else ExitStack():
        yield
