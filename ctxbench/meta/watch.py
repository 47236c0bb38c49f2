"""Calls of a pass as they are made: of functions, and of operators, composite ones after their parts."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from ctxbench.base.call_sites import CallSite, CallSites
from ctxbench.meta.calls import Map, tags_of
from ctxbench.meta.scan import SCANS
from ctxbench.plugin import loaded

# Composite operators of which a trace has the parts.
_UNRECORDED = {f"aten::{cell}_cell" for cell in ("lstm", "gru", "rnn_tanh", "rnn_relu")}
_watching: "list[PassWatch]" = []  # those that see composite operators now


@dataclass(eq=False)
class OperatorCall:
    """A call of the operator `func`, a part of the composite operators `around`.

    A composite one that ran as its parts is not whole. What stands for a call has no `func`. `where` tells the place
    as long as the call goes on.
    """

    name: str
    func: Any
    args: Sequence[Any]
    where: CallSite | Callable[[], CallSite]
    around: Sequence[str]
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    output: Any = None
    is_whole: bool = True

    @property
    def place(self) -> CallSite:
        """Place that it comes from."""
        if not isinstance(self.where, CallSite):
            self.where = self.where()
        return self.where

    @property
    def is_view(self) -> bool:
        """Return whether PyTorch declares the operator as a view."""
        return bool(self.func.is_view)

    @property
    def tags(self) -> tuple[str, ...]:
        """PyTorch's tags of the operator."""
        return tags_of(self.func)


class FunctionWatch(TorchFunctionMode):
    """Has the calls of PyTorch's API go by `call`, before they become operators."""

    def call(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        raise NotImplementedError

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        return self.call(func, args, dict(kwargs or {}))


@dataclass(eq=False)
class _Scan:
    """A scan that has run: its output and its arguments, and the numbers of its autograd nodes."""

    name: str
    maps: Sequence[Map]
    nodes: range
    is_told: bool = False


class PassWatch(TorchDispatchMode):
    """Runs each operator call of a pass of `module`, then takes it. What a call is more than run, a subclass says.

    The operators of the backward pass are booked to their forward calls while it is `in_backward`; None: autograd
    tells. `running` is the innermost operator that has not returned.
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch does not annotate its modes
        self.in_backward: bool | None = False
        self.running = ""
        self.places = CallSites(module)
        self.around: tuple[str, ...] = ()
        self._scans: list[_Scan] = []
        self.runs_scans_once = True  # no checkpoint runs a scan again in the backward pass

    def take(self, call: OperatorCall) -> None:
        """See a call that has run."""

    def run(self, call: OperatorCall) -> None:
        call.output = call.func(*call.args, **call.kwargs)

    def place(self) -> CallSite:
        """The place of the code that runs now."""
        in_backward = torch._C._current_autograd_node() is not None if self.in_backward is None else self.in_backward
        return self.places.backward() if in_backward else self.places.forward()

    def tell(self, name: str, args: Sequence[Any], output: Any) -> None:
        """Take what stands for a call."""
        self.take(OperatorCall(name, None, args, self.place, self.around, output=output))

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        # an autograd node is known by the place
        where = self.place() if torch.is_grad_enabled() else self.place
        call = OperatorCall(plain_name(func.name()), func, args, where, self.around, kwargs or {})
        if self.in_backward and self._is_in_scan():
            self.run(call)
            return call.output
        self.running = call.name
        with self._within(call.name):
            self.run(call)
        self.take(call)
        self.running = ""
        return call.output

    @contextmanager
    def _within(self, name: str) -> Iterator[None]:
        around, self.around = self.around, (*self.around, *[name] * (name not in _UNRECORDED))
        try:
            yield
        finally:
            self.around = around

    @contextmanager
    def forward(self) -> Iterator[None]:
        """See a forward pass without inference mode, with the composite operators that plugins ask for.

        PyTorch takes them apart where autograd's kernels are, above any mode; so they get a kernel there.
        """
        with ExitStack() as stack:
            for space, funcs in (("aten", composites()), ("ctxbench", [each.default for each in SCANS])):
                library = torch.library.Library(space, "IMPL", "AutogradMeta")
                stack.callback(library._destroy)
                assert library.m is not None
                for func in funcs:
                    library.m.impl(func.name(), "AutogradMeta", _kernel(func))
            _watching.append(self)
            stack.callback(_watching.pop)
            stack.enter_context(self)
            yield

    @contextmanager
    def backward(self) -> Iterator[None]:
        """See a backward pass."""
        self.in_backward = True
        with self:
            yield

    def run_composite(self, func: Any, *args: Any, **kwargs: Any) -> Any:
        """Run a composite operator by its parts, which are seen first."""
        call = OperatorCall(plain_name(func.name()), func, args, self.place, self.around, kwargs, is_whole=False)
        with self._within(call.name):
            call.output = func._op_dk(torch._C.DispatchKey.CompositeImplicitAutograd, *args, **kwargs)
        self.take(call)
        return call.output

    def run_scan(self, func: Any, *args: Tensor) -> Any:
        """Run a scan; the operators of its gradient are known by the nodes that it makes."""
        first = torch._C._autograd._get_sequence_nr()
        output = self.run_composite(func, *args)
        maps = [Map(tuple(x.shape), x.stride(), str(x.dtype), x.itemsize, 0) for x in (output, *args)]
        self._scans.append(_Scan(plain_name(func.name()), maps, range(first, torch._C._autograd._get_sequence_nr())))
        return output

    def _is_in_scan(self) -> bool:
        """Return whether a scan's gradient runs, which is told once, as a whole."""
        node = torch._C._current_autograd_node() if self._scans else None
        if node is None:
            return False
        found = next((each for each in self._scans if node._sequence_nr() in each.nodes), None)
        self.runs_scans_once &= not torch.is_grad_enabled()
        if found and not found.is_told:
            found.is_told = True
            self.tell(f"{found.name}_backward", found.maps, None)
        return found is not None


def plain_name(name: str) -> str:
    """The name of an operator without its overload, in place or not."""
    return name.partition(".")[0].removesuffix("_")


@cache
def _kernel(func: Any) -> Callable[..., Any]:
    """Function that runs a composite operator or a scan for the innermost watch, since PyTorch keeps each kernel."""
    name = "run_scan" if func.namespace == "ctxbench" else "run_composite"
    return lambda *args, **kwargs: getattr(_watching[-1], name)(func, *args, **kwargs)


@cache
def composites() -> list[Any]:
    """PyTorch's composite operators with a name that a plugin asks for, but those that meta has a kernel for."""
    asked, has_kernel = frozenset[str]().union(*loaded("composites")), torch._C._dispatch_has_kernel_for_dispatch_key
    found = []
    for full in torch._C._dispatch_get_all_op_names():
        name, _, overload = full.removeprefix("aten::").partition(".")
        if plain_name(full) in asked and "::" not in name and has_kernel(full, "CompositeImplicitAutograd"):
            found += [getattr(getattr(torch.ops.aten, name), overload or "default")] * (not has_kernel(full, "Meta"))
    return found
