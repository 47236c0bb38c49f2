"""Figures of other counters: the rules of a version and state (`counters.toml`), over the calls of one pass."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

from torch import nn

from ctxbench.meta.fused_attention import is_fusible
from ctxbench.plugins.macs.tools import declared, functions, layers, operators, params
from ctxbench.plugins.macs.tools.calls import NATIVE, Calls, CallWithin, FunctionCall, LayerCall
from ctxbench.plugins.macs.tools.states import in_state
from ctxbench.plugins.macs.watch import UncountableError

_ATTENTION = "aten::scaled_dot_product_attention"
# Layers whose cost does not grow with the image, by which a line is drawn through two images.
_OF_FIXED_COST = (
    *(nn.Linear, nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d),
    *(nn.RNNBase, nn.RNNCell, nn.GRUCell, nn.LSTMCell),
)
_WORDS = {"layers": layers, "functions": functions, "operators": operators}
Booked = Callable[[Any], int]


@dataclass(frozen=True)
class Reading:
    """A counter in a version and a state: `NAME@VERSION`, or `NAME@VERSION+STATE`.

    `count` is the number that it prints for a pass, in its `unit`, `params` its number of parameters, None if it prints
    none. Both raise UncountableError where the package fails. `sees` tells of a product whether it counts.
    """

    name: str
    about: Mapping[str, Any]
    rules: Mapping[str, Mapping[str, Booked]]

    @property
    def unit(self) -> str:
        return str(self.about["unit"])

    @property
    def state(self) -> str:
        return self.name.partition("+")[2]

    @property
    def has_gradients(self) -> bool:
        return self.state != "no-grad"

    def count(self, calls: Calls) -> int:
        """The number that it prints."""
        calls = in_state(calls, self.state)
        if self.state == "stride-32":
            return self._by_stride(calls, 32)
        if side := int(self.about.get("side", 0)):
            _, channels, height, width = calls.shape
            return 2 * self._sum(calls.at((1, channels, side, side))) * height * width // side**2
        return self._sum(calls.at((1, *calls.shape[1:])) if self.about.get("batch") == "one" else calls)

    def count_in(self, calls: Calls, image: int) -> int:
        """The number that it adds for a block of a network whose image has this side, if it counts a small image.

        Where the block does not take its map of the small image, the count is of the whole image.
        """
        _, channels, height, width = calls.shape
        side = int(self.about["side"])
        small = (1, channels, max(1, height * side // image), max(1, width * side // image))
        try:
            return 2 * self._sum(calls.at(small)) * image**2 // side**2
        except UncountableError:
            return 2 * self._sum(calls)

    def _by_stride(self, calls: Calls, side: int) -> int:
        """A straight line through the counts of side x side and side x 2 side, at the area of the input.

        A line through zero where no layer is of a fixed cost. The input's own count where that is no larger or no
        multiple, where attention grows by the square of the area, and where a small image is not taken.
        """
        *image, height, width = calls.shape
        areas, layers = height * width // side**2, [*calls.copy.modules()]
        if (
            height % side
            or width % side
            or areas <= 1
            or any(isinstance(each, nn.MultiheadAttention) for each in layers)
        ):
            return self._sum(calls)
        is_fixed = any(isinstance(each, _OF_FIXED_COST) for each in layers)
        try:
            one, *two = (self._sum(calls.at((*image, side, each * side))) for each in (1, 2)[: 1 + is_fixed])
        except UncountableError:
            return self._sum(calls)
        return one + (areas - 1) * ((two[0] - one) if two else one)

    def _sum(self, calls: Calls) -> int:
        if self.about.get("fails") == "without_parameters" and not [*calls.copy.parameters()]:
            raise UncountableError("it fails on a module without parameters")
        booked = sum(self._times(each, calls) * self._layer(each) for each in calls.layers)
        booked += sum(self._times(each, calls) * self._function(each) for each in calls.functions)
        return booked + sum(self._operator(each, calls) for each in calls.operators)

    def params(self, calls: Calls) -> int | None:
        """Its number of parameters."""
        if not (word := self.about.get("params")):
            return None
        found: int = getattr(params, word)(in_state(calls, self.state), self._types)
        return found

    def sees(self, call: CallWithin, calls: Calls) -> bool:
        """Return whether it counts something for a call, or for what is around it."""
        around = [LayerCall(each, (), None) for each in call.layers]
        whole = call if self.about.get("seen") == "product" else calls.whole(call)
        hidden = not self.has_gradients and NATIVE in call.functions
        names = [] if hidden else [each for each in call.functions if each in self.rules["functions"]]
        return any(map(self._rule, around)) or bool(names) or self._operator(whole, calls) > 0

    @cached_property
    def _types(self) -> frozenset[type]:
        return frozenset(getattr(nn, name) for name in self.rules["layers"] if name != "*")

    def _rule(self, call: LayerCall) -> Booked | None:
        rules = self.rules["layers"]
        if "*" in rules:
            return None if [*call.layer.children()] else rules["*"]
        kinds = type(call.layer).__mro__ if self.about.get("match") == "subclass" else [type(call.layer)]
        found = next((each for each in kinds if each in self._types), None)
        return rules[found.__name__] if found else None

    def _layer(self, call: LayerCall) -> int:
        rule = self._rule(call)
        return rule(call) if rule else 0

    def _function(self, call: FunctionCall) -> int:
        rule = self.rules["functions"].get(call.name)
        if rule is None or not (self.has_gradients or NATIVE not in call.within):
            return 0
        if self.about.get("seen") == "outside" and (
            {*call.within} & self.rules["functions"].keys()
            or any(self._rule(LayerCall(each, (), None)) for each in call.layers)
        ):
            return 0
        return rule(call)

    def _operator(self, call: CallWithin, calls: Calls) -> int:
        rules = self.rules["operators"]
        if not rules or not (self.has_gradients or NATIVE not in call.functions):
            return 0
        if self.about.get("whole") and not self.has_gradients and any(map(_is_native, call.layers)):
            return 0
        if self.about.get("seen") != "product":
            rule = rules.get(call.name)
            return rule(call) if rule and not call.around and calls.is_read(call) else 0
        if call.name == _ATTENTION:
            has_kernel = self.state != "unfused-attention" and is_fusible(*call.args[:3])
            fused = has_kernel and not (self.has_gradients and calls.has_learned_mask(call))
            return 0 if fused else rules["aten::bmm"](call)
        return rules[call.name](call) if call.name in rules and "aten::lstm" not in call.around else 0

    def _times(self, call: LayerCall | FunctionCall, calls: Calls) -> int:
        """Number of times that a call counts, whose layer may have several parents."""
        twice = self.about.get("twice", "once")
        if isinstance(call, FunctionCall):
            twice = self.about.get("twice_functions", twice)
        layer = call.layer if isinstance(call, LayerCall) else (None, *call.layers)[-1]
        parents = 1 if twice == "once" or layer is None else calls.parents(layer)
        return parents**2 if twice == "squared" else parents


def _is_native(layer: nn.Module) -> bool:
    """Return whether a layer is an encoder's that runs in one operator, in inference without gradients."""
    if type(layer) is not nn.TransformerEncoderLayer:
        return False
    own = layer.self_attn
    is_whole = own._qkv_same_embed_dim and own.in_proj_bias is not None and own.num_heads % 2 == 0
    return bool(own.batch_first and is_whole and layer.activation_relu_or_gelu and layer.norm1.eps == layer.norm2.eps)


@cache
def reading(name: str) -> Reading:
    """A counter by its full name."""
    about, kinds = _merged(name.partition("+")[0])
    rules = {
        owner: {kind: _booked(owner, word) for kind, word in words.items() if word} for owner, words in kinds.items()
    }
    return Reading(name, about, rules)


def _merged(name: str) -> tuple[dict[str, Any], dict[str, dict[str, str]]]:
    """The keys of a version with those that it is like; the word of each kind of work."""
    counter, version = name.split("@")
    own = declared()[counter][version]
    about, kinds = _merged(own["like"]) if "like" in own else ({}, {owner: {} for owner in _WORDS})
    for owner in _WORDS:
        for word, names in own.get(owner, {}).items():
            kinds[owner] |= dict.fromkeys((kind for each in names for kind in _kinds(owner, each)), word)
    return {"states": []} | about | {key: value for key, value in own.items() if key not in _WORDS}, kinds


def _kinds(owner: str, name: str) -> Iterator[str]:
    """The kinds of work that a name of the file stands for."""
    names = [name.replace("#", str(axes)) for axes in (1, 2, 3)] if "#" in name else [name]
    for each in names:
        if owner == "operators":
            yield f"aten::{each}"
        elif each.startswith("any."):
            yield from (each.replace("any", place, 1) for place in ("torch", "Tensor"))
        else:
            yield each


def _booked(owner: str, word: str) -> Booked:
    name, *numbers = word.split()
    found: Any = getattr(_WORDS[owner], name)
    booked: Booked = found(*map(int, numbers)) if numbers else found
    return booked
