"""Operators of a pass as counters see them, on meta or where the module is."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map_only

from ctxbench.meta.refusal import is_of_meta, why
from ctxbench.meta.watch import OperatorCall, PassWatch


class UncountableError(RuntimeError):
    """The pass cannot be counted without data; the text says why."""


class Watch(PassWatch):
    """Hands each operator call of a pass of `module` on to `taken`, composite ones that no autograd takes apart too."""

    def __init__(self, module: nn.Module, taken: Callable[[OperatorCall], object]) -> None:
        super().__init__(module)
        self.taken = taken

    def take(self, call: OperatorCall) -> None:
        self.taken(call)

    def run(self, call: OperatorCall) -> None:
        call.args, call.kwargs = on_one_device(call.args, call.kwargs)
        with self:
            call.output = call.func.decompose(*call.args, **call.kwargs)
        call.is_whole = call.output is NotImplemented
        if call.is_whole:
            super().run(call)


def on_one_device(args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Sequence[Any], Mapping[str, Any]]:
    """Give the arguments with real tensors (constants that the module makes itself) on meta if any other tensor is."""
    on_meta = {leaf.is_meta for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)}
    if len(on_meta) < 2:
        return args, kwargs
    moved: tuple[Sequence[Any], Mapping[str, Any]] = tree_map_only(Tensor, lambda t: t.to("meta"), (args, kwargs))
    return moved


@contextmanager
def repeatable() -> Iterator[None]:
    """Leave torch's generators as they were; keep attention's fused path off, which hides its products."""
    fast_path = torch.backends.mha.get_fastpath_enabled()
    with torch.random.fork_rng(devices=[]):
        torch.backends.mha.set_fastpath_enabled(False)
        try:
            yield
        finally:
            torch.backends.mha.set_fastpath_enabled(fast_path)


@contextmanager
def explained(module: nn.Module, watch: Watch) -> Iterator[None]:
    """Turn what the meta device refuses into an UncountableError with its reason."""
    try:
        yield
    except Exception as error:
        if not is_of_meta(error, watch.running):
            raise
        raise UncountableError(
            f"{type(module).__name__} cannot be counted without data, because {why(error, watch.running)}; "
            "ctxbench run --counter torchprofile counts it on real tensors"
        ) from error
