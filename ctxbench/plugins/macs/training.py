"""Multiply-accumulates of a training step: the forward, and the operators that autograd runs in the backward pass."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.nn import functional

from ctxbench.base.errors import text_of
from ctxbench.meta.as_written import as_written, flex_by
from ctxbench.meta.autocast import Autocast
from ctxbench.meta.fused_attention import is_fusible
from ctxbench.meta.on_meta import on_meta
from ctxbench.meta.outputs import loss_of, trained
from ctxbench.meta.scan import SCANS
from ctxbench.meta.watch import FunctionWatch
from ctxbench.meta.without_compiler import without_compiler
from ctxbench.plugins.macs.counter import MacCount, MacSum
from ctxbench.plugins.macs.rules import FLEX
from ctxbench.plugins.macs.watch import UncountableError, Watch, repeatable

_ATTENTION = "aten::scaled_dot_product_attention"
_attend = functional.scaled_dot_product_attention


@without_compiler()
def count_training_macs(module: nn.Module, *inputs: Tensor, autocast: Autocast | None = None) -> MacCount:
    """Count one training step of `module` on the meta device: `y = module(*inputs)`, then `y.sum().backward()`.

    Of several outputs the sum is that of all.

    `module` and `inputs` may be real or meta and are left as they are. The forward runs under `autocast` and costs what
    `count_macs` counts in training mode. The backward pass costs what its operators cost under the same rules, as
    autograd runs them: a product or convolution once for each gradient that is asked for, so none for an input that
    needs no gradient, and none for what ran without gradients; a free operator's gradient is free, but a multiplication
    in it counts.

    Attention that a fused kernel can take (`ctxbench.meta.fused_attention`) costs two products forward and five
    backward, because such a kernel computes the affinity again, and so does `flex_attention`; other attention costs
    what PyTorch's math path runs, four backward. A scan (`ctxbench.meta.scan`) costs twice its forward, whatever
    computes it. What a checkpoint computes again counts again.

    Raises UncountableError, with the reason, where there is no training step or it cannot be run without data.
    """
    name = type(module).__name__
    with _explained(name):
        duplicate = on_meta(module).train()
        shapes = [torch.empty_like(each, device="meta").requires_grad_(each.requires_grad) for each in inputs]
        counting = MacSum()
        watch = Watch(duplicate, counting.add)
        with repeatable(), as_written() as said, torch.enable_grad(), _as_one(watch):
            with watch.forward(), autocast or Autocast():
                output = duplicate(*shapes)
            if trained(output):
                with watch.backward():
                    loss_of(output).backward()
    if not trained(output):
        raise UncountableError(f"the output of {name} depends on nothing that has a gradient")
    return replace(counting.count(), remarks=sorted(said))


@contextmanager
def _explained(name: str) -> Iterator[None]:
    """Turn an error on meta into a sentence."""
    try:
        yield
    except Exception as error:
        cause = (isinstance(error, UncountableError) and error.__cause__) or error
        line = text_of(cause).strip().partition("\n")[0]
        raise UncountableError(
            f"a training step of {name} fails on the meta device: {type(cause).__name__}: {line}"
        ) from cause


@contextmanager
def _as_one(watch: Watch) -> Iterator[None]:
    """Run fused attention and scans as one operator in each direction: on meta, PyTorch runs their parts."""

    class Calls(FunctionWatch):
        def call(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            if func is _attend and (maps := _fused_maps(*args, **kwargs)):
                query, _, value, _ = maps
                return _told_as_one(watch, _ATTENTION, (*query.shape[:-1], value.shape[-1]), *maps)
            if func in SCANS:
                return _told_as_one(watch, f"ctxbench::{func.__name__}", args[0].shape, *args)
            return func(*args, **kwargs)

    calls = Calls()

    def inside(*args: Any, **kwargs: Any) -> Any:
        return calls.call(_attend, args, kwargs)

    def flex(written: Any, query: Tensor, key: Tensor, value: Tensor, *others: Any) -> tuple[Tensor, Tensor, Tensor]:
        with torch.no_grad():
            written(query, key, value, *others)  # the forward costs what it is made of
        shape = (*query.shape[:-1], value.shape[-1])
        output = _run_as_one(watch, FLEX, shape, query, key, value, None)
        return output, query.new_empty(shape[:-1]), query.new_empty(shape[:-1])

    # the mode does not see the call inside nn.MultiheadAttention, the patch none of a name that was imported before
    with patch.object(functional, _attend.__name__, inside), flex_by(flex), calls:
        yield


def _fused_maps(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    *_: Any,
    enable_gqa: bool = False,
    **__: Any,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None] | None:
    """The tensors among the arguments of `scaled_dot_product_attention`, if a fused kernel can take them."""
    return (query, key, value, attn_mask) if is_fusible(query, key, value, grouped=enable_gqa) else None


class _AsOne(torch.autograd.Function):
    """An operator without data: shapes, and what the rule of `NAME_backward` counts."""

    @staticmethod
    def forward(
        ctx: Any, watch: Watch, name: str, shape: Sequence[int], first: Tensor, *others: Tensor | None
    ) -> Tensor:
        ctx.watch, ctx.operator = watch, name
        ctx.save_for_backward(first, *others)
        return first.new_empty(shape)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        saved = ctx.saved_tensors
        ctx.watch.tell(f"{ctx.operator}_backward", (gradient, *saved), None)
        needed = zip(saved, ctx.needs_input_grad[3:], strict=True)
        return None, None, None, *(torch.empty_like(each) if needs else None for each, needs in needed)


_run_as_one: Any = _AsOne.apply


def _told_as_one(watch: Watch, name: str, shape: Sequence[int], *maps: Tensor | None) -> Tensor:
    """The output of such an operator, which `watch` is told."""
    output: Tensor = _run_as_one(watch, name, shape, *maps)
    watch.tell(name, maps, output)
    return output
