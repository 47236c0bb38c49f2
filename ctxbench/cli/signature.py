"""The options of a command, made from the signature of the function that Python callers have.

A parameter of the function is an option if its `Annotated` type says how: by typer's own `Option` or `Argument`, where
typer reads the type of the parameter; by `Given`, where the argument is made of what typer reads; or by a mapping of
names to `Given`, where a parameter takes several by name. Name, default and order are the function's.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, get_type_hints

from typer.models import ParameterInfo

_SEVERAL = inspect.Parameter.VAR_KEYWORD
_KEYWORD = inspect.Parameter.KEYWORD_ONLY


@dataclass(frozen=True)
class Given:
    """Type that typer reads for a parameter, `Annotated` with its `Option`, and what makes the argument of it."""

    read_as: Any
    argument: Callable[[Any], Any] = lambda given: given


def command_of(function: Callable[..., Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorator of a command, whose first parameter gets the arguments for `function` that were given, by name.

    The options of the command's other parameters come behind.
    """
    asked = [(each, _options(each)) for each in sorted(inspect.signature(function).parameters.values(), key=_place)]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        options = [_parameter(name, how.read_as, each) for each, hows in asked for name, how in hows.items()]

        def taken(**given: Any) -> None:
            arguments: dict[str, Any] = {}
            for each, texts in asked:
                told = {name: given.pop(name) for name in texts}
                found = {name: texts[name].argument(text) for name, text in told.items() if text not in (None, [])}
                if each.kind is _SEVERAL or each.name in texts:
                    arguments |= found
                elif found:
                    arguments[each.name] = found
            command(arguments, **given)

        types = get_type_hints(command, include_extras=True)
        _, *own = inspect.signature(command).parameters.values()
        return as_command(command, taken, [*options, *(_parameter(each.name, types[each.name], each) for each in own)])

    return decorate


def as_command(
    command: Callable[..., None], taken: Callable[..., None], parameters: list[inspect.Parameter]
) -> Callable[..., None]:
    """The function `taken` with the name and the help of a command, and these parameters, for typer."""
    taken.__name__, taken.__doc__, taken.__module__ = command.__name__, command.__doc__, command.__module__
    taken.__annotations__ = {each.name: each.annotation for each in parameters}
    taken.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # mypy knows no such attribute of a function
    return taken


def _options(parameter: inspect.Parameter) -> Mapping[str, Given]:
    """The options of a parameter by name: none if Python callers alone have it."""
    for fact in getattr(parameter.annotation, "__metadata__", ()):
        if isinstance(fact, Mapping):
            return fact
        if isinstance(fact, Given | ParameterInfo):
            return {parameter.name: fact if isinstance(fact, Given) else Given(parameter.annotation)}
    return {}


def _parameter(name: str, read_as: Any, origin: inspect.Parameter) -> inspect.Parameter:
    """An option; its default is that of a parameter where typer reads such a value, otherwise None."""
    is_plain = origin.default is inspect.Parameter.empty or isinstance(origin.default, str | int | float | bool)
    is_own = is_plain and origin.kind is not _SEVERAL
    return inspect.Parameter(name, _KEYWORD, default=origin.default if is_own else None, annotation=read_as)


def _place(parameter: inspect.Parameter) -> int:
    """Required parameters first, then those that are taken by any name, then those with a default."""
    if parameter.kind is _SEVERAL:
        return 1
    return 0 if parameter.default is inspect.Parameter.empty else 2
