"""Parts of a training step beside the pass of its module, by name. Imports no torch."""

from ctxbench.base.errors import UsageError, unknown
from ctxbench.base.mode import MODES

# What the gradient begins with, and whose step may follow: see `ctxbench.plugins.memory.training`.
LOSSES = ("sum", "cross-entropy")
OPTIMIZERS = ("sgd", "adamw")


def check_step(mode: str, loss: str, optimizer: str) -> None:
    """UsageError for an unknown part, and for a loss or an optimizer without a training step."""
    if mode not in MODES:
        raise unknown("mode", mode, MODES)
    if loss not in LOSSES:
        raise unknown("loss", loss, LOSSES)
    if optimizer and optimizer not in OPTIMIZERS:
        raise unknown("optimizer", optimizer, OPTIMIZERS)
    if mode != "train" and (optimizer or loss != LOSSES[0]):
        raise UsageError("--loss and --optimizer are of a training step: add --mode train")


def described(mode: str, loss: str, optimizer: str) -> str:
    """The mode, and what else is in the training step."""
    words = [mode, *[loss] * (loss != LOSSES[0]), *[optimizer] * bool(optimizer)]
    return " with ".join([words[0], " and ".join(words[1:])]) if words[1:] else words[0]
