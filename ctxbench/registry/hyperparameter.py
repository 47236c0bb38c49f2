"""One setting of a module: a keyword of its constructor, or a field of its config."""

import ast
import builtins
import inspect
import re
import typing
from dataclasses import dataclass
from typing import Any

from ctxbench.base.errors import UsageError

# As the value of a hyper-parameter: the input's number of channels.
CHANNELS = "channels"


@dataclass(frozen=True)
class Hyperparameter:
    """One keyword of a module's constructor: its name, its type as written, its default (None if it is `required`)."""

    name: str
    annotation: str
    default: Any
    required: bool = False

    def parse(self, value: Any) -> Any:
        """`value` if it is of the declared type; UsageError otherwise."""
        from pydantic import PydanticUserError, TypeAdapter, ValidationError  # slow to import, needed only here

        if self.stands_for_channels(value):
            return value
        try:  # JSON and TOML have lists alone
            is_strict = not isinstance(value, int | list | tuple)
            return TypeAdapter(self.type).validate_python(value, strict=is_strict)
        except PydanticUserError:  # values cannot be held against every type
            return value
        except ValidationError:
            raise UsageError(f"hyper-parameter {self.name!r} is {value!r}; it must be {self.annotation}") from None

    @property
    def type(self) -> Any:
        """The declared type; `typing.Any` where the annotation names another one than Python's own and `typing`'s."""
        try:
            return _type(ast.parse(self.annotation, mode="eval").body)
        except Exception:  # of a person's file, it can be anything
            return typing.Any

    def passed(self, value: Any) -> Any:
        """A value as the constructor gets it: several numbers as a tuple, unless a list is what it takes."""
        takes_list = isinstance(self.default, list) or self.annotation.removeprefix("typing.").lower().startswith(
            "list"
        )
        if takes_list:
            return value
        return value if self.annotation == "str" else of_torch(as_tuples(value))

    def choices(self, given: Any) -> list[Any]:
        """The values among which a run chooses: one, or those in a list, unless the list is one value itself."""
        is_group = isinstance(self.default, list | tuple) or re.match(
            r"(typing\.)?(list|tuple|sequence|iterable)\b", self.annotation.lower()
        )
        is_flat = isinstance(given, list) and not any(isinstance(each, list | tuple) for each in given)
        return [given] if is_group and is_flat else choices_of(given)

    def stands_for_channels(self, value: Any) -> bool:
        """True if a value is the word `channels`, which stands for the input's number of channels; texts keep it."""
        return value == CHANNELS and not any(word in self.annotation for word in ("str", "Literal"))


# Tokens before the positions of a block of tokens, as a class token and registers: its attribute, as timm calls it, and
# what may be set of a block that has no such argument.
BESIDE = Hyperparameter("num_prefix_tokens", "int", 0)


def of_torch(value: Any) -> Any:
    """The class of `torch.nn` that a text names, `nn.GELU`; another value as it is."""
    found = re.fullmatch(r"(?:torch\.)?nn\.([A-Z]\w+)", value) if isinstance(value, str) else None
    if not found:
        return value
    from torch import nn

    return getattr(nn, found[1], value)


def choices_of(given: Any) -> list[Any]:
    """The values among which a run chooses: those in a list, or one; a tuple is one value."""
    return given if isinstance(given, list) else [given]


def as_tuples(value: Any) -> Any:
    """A value with tuples in place of lists."""
    return tuple(map(as_tuples, value)) if isinstance(value, list | tuple) else value


def as_lists(value: Any) -> Any:
    """A value with lists in place of tuples, as JSON has it."""
    return [*map(as_lists, value)] if isinstance(value, list | tuple) else value


def _type(written: ast.expr) -> Any:
    """The type that is written so. It is read, not evaluated: a command runs no person's code in its own process."""
    match written:
        case ast.Constant(value=str(quoted)):
            return _type(ast.parse(quoted, mode="eval").body)
        case ast.Constant(value=None | builtins.Ellipsis):
            return written.value
        case ast.Name(id="Literal"):
            return typing.Literal
        case ast.Name(id=name) if isinstance(found := getattr(builtins, name, None), type):
            return found
        case ast.Attribute(value=ast.Name(id="typing"), attr=name):
            return getattr(typing, name)
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return _type(left) | _type(right)
        case ast.Subscript(value=value, slice=inside):
            if (kind := _type(value)) is typing.Literal:
                return kind[ast.literal_eval(inside)]
            return kind[tuple(map(_type, inside.elts)) if isinstance(inside, ast.Tuple) else _type(inside)]
    raise ValueError(ast.unparse(written))


def shown_type(annotation: Any) -> str:
    """A type as it is written in source."""
    if annotation is inspect.Parameter.empty:
        return "typing.Any"
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
