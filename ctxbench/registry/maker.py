"""Makes modules, from `channels` and hyper-parameters by name, of what is no plain class of modules of maps."""

import inspect
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from ctxbench.base.errors import UsageError
from ctxbench.registry.config import WIDTHS, Config, config_of, gathered
from ctxbench.registry.constructor import Given, first_argument
from ctxbench.registry.hyperparameter import Hyperparameter, shown_type

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class Maker:
    """Makes modules as a class does: of a function, of a class with config objects, of a block of another layout.

    `configs` are arguments whose fields are hyper-parameters; `width` is the argument, or the field `config.field`, for
    the number of channels, "" for the first argument, which is what is `given`; `made_for` is the one number of
    channels that it makes. `takes` is the layout of what it makes as far as arguments say it, else "".
    """

    name: str
    function: "Callable[..., nn.Module]"
    configs: tuple[Config, ...] = ()
    hyperparameters: tuple[Hyperparameter, ...] = ()
    width: str = ""
    made_for: int | None = None
    takes: str = ""
    given: Given = "channels"

    def __call__(self, channels: int, **hparams: Any) -> "nn.Module":
        from torch import nn

        from ctxbench.registry.layout import of_map

        made = self._make(channels, hparams)
        if not isinstance(made, nn.Module):
            raise UsageError(f"{self.name} makes {type(made).__name__}; it must make an nn.Module")
        return of_map(made, channels) if self.given == "channels" else made

    def _make(self, channels: int, hparams: Mapping[str, Any]) -> "nn.Module":
        values = {**hparams, **({self.width: channels} if self.width else {})}
        return self.function(*([] if self.width else self._first(channels)), **gathered(values, self.configs))

    def _first(self, channels: int) -> list[Any]:
        """The first argument; the slot of a network for a block stays empty."""
        from torch import nn

        first: Mapping[Given, list[Any]] = {"channels": [channels], "module": [lambda channels: nn.Identity()], "": []}
        return first[self.given]


def maker_of_class(cls: "type[nn.Module]", maps: bool) -> "type[nn.Module] | Maker":
    """The class itself if it takes `channels` first, no config, and makes blocks of maps; what else makes its modules.

    `maps`: it is known to make blocks of maps.
    """
    from ctxbench.registry.layout import IMAGE, signed

    takes = IMAGE if maps else signed(cls)
    maker = maker_of_function(cls.__name__, cls, takes)
    return maker if maker.configs or takes != IMAGE or maker.given != "channels" else cls


def maker_of_instance(name: str, load: "Callable[[], nn.Module]") -> Maker:
    """Maker of copies of an instance, which it may be asked for at one number of channels."""
    from ctxbench.registry.layout import signed, width_of

    made_for, takes = width_of(load)
    return Maker(name, lambda channels: load(), made_for=made_for, takes=takes or signed(type(load())))


def name_of(thing: "Callable[..., nn.Module]") -> str:
    """The name of a class, a function or an instance: its class's, and the settings that a partial or instance holds.

    Settings of an instance are the attributes that are called as arguments of its constructor.
    """
    from torch import nn

    if isinstance(thing, partial):
        return f"{name_of(thing.func)}{_bracketed(thing.keywords)}"
    if isinstance(thing, nn.Module):
        known = [*inspect.signature(type(thing)).parameters.values()][1:]
        held = [(each, getattr(thing, each.name, None)) for each in known]
        changed = {each.name: v for each, v in held if isinstance(v, int | float) and v != each.default}
        return f"{type(thing).__name__}{_bracketed(changed)}"
    name = getattr(thing, "__name__", type(thing).__name__)
    return name if name.isidentifier() else _name_of_made(thing)


def _name_of_made(function: "Callable[..., nn.Module]") -> str:
    """The name of what a function makes, for 64 channels if it takes a number; `function` if it makes no module."""
    import torch

    try:
        with torch.device("meta"):
            made = function(*[64] * bool(inspect.signature(function).parameters))
    except Exception:  # told where it is built to be measured
        return "function"
    return name_of(made) if isinstance(made, torch.nn.Module) else "function"


def _bracketed(settings: Mapping[str, Any]) -> str:
    text = ", ".join(f"{name}={value}" for name, value in settings.items())
    return f"({text})" if text and ":" not in text else ""


def maker_of_function(name: str, function: "Callable[..., nn.Module]", takes: str = "") -> Maker:
    """Maker of modules by a class or another function, of which the first argument is `channels`, or a config."""
    parameters = [*inspect.signature(function).parameters.values()]
    hints = _hints(function)
    configs = [config_of(each, hints.get(each.name)) for each in parameters]
    given = first_argument(parameters)
    width, rest = "", parameters[bool(given) :]
    if configs and (first := configs[0]) is not None:
        fields = [*(each.name for each in parameters[1:]), *(each.name for each in first.fields)]
        width = _width(fields)
        if not width:
            raise UsageError(
                f"{name} takes a config without channels; call one of its fields {' or '.join(WIDTHS[:3])}"
            )
        given, rest = "channels", parameters
    found: list[Hyperparameter] = []
    by_name = {each.name: each for each in configs if each}
    for own in rest:
        required = own.default is own.empty
        if own.name in by_name:
            found += by_name[own.name].fields
        elif own.kind in (own.POSITIONAL_OR_KEYWORD, own.KEYWORD_ONLY):
            default = None if required else own.default
            found.append(Hyperparameter(own.name, shown_type(own.annotation), default, required))
    settable = tuple(each for each in found if each.name != width)
    return Maker(name, function, tuple(by_name.values()), settable, width, takes=takes, given=given)


def _width(names: Sequence[str]) -> str:
    """The argument or field for the number of channels, "" if there is none; a config's own before one deeper in it."""
    found = [name for name in names if name.rpartition(".")[2] in WIDTHS]
    return min(found, key=lambda name: (name.count(".") > 1, WIDTHS.index(name.rpartition(".")[2])), default="")


def _hints(function: Callable[..., Any]) -> Mapping[str, Any]:
    """The types of a function's arguments; none where one of them cannot be read."""
    try:
        return typing.get_type_hints(
            inspect.getattr_static(function, "__init__") if isinstance(function, type) else function
        )
    except Exception:  # a name that only a type checker knows
        return {}
