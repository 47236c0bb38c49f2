"""Multiply-accumulates of a module's forward: ctxbench's own counter, which needs no data, and torchprofile's."""

import copy
import re
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from ctxbench.base.call_sites import CallSite
from ctxbench.meta.as_written import as_written
from ctxbench.meta.autocast import Autocast
from ctxbench.meta.calls import RecordedCall
from ctxbench.meta.on_meta import on_meta
from ctxbench.meta.watch import OperatorCall
from ctxbench.meta.without_compiler import without_compiler
from ctxbench.plugins.macs.left_out import COMPLEX, complex_rest, estimate, in_words
from ctxbench.plugins.macs.rules import OTHERS, PRODUCTS, RECURRENT, WHOLE, is_free
from ctxbench.plugins.macs.watch import Watch, explained, repeatable
from ctxbench.plugins.memory.profile import MemoryProfile

# The share of a count that its first three digits do not show.
UNSEEN = 5e-4


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
        return sum(self.by_place.values())

    @property
    def lacks(self) -> str:
        """Words for the work that is not in it; "" if that is known to be too little to show in three digits."""
        known = self.uncounted.keys() <= self.estimates.keys()
        return "" if known and sum(self.estimates.values()) <= UNSEEN * self.macs else self.left_out

    @property
    def left_out(self) -> str:
        """Words for all work that is not in it."""
        return in_words(self.uncounted, self.estimates)

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
    counting = MacSum()
    watch = Watch(duplicate, counting.add)
    casts = autocast or Autocast()
    with explained(module, watch), repeatable(), as_written() as said, torch.inference_mode(), watch, casts:
        duplicate(*shapes)
    return replace(counting.count(), remarks=sorted(said))


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


def counted(calls: Iterable[OperatorCall | RecordedCall]) -> MacCount:
    counting = MacSum()
    for each in calls:
        counting.add(each)
    return counting.count()


def recorded(profile: MemoryProfile) -> MacCount | None:
    """The count of a pass that is recorded; None where that one is not of the module's own operators."""
    return None if profile.replaced else counted(profile.calls)


class MacSum:
    """Sums the rules over calls of operators, each of which comes after its parts."""

    def __init__(self) -> None:
        self._macs_matmul = 0
        self._by_place: Counter[tuple[CallSite, str]] = Counter()
        self._uncounted: Counter[str] = Counter()
        self._estimates: Counter[str] = Counter()
        self._within: Counter[str] = Counter()  # products inside a recurrent layer that has not returned

    def count(self) -> MacCount:
        """Count of the calls so far."""
        return MacCount(self._macs_matmul, dict(self._uncounted), dict(self._estimates), dict(self._by_place))

    def add(self, call: OperatorCall | RecordedCall) -> None:
        """Count a call. What is a part of one that counts as a whole does not count again, but for its products."""
        name, rule = call.name, PRODUCTS.get(call.name) or OTHERS.get(call.name)
        if not PRODUCTS.keys().isdisjoint(call.around):
            return
        macs = rule(call.args, call.output) if rule else 0
        if name in PRODUCTS:
            self._macs_matmul += macs
            self._within.update(dict.fromkeys(RECURRENT.intersection(call.around), macs))
        if name in RECURRENT:
            macs = self._within.pop(name, 0)
        if not WHOLE.isdisjoint(call.around):
            return
        if macs:
            self._by_place[call.place, name] += macs
        if rule and (rest := complex_rest(macs, tree_leaves(call.args), call.output)):
            self._leave_out(COMPLEX, rest)
        if not rule and name not in WHOLE and call.is_whole and not call.is_view and not is_free(name, call.tags):
            self._leave_out(name, estimate(name, call.args, call.output))

    def _leave_out(self, name: str, macs: int | None) -> None:
        self._uncounted[name] += 1
        if macs is not None:
            self._estimates[name] += macs
