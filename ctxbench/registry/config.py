"""Arguments of a constructor that hold its settings: the fields of a dataclass, a pydantic model, a Namespace."""

import argparse
import dataclasses
import inspect
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ctxbench.registry.hyperparameter import Hyperparameter, shown_type

# What constructors and configs call the number of channels.
WIDTHS = ("channels", "dim", "in_channels", "embed_dim", "hidden_size", "hidden_dim", "d_model", "n_embd", "width")


@dataclass(frozen=True)
class Config:
    """An argument whose fields are hyper-parameters, named `argument.field`; `make` makes it of some fields' values.

    A field that is a config itself has its own fields: `argument.field.field`.
    """

    name: str
    required: bool
    fields: tuple[Hyperparameter, ...]
    make: Callable[[Mapping[str, Any]], Any]


def config_of(parameter: inspect.Parameter, hint: Any) -> Config | None:
    """The fields of a constructor's argument with this type; None if it is none that holds settings."""
    given = None if parameter.default is parameter.empty else parameter.default
    return _config(parameter.name, hint, given, parameter.default is parameter.empty)


def gathered(values: Mapping[str, Any], configs: Iterable[Config]) -> dict[str, Any]:
    """Arguments by name: those without a dot, and each config made of the values of its fields."""
    found = {name: value for name, value in values.items() if "." not in name}
    for each in configs:
        name = each.name.rpartition(".")[2]
        own = {n.removeprefix(f"{name}."): value for n, value in values.items() if n.startswith(f"{name}.")}
        if own or each.required:
            found[name] = each.make(own)
    return found


def _config(path: str, hint: Any, given: Any, required: bool) -> Config | None:
    kind = _without_none(hint) if given is None else type(given)
    if not isinstance(kind, type):
        return None
    fields: dict[str, tuple[Any, Any]]  # type and default by name
    if dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        fields = {each.name: (hints[each.name], _default(each)) for each in dataclasses.fields(kind) if each.init}
    elif declared := getattr(kind, "__pydantic_fields__", None):
        fields = {
            name: (each.annotation, None if each.is_required() else each.get_default(call_default_factory=True))
            for name, each in declared.items()
        }
    elif isinstance(given, argparse.Namespace):
        fields = {name: (type(value), value) for name, value in vars(given).items()}
    else:
        return None
    held = {} if given is None else {name: getattr(given, name) for name in fields}
    found: list[Hyperparameter] = []
    inner: list[Config] = []
    for name, (own, default) in fields.items():
        value = held.get(name, default)
        is_none = value is None and own is not _without_none(own)  # also ends a config of its own kind
        if not is_none and (config := _config(f"{path}.{name}", own, value, value is None)):
            inner.append(config)
            found += config.fields
        else:
            found.append(Hyperparameter(f"{path}.{name}", shown_type(own), value))
    return Config(path, required, tuple(found), lambda values: kind(**{**held, **gathered(values, inner)}))


def _without_none(hint: Any) -> Any:
    """The type of an optional argument."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        rest = [each for each in typing.get_args(hint) if each is not type(None)]
        return rest[0] if len(rest) == 1 else None
    return hint


def _default(field: "dataclasses.Field[Any]") -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return None if field.default is dataclasses.MISSING else field.default
