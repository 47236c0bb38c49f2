"""The one of two gradients that is the function's: central differences along their difference decide."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from ctxbench.meta.differences import INPUT, Point

OF_INPUT, OF_PARAMETERS = "gradient of the input", "gradients of the parameters"
# By the name of its parameter or buffer; a map has the name "".
Tensors = Mapping[str, Tensor]
# What a module computes, by the name of the part.
Parts = Mapping[str, Tensors]
# Of the weights of the output's elements, and of what a pass draws.
SEED = 0
RIGHT_NOW = "by central differences, the gradients are right now and were wrong in the baseline"
RIGHT_THEN = "by central differences, the gradients were right in the baseline and are wrong now"


def whose_is_right(drawn: nn.Module, x: Tensor, stops: bool, before: Parts, now: Parts) -> str:
    """The sentence on the gradients of a training step in float64, which both sides have taken of the same values.

    Empty where differences confirm both or neither. What `stops` on purpose is held constant.
    """
    point = Point(drawn.double().train(), x.double(), weights_seed=SEED, seed=SEED)
    mine = _by_leaf(now)
    then = mine | _by_leaf(before)
    direction = {name: mine[name] - each for name, each in then.items() if not torch.equal(mine[name], each)}
    length = torch.stack([each.norm() for each in direction.values()]).norm()
    direction = {name: each * (point.x.norm() / length) for name, each in direction.items()}
    verdict_then, verdict_now = (point.judged(each, direction, stops)[0] for each in (then, mine))
    return {("other", "same"): RIGHT_NOW, ("same", "other"): RIGHT_THEN}.get((verdict_then, verdict_now), "")


def _by_leaf(parts: Parts) -> dict[str, Tensor]:
    """The gradient of each leaf, in float64."""
    return {INPUT: parts[OF_INPUT][""].double(), **parts.get(OF_PARAMETERS, {})}
