"""A pass in another state of the module: with folded norms, or with layers that are not called."""

import copy
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import cast

from torch import nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from ctxbench.meta.on_meta import on_meta
from ctxbench.plugins.macs.tools.calls import Calls, CallWithin, FunctionCall, LayerCall, storages

FOLDED, FUSED = "folded-norms", "fused-mamba"
_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


def in_state(calls: Calls, state: str) -> Calls:
    """The calls of a module that is in this state; the same ones where that makes no difference."""
    if state not in calls.in_states:
        found = calls
        if state == FOLDED and (pairs := foldable(calls)):
            found = Calls(folded(on_meta(calls.module).eval(), pairs), calls.shape)
        if state == FUSED and any(map(_is_mamba, calls.copy.modules())):
            found = Fused(calls.module, calls.shape)
        calls.in_states[state] = found
    return calls.in_states[state]


def foldable(calls: Calls) -> list[tuple[str, str]]:
    """The names of each convolution and of the batch norm that alone reads its output, both of one call and place."""
    names = {layer: name for name, layer in calls.copy.named_modules()}
    times = Counter(each.layer for each in calls.layers)
    seen_by = defaultdict(set)
    for call in calls.operators:
        for storage in storages((call.args, call.output)):
            seen_by[storage].add(id(calls.whole(call)))
    makers = {id(each.output): each.layer for each in calls.layers if type(each.layer) in _CONVOLUTIONS}
    found = []
    for each in calls.layers:
        conv, norm = makers.get(id(each.inputs[0])) if each.inputs else None, each.layer
        if conv is None or type(norm) not in _NORMS or norm.running_mean is None:
            continue
        (storage,) = storages(each.input)
        if len(seen_by[storage]) == 2 and all(times[part] == calls.parents(part) == 1 for part in (conv, norm)):
            found.append((names[conv], names[norm]))
    return found


def folded(module: nn.Module, pairs: Sequence[tuple[str, str]]) -> nn.Module:
    """A copy of a module in eval mode, the norm of each of these pairs folded into the convolution."""
    found = copy.deepcopy(module)
    for names in pairs:
        conv, norm = cast(tuple[nn.Conv2d, nn.BatchNorm2d], tuple(map(found.get_submodule, names)))
        for name, part in zip(names, (fuse_conv_bn_eval(conv, norm), nn.Identity()), strict=True):
            found.set_submodule(name, part)
    return found


class Fused(Calls):
    """Calls of a pass in which the layers below one of the class Mamba are functions and kernels."""

    @cached_property
    def _below(self) -> set[nn.Module]:
        return {part for layer in self.copy.modules() if _is_mamba(layer) for part in layer.modules()} - {
            layer for layer in self.copy.modules() if _is_mamba(layer)
        }

    def _outside(self, layers: Sequence[nn.Module]) -> tuple[nn.Module, ...]:
        return tuple(each for each in layers if each not in self._below)

    @cached_property
    def layers(self) -> Sequence[LayerCall]:
        return [each for each in super().layers if each.layer not in self._below]

    @cached_property
    def functions(self) -> Sequence[FunctionCall]:
        return [replace(each, layers=self._outside(each.layers)) for each in super().functions]

    @cached_property
    def operators(self) -> Sequence[CallWithin]:
        return [replace(each, layers=self._outside(each.layers)) for each in super().operators]


def _is_mamba(layer: nn.Module) -> bool:
    return type(layer).__name__ == "Mamba"
