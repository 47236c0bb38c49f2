"""Maps between the layers of a network in a YAML file of ultralytics' form, read without that package.

A layer is [from, repeats, module, arguments]; `from` counts layers from the first one, or back from it. The first
argument of most modules is their number of output channels, before the file's scale: a depth, a width, a maximum.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from ctxbench.base import disk
from ctxbench.base.errors import UsageError
from ctxbench.base.extras import lacking


@dataclass(frozen=True)
class FeatureMap:
    """A map by its channels and its stride: pixels of the image along a side of a position."""

    channels: int
    stride: Fraction | int


@dataclass(frozen=True)
class Scale:
    """Scale of a file: a factor of channels, and a maximum before it; what it makes is a multiple of 8."""

    width: float = 1.0
    most: float = float("inf")

    def channels(self, asked: int) -> int:
        return -int(-min(asked, self.most) * self.width // 8) * 8


# Channels and stride of what a layer returns, from its maps, its arguments and the scale.
LayerOutput = Callable[[Sequence[FeatureMap], Sequence[Any], Scale], tuple[int, Fraction | int]]


def _argument(arguments: Sequence[Any], place: int, default: int) -> int:
    return int(arguments[place]) if len(arguments) > place else default


def _strided(place: int, default: int = 1) -> LayerOutput:
    """Rule of a layer that makes channels by the scale, with its stride among the arguments, or the default."""
    return lambda maps, own, scale: (
        scale.channels(own[0]),
        maps[0].stride * (_argument(own, place, default) if place else default),
    )


def _same(maps: Sequence[FeatureMap], own: Sequence[Any], scale: Scale) -> tuple[int, Fraction | int]:
    return maps[0].channels, maps[0].stride


def _residual_layer(maps: Sequence[FeatureMap], own: Sequence[Any], scale: Scale) -> tuple[int, Fraction | int]:
    """A stage of a ResNet, [in, width, stride, is it the stem]; the stem's stride is 4."""
    is_stem = bool(own[3])
    return int(own[1]) * (1 if is_stem else 4), maps[0].stride * (4 if is_stem else int(own[2]))


_PLAIN = (
    *("Bottleneck", "BottleneckCSP", "C1", "C2", "C2f", "C3", "C3k2", "C3TR", "C3Ghost", "C3x", "RepC3", "A2C2f"),
    *("C2PSA", "C2fPSA", "PSA", "C2fCIB", "SPP", "SPPF", "SPPELAN", "ELAN1", "RepNCSPELAN4"),
)
RULES: dict[str, LayerOutput] = {
    **dict.fromkeys(_PLAIN, _strided(0)),
    **dict.fromkeys(("Conv", "DWConv", "GhostConv", "SCDown"), _strided(2)),
    **dict.fromkeys(("ADown", "AConv", "Focus"), _strided(0, default=2)),
    **dict.fromkeys(("AIFI", "nn.Identity", "nn.BatchNorm2d"), _same),
    "Concat": lambda maps, own, scale: (sum(each.channels for each in maps), maps[0].stride),
    "nn.Upsample": lambda maps, own, scale: (maps[0].channels, Fraction(maps[0].stride) / int(own[1])),
    "HGStem": lambda maps, own, scale: (int(own[1]), maps[0].stride * 4),
    "HGBlock": lambda maps, own, scale: (int(own[1]), maps[0].stride),
    "ResNetLayer": _residual_layer,
}


def maps_of_file(path: Path, place: str) -> dict[str, FeatureMap]:
    """The maps that a layer `model.10` takes, or those that the last layer takes: `P3` (stride 8), ..., or `all`.

    UsageError for a file that is none of this form, for a place that it lacks, and for one behind a layer whose output
    is not known.
    """
    taken = _taken(path)
    if layer := re.fullmatch(r"model\.(\d{1,4})", place):
        if int(layer[1]) >= len(taken):
            raise UsageError(f"{path} has no {place}: its layers are model.0 to model.{len(taken) - 1}")
        own = taken[int(layer[1])]
        names = [place] if len(own) == 1 else [f"{place}[{number}]" for number in range(len(own))]
        return {name: _known(each) for name, each in zip(names, own, strict=True)}
    head = {f"P{Fraction(own.stride).numerator.bit_length() - 1}": own for own in map(_known, taken[-1])}
    if place != "all" and place not in head:
        known = ", ".join(f"{name} [{each.channels} channels, stride {each.stride}]" for name, each in head.items())
        raise UsageError(
            f"unknown place {place!r} of {path}; known: model.0 to model.{len(taken) - 1}, {known} and all"
        )
    return head if place == "all" else {place: head[place]}


def _known(found: FeatureMap | str) -> FeatureMap:
    """A map. UsageError with the reason where there is none."""
    if isinstance(found, str):
        raise UsageError(found)
    return found


def _taken(path: Path) -> list[list[FeatureMap | str]]:
    """The maps that each layer takes, or why one is not known."""
    scale, layers = _read(path)
    returned: list[FeatureMap | str] = []
    found: list[list[FeatureMap | str]] = []
    for number, layer in enumerate(layers):
        try:
            sources, _, kind, arguments = layer
            sources = [sources] if isinstance(sources, int) else [*sources]
            places = [each if each >= 0 else number + each for each in sources]
            taken = [FeatureMap(3, 1) if each < 0 else returned[each] for each in places]
        except (TypeError, ValueError, IndexError):
            raise UsageError(f"model.{number} of {path} is {layer!r}, not [from, repeats, module, arguments]") from None
        found.append(taken)
        returned.append(_returned(f"model.{number} of {path}", str(kind), taken, arguments, scale))
    return found


def _returned(
    where: str, kind: str, taken: Sequence[FeatureMap | str], arguments: Any, scale: Scale
) -> FeatureMap | str:
    if why := next((each for each in taken if isinstance(each, str)), None):
        return why
    if kind not in RULES:
        return f"{where} is {kind}, whose output is not known without its code, so no place behind it is known, either"
    try:
        return FeatureMap(*RULES[kind]([each for each in taken if isinstance(each, FeatureMap)], arguments, scale))
    except (TypeError, ValueError, IndexError, KeyError, ZeroDivisionError):
        return f"{where}: {kind} has the arguments {arguments!r}, which do not tell its output"


def _read(path: Path) -> tuple[Scale, list[Any]]:
    """The scale of a file and its layers; `yolo11n.yaml` is `yolo11.yaml` in the scale n where it is no file itself."""
    if sentence := lacking(f"reading {path}", "yaml"):
        raise UsageError(sentence)
    import yaml

    named = re.fullmatch(r"(.*\d)([nslmx])", path.stem)
    if named and not path.exists():
        path = path.with_stem(named[1])
    try:
        content = yaml.safe_load(disk.read_text(path))
    except (yaml.YAMLError, RecursionError) as error:
        raise UsageError(f"{path} is no YAML: {' '.join(str(error).split())}") from None
    parts = [content.get(part) for part in ("backbone", "head")] if isinstance(content, Mapping) else []
    layers = [layer for part in parts if isinstance(part, list) for layer in part]
    if not layers or not all(isinstance(part, list) for part in parts):
        raise UsageError(f"{path} has no lists backbone and head, as the networks of ultralytics have")
    return _scale(path, content, named[2] if named else ""), layers


def _scale(path: Path, content: Mapping[str, Any], letter: str) -> Scale:
    """The scale that the file's name ends in, else that of its key `scale`, else the first one."""
    scales = content.get("scales")
    try:
        if not scales:
            return Scale(float(content.get("width_multiple", 1.0)))
        name = next(each for each in (letter, content.get("scale"), next(iter(scales))) if each in scales)
        _, width, most = scales[name]
        return Scale(float(width), float(most))
    except (TypeError, ValueError, AttributeError):
        raise UsageError(f"{path}: scales are not lists of depth, width and the most channels by a name") from None
