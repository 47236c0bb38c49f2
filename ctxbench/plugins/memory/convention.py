"""The convention behind every memory figure, predicted or measured: what is run, what is counted."""

from collections.abc import Iterable


def convention(loss: str = "sum", optimizer: str = "", of_input: bool = False) -> str:
    """The convention of a pass, or of a training step with a loss and an optimizer of `step.py`.

    `of_input`: no weight is trained, so the step computes the gradient of the input.
    """
    start = "y.sum()" if loss == "sum" else "cross_entropy(y)"
    steps = "the optimizer's state counted, then its step" if optimizer else "first step"
    return (
        "weights (parameters and buffers) counted, input not counted, output kept alive; "
        f"train: forward, {start}.backward(), {steps}, no earlier gradients"
        f"{', the gradient of the input for want of weights' if of_input else ''}; infer: forward under no_grad"
    )


CONVENTION = convention()


# Autograd nodes whose formula depends on whether their input holds zeros.
BY_VALUES = frozenset(("ProdBackward0", "ProdBackward1", "CumprodBackward0"))
UNDER_AUTOCAST = " under autocast"
# What a library of a card may do otherwise than it is asked or a rule says.
ON_THIS_CARD = " on this card"
# Marks of what a pass on meta does otherwise than the device, which may hold less; any other is of memory that is not
# counted.
_OTHERWISE = BY_VALUES | {"channels_last", "group_norm", "max_pool1d", "scaled_dot_product_attention", "torch.compile"}


def is_bound(marks: Iterable[str]) -> bool:
    """Return whether a peak with these marks is a lower bound."""
    return not any(mark in _OTHERWISE or mark.endswith((UNDER_AUTOCAST, ON_THIS_CARD)) for mark in marks)


class UnpredictableError(RuntimeError):
    """The peak memory of a module cannot be known; the text says why and what to do."""
