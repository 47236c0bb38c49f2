"""Conditions of a module's cases, besides its hyper-parameters: one table, read by all that names a condition.

A new condition is a field of `Conditions`, its column in `ctxbench.model.record.Record`, an argument of
`ctxbench.run`, and what it means where it is measured (`ctxbench.worker.measurement`).
"""

import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from ctxbench.base import limits
from ctxbench.base.dtypes import ALIASES, DTYPES
from ctxbench.base.errors import UsageError, unknown
from ctxbench.executions import execution, executions

Shape = tuple[int, int, int, int]
# Forms in which a caller gives conditions: (B, C, H, W) or `B,C,H,W`, and one or several of each.
OneShape = Sequence[int] | str
Shapes = OneShape | Sequence[OneShape]
Names = Sequence[str] | str
Counts = Sequence[int] | int


def parse_shape(value: Any) -> Shape:
    """A shape from `1,512,128,128`, a list or a tuple. UsageError unless it is four integers of `limits.NUMBERS`."""
    parts = value.replace("x", ",").split(",") if isinstance(value, str) else value
    try:
        numbers = [_integer(part) for part in parts]
    except (TypeError, ValueError):
        raise UsageError(f"shape {value!r} is not four integers B,C,H,W, such as 1,512,128,128") from None
    if len(numbers) != 4:
        raise UsageError(f"shape {value!r} has {len(numbers)} numbers; it takes four, B,C,H,W, such as 1,512,128,128")
    if min(numbers) < 1:
        raise UsageError(f"shape {value!r} holds {min(numbers)}; each of B,C,H,W is at least 1")
    batch, channels, height, width = numbers
    check_product((batch, channels, height, width), value)
    return batch, channels, height, width


def check_product(shape: Shape, given: Any) -> None:
    """UsageError unless an input, which was `given` so, has as many numbers as `limits.NUMBERS` allows."""
    try:
        limits.NUMBERS.check(math.prod(shape))
    except UsageError as error:
        raise UsageError(f"shape {given!r}: the product of B,C,H,W is too large; {error}") from None


def _integer(part: Any) -> int:
    """An integer, which True is not. TypeError or ValueError for anything else."""
    if isinstance(part, bool):
        raise TypeError
    return limits.integer(part) if isinstance(part, str) else operator.index(part)


def _device(name: str) -> str:
    """The name of a device: `auto`, `meta`, one that may be here, or one that is known by its data sheet."""
    from ctxbench import devices  # slow to import, and help needs none

    if devices.has_clock(name):
        devices.device(name)
    elif name != "auto":
        devices.sheets([name])
    return name


def _network(name: str) -> str:
    """The name of a network, of a user's function, or "" for the module alone."""
    if name and ":" not in name:
        from ctxbench.registry import networks  # as above

        networks.file_of(name)
    return name


def _networks() -> list[str]:
    from ctxbench.registry import networks  # as above

    return networks.names()


@dataclass(frozen=True)
class Condition:
    """A condition of a case: it names a field of `Case`, a key of suites, an option and, unless `columns` do, a column.

    `title` heads the column, `about` is the help of the option. A value is one of `values`, where these are few, or one
    of the `aliases` for them, and passes `check`, which raises UsageError. `default` is that of a case, `axis` that of
    a suite. A record without the column is older than the condition, and has the default, unless the column is
    `required`: each table has had it from the first on. `label` is a value for a person, `id_text` in a case's id; a
    default is shown only where it is `always_shown`. A shell completes the values of `complete`.
    """

    name: str
    default: Any
    title: str
    about: str = ""
    kind: type[int] | type[str] = str
    axis: tuple[Any, ...] = ()
    values: tuple[str, ...] = ()
    aliases: Mapping[str, str] = field(default_factory=dict)
    check: Callable[[Any], Any] = lambda value: value
    columns: tuple[str, ...] = ()
    required: bool = False
    label: Callable[[Any], str] = str
    id_text: Callable[[Any], str] = str
    always_shown: bool = False
    metavar: str | None = None
    complete: Callable[[], list[str]] | None = None

    @property
    def option(self) -> str:
        return f"--{self.name.replace('_', '-')}"

    @property
    def help(self) -> str:
        """Help text of the option, without a full stop."""
        return self.about or f"{', '.join(self.values[:-1])} or {self.values[-1]}"

    def choices(self) -> list[str]:
        """Values that a shell may complete."""
        return self.complete() if self.complete else [*self.values]

    def meant(self, value: Any) -> Any:
        """The value that an alias stands for; another one as it is."""
        return self.aliases.get(value, value) if isinstance(value, str) else value

    def checked(self, value: Any) -> Any:
        """The value that is meant. UsageError for one that cannot be."""
        value = self.meant(value)
        if self.values and value not in self.values:
            raise unknown(self.name, value, self.values)
        return self.check(value)

    def is_shown(self, value: Any) -> bool:
        """Return whether a value is shown: all but the default, which is where it is `always_shown`."""
        return self.always_shown or value != self.default


def _condition(default: Any, title: str, **facts: Any) -> Any:
    """A field of `Conditions`, with the facts of `Condition`."""
    return field(default=default, metadata={"title": title, "axis": (default,), **facts})


@dataclass(frozen=True, kw_only=True)
class Conditions:
    """The conditions of a case besides its shape, in the order in which a suite's grid runs through them.

    `network` "" is the module alone, `threads` None torch's default. `device` is `cpu`, `cuda` or `cuda:N`, or one that
    is known by its data sheet (`ctxbench.plugins.predict.sheet`).
    """

    network: str = _condition(
        *("", "Network"),
        about="Modules inside networks: names or path.py:function",
        metavar="NAME",
        complete=_networks,
        check=_network,
        label=lambda name: f"in {name.rpartition(':')[2]}" if name else "alone",
        id_text=lambda name: "",  # a case's id has it beside the module
    )
    dtype: str = _condition(
        *("float32", "Dtype"), values=tuple(DTYPES), aliases=ALIASES, required=True, always_shown=True
    )
    device: str = _condition(
        *("cpu", "Device"),
        about="auto, cpu, cuda, cuda:N or, for predicted times, such as h100-sxm or sheet.toml",
        axis=("auto",),
        check=_device,
        required=True,
        always_shown=True,
    )
    memory_format: str = _condition("contiguous", "Layout", values=("contiguous", "channels_last"), required=True)
    execution: str = _condition(
        *("eager", "Execution"),
        about=f"Ways of running a module: {', '.join(executions())}",
        check=lambda name: execution(name).name,
        required=True,
    )
    threads: int | None = _condition(
        *(None, "Threads"),
        about="Number of CPU threads, such as 1",
        kind=int,
        axis=(),
        check=limits.THREADS.check,
        label=lambda count: f"{count} thread{'s' * (count != 1)}",
        id_text=lambda count: f"{count}threads",
    )


SHAPE = Condition(
    name="shape",
    default=(1, 512, 128, 128),
    title="Input",
    kind=int,
    about="Input shape",
    metavar="B,C,H,W",
    check=parse_shape,
    columns=("batch", "channels", "height", "width"),
    required=True,
    label=lambda shape: str([*shape]),
    id_text=lambda shape: "x".join(map(str, shape)),
    always_shown=True,
)
_ALONE = {
    each.name: Condition(**{"name": each.name, "default": each.default, "columns": (each.name,), **each.metadata})
    for each in fields(Conditions)
}
# All by name, in the order of a suite's grid.
CONDITIONS = {"network": _ALONE["network"], "shape": SHAPE} | _ALONE
# The columns of a record that hold them.
COLUMNS = tuple(column for each in CONDITIONS.values() for column in each.columns)


def to_columns(case: Any) -> dict[str, Any]:
    """The columns of a case's conditions."""
    found: dict[str, Any] = {}
    for name, each in CONDITIONS.items():
        value = getattr(case, name)
        found |= zip(each.columns, value if len(each.columns) > 1 else [value], strict=True)
    return found


def from_columns(row: Mapping[str, Any]) -> dict[str, Any]:
    """The conditions in the columns of a record. KeyError without a column that is required."""
    found = {}
    for name, each in CONDITIONS.items():
        if len(each.columns) > 1:
            found[name] = tuple(row[column] for column in each.columns)
        else:
            value = row[name] if each.required else row.get(name)
            found[name] = each.default if value in (None, "") else value
    return found


def phrases(values: Mapping[str, Iterable[Any]]) -> list[str]:
    """Conditions of cases, for a person, from their values; the network comes last."""
    found: list[str] = []
    for each in (*(CONDITIONS[name] for name in CONDITIONS if name != "network"), CONDITIONS["network"]):
        own = sorted(set(values.get(each.name, ())), key=lambda value: (value is not None, value))
        if any(map(each.is_shown, own)):
            found += map(each.label, own)
    return found
