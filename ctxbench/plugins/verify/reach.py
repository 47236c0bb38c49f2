"""Checks of reach: does every output position depend on every input position, and on which one it is?

A finite change of the input decides, not the gradient: a module with a one-step gradient (the hams) is global although
its gradient covers only a part of the computation. The receptive field of the gradient is reported too.
"""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from ctxbench.meta.influence import TRIALS, changed_by, forward, seen_by_gradient, with_change
from ctxbench.plugins.verify.contract import CheckResult
from ctxbench.plugins.verify.subject import Subject, failed, is_refusal, not_applicable, passed

# Larger than a usual large kernel (31), so that such a window does not count as global.
REACH_SIZE = (33, 31)
# Effects of far positions whose relative difference is below this count as the same.
UNIFORM = 1e-6
UNMIXED = (
    "this is squeeze-and-excitation: if it is intended, declare position_mixing=False in @register; otherwise weight "
    "the positions by their content"
)


def reaches_everywhere(subject: Subject) -> CheckResult:
    """A change at one corner reaches the opposite corner; a local module reaches as many positions as it declares."""
    corner, centre, gradient = (torch.tensor(False) for _ in range(3))
    for module, x in _trials(subject):
        near, middle = (0, 0), (x.shape[2] // 2, x.shape[3] // 2)
        corner = corner | changed_by(module, x, near)
        centre = centre | changed_by(module, x, middle)
        gradient = gradient | seen_by_gradient(module, x, middle)
        if corner.all():
            break
    by_gradient = f"the gradient of the centre reaches {_share(gradient)}"
    declared = subject.entry.closed_form("reach", (1, subject.channels, *centre.shape), subject.hparams)
    if declared != centre.numel():
        fact = f"a change at the centre reaches {_share(centre)}"
        if centre.sum() == declared:
            return passed(f"as declared, local: {fact}, {_window(centre)}; {by_gradient}")
        return failed(f"{fact}; {by_gradient}", f"{declared} are declared: correct reach= in @register")
    if corner[-1, -1]:
        cut = ", because a part of the computation has no gradient" if gradient.sum() < corner.sum() else ""
        return passed(f"a change at one corner reaches {_share(corner)}, the opposite corner too; {by_gradient}{cut}")
    if centre.sum() <= 1:
        return failed(
            f"a change at a position reaches no other position; {by_gradient}",
            "every operation works on single positions: add one that combines them (attention, pooling, factorisation)",
        )
    return failed(
        f"local: a change at the centre reaches {_share(centre)}, {_window(centre)}; a change at one corner does not "
        f"reach the opposite corner; {by_gradient}",
        "a context module needs a path from every position to every other (attention, global pooling, factorisation); "
        "one that is meant to be local declares reach= in @register",
    )


def tells_positions_apart(subject: Subject) -> CheckResult:
    """The same change at several far positions: does the output depend on where it happened, as declared?"""
    declared = subject.entry.mixes_positions(subject.hparams)
    largest = 0.0
    for module, x in _trials(subject):
        height, width = x.shape[2:]
        places = [(row, column) for row in range(0, height // 2, 6) for column in range(0, width // 2, 6)]
        effects = _far_effects(module, x, places)
        size = float(effects.abs().max())
        if size <= subject.agrees:
            continue
        spread = float((effects - effects[0]).abs().max()) / size
        largest = max(largest, spread)
        if spread > UNIFORM:
            fact = f"the same change at {len(places)} far positions has different effects (up to {spread:.0%} apart)"
            return passed(fact) if declared else failed(fact, "correct position_mixing= in @register")
    if largest == 0.0:
        fact = "no far position has an effect on the output"
        return not_applicable(fact) if declared else passed(f"as declared, {fact}")
    fact = (
        "global, but without position mixing: the same change at any far position has the same effect on an output "
        f"(up to {largest:.1g}), so the output depends on the positions only through their average"
    )
    return passed(f"as declared, {fact}") if not declared else failed(fact, UNMIXED)


def _trials(subject: Subject) -> Iterator[tuple[nn.Module, Tensor]]:
    size = REACH_SIZE
    for seed, scale in TRIALS:
        module = subject.randomised(seed)
        try:
            with torch.no_grad():
                forward(module, subject.image(size, batch=1))
        except ValueError as error:
            if not is_refusal(error):
                raise
            size = subject.size  # the module takes one size only
        yield module, scale * subject.image(size, batch=1, seed=seed)


def _far_effects(module: nn.Module, x: Tensor, places: list[tuple[int, int]]) -> Tensor:
    """The change of the 2x2 outputs in the last corner, relative to the output's largest element: [places, 4 C'].

    The corner alone would not do: where regions are enlarged with aligned corners, it gets a single region.
    """
    with torch.no_grad():
        y = forward(module, x)
        corners = [(forward(module, with_change(x, place)) - y)[0, :, -2:, -2:].flatten() for place in places]
        return torch.stack(corners) / y.abs().max()


def _share(seen: Tensor) -> str:
    count, total = int(seen.sum()), seen.numel()
    return f"{count} of {total} positions ({count / total:.0%})"


def _window(seen: Tensor) -> str:
    """The smallest box around the true positions: `a 7x7 window in a 33x31 input`."""
    rows, columns = seen.any(dim=1).nonzero(), seen.any(dim=0).nonzero()
    height, width = int(rows[-1] - rows[0]) + 1, int(columns[-1] - columns[0]) + 1
    full = height * width == int(seen.sum())
    return f"{'a' if full else 'within a'} {height}x{width} window in a {seen.shape[0]}x{seen.shape[1]} input"
