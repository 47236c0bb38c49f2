"""The options of a command, made from the signature and the docstring of the function that Python callers have.

Name, type, default and order of an option are those of the function's parameter; its help is in the docstring's `Args`.
`ctxbench.cli.options.SHARED` has what is more to say of a parameter that several functions have.
"""

import copy
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import typer
from typer.models import ParameterInfo

from ctxbench.cli.options import SHARED, Given, condition, split
from ctxbench.model.conditions import CONDITIONS, Counts, Names, Shapes

_KEYWORD = inspect.Parameter.KEYWORD_ONLY
_REQUIRED = inspect.Parameter.empty
# Types of the conditions of which a function takes several values.
_SEVERAL = (Shapes | None, Names | None, Counts | None)


def command_of(function: Callable[..., Any], **options: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorator of a command, whose first parameter gets the arguments for `function` that were given, by name.

    `options` say what a parameter's type does not: a type that typer reads, a `Given`, a mapping of names to these for
    a parameter that takes several by name, or None for one that Python callers alone have. The options of the command's
    other parameters come behind.
    """
    known, helps = {**SHARED, **options}, documented(function)
    asked = [(each, _options(each, known, helps)) for each in inspect.signature(function).parameters.values()]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        parameters = [_parameter(name, how.read_as, each) for each, hows in asked for name, how in hows.items()]
        parameters.sort(key=lambda each: each.default is not _REQUIRED)
        types = get_type_hints(command, include_extras=True)
        _, *own = inspect.signature(command).parameters.values()
        parameters += [each.replace(kind=_KEYWORD, annotation=types[each.name]) for each in own]

        def taken(**given: Any) -> None:
            arguments: dict[str, Any] = {}
            for each, hows in asked:
                texts = {name: given.pop(name) for name in hows}
                texts_of = {name: text for name, text in texts.items() if text not in (None, [])}
                beside = {name: [arguments.get(other) for other in hows[name].beside] for name in texts_of}
                found = {name: hows[name].argument(text, *beside[name]) for name, text in texts_of.items()}
                if each.name in hows:
                    arguments |= found or ({each.name: None} if each.default is _REQUIRED else {})
                elif found:
                    arguments[each.name] = found
            command(arguments, **given)

        taken.__name__, taken.__doc__, taken.__module__ = command.__name__, command.__doc__, command.__module__
        taken.__annotations__ = {each.name: each.annotation for each in parameters}
        taken.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # mypy knows no such attribute of a function
        return taken

    return decorate


def documented(function: Callable[..., Any]) -> dict[str, str]:
    """The texts in the `Args` of a docstring by name; `a, b: text` is the text of both. An argument that a
    text names is called as its option is: `at` is --at.
    """
    section = re.search(r"^Args:\n(.*?)(?=^\S|\Z)", inspect.getdoc(function) or "", re.M | re.S)
    found = re.findall(r"^    (\w[\w, ]*): (.*?)(?=^    \w|\Z)", section[1] if section else "", re.M | re.S)
    texts = {name: " ".join(text.split()) for names, text in found for name in names.split(", ")}
    arguments = re.compile(f"`({'|'.join(texts)})`")
    return {name: arguments.sub(r"--\1", text) for name, text in texts.items()}


def _options(parameter: inspect.Parameter, known: Mapping[str, Any], helps: Mapping[str, str]) -> dict[str, Given]:
    """The options of a parameter by name: none if Python callers alone have it."""
    name, annotation = parameter.name, parameter.annotation
    if name in known:
        found = known[name] if isinstance(known[name], Mapping) else {name: known[name]}
    elif name in CONDITIONS:
        found = {name: condition(name, one=annotation not in _SEVERAL)}
    else:
        found = {name: _derived(annotation)}
    return {each: _with_help(how, each, annotation, helps.get(name)) for each, how in found.items() if how is not None}


def _derived(annotation: Any) -> Any:
    """The type, or `Given`, of an option for a parameter of this type; None where a terminal has no text for it."""
    kinds = {*(get_args(annotation) if isinstance(annotation, UnionType) else [annotation])} - {NoneType}
    if Path in kinds and kinds <= {str, Path}:
        return Path | None if NoneType in get_args(annotation) else Path
    if Sequence[str] in kinds and kinds <= {str, Sequence[str]}:
        return Given(str | None, split)
    return annotation if len(kinds) == 1 and kinds <= {str, bool, int, float} else None


def _with_help(how: Any, name: str, annotation: Any, text: str | None) -> Given:
    """An option with the help in a docstring; one with its own help has the docstring's default behind it.

    A flag has none for its opposite.
    """
    base = _derived(annotation) if isinstance(how, ParameterInfo) else how
    given = base if isinstance(base, Given) else Given(base)
    is_annotated = get_origin(given.read_as) is Annotated
    kind, info = get_args(given.read_as) if is_annotated else (given.read_as, typer.Option())
    info = copy.copy(how if isinstance(how, ParameterInfo) else info)
    if kind is bool and not info.param_decls:
        info.param_decls = (f"--{name.replace('_', '-')}",)
    text = (text or "").replace("`", "")
    info.help = _with_default(info.help, text) if info.help else text
    return Given(Annotated[kind, info], given.argument, given.beside)


def _with_default(help_text: str, text: str) -> str:
    """A help with the default that another text names, unless it names one."""
    found = re.search(r"; (default: [^;]+?)\.?$", text)
    return f"{help_text.removesuffix('.')}; {found[1]}." if found and "default" not in help_text else help_text


def _parameter(name: str, read_as: Any, origin: inspect.Parameter) -> inspect.Parameter:
    """An option; its default is that of the parameter, or None where that is nothing that typer reads."""
    default = origin.default if origin.name == name else None
    if default == () or (default is _REQUIRED and NoneType in get_args(get_args(read_as)[0])):
        default = None
    return inspect.Parameter(name, _KEYWORD, default=default, annotation=read_as)
