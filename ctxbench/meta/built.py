"""Modules as they are built: without data of any constructor, lazy layers with their shapes, in a dtype."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules import module as hooks

from ctxbench.base.errors import UsageError
from ctxbench.meta.on_meta import on_meta
from ctxbench.meta.without_compiler import without_compiler

# The share of the free memory that a module's weights may take where it has to be built with data.
SHARE = 0.5


def without_data(build: Callable[[], nn.Module]) -> nn.Module:
    """Module that `build` makes, on the meta device.

    A constructor that needs numbers of its own tensors (`linspace(...).tolist()`, a trace, weights from a file) runs on
    the CPU, and a copy without data takes the place of what it makes. UsageError if the weights take more than SHARE of
    the free memory there. Else what it raises there is passed on.
    """
    try:
        with without_compiler(), torch.device("meta"):
            return build()
    except UsageError:
        raise
    except Exception:  # the CPU tells whether the constructor itself is wrong
        pass
    with torch.device("cpu"), torch.random.fork_rng(devices=[]), _limited():
        return on_meta(build())


@contextmanager
def _limited() -> Iterator[None]:
    """Have parameters and buffers that take too much of the free memory refused, before they are filled."""
    import psutil  # needed only here

    most, taken = int(SHARE * psutil.virtual_memory().available), 0

    def add(module: nn.Module, name: str, tensor: Any) -> None:
        nonlocal taken
        if isinstance(tensor, Tensor) and not nn.parameter.is_lazy(tensor) and not tensor.is_meta:
            taken += tensor.nbytes
        if taken > most:
            raise UsageError(
                "the constructor reads numbers of its tensors, so the module is built with data on the CPU, and its "
                f"weights take more than {most / 2**30:.1f} GiB, {SHARE:.0%} of the free memory"
            )

    handles = [
        hooks.register_module_parameter_registration_hook(add),
        hooks.register_module_buffer_registration_hook(add),
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def initialised(module: nn.Module, shape: Sequence[int]) -> nn.Module:
    """The module; if it has lazy layers, after one pass on zeros of this shape, which gives them theirs."""
    if any(nn.parameter.is_lazy(each) for each in chain(module.parameters(), module.buffers())):
        flags = [(each, each.training) for each in module.modules()]
        with torch.no_grad():
            module.eval()(torch.zeros(tuple(shape)))
        for each, training in flags:
            each.training = training
    return module


@without_compiler()
def after_first_pass(module: nn.Module, x: Tensor) -> nn.Module:
    """The module on meta; one whose first pass on `x` makes or drops parameters, as that pass leaves it."""
    with suppress(Exception), torch.device("meta"), torch.no_grad():  # a count tells what fails in a pass
        used = on_meta(module)
        used(x)
        if len([*used.parameters()]) != len([*module.parameters()]):
            return used
    return module


def converted(module: nn.Module, device: torch.device | str, dtype: torch.dtype) -> nn.Module:
    """The module on a device, its numbers in a dtype; complex ones in the complex dtype of float64, else of float32."""

    def convert(tensor: Tensor) -> Tensor:
        if tensor.is_complex():
            return tensor.to(device, torch.complex128 if dtype == torch.float64 else torch.complex64)
        return tensor.to(device, dtype) if tensor.is_floating_point() else tensor.to(device)

    made: nn.Module = module._apply(convert)
    return made
