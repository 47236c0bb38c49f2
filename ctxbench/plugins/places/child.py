"""Maps that a part of a person's network gets, found by a pass without data."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ctxbench.base.errors import LISTED, UsageError, text_of, unknown
from ctxbench.meta.on_meta import on_meta
from ctxbench.model.conditions import Shape
from ctxbench.registry.load import import_source
from ctxbench.registry.reference import Reference


def inputs_of(network: Reference, part: str, side: int) -> list[Shape]:
    """Shapes of the maps that a submodule gets when the network takes an image [1, 3, side, side].

    UsageError if the network cannot be made, has no such part, or gives it no map.
    """
    model = on_meta(_made(network)).eval()
    taken: dict[str, list[Shape]] = {}
    for name, each in model.named_modules():
        each.register_forward_pre_hook(
            lambda module, given, named, name=name: taken.setdefault(name, []).extend(_maps([*given, *named.values()])),
            with_kwargs=True,
        )
    why = ""
    try:
        with torch.inference_mode():
            model(torch.empty(1, 3, side, side, device="meta"))
    except Exception as error:  # what lies behind the part is not asked for
        why = f"{network.name} does not take an image [1, 3, {side}, {side}]: {text_of(error)}"
    if part and (found := [*dict.fromkeys(taken.get(part, ()))]):
        return found
    if part in dict(model.named_modules()) and part:
        raise UsageError(why or f"{part} of {network.name} gets no map [B, C, H, W] in a pass")
    known = {f"{name} {[*maps[0]]}": name for name, maps in taken.items() if name and maps}
    few = known if len(known) <= LISTED else [told for told, name in known.items() if "." not in name]
    raise unknown(f"part of {network.name}", part, few) if few else UsageError(why or f"{network.name} has no maps")


def _made(network: Reference) -> nn.Module:
    """The network: an instance, or what a class or a function makes without arguments."""
    source = import_source(network.source)
    found = getattr(source, network.name, None)
    if found is None:
        raise unknown(f"network in {network.source}", network.name, [n for n in vars(source) if not n.startswith("_")])
    if isinstance(found, type) or not isinstance(found, nn.Module):
        try:
            found = found()
        except TypeError as error:
            advice = "name a function that makes it without arguments"
            raise UsageError(f"{network} cannot be made: {text_of(error)}; {advice}") from None
    if not isinstance(found, nn.Module):
        raise UsageError(f"{network} makes no torch.nn.Module")
    return found


def _maps(given: Sequence[Any]) -> Iterator[Shape]:
    for each in given:
        if isinstance(each, Tensor) and each.dim() == 4:
            batch, channels, height, width = each.shape
            yield batch, channels, height, width
        elif isinstance(each, list | tuple):
            yield from _maps(each)
