"""The convention behind every memory figure, predicted or measured: what is run, what is counted."""


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


class UnpredictableError(RuntimeError):
    """The peak memory of a module cannot be known; the text says why and what to do."""
