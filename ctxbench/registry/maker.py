"""Makes modules, from `channels` and hyper-parameters by name, of what is no plain class of modules of maps."""

import inspect
import typing
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from types import FunctionType
from typing import TYPE_CHECKING, Any

from ctxbench.base.errors import UsageError
from ctxbench.registry.config import WIDTHS, Config, config_of, gathered
from ctxbench.registry.constructor import ConstructorArgument, is_own, width_argument
from ctxbench.registry.hyperparameter import BESIDE, Hyperparameter, shown_type

if TYPE_CHECKING:
    from torch import nn

    from ctxbench.registry.layout import Size

# Characters of an argument in a call as it is told.
LONGEST = 40


@dataclass(frozen=True)
class Maker:
    """Makes modules as a class does: of a function, of a class with config objects, of a block of another layout.

    `configs` are arguments whose fields are hyper-parameters; `width` is the argument, or the field `config.field`, for
    what is `given`, "" for none; `made_for` is the one number of channels that it makes. `takes` is the layout of what
    it makes if that is known, `size` the height and width of the input if no other is said. One that is `open` takes
    arguments of any name.
    """

    name: str
    function: "Callable[..., nn.Module]"
    configs: tuple[Config, ...] = ()
    hyperparameters: tuple[Hyperparameter, ...] = ()
    width: Hyperparameter | None = None
    made_for: int | None = None
    takes: str = ""
    given: ConstructorArgument = ""
    size: "Size | None" = None
    open: bool = False
    _settled: dict[str, dict[str, Any]] = field(default_factory=dict, compare=False)

    def __call__(self, channels: int, **hparams: Any) -> "nn.Module":
        return self.build(channels, hparams)

    def build(self, channels: int, hparams: Mapping[str, Any], size: "Size | None" = None) -> "nn.Module":
        """The module for an input of so many channels and, if it is known, this height and width."""
        from ctxbench.registry.layout import of_map

        size = size or self.size
        made = of_map(self.construct(channels, hparams, size), channels, size, self.takes)
        if hparams.get(BESIDE.name) and not self._is_argument(BESIDE.name) and not getattr(made, "beside", 0):
            raise UsageError(no_tokens(self.name))
        return made

    def construct(self, channels: int, hparams: Mapping[str, Any], size: "Size | None" = None) -> "nn.Module":
        """The module as its constructor makes it, in whatever layout it takes its input.

        A number of tokens beside the map that is no argument of the constructor becomes an attribute.
        """
        made = self._made(self.arguments(channels, hparams, size or self.size))
        if BESIDE.name in hparams and not self._is_argument(BESIDE.name):
            setattr(made, BESIDE.name, hparams[BESIDE.name])
        return made

    def arguments(self, channels: int, hparams: Mapping[str, Any], size: "Size | None" = None) -> dict[str, Any]:
        """The hyper-parameters and, where that is given, the argument for the number of channels.

        One with a default keeps it where the module then takes the input, and takes inputs of no other width; or, if it
        may be a network's own, where the module takes the input.
        """
        hparams = {name: value for name, value in hparams.items() if name != BESIDE.name or self._is_argument(name)}
        if self.given != "channels" or self.width is None or self.width.name in hparams:
            return dict(hparams)
        given = {self.width.name: channels, **hparams}
        if type(self.width.default) is not int or self.width.default == channels:
            return given
        key = repr((channels, hparams, size))
        if key not in self._settled:
            self._settled[key] = given if self._gives(given, channels, hparams, size) else dict(hparams)
        return self._settled[key]

    def _is_argument(self, name: str) -> bool:
        return any(each.name == name for each in self.hyperparameters)

    def _gives(self, given: Mapping[str, Any], channels: int, hparams: Mapping[str, Any], size: "Size | None") -> bool:
        from ctxbench.registry.layout import accepts

        assert self.width is not None

        def takes(arguments: Mapping[str, Any], width: int) -> bool:
            return accepts(lambda: self._made(arguments), width, size)

        if not takes(hparams, channels):
            return True
        is_fixed = is_own(self.width.name.rpartition(".")[2]) or not takes(hparams, channels + 1)
        return not is_fixed and takes(given, channels)

    def _made(self, arguments: Mapping[str, Any]) -> "nn.Module":
        from torch import nn

        values, first = dict(arguments), list[Any]()
        if self.given == "module":
            first = [lambda channels: nn.Identity()]
        elif self.width and self.width.name in values and "." not in self.width.name:
            parameter = next(iter(inspect.signature(self.function).parameters.values()))
            if parameter.name == self.width.name and parameter.kind is not parameter.KEYWORD_ONLY:
                first = [values.pop(self.width.name)]
        made = self.function(*first, **gathered(values, self.configs))
        if not isinstance(made, nn.Module):
            raise UsageError(f"{self.name} makes {type(made).__name__}; it must make an nn.Module")
        return made


def no_tokens(name: str) -> str:
    """Sentence on a block that was given a number of tokens and takes maps."""
    return f"{name} takes maps, which have no further tokens: leave out {BESIDE.name}"


def written(source: str, name: str, function: "Callable[..., nn.Module]", arguments: Mapping[str, Any]) -> str:
    """A call with its arguments, defaults included, and the line of what is called: `mine.py:7 Strided(stride=4)`."""
    with suppress(OSError, TypeError):
        source = f"{source}:{inspect.getsourcelines(inspect.unwrap(function))[1]}" if source else ""
    rest, texts = dict(arguments), list[str]()
    for each in inspect.signature(function).parameters.values():
        if each.kind is each.VAR_POSITIONAL and each.name in rest:
            texts.append(repr(rest.pop(each.name)))
        elif each.name in rest or each.default is not each.empty:
            texts.append(f"{each.name}={_short(rest.pop(each.name, each.default))}")
    texts += [f"{each}={_short(value)}" for each, value in rest.items()]
    return " ".join(filter(None, [source, f"{name}({', '.join(texts)})"]))


def _short(value: Any) -> str:
    """A value as an argument, of a long one the beginning."""
    text = " ".join((value.__qualname__ if isinstance(value, type | FunctionType) else repr(value)).split())
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


def maker_of_class(cls: "type[nn.Module]", maps: bool) -> "type[nn.Module] | Maker":
    """The class itself if it takes `channels` first, no config, and makes blocks of maps; what else makes its modules.

    `maps`: it is known to make blocks of maps.
    """
    from ctxbench.registry.layout import IMAGE, forms

    maker = maker_of_function(cls.__name__, cls, IMAGE if maps else "")
    first = next(iter(inspect.signature(cls).parameters), "")
    is_first = maker.width and maker.width.name == first and maker.width.default is None
    of_maps = maps or forms(cls) == (IMAGE,)
    return cls if is_first and of_maps and maker.given == "channels" and not maker.configs else maker


def maker_of_instance(name: str, load: "Callable[[], nn.Module]") -> Maker:
    """Maker of copies of an instance, which it may be asked for at one number of channels."""
    from ctxbench.registry.layout import width_of

    made_for, takes = width_of(load)
    return Maker(name, load, made_for=made_for, takes=takes, given="channels")


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

    from ctxbench.meta.without_compiler import without_compiler

    try:
        with without_compiler(), torch.device("meta"):
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
    given, width = width_argument(parameters)
    if configs and (first := configs[0]) is not None:
        fields = [*(each.name for each in parameters[1:]), *(each.name for each in first.fields)]
        given, width = "channels", _width(fields)
        if not width:
            raise UsageError(
                f"{name} takes a config without channels; call one of its fields {' or '.join(WIDTHS[:3])}"
            )
    found: list[Hyperparameter] = []
    by_name = {each.name: each for each in configs if each}
    for own in parameters:
        required = own.default is own.empty
        if own.name in by_name:
            found += by_name[own.name].fields
        elif own.kind not in (own.VAR_POSITIONAL, own.VAR_KEYWORD) or own.name == width:
            default = None if required else own.default
            found.append(Hyperparameter(own.name, shown_type(own.annotation), default, required))
    settable = tuple(each for each in found if each.name != width)
    of_width = next((each for each in found if each.name == width), None)
    is_open = any(each.kind is each.VAR_KEYWORD for each in parameters)
    return Maker(name, function, tuple(by_name.values()), settable, of_width, takes=takes, given=given, open=is_open)


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
