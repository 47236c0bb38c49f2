"""Networks with a slot for a module: declare, find and build them."""

import importlib.util
import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ctxbench.base import extras
from ctxbench.base.errors import UsageError, unknown
from ctxbench.registry.load import import_source
from ctxbench.registry.reader import reader
from ctxbench.registry.reference import Reference
from ctxbench.registry.source import find_source

if TYPE_CHECKING:
    from torch import nn

BUILT_IN = "ctxbench.networks"
# Makes the module under test for so many channels.
MakeModule = Callable[[int], "nn.Module"]
NO_WEIGHTS = "it asks for trained weights, which ctxbench does not download: pass pretrained=False; costs stay the same"


@dataclass(frozen=True)
class Network:
    """A network from `shape` [B, C, H, W]; other inputs have the same C, and H and W that are multiples of `multiple`.

    `builder` takes a `MakeModule`, and puts what that makes into the network, once or several times.
    """

    key: str
    builder: Callable[[MakeModule], "nn.Module"]
    title: str = ""
    paper: str = ""
    shape: tuple[int, int, int, int] | None = None
    multiple: int = 1

    def build(self, make_module: MakeModule, shape: tuple[int, int, int, int]) -> "nn.Module":
        """The network for an input of this shape. UsageError if they do not fit, or nothing is in a slot."""
        from torch import nn

        from ctxbench.registry.slot import Slot

        self._check_shape(shape)
        with _no_downloads():
            try:
                model = self.builder(lambda channels: Slot(make_module(channels), channels, self.key))
            except Exception as error:
                if type(error).__module__.startswith("huggingface_hub"):
                    raise UsageError(f"network {self.key}: {NO_WEIGHTS}") from error
                raise
        if not isinstance(model, nn.Module):
            raise UsageError(f"network {self.key} returns {type(model).__name__}, not an nn.Module")
        if not any(isinstance(each, Slot) for each in model.modules()):
            raise UsageError(f"network {self.key} has no slot: put what make_module(channels) returns into the network")
        return model

    def _check_shape(self, shape: tuple[int, int, int, int]) -> None:
        wrong = any(size % self.multiple for size in shape[2:])
        if wrong or (self.shape and shape[1] != self.shape[1]):
            channels = self.shape[1] if self.shape else "C"
            raise UsageError(
                f"network {self.key} takes [B, {channels}, H, W] with H and W multiples of {self.multiple}, not "
                f"{list(shape)}" + (f"; such as --shape {','.join(map(str, self.shape))}" if self.shape else "")
            )


def network(
    key: str,
    *,
    title: str = "",
    paper: str = "",
    shape: tuple[int, int, int, int] | None = None,
    multiple: int = 1,
) -> Callable[[Callable[[MakeModule], "nn.Module"]], Network]:
    """Decorator of a function that builds a network around the modules it is given; see `Network`."""

    def decorate(builder: Callable[[MakeModule], "nn.Module"]) -> Network:
        return Network(key, builder, title, paper, shape, multiple)

    return decorate


def names() -> list[str]:
    """The networks of ctxbench: each is a file of its name."""
    return sorted(path.stem for path in _folder().glob("[!_]*.py"))


def _folder() -> Path:
    spec = importlib.util.find_spec(BUILT_IN)
    if spec is None or not spec.submodule_search_locations:
        raise UsageError(f"the package {BUILT_IN} is not installed; install ctxbench with pip")
    return Path(next(iter(spec.submodule_search_locations)))


def file_of(name: str) -> Path:
    """The source file of a network. UsageError for an unknown one."""
    named = Reference.parse(name)
    if named.is_key:
        if name not in names():
            raise unknown("network", name, names())
        return _folder() / f"{name}.py"
    return Path(named.source) if named.is_file else find_source(named.source)


def get(name: str) -> Network:
    """The network of a name, or of `path/file.py:function`, `package.module:function`. UsageError if there is none."""
    named = Reference.parse(name)
    source, function = named.source, named.name
    if named.is_key:
        if name not in names():
            raise unknown("network", name, names())
        source, function = f"{BUILT_IN}.{name}", name
    module = import_source(source)
    found = getattr(module, function, None)
    if found is None:
        raise unknown(f"network in {source}", function, [n for n, v in vars(module).items() if isinstance(v, Network)])
    if isinstance(found, Network):
        return found
    if not callable(found):
        raise UsageError(f"{name} is no function that builds a network")
    return Network(function, found)


def lacking(name: str) -> str:
    """Missing packages of a network of ctxbench, with the command that installs them; "" if none is missing."""
    return extras.lacking(f"network {name}", "networks") if name in names() else ""


def shape_of(name: str) -> tuple[int, int, int, int] | None:
    """The input that a network declares. UsageError if there is no such network, or a package for it is missing."""
    if sentence := lacking(name):
        raise UsageError(sentence)
    return elsewhere.network_shape(name) if (elsewhere := reader()) else get(name).shape


def _no_downloads() -> AbstractContextManager[object]:
    """A context in which libraries load no weights from elsewhere."""
    os.environ["HF_HUB_OFFLINE"] = "1"

    def refuse(*arguments: object, **settings: object) -> None:
        raise UsageError(NO_WEIGHTS)

    from unittest.mock import patch  # it imports asyncio, which no run without a network need wait for

    return patch("torch.hub.download_url_to_file", refuse)
