"""Parameters as counters count them: the words of `counters.toml`."""

from collections.abc import Container, Iterator

from torch import nn

from ctxbench.metrics.params import count_params
from ctxbench.plugins.macs.tools.calls import Calls


def all(calls: Calls, has_rule: frozenset[type]) -> int:
    """Each tensor once."""
    return count_params(calls.copy)


def trainable(calls: Calls, has_rule: frozenset[type]) -> int:
    """Each tensor that needs a gradient once."""
    return sum(each.numel() for each in calls.copy.parameters() if each.requires_grad)


def of_called_layers(calls: Calls, has_rule: frozenset[type]) -> int:
    """Parameters of layers with a rule that were called, once for each parent; none of a module that is one layer."""
    called = {each.layer for each in calls.layers if type(each.layer) in has_rule}
    return sum(calls.parents(each) * _own(each) for each in called - {calls.copy})


def of_called_layers_and_itself(calls: Calls, has_rule: frozenset[type]) -> int:
    """Parameters of layers with a rule that were called, each once."""
    return sum(map(_own, {each.layer for each in calls.layers if type(each.layer) in has_rule}))


def of_each_layer(calls: Calls, has_rule: frozenset[type]) -> int:
    """Parameters of each layer that was called, less those of called parts; a tensor of two layers counts twice."""
    total = 0
    called = dict.fromkeys(each.layer for each in calls.layers)
    for layer in called:
        inner = sum(count_params(each) for each in _called_below(layer, called))
        total += max(count_params(layer) - inner, 0)
    return total


def of_each_leaf(calls: Calls, has_rule: frozenset[type]) -> int:
    """Parameters of each layer without parts that was called; a tensor of two layers counts twice."""
    called = dict.fromkeys(each.layer for each in calls.layers)
    return sum(count_params(each) for each in called if not [*each.children()])


def _called_below(layer: nn.Module, called: Container[nn.Module]) -> Iterator[nn.Module]:
    """The nearest parts of a layer that were called."""
    for each in layer.children():
        if each in called:
            yield each
        else:
            yield from _called_below(each, called)


def _own(layer: nn.Module) -> int:
    return sum(each.numel() for each in layer.parameters(recurse=False))
