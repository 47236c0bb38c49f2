"""Metric: the columns that it fills in a record, the quantities that people compare, how it is measured."""

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self, TypeVar

from pydantic import BaseModel

from ctxbench.base import limits
from ctxbench.base.mode import MODES, Mode
from ctxbench.base.notes import Note
from ctxbench.base.number import NumberOrigin
from ctxbench.model.case import STRICT
from ctxbench.model.messages import Message

Made = TypeVar("Made")

if TYPE_CHECKING:
    from torch import Tensor, nn

    from ctxbench.devices import Device
    from ctxbench.devices.clock import Clock, Step
    from ctxbench.executions.base import Built, Execution
    from ctxbench.model.case import Case, Measure
    from ctxbench.model.control import Control
    from ctxbench.registry.entry import Entry


class RecordRow(Protocol):
    """A record, being written or read back: its columns by name, None for what is not known; `notes` is a list."""

    def __getitem__(self, column: str, /) -> Any: ...
    def get(self, column: str, /) -> Any: ...
    def keys(self) -> Iterable[str]: ...


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit such as `G = 10^9`: its symbol and how many it stands for."""

    symbol: str
    base: int = 10
    exponent: int = 0

    @property
    def factor(self) -> int:
        return int(self.base**self.exponent)

    def __str__(self) -> str:
        return f"{self.symbol} = {self.base}^{self.exponent}"

    @classmethod
    def parse(cls, text: str) -> "Unit":
        """A unit from `G = 10^9`; ValueError for a text of another form."""
        found = re.fullmatch(r"\s*(\w+)\s*=\s*(10|2)\^([0-9]{1,2})\s*", text)
        if not found:
            raise ValueError("write it as a symbol and a power of 10 or 2, such as 'G = 10^9'")
        return cls(found[1], int(found[2]), int(found[3]))


MIB = Unit("MiB", 2, 20)
MS = Unit("ms")


JsonKind = type[dict[str, Any]] | type[list[Any]]
# The smallest number above 0, as the least that a time can be.
POSITIVE = math.ulp(0.0)


@dataclass(frozen=True, slots=True)
class Column:
    """A column of `records.csv`.

    Its numbers are finite and from `least` to `most`. Its texts are of the `choices`, if there are any, or an object
    (`dict`) or a list in `json`. Only a `required` one is never empty; an empty cell of another one, or a table without
    the column, has the value `default`.
    """

    name: str
    type: type[int] | type[float] | type[str]
    least: float = 0.0
    most: float = math.inf
    choices: tuple[str, ...] = ()
    json: JsonKind | None = None
    required: bool = False
    default: Any = None

    def read(self, text: str) -> Any:
        """The value in a cell; of an empty one the default, of text at least "". ValueError if it cannot hold it."""
        if not text and not self.required:
            return "" if self.type is str and self.default is None else self.default
        if self.type is str:
            if not text or (self.choices and text not in self.choices) or not self._has_json(text):
                raise ValueError
            return text
        value: int | float = limits.integer(text) if self.type is int else limits.decimal(text)
        is_wide = self.type is int and not -(2**63) <= value < 2**63
        if is_wide or not (math.isfinite(value) and self.least <= value <= self.most):
            raise ValueError
        return value

    def _has_json(self, text: str) -> bool:
        """Return whether a text is what `json` says; RecursionError is that of a list inside thousands of others."""
        try:
            return self.json is None or isinstance(json.loads(text), self.json)
        except (ValueError, RecursionError):
            return False

    def takes(self, value: object) -> bool:
        """Return whether a value, or None for one that is not known, can stand in a cell."""
        kind = int | float if self.type is float else self.type
        if value is None or isinstance(value, bool) or not isinstance(value, kind):
            return value is None
        try:
            self.read(str(value))
        except ValueError:
            return False
        return True

    @property
    def holds(self) -> str:
        """Type of its cells, for a sentence."""
        if self.json:
            return f"{'an object' if self.json is dict else 'a list'} in JSON"
        if self.type is str:
            return f"one of {', '.join(self.choices)}" if self.choices else "a text"
        kind = "a 64-bit integer" if self.type is int else "a finite number"
        if self.most < math.inf:
            return f"{kind} from {self.least:g} to {self.most:g}"
        if self.least == POSITIVE:
            return f"{kind} above 0"
        return kind if self.least == -math.inf else f"{kind}, at least {self.least:g}"


@dataclass(frozen=True, slots=True)
class Derivation:
    """Derivation of a quantity from a record: `value(row, number)`, with the number of the quantity `source`.

    That is a time in ms, or another number in units of one. The value falls or rises with it. The columns `needs` must
    be known as well. What it raises, such as ZeroDivisionError, becomes a note of the row.
    """

    source: str
    needs: Sequence[str]
    value: "Callable[[RecordRow, float], float]"


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number that tables show, that `compare` ranks by and that papers publish, under the name `key`.

    `column` holds it in a record, in units of one (bytes, ms, ...); `unit` is what a table shows. `measured_column` is
    the same quantity as measured on the device, where `column` is a prediction. With `has_interval` the columns
    `<key>_low_ms`, `<key>_high_ms`, `<key>_confidence`, ... go with it. Quantities of one `part` stay together in a
    table. `noun` and `comparative` make a sentence ("2.1x fewer parameters"). `better` says which of two values is
    better; None: neither. The gate compares an `exact` quantity without statistics. `on_front`: an axis of the Pareto
    front of `compare`.

    A quantity with `derive` is in no record: it is made from others when records are read, as the column `column`.
    Where `origin_column` of a record holds an origin, it is that number's. What is not `in_suite_table` is shown only
    where it is asked for, or beside what is published. `interval` reads the interval of a number that is no time
    from its record, and `beside` what else stands in its cell.

    `method_column` says by which counter or for which device `column` was obtained; values of two methods are not
    compared. `reason_column` says why a record has no number: the quantity does not apply to its module or size.
    `notes` makes notes from a record's columns, beside those that the record has about this quantity. A table shows
    `decimals` places; None: as many as the number needs.
    """

    key: str
    column: str
    title: str
    unit: Unit
    origin: NumberOrigin
    part: str
    noun: str
    comparative: str = "less"
    better: Literal["smaller", "larger"] | None = "smaller"
    measured_column: str = ""
    has_interval: bool = False
    exact: bool = False
    on_front: bool = False
    method_column: str = ""
    reason_column: str = ""
    notes: "Callable[[RecordRow], Sequence[Note]]" = lambda row: ()
    decimals: int | None = None
    derive: Derivation | None = None
    origin_column: str = ""
    in_suite_table: bool = True
    interval: "Callable[[RecordRow], tuple[float, float] | None]" = lambda row: None
    beside: "Callable[[RecordRow], str]" = lambda row: ""

    def detail(self, name: str) -> str:
        """The column of a detail, such as `low_ms` or `samples`."""
        return f"{self.key}_{name}"

    def origin_of(self, row: RecordRow) -> NumberOrigin:
        return row.get(self.origin_column) or self.origin


class Measurement(Protocol):
    """View of the measured case for a metric, in the process that measures it."""

    case: "Case"
    entry: "Entry"
    settings: "Measure"
    counter: str
    # On the case's device.
    model: "nn.Module"
    x: "Tensor"
    # The larger predicted peak of both modes, in bytes; None: not predicted.
    predicted_bytes: int | None
    # An earlier process of the case has compiled it.
    finds_compiled: bool

    @property
    def execution(self) -> "Execution": ...

    @property
    def built(self) -> "Built":
        """Module that the passes of inference run."""
        ...

    @property
    def device(self) -> "Device": ...

    @property
    def control(self) -> "Control": ...

    @property
    def on_meta(self) -> "tuple[nn.Module, Tensor]":
        """The module and its input as they are measured, on the meta device: no data. Both are left as they are."""
        ...

    def once(self, name: str, make: Callable[[], Made]) -> Made:
        """Result or error of `make`, called once for all metrics of a case, and for all its devices without a clock."""
        ...

    def clock(self) -> "Clock": ...

    def autocast(self) -> AbstractContextManager[Any]:
        """The context of the case's forward passes."""
        ...

    def report(self, values: Mapping[str, Any], *notes: Note) -> None:
        """Put values into columns of the record, and notes beside them."""
        ...

    def mark_missing(self, columns: Sequence[str], note: Note | None = None) -> None:
        """Say why this case has no number in these columns; without a note if another column tells it."""
        ...

    def step_of(
        self, mode: Mode, forward: "Callable[[Tensor], Tensor]", x: "Tensor", parameters: "Sequence[Tensor]"
    ) -> "Step":
        """A pass of any function of `x`; before a training step the gradients of `parameters` are dropped."""
        ...

    def check_computed(self, step: "Step", mode: Mode, ms: float) -> None:
        """Raise StaleOutput if a pass gives the first pass's output for an input that has changed in its place.

        Notes tell of passes, which take `ms`, that take less than their work.
        """
        ...

    def emit(self, message: Message) -> object: ...


@dataclass(frozen=True, slots=True)
class TimedPass:
    """One pass of the module as a function, and the seconds that the first one took (it allocates, it compiles)."""

    step: "Step"
    first_s: float


class Settings(BaseModel):
    """The settings of a metric: keys of `[measure]` in a suite, each of which begins with the metric's name."""

    model_config = STRICT

    @classmethod
    def of(cls, measure: "Measure") -> Self:
        """Settings in `[measure]`, with defaults for those left out."""
        return cls.model_validate({key: getattr(measure, key) for key in cls.model_fields if hasattr(measure, key)})


# What a run's rows hold in a column of text, each value once.
ColumnValues = Callable[[str], Sequence[str]]


def diagnostic(
    key: str,
    title: str,
    part: str,
    *,
    reason: str = "",
    decimals: int | None = 4,
    unit: str = "",
    better: Literal["smaller", "larger"] | None = None,
) -> Quantity:
    """A quantity without an interval, in the column of its name; the column `reason` says why it is empty."""
    return Quantity(
        key=key, column=key, title=title, unit=Unit(unit), origin="measured", part=part, noun=title, better=better,
        reason_column=reason or f"{part}_reason", decimals=decimals,
    )  # fmt: skip


@dataclass(frozen=True)
class Metric:
    """One metric, declared as `METRIC` in a file of this folder; `order` sorts the files.

    `about` is a phrase for help and docs, `convention` the sentence under a table that says what the numbers are, or
    makes that sentence of the values in the table's rows.
    Unless `asked_for`, it is measured wherever it applies. A suite that names no metrics gets the `default` ones.

    `count` needs no device and no data. `compute` needs data and no clock: what the module's function is, once, on the
    CPU, whatever the case's device and dtype. `measure` runs before the first pass of a mode, `time` after it; `finish`
    after both modes.
    With `combine` a metric is measured in each of a case's processes; it makes the record's values from theirs. Other
    metrics are measured once.

    Its `settings` are keys of `[measure]`. A process that measures it has `limit_s` seconds more than the `timeout_s`
    of all else, and takes about `takes_s` seconds for it beside the passes. `sentence` says of a row what its values
    mean for the module, in words that follow the module's name; "" if it says nothing.
    The modules that it `imports` are imported once for all processes, before the fork: they start no thread and touch
    no driver.
    """

    name: str
    order: int
    about: str
    columns: Sequence[Column]
    quantities: Sequence[Quantity]
    convention: str | Callable[[ColumnValues], str] = ""
    asked_for: bool = True
    default: bool = True
    count: Callable[[Measurement], None] | None = None
    compute: Callable[[Measurement], None] | None = None
    measure: Callable[[Measurement, Mode], None] | None = None
    time: Callable[[Measurement, Mode, TimedPass], None] | None = None
    finish: Callable[[Measurement], None] | None = None
    combine: Callable[[Sequence[RecordRow]], Mapping[str, Any]] | None = None
    settings: type[Settings] | None = None
    limit_s: Callable[["Measure"], float] = lambda measure: 0.0
    takes_s: Callable[["Measure"], float] = lambda measure: 0.0
    sentence: Callable[[RecordRow], str] = lambda row: ""
    imports: Callable[["Measure"], Sequence[str]] = lambda measure: ()

    def promised(self, *, static: bool) -> list[tuple[str, str]]:
        """The columns that a process without a failure fills, each with the column of reasons why not, or "".

        A `static` process has no device. A metric that is not asked for fills what applies.
        """
        own = [each for each in self.quantities if each.origin != "published"] if self.asked_for else []
        found = [(each.column, each.reason_column) for each in own if self.count or not static]
        return found + [(each.measured_column, "") for each in own if each.measured_column and not static]


def by_mode(name: str, type_: type[int] | type[float] | type[str], **facts: Any) -> tuple[Column, ...]:
    """A column for each mode; `name` has `{mode}` in it."""
    return tuple(Column(name.format(mode=mode), type_, **facts) for mode in MODES)
