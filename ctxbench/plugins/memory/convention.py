"""The convention behind every memory figure, predicted or measured: what is run, what is counted."""

CONVENTION = (
    "weights (parameters and buffers) counted, input not counted, output kept alive; "
    "train: forward, y.sum().backward(), first step, no earlier gradients; infer: forward under no_grad"
)


class UnpredictableError(RuntimeError):
    """The peak memory of a module cannot be known; the text says why and what to do."""
