"""The conventions that figures are tried under: what is counted, how many operations, which prefix, which rounding."""

import itertools
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

from ctxbench.model.metric import Unit
from ctxbench.model.published import Printed
from ctxbench.plugins.audit.recounted import COUNTS, SIZES
from ctxbench.plugins.macs.tools import readings, unit_of
from ctxbench.registry.formula import evaluate, names_in

NO_GRAD = "+no-grad"
# The counts of other counters, by quantity and their names. Switching gradients off changes no number of parameters.
TOOLS = {
    quantity: {name: f"{quantity}_as_{re.sub(r'[^a-z0-9]', '_', name)}" for name in names}
    for quantity, names in (
        ("macs", readings()),
        ("params", [each for each in readings() if not each.endswith(NO_GRAD)]),
    )
}
PRODUCTS = "matrix products and convolutions alone"
# The counter of PyTorch itself, which counts these but for those that it does not see.
OF_PRODUCTS = "flop-counter-mode@2.13.0"
# By quantity: what may stand in place of the count, in the words of a verdict.
_PARAMS = {
    "without biases": "params - params_bias",
    "without normalisation": "params - params_norm",
    "without biases, normalisation and scales": "params - params_vectors",
    "with buffers": "params + buffers",
}
_MACS = {
    PRODUCTS: "macs_matmul",
    "convolutions and linear layers alone, no products of two maps": "macs_layers",
    "without normalisation": "macs - macs_norm",
    "normalisation as five operations an element, as fvcore counts": "macs + 4*macs_norm",
    "of a training step": "macs_train",
}
_MACS_TRAIN = {"of the forward pass alone": "macs"}
_WEIGHTS, _INPUT = "4*(params + buffers)", "4*B*C*H*W"


def _memory(mode: str, then: str) -> dict[str, str]:
    """Of a peak: `then` is "_2020" for the PyTorch of that year."""
    own, other = f"memory_{mode}{then}", "" if then else "_2020"
    swapped = "infer" if mode == "train" else "train"
    return {
        "weights not counted": f"{own} - {_WEIGHTS}",
        "input counted": f"{own} + {_INPUT}",
        "input counted, weights not": f"{own} + {_INPUT} - {_WEIGHTS}",
        f"under the PyTorch {'of 2020' if other else 'of today'}": f"memory_{mode}{other}",
        f"of {'a training step' if swapped == 'train' else 'the forward pass alone'}": f"memory_{swapped}{then}",
    }


OTHERS: dict[str, Mapping[str, str]] = {
    "params": _PARAMS,
    "macs": _MACS,
    "macs_train": _MACS_TRAIN,
    **{f"memory_{mode}{then}": _memory(mode, then) for mode in ("train", "infer") for then in ("", "_2020")},
}
# A figure is tried with so many of these at once.
MOST_CHANGES = 2
CUT = "cut, not rounded"
_HALVES = [("", Fraction(1)), ("halved", Fraction(1, 2))]
# What tells a convention from the source's own, in words; of the source's own, nothing.
Changes = tuple[str, ...]


@dataclass(frozen=True)
class Convention:
    """A reading of a figure: `form` gives it from the counts, of which `instead` may replace that of the `quantity`.

    It is `scale` times that, in this unit.
    """

    quantity: str
    form: str
    unit: Unit
    instead: str = ""
    scale: Fraction = Fraction(1)
    cut: bool = False

    @property
    def needs(self) -> set[str]:
        """The counts that it is made of."""
        return {*COUNTS, *TOOLS["macs"].values(), *TOOLS["params"].values()} & (
            (names_in(self.form) - {self.quantity}) | names_in(self.instead or self.quantity)
        )

    @property
    def is_more(self) -> bool | None:
        """True for a training step in place of a forward pass, which costs less; False for the other way round."""
        own, other = "train" in self.quantity, "train" in (self.instead or self.quantity)
        return None if own == other else other

    def counted(self, counts: Mapping[str, int]) -> Fraction:
        """The number from counts and sizes, in units of one."""
        own = {self.quantity: evaluate(self.instead, counts)} if self.instead else {}
        return evaluate(self.form, {**counts, **own}) * self.scale

    def agrees(self, printed: Printed, counted: Fraction) -> bool:
        """Return whether a count, rounded or cut to the printed digits, is the figure."""
        if not self.cut:
            return printed.rounds(counted, self.unit)
        return 0 <= counted / printed.factor(self.unit) - printed.value < printed.step


def others(own: Convention) -> dict[Changes, Convention]:
    """All but the source's own, by their changes: those with the fewest first, a figure that is cut last."""
    instead = {"": "", **OTHERS.get(own.quantity, {})}
    found: dict[Changes, Convention] = {}
    for what, (operations, scale), (prefix, unit) in itertools.product(instead, _scales(own), _units(own.unit)):
        changes = tuple(filter(None, (what, operations, prefix)))
        if 0 < len(changes) <= MOST_CHANGES:
            found[changes] = replace(own, instead=instead[what], scale=scale, unit=unit)
    ordered = sorted(found.items(), key=lambda each: len(each[0]))
    return {**dict(ordered), (CUT,): replace(own, cut=True)}


def of_tools(own: Convention) -> dict[Changes, Convention]:
    """The conventions of other counters: what they print, and of MACs also twice that, or half of FLOPs."""
    return {
        (as_counted_by(name), *filter(None, [operations])): replace(own, instead=count, scale=scale)
        for name, count in TOOLS.get(own.quantity, {}).items()
        for operations, scale in (_HALVES if own.quantity == "macs" and unit_of(name) == "FLOPs" else _scales(own))
    }


def as_counted_by(tool: str) -> str:
    return f"as {tool} counts"


def without_state(changes: Changes) -> Changes:
    """The convention of a counter's version, of that in one of its states."""
    return tuple(_WITHOUT_STATE.get(each, each) for each in changes)


_WITHOUT_STATE = {as_counted_by(name): as_counted_by(name.partition("+")[0]) for name in readings()}


def _scales(own: Convention) -> list[tuple[str, Fraction]]:
    """Other scales of an operation's count than the source's."""
    if own.quantity not in ("macs", "macs_train"):
        return [("", Fraction(1))]
    ones = dict.fromkeys((*COUNTS, *SIZES), 1)  # zeros may be divided by
    twice = evaluate(own.form, {**ones, own.quantity: 2}) - evaluate(own.form, ones) == 2
    other = ("as MACs", Fraction(1, 2)) if twice else ("as two operations a MAC", Fraction(2))
    return [("", Fraction(1)), other]


def _units(own: Unit) -> list[tuple[str, Unit]]:
    """The same prefix as a power of 1000 and of 1024."""
    powers = own.exponent // (3 if own.base == 10 else 10)
    if not powers:
        return [("", own)]
    other = Unit(own.symbol, 2, 10 * powers) if own.base == 10 else Unit(own.symbol, 10, 3 * powers)
    return [("", own), (str(other), other)]
