"""Checks of reach: does every output position depend on every input position, and on which one it is?

A finite change of the input decides, not the gradient: a module with a one-step gradient (the hams) is global although
its gradient covers only a part of the computation. The receptive field of the gradient is reported too.
"""

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor, nn

from ctxbench.meta.influence import TRIALS, changed_by, forward, seen_by_gradient, with_change
from ctxbench.plugins.verify.contract import CheckResult
from ctxbench.plugins.verify.subject import Subject, at_its_size, failed, not_applicable, passed
from ctxbench.registry.entry import BY_CONTENT

# Larger than a usual large kernel (31), so that such a window does not count as global.
REACH_SIZE = (33, 31)
# For a block of windows, or of square maps, several windows.
OTHER_REACH_SIZES = ((32, 48), (28, 42), (32, 32), (28, 28))
# Effects of far positions whose relative difference is below this count as the same.
UNIFORM = 1e-6
UNMIXED = (
    "this is squeeze-and-excitation: if it is intended, declare position_mixing=False in @register; otherwise weight "
    "the positions by their content"
)


def reaches(subject: Subject) -> CheckResult:
    """A change at one corner reaches the opposite corner, or how far one goes; as far as declared, if it is.

    Where the input's values decide, one at the centre reaches another position.
    """
    corner, centre, gradient = (torch.tensor(False) for _ in range(3))
    for module, x in _trials(subject):
        near, middle = (0, 0), (x.shape[2] // 2, x.shape[3] // 2)
        corner = corner | changed_by(module, x, near)
        centre = centre | changed_by(module, x, middle)
        gradient = gradient | seen_by_gradient(module, x, middle)
        if corner.all():
            break
    by_gradient = f"the gradient of the centre reaches {_share(gradient)}"
    fact = f"a change at the centre reaches {_share(centre)}"
    if subject.entry.reach == BY_CONTENT and centre.sum() > 1:
        return passed(f"as declared, by content: in {len(TRIALS)} trials {fact}; {by_gradient}")
    declared = subject.entry.closed_form("reach", (1, subject.channels, *centre.shape), subject.hparams)
    if declared != centre.numel():
        if centre.sum() == declared:
            return _local(f"as declared, local: {fact}, {_window(centre)}; {by_gradient}", centre)
        declaration = f"{subject.entry.reach!r} is" if declared is None else f"{declared} are"
        return failed(f"{fact}; {by_gradient}", f"{declaration} declared: correct reach= in @register")
    if corner[-1, -1] or centre.all():
        cut = (
            ", since a part of it has no gradient, or a stride leaves some out" if gradient.sum() < corner.sum() else ""
        )
        whole = f"a change at one corner reaches {_share(corner)}, the opposite corner too"
        return passed(f"{whole if corner[-1, -1] else fact}; {by_gradient}{cut}")
    if centre.sum() <= 1:
        return _local(f"local: a change at a position reaches no other position; {by_gradient}", centre)
    seen = f"a change at the centre reaches {_share(centre)}, {_window(centre)}, and one at a corner does not reach"
    return _local(f"{_kind(centre) or 'not global'}: {seen} the opposite corner; {by_gradient}", centre)


def _local(fact: str, seen: Tensor) -> CheckResult:
    """The result for a block that reaches these positions alone."""
    height, width = _box(seen) if seen.any() else (1, 1)
    kind = _kind(seen)
    return replace(passed(fact), mark=f"local: {height} x {width}" if kind == "local" else kind)


def _kind(seen: Tensor) -> str:
    """Name of the positions that a block reaches: a window, its row, its column, or both; "" for others.

    A window that spans the height or the width of the map would grow with it.
    """
    height, width = _box(seen) if seen.any() else (1, 1)
    spans = height == seen.shape[0], width == seen.shape[1]
    if not any(spans):
        return "local"
    if all(spans):
        return "sees its row and column" if int(seen.sum()) == sum(seen.shape) - 1 else ""
    return "sees its column" if width == 1 else "sees its row" if height == 1 else ""


def tells_positions_apart(subject: Subject) -> CheckResult:
    """The same change at several far positions: does the output depend on where it happened, as declared?"""
    declared = subject.entry.mixes_positions(subject.hparams)
    largest: float | None = None
    for module, x in _trials(subject):
        height, width = x.shape[2:]
        step = max(1, min(6, height // 4, width // 4))
        places = [(row, column) for row in range(0, height // 2, step) for column in range(0, width // 2, step)]
        effects = _far_effects(module, x, places)
        size = float(effects.abs().max())
        if size <= subject.agrees:
            continue
        spread = float((effects - effects[0]).abs().max()) / size
        largest = max(largest or 0.0, spread)
        if spread > UNIFORM:
            fact = f"the same change at {len(places)} far positions has different effects (up to {spread:.0%} apart)"
            return passed(fact) if declared else failed(fact, "correct position_mixing= in @register")
    if largest is None:
        fact = "no far position has an effect on the output"
        return not_applicable(fact) if declared else passed(f"as declared, {fact}")
    fact = (
        "global, but without position mixing: the same change at any far position has the same effect on an output "
        f"(up to {largest:.1g}), so the output depends on the positions only through their average"
    )
    return passed(f"as declared, {fact}") if not declared else failed(fact, UNMIXED)


def _trials(subject: Subject) -> Iterator[tuple[nn.Module, Tensor]]:
    size = at_its_size(replace(subject, size=REACH_SIZE, other_sizes=(*OTHER_REACH_SIZES, subject.size))).size
    for seed, scale in TRIALS:
        module = subject.randomised(seed)
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
    height, width = _box(seen)
    full = height * width == int(seen.sum())
    return f"{'a' if full else 'within a'} {height}x{width} window in a {seen.shape[0]}x{seen.shape[1]} input"


def _box(seen: Tensor) -> tuple[int, int]:
    """Height and width of the smallest box around the true positions."""
    rows, columns = seen.any(dim=1).nonzero(), seen.any(dim=0).nonzero()
    return int(rows[-1] - rows[0]) + 1, int(columns[-1] - columns[0]) + 1
