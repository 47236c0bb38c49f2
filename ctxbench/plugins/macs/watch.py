"""Operators of a pass as counters see them: in a forward pass composite ones, too, each after its parts."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from ctxbench.base.call_sites import CallSite, CallSites
from ctxbench.meta.calls import Map
from ctxbench.meta.refusal import is_of_meta, why
from ctxbench.meta.scan import SCANS
from ctxbench.plugins.macs.rules import PRODUCTS, WHOLE

# Composite operators of which a trace has the parts.
_UNRECORDED = {f"aten::{cell}_cell" for cell in ("lstm", "gru", "rnn_tanh", "rnn_relu")}


class UncountableError(RuntimeError):
    """The pass cannot be counted without data; the text says why."""


@dataclass(eq=False)
class OperatorCall:
    """A call of the operator `func`, a part of the composite operators `around`, within these functions and submodules.

    A composite one that ran as its parts is not whole. What stands for a call has no `func`. `where` tells the place
    as long as the call goes on.
    """

    name: str
    func: Any
    args: Sequence[Any]
    output: Any
    where: CallSite | Callable[[], CallSite]
    around: Sequence[str]
    is_whole: bool = True
    functions: Sequence[str] = ()
    layers: Sequence[nn.Module] = ()

    @property
    def place(self) -> CallSite:
        """Place that it comes from."""
        if isinstance(self.where, CallSite):
            return self.where
        self.where = self.where()
        return self.where

    @property
    def macs(self) -> int:
        """Its multiply-accumulates, if it is a product or a convolution, and no part of one."""
        rule = PRODUCTS.get(self.name)
        return 0 if rule is None or PRODUCTS.keys() & {*self.around} else rule(self.args, self.output)


@dataclass(eq=False)
class _Scan:
    """A scan that has run: its output and its arguments, and the numbers of its autograd nodes."""

    name: str
    maps: Sequence[Map]
    nodes: range
    is_told: bool = False


class Watch(TorchDispatchMode):
    """Hands each operator call of a pass of `module` on to `take`.

    The operators of its backward pass are booked to its forward calls once `in_backward` is set. `running` is the
    innermost operator that has not returned, `in_functions` and `in_layers` are what a subclass sees around the calls.
    One that is not `alone` leaves the pass as another mode has it.
    """

    def __init__(self, module: nn.Module, take: Callable[[OperatorCall], object], alone: bool = True) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch does not annotate its modes
        self.take, self._alone = take, alone
        self.in_backward = False
        self.running = ""
        self.in_functions: list[str] = []
        self.in_layers: list[nn.Module] = []
        self._places = CallSites(module)
        self._around: tuple[str, ...] = ()
        self._scans: list[_Scan] = []
        self.is_whole = True  # no checkpoint runs a scan again in the backward pass

    def tell(self, name: str, args: Sequence[Any], output: Any, func: Any = None, is_whole: bool = True) -> None:
        """Hand on a call that has run."""
        within = (tuple(self.in_functions), tuple(self.in_layers))
        self.take(OperatorCall(name, func, args, output, self._place, self._around, is_whole, *within))

    def _place(self) -> CallSite:
        return self._places.backward() if self.in_backward else self._places.forward()

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        args, kwargs = on_one_device(args, kwargs or {}) if self._alone else (args, kwargs or {})
        if self.in_backward and self._is_in_scan():
            return func(*args, **kwargs)
        name = self.running = plain_name(func.name())
        if torch.is_grad_enabled():
            self._place()  # an autograd node is known by it
        with self._within(name):
            with self:
                output = func.decompose(*args, **kwargs) if self._alone else NotImplemented
            if is_whole := output is NotImplemented:
                output = func(*args, **kwargs)
        self.tell(name, args, output, func, is_whole)
        self.running = ""
        return output

    @contextmanager
    def _within(self, name: str) -> Iterator[None]:
        around, self._around = self._around, (*self._around, *[name] * (name not in _UNRECORDED))
        try:
            yield
        finally:
            self._around = around

    @contextmanager
    def forward(self) -> Iterator[None]:
        """See a forward pass, composite operators included, without inference mode."""
        with self.composites_seen(), self:
            yield

    @contextmanager
    def backward(self) -> Iterator[None]:
        """See a backward pass."""
        self.in_backward = True
        with self:
            yield

    @contextmanager
    def composites_seen(self) -> Iterator[None]:
        """See those composite operators that have a rule in a forward pass with gradients, too, which runs their parts.

        PyTorch takes them apart where autograd's kernels are, above any mode; so they get a kernel there.
        """
        scans = [each.default for each in SCANS]
        with ExitStack() as stack:
            for funcs, run in ((_composites(), self._run_composite), (scans, self._run_scan)):
                library = torch.library.Library(funcs[0].namespace, "IMPL", "AutogradMeta")
                stack.callback(library._destroy)
                assert library.m is not None
                for func in funcs:
                    library.m.impl(func.name(), "AutogradMeta", partial(run, func))
            yield

    def _run_composite(self, func: Any, *args: Any, **kwargs: Any) -> Any:
        with self._within(plain_name(func.name())):
            output = func._op_dk(torch._C.DispatchKey.CompositeImplicitAutograd, *args, **kwargs)
        self.tell(plain_name(func.name()), args, output, func, is_whole=False)
        return output

    def _run_scan(self, func: Any, *args: Tensor) -> Any:
        """Run a scan; the operators of its gradient are known by the nodes that it makes."""
        first = torch._C._autograd._get_sequence_nr()
        output = self._run_composite(func, *args)
        maps = [Map(tuple(x.shape), x.stride(), str(x.dtype), x.itemsize, 0) for x in (output, *args)]
        self._scans.append(_Scan(plain_name(func.name()), maps, range(first, torch._C._autograd._get_sequence_nr())))
        return output

    def _is_in_scan(self) -> bool:
        """Return whether a scan's gradient runs, which is told once, as a whole."""
        node = torch._C._current_autograd_node() if self._scans else None
        if node is None:
            return False
        found = next((each for each in self._scans if node._sequence_nr() in each.nodes), None)
        self.is_whole &= not torch.is_grad_enabled()
        if found and not found.is_told:
            found.is_told = True
            self.tell(f"{found.name}_backward", found.maps, None)
        return found is not None


def plain_name(name: str) -> str:
    """The name of an operator without its overload, in place or not."""
    return name.partition(".")[0].removesuffix("_")


@cache
def _composites() -> list[Any]:
    """PyTorch's composite operators that count as a whole, but those that meta has a kernel for."""
    known, has_kernel = PRODUCTS.keys() | WHOLE, torch._C._dispatch_has_kernel_for_dispatch_key
    found = []
    for full in torch._C._dispatch_get_all_op_names():
        name, _, overload = full.removeprefix("aten::").partition(".")
        if plain_name(full) in known and "::" not in name and has_kernel(full, "CompositeImplicitAutograd"):
            found += [getattr(getattr(torch.ops.aten, name), overload or "default")] * (not has_kernel(full, "Meta"))
    return found


def on_one_device(args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Sequence[Any], dict[str, Any]]:
    """Give the arguments with real tensors (constants that the module makes itself) on meta if any other tensor is."""
    on_meta = {leaf.is_meta for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)}
    if len(on_meta) < 2:
        return args, kwargs
    moved: tuple[Sequence[Any], dict[str, Any]] = tree_map_only(Tensor, lambda t: t.to("meta"), (args, kwargs))
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
