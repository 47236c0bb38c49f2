"""Multiply-accumulates of a module's forward: ctxbench's own counter, which needs no data, and torchprofile's."""

import copy
import re
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from ctxbench.base.call_sites import CallSite, CallSites
from ctxbench.meta.as_written import as_written
from ctxbench.meta.autocast import Autocast
from ctxbench.meta.on_meta import on_meta
from ctxbench.meta.refusal import is_of_meta, why
from ctxbench.meta.without_compiler import without_compiler
from ctxbench.plugins.macs.left_out import COMPLEX, complex_rest, estimate, told
from ctxbench.plugins.macs.rules import FREE, OTHERS, PRODUCTS, RECURRENT, is_free

# The share of a count that its first three digits do not show.
UNSEEN = 5e-4


class UncountableError(RuntimeError):
    """The pass cannot be counted without data; the text says why."""


@dataclass(frozen=True)
class MacCount:
    """The multiply-accumulates of one forward, or of one training step.

    `macs` follows torchprofile 0.1.0's convention. `macs_matmul` holds matrix products and convolutions only: half of
    what `torch.utils.flop_counter.FlopCounterMode` reports, which has no rule for a matrix times a vector.
    `uncounted` maps each operator that does arithmetic but has no rule in the convention (`aten::linalg_inv_ex`) to
    its number of calls, and `estimates` those that another convention has a cost for to it (`left_out.py`).
    `by_place` has the parts of `macs` by where an operator was called, and its name; `remarks` are sentences on it.
    """

    macs_matmul: int
    uncounted: Mapping[str, int]
    estimates: Mapping[str, int] = field(default_factory=dict)
    by_place: Mapping[tuple[CallSite, str], int] = field(default_factory=dict)
    remarks: Sequence[str] = ()

    @property
    def macs(self) -> int:
        """All of them."""
        return sum(self.by_place.values())

    @property
    def lacks(self) -> str:
        """Words for the work that is not in it; "" if that is known to be too little to show in three digits."""
        known = self.uncounted.keys() <= self.estimates.keys()
        return "" if known and sum(self.estimates.values()) <= UNSEEN * self.macs else self.left_out

    @property
    def left_out(self) -> str:
        """Words for all work that is not in it."""
        return told(self.uncounted, self.estimates)

    @property
    def by_operator(self) -> dict[str, int]:
        """The part of each operator that costs something."""
        found: Counter[str] = Counter()
        for (_, operator), macs in self.by_place.items():
            found[operator] += macs
        return dict(found)


@without_compiler()
def count_macs(
    module: nn.Module, *inputs: Tensor, training: bool = False, autocast: Autocast | None = None
) -> MacCount:
    """Count the multiply-accumulates of `module(*inputs)` on the meta device: no data, no compute.

    `module` and `inputs` may be real or meta and are left as they are: a copy without data runs, under `autocast`.

    torchprofile's convention, operator by operator: convolutions, matrix products and einsum cost their index
    product; elementwise multiplication, affine normalisation, average pooling, mean and leaky ReLU one for each
    output element, bilinear upsampling four; softmax, division, addition, powers, sums and other activations are
    free. The count differs from torchprofile's where that is wrong or knows no rule:

    - `mm` and `mv` called as such, and an einsum with an ellipsis, cost their product (there 0);
    - a transposed convolution costs one weight per input element (there per output element);
    - integer arithmetic on sizes is free (there one for each multiplication);
    - every operator that runs counts (there, only one whose result is used);
    - a composite operator that torchprofile does not know costs the sum of its parts (there 0).

    What is compiled counts as it is written, and `flex_attention` on all scores, whatever its mask leaves out.

    Raises UncountableError, with the reason, where the forward cannot run without data.
    """
    duplicate = on_meta(module).train(training)
    shapes = [torch.empty_like(tensor, device="meta") for tensor in inputs]
    counter = OperatorCounter(duplicate)
    try:
        with repeatable(), as_written() as said, torch.inference_mode(), counter, autocast or Autocast():
            duplicate(*shapes)
    except Exception as error:
        if not is_of_meta(error, counter.running):
            raise
        raise UncountableError(
            f"{type(module).__name__} cannot be counted without data, because {why(error, counter.running)}; "
            "ctxbench run --counter torchprofile counts it on real tensors"
        ) from error
    return replace(counter.count(), remarks=sorted(said))


def count_macs_torchprofile(module: nn.Module, *inputs: Tensor) -> MacCount:
    """Count with torchprofile itself, which traces a real forward of an `eval()` copy of `module` on its own device.

    `macs_matmul` sums the nodes that torchprofile takes for products. `uncounted` holds the operators that it
    warns about, and the einsums with an ellipsis, which it takes for zero without a warning.
    """
    from torchprofile import profile_macs  # slow to import, needed only here

    duplicate = copy.deepcopy(module).eval()
    with warnings.catch_warnings(record=True) as caught, repeatable(), torch.no_grad():
        warnings.simplefilter("always")
        nodes = cast(dict[Any, int], profile_macs(duplicate, inputs, reduction=None))
    costs = [(str(node.operator), macs) for node, macs in nodes.items()]
    skipped = (_NO_HANDLER.match(str(warning.message)) for warning in caught)
    uncounted = Counter(match[1] for match in skipped if match)
    uncounted.update(operator for operator, macs in costs if operator == "aten::einsum" and macs == 0)
    products = sum(macs for operator, macs in costs if operator in _TORCHPROFILE_PRODUCTS)
    by_place: Counter[tuple[CallSite, str]] = Counter()
    for operator, macs in costs:
        by_place[CallSite(), operator] += macs
    return MacCount(products, dict(uncounted), by_place=+by_place)


_NO_HANDLER = re.compile(r'No handlers found: "(.+)"\. Skipped\.')
_TORCHPROFILE_PRODUCTS = frozenset(PRODUCTS) | {"aten::linear", "aten::matmul", "aten::einsum", "aten::lstm"}


class OperatorCounter(TorchDispatchMode):
    """Sums the rules over the operators that `module` calls; in inference mode it sees composites before their parts.

    The operators of its backward pass are booked to its forward calls once `in_backward` is set.
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch does not annotate its modes
        self.in_backward = False
        self.macs_matmul = 0
        self._places = CallSites(module)
        self._by_place: Counter[tuple[CallSite, str]] = Counter()
        self._uncounted: Counter[str] = Counter()
        self._estimates: Counter[str] = Counter()
        self.running = ""  # the innermost operator that has not returned
        self._covered = False  # inside an operator that has been counted as a whole

    def count(self) -> MacCount:
        """Count of the calls so far."""
        return MacCount(self.macs_matmul, dict(self._uncounted), dict(self._estimates), dict(self._by_place))

    def add(self, name: str, args: Sequence[Any], output: Any) -> None:
        """Count an operator of PRODUCTS or OTHERS."""
        macs = (PRODUCTS.get(name) or OTHERS[name])(args, output)
        if name in PRODUCTS:
            self.macs_matmul += macs
        self._add(name, macs)
        if rest := complex_rest(macs, tree_leaves(args), output):
            self._leave_out(COMPLEX, rest)

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        args, kwargs = on_one_device(args, kwargs or {})
        name = func.name().partition(".")[0].removesuffix("_")
        self.running = name
        if torch.is_grad_enabled():
            self._place()  # what costs nothing itself may in its gradient
        if name in PRODUCTS:
            output = func(*args, **kwargs)
            self.add(name, args, output)
        elif name in OTHERS:
            output, _ = self._run_whole(func, args, kwargs)
            self.add(name, args, output)
        elif name in RECURRENT:
            output, products = self._run_whole(func, args, kwargs)
            self._add(name, products)
        elif name in FREE:
            output, _ = self._run_whole(func, args, kwargs)
        else:
            output, is_whole = self._run(func, args, kwargs)
            if is_whole and not func.is_view and not is_free(func):
                self._leave_out(name, estimate(name, args, output))
        self.running = ""
        return output

    def _add(self, name: str, macs: int) -> None:
        if macs and not self._covered:
            self._by_place[self._place(), name] += macs

    def _leave_out(self, name: str, macs: int | None) -> None:
        if self._covered:
            return
        self._uncounted[name] += 1
        if macs is not None:
            self._estimates[name] += macs

    def _place(self) -> CallSite:
        return self._places.backward() if self.in_backward else self._places.forward()

    def _run_whole(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Any, int]:
        """The operator's output and the matrix products inside it; no other rule applies inside."""
        outer, self._covered = self._covered, True
        products = self.macs_matmul
        try:
            output, _ = self._run(func, args, kwargs)
        finally:
            self._covered = outer
        return output, self.macs_matmul - products

    def _run(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Any, bool]:
        """The operator's output, and whether it ran as a whole rather than as its parts under this mode."""
        with self:
            output = func.decompose(*args, **kwargs)
        if output is not NotImplemented:
            return output, False
        return func(*args, **kwargs), True


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
