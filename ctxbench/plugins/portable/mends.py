"""Other ways of writing what targets refuse, with the same output, for the operator that is blamed."""

from collections.abc import Sequence
from dataclasses import dataclass

from ctxbench.plugins.portable.graph import GraphCall


@dataclass(frozen=True)
class Mend:
    """A way out: what to write `instead` of one of these operators, with so many axes at least."""

    operators: Sequence[str]
    axes: int
    instead: str


_RESHAPES = ("view", "reshape", "unflatten", "permute", "transpose", "unsqueeze", "unbind", "select")
# docs/mends.py has both ways of writing each.
MENDS = (
    Mend(_RESHAPES, 6, "windows by one swap of axes, with all neighbouring axes merged"),
    Mend(_RESHAPES, 5, "queries, keys and values as slices of the last axis"),
    Mend(("clamp", "clip", "hardtanh"), 0, "relu6(6 * x) / 6"),
    Mend(("expand", "expand_as"), 0, "torch.cat of copies"),
)


def mend_of(call: GraphCall | None) -> str:
    """Code to write instead of a call that is blamed; "" where no way is known."""
    fits = (mend for mend in MENDS if call and call.operator in mend.operators and call.rank >= mend.axes)
    return next((mend.instead for mend in fits), "")
