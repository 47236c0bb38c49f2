"""Parts of a training step beside the pass of its module, by name. Imports no torch."""

import math
from collections.abc import Callable

from ctxbench.base.errors import UsageError, unknown
from ctxbench.base.mode import MODES

# What the gradient begins with, and whose step may follow: see `ctxbench.plugins.memory.training`.
LOSSES = ("sum", "cross-entropy")
OPTIMIZERS = ("sgd", "adamw")
# The largest batch that is tried, and how many batches a search tries at most.
MOST_IMAGES = 2**16
MOST_BATCHES = 33


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


def largest_batch(plain: Callable[[int], float], peak_of: Callable[[int], float], room: float) -> int:
    """The largest batch up to MOST_IMAGES whose peak is at most `room`, if a larger batch takes more; 0 if none is.

    `plain` is the peak without what libraries take, which are asked anew at each batch: it says where to begin.
    """
    found = _largest(plain, room)
    if found and peak_of(found) > room:
        return _largest(lambda batch: peak_of(batch) if batch < found else math.inf, room)
    while 0 < found < MOST_IMAGES and peak_of(found + 1) <= room:
        found += 1
    return found


def _largest(peak_of: Callable[[int], float], room: float) -> int:
    fits, above = 0, 1
    while above <= MOST_IMAGES and peak_of(above) <= room:
        fits, above = above, 2 * above
    above = min(above, MOST_IMAGES + 1)
    while above - fits > 1:
        middle = (fits + above) // 2
        fits, above = (middle, above) if peak_of(middle) <= room else (fits, middle)
    return fits
