"""Inputs of a block at a place: of a known network, of a YAML file of ultralytics, or at a part of any network."""

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from ctxbench.base import disk
from ctxbench.base.errors import UsageError, unknown
from ctxbench.engine.isolated import IsolatedLoader
from ctxbench.model.conditions import SHAPE, Shape
from ctxbench.plugins.places.layers import FeatureMap, maps_of_file
from ctxbench.registry.reference import Reference

# All places of a network at once.
ALL = "all"


def inputs_at(at: str, side: int) -> tuple[dict[str, Shape], dict[str, Any]]:
    """Input of one image by the name of each place, and the keys of `[measure]` that tell rows their place.

    `at` is `yolo11n`, `yolo11n:P5`, `my_net.yaml:model.10` or `my_net.py:Net:layer3`; `side` is that of a square image
    in pixels. UsageError for a place that is not known, and for a side that is no multiple of its stride.
    """
    if side < 1:
        raise UsageError(f"--imgsz {side} is not the side of an image in pixels, such as 640")
    if found := re.fullmatch(r"(.+\.ya?ml)(?::(.+))?", at):
        maps = maps_of_file(Path(found[1]), found[2] or ALL)
        shapes = _at_side({f"{Path(found[1]).name}:{name}": each for name, each in maps.items()}, side)
    elif at.count(":") > 1 or ".py:" in at or at.partition(":")[0] not in known():
        shapes = _of_part(at, side)
    else:
        network, _, place = at.partition(":")
        shapes = _at_side({f"{network}:{name}": each for name, each in _named(network, place or ALL).items()}, side)
    names = {SHAPE.id_text(shape): place for place, shape in shapes.items()}
    return shapes, {"place_names": names, "place_side": side}


@cache
def known() -> dict[str, dict[str, FeatureMap]]:
    """The maps of known networks by the names of network and place."""
    groups = disk.read_toml(Path(str(files(__package__) / "maps.toml")))["group"]
    networks = {name: places for group in groups for name, places in group["maps"].items()}
    return {name: {place: FeatureMap(*own) for place, own in places.items()} for name, places in networks.items()}


def _named(network: str, place: str) -> Mapping[str, FeatureMap]:
    """The maps of a place, or of all. UsageError names those of the network, with their shapes at 640 pixels."""
    places = known()[network]
    if place != ALL and place not in places:
        listed = ", ".join(f"{name} {list(shape)}" for name, shape in _at_side(places, 640).items())
        raise UsageError(f"unknown place {place!r} of {network}; at 640 pixels it has {listed}, and {ALL}")
    return places if place == ALL else {place: places[place]}


def _at_side(maps: Mapping[str, FeatureMap], side: int) -> dict[str, Shape]:
    found = {}
    for name, each in maps.items():
        size = side / each.stride
        if size != int(size):
            raise UsageError(f"--imgsz {side} is no multiple of {each.stride}, the stride of {name}")
        found[name] = (1, each.channels, int(size), int(size))
    return found


def _of_part(at: str, side: int) -> dict[str, Shape]:
    """Maps that a part of a network gets, which a child builds and runs without data."""
    network, _, part = at.rpartition(":")
    if network.endswith(".py"):  # no part is named, so that its parts are told
        network, part = at, ""
    if ":" not in network:
        forms = "; for other networks write my_net.yaml:model.10 or my_net.py:Net:layer3"
        raise UsageError(f"{unknown('network', at.partition(':')[0], known())}{forms}")
    with IsolatedLoader() as loader:
        shapes = loader.asked(network, "inputs_of_part", list[Shape], Reference.parse(network).whole, part, side)
    name = f"{Path(network.partition(':')[0]).stem}:{network.rpartition(':')[2]}:{part}"
    return {f"{name}[{number}]" if number else name: each for number, each in enumerate(shapes)}
