"""The weights that two versions of a module share: by name, else by shape and order; and a note on the others."""

from collections.abc import Callable, Collection, Mapping
from itertools import groupby

import torch
from torch import Tensor, nn

from ctxbench.base.texts import listed

Weights = dict[str, Tensor]
OTHER_DRAW = "one seed now draws other initial weights"
MOST_NAMES = 3


def weights_of(module: nn.Module) -> Weights:
    """Copies of all parameters and buffers, by name."""
    return {name: tensor.detach().clone() for name, tensor in (*module.named_parameters(), *module.named_buffers())}


def counterparts(before: Mapping[str, torch.Size], now: Mapping[str, torch.Size]) -> dict[str, str]:
    """The name now of each weight of before that is still there.

    It has the same name and shape. Of the rest, it has the same shape and last part of the name, or the same shape
    alone, where both sides have equally many of them; these are matched in order.
    """
    found = {name: name for name in before if before[name] == now.get(name)}
    kinds: tuple[Callable[[str, torch.Size], str], ...] = (
        lambda name, shape: f"{name.rpartition('.')[2]} {shape}",
        lambda _, shape: str(shape),
    )
    for kind in kinds:
        left, ours = (
            _by_kind({name: kind(name, shape) for name, shape in side.items() if name not in taken})
            for side, taken in ((before, found.keys()), (now, {*found.values()}))
        )
        for each, names in left.items():
            if len(names) == len(ours.get(each, ())):
                found |= zip(names, ours[each], strict=True)
    return {name: found[name] for name in before if name in found}


def _by_kind(kinds: Mapping[str, str]) -> dict[str, list[str]]:
    return {kind: [*names] for kind, names in groupby(sorted(kinds, key=kinds.__getitem__), kinds.__getitem__)}


def drawn(initial: Weights, other: Weights) -> set[str]:
    """The names of the weights that differ between two seeds."""
    return {name for name, each in initial.items() if not torch.equal(each, other[name])}


def share(model: nn.Module, before: Weights, same: Mapping[str, str], drawn_on_both: Collection[str]) -> None:
    """Give the model the weights of before.

    A tensor that is not trained is a constant of the function, and stays, unless it is drawn on both sides.
    """
    trained = {name for name, each in model.named_parameters() if each.requires_grad}
    tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    with torch.no_grad():
        for old, name in same.items():
            if name in trained or name in drawn_on_both:
                tensors[name].copy_(before[old])


def sentences(before: Mapping[str, torch.Size], now: Mapping[str, torch.Size], same: Mapping[str, str]) -> str:
    """Sentences on saved weights of other names and shapes, and on whether old ones load; empty if there are none."""
    renamed = [f"{old} is now {name}" for old, name in same.items() if old != name]
    reshaped = [name for name in before if name in now and name not in same]
    gone = [name for name in before if name not in same and name not in reshaped]
    new = [name for name in now if name not in same.values() and name not in reshaped]
    told = [
        listed(renamed, MOST_NAMES),
        *(
            f"{listed(names, MOST_NAMES)} {'is' if len(names) == 1 else 'are'} {what}"
            for names, what in ((reshaped, "of another shape"), (gone, "gone"), (new, "new"))
            if names
        ),
    ]
    if not any(told):
        return ""
    loads = "do not load" if renamed or reshaped else "load with strict=False alone"
    shared = f"compared with the {len(same):,} weights and buffers that both sides have" if same else ""
    return "; ".join(filter(None, [shared, *told, f"weights that the baseline saved {loads}"]))
