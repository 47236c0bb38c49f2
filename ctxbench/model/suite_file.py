"""The keys of a suite file."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    create_model,
    model_validator,
)

from ctxbench.base.errors import unknown
from ctxbench.base.extras import with_science
from ctxbench.model import metrics
from ctxbench.model.case import STRICT, Measure, Minutes, OneOrMore, Share, WholeNumber, as_list
from ctxbench.model.conditions import CONDITIONS, SHAPE, Condition
from ctxbench.model.hparams import flat
from ctxbench.model.keys import HparamValues, QuantityKey, Scalar, ShapeKey
from ctxbench.model.published import Published
from ctxbench.plugin import brought

# What a figure may stand against, besides hyper-parameters: what a case's input says.
POINTS = ("positions", "batch", "channels")
# The same of how it is computed.
COMPUTED = tuple(name for name in CONDITIONS if name not in ("shape", "device"))


def _as_shapes(value: Any) -> Any:
    several = isinstance(value, list) and value and isinstance(value[0], list | tuple | str)
    return value if several else [value]


def _metric(name: str) -> str:
    """The name of a metric that a suite may ask for."""
    asked_for = [each for each, metric in metrics.metrics().items() if metric.asked_for]
    if name not in asked_for:
        raise unknown("metric", name, asked_for, with_science("more metrics"))
    return name


def _type(condition: Condition) -> Any:
    """Type of a condition's key in a suite, for pydantic."""
    if condition is SHAPE:
        return ShapeKey
    if condition.values:
        return Annotated[Literal.__getitem__(condition.values), BeforeValidator(condition.meant)]
    return Annotated[condition.kind, AfterValidator(condition.check)]


def _axis(condition: Condition) -> Any:
    """The type and the default of a condition in `axes`."""
    fewest = Field(min_length=min(1, len(condition.axis)))
    return Annotated[list[_type(condition)], OneOrMore, fewest], [*condition.axis]  # type: ignore[misc]  # the type comes from the table


MetricName = Annotated[str, AfterValidator(_metric)]


class _Strict(BaseModel):
    model_config = STRICT


_AXES = {name: _axis(each) for name, each in CONDITIONS.items() if each is not SHAPE}
_Axes: Any = create_model("_Axes", __base__=_Strict, **_AXES)
# What an entry of `cases` or `exclude` may say of each.
_VALUES: dict[str, TypeAdapter[Any]] = {
    name: TypeAdapter(_type(each), config=ConfigDict(strict=True, defer_build=True))
    for name, each in CONDITIONS.items()
}


class Axes(_Axes):  # type: ignore[misc]  # made from a table
    """The grid: each key holds one value or a list; the cases are the product. The others are `CONDITIONS`."""

    shape: Annotated[list[ShapeKey], BeforeValidator(_as_shapes), Field(min_length=1)]
    batch: Annotated[list[WholeNumber], OneOrMore] = Field(default=[])
    channels: Annotated[list[WholeNumber], OneOrMore] = Field(default=[])
    size: Annotated[list[WholeNumber], OneOrMore] = Field(default=[])


def _conditions(values: dict[str, Any]) -> dict[str, Any]:
    """An entry of `cases` or `exclude`, its conditions as they are meant. ValueError for one that cannot be."""
    found = dict(values)
    for key in (key for key in values if key in _VALUES):
        # several devices make several cases
        for each in as_list(values[key]) if key == "device" else [values[key]]:
            try:
                meant = _VALUES[key].validate_python(each)
            except ValidationError as error:
                problem = error.errors()[0]
                raise ValueError(
                    f"{key} {problem['input']!r}: {problem['msg'].removeprefix('Value error, ')}"
                ) from None
            if key != "device":
                found[key] = [*meant] if key == SHAPE.name else meant
    return found


# Keys that plugins bring, for pydantic.
KEYS: dict[str, Any] = {name: (list[str], []) for _, (name, _) in brought("keys")}
_SETTINGS = [metric.settings for metric in metrics.metrics().values() if metric.settings]


class MeasureTable(*_SETTINGS, Measure, extra="forbid"):  # type: ignore[misc]  # metrics bring their settings
    """Measurement settings of a case, with those of all metrics."""


class Gate(_Strict):
    """Changes that `ctxbench check` reports: of latency from `margin` on, relative (0.05: 5 %).

    `margins` holds rows with a margin of their own, by module ("sa") or by module and mode ("sa train"). `accept` names
    metrics whose exact quantities may grow, as in `["params", "macs=5%"]`.
    """

    margin: Share = 0.05
    margins: dict[str, Share] = {}
    accept: list[str] = []

    def of(self, module: str, mode: str) -> float:
        """The margin of a row."""
        return self.margins.get(f"{module} {mode}", self.margins.get(module, self.margin))


class Figure(_Strict):
    """A figure and its table in the report: the quantities `y` against `x`, a line for each module and setting.

    `x` is a hyper-parameter, or one of `POINTS` or `COMPUTED`. `scale` names the axes that are logarithmic. With
    `fit`, a straight line on these axes is fitted: its slope (linear), exponent (log) or factor for each unit of x
    (log-y). Settings that change `along` with x tell no lines apart.
    """

    name: Annotated[str, Field(pattern=r"^[a-z0-9-]+$")]
    title: str
    x: str
    y: Annotated[list[QuantityKey], Field(min_length=1)]
    scale: Literal["linear", "log-x", "log-y", "log"] = "linear"
    fit: bool = False
    along: list[str] = []

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.fit and self.scale == "log-x":
            raise ValueError("nothing is fitted on the scale 'log-x'; choose another scale, or leave out fit")
        return self


def _settings(value: Any) -> dict[str, Any]:
    """Settings of one module. ValueError for a setting that stands where the name of its module belongs."""
    if not isinstance(value, Mapping):
        raise ValueError("settings stand below the name of their module, such as reduction = 2 below [hparams.se]")
    return flat(value)


_Keys: Any = create_model("_Keys", __base__=_Strict, **KEYS)


class SuiteFile(_Keys, _Strict):  # type: ignore[misc]  # plugins bring keys
    """The keys of a suite file; plugins add theirs.

    `published` is a table of the folder published/ by its name, a file of that form beside the suite, or the table.

    `question` and `minutes` (on two cores) are for those who choose a suite.
    """

    title: str
    question: str = ""
    minutes: Minutes | None = None
    source: str = ""
    modules: Annotated[list[str], Field(min_length=1)]
    metrics: list[MetricName] = Field(
        default_factory=lambda: [name for name, metric in metrics.metrics().items() if metric.default], min_length=1
    )
    axes: Axes
    hparams: dict[str, Annotated[dict[str, HparamValues], BeforeValidator(_settings)]] = {}
    exclude: list[Annotated[dict[str, Scalar], AfterValidator(_conditions)]] = []
    cases: list[Annotated[dict[str, Scalar | list[Scalar]], AfterValidator(_conditions)]] = []
    measure: MeasureTable = MeasureTable()
    gate: Gate = Gate()
    published: Published | None = None
    figures: list[Figure] = []

    @model_validator(mode="after")
    def _names_differ(self) -> Self:
        names = [figure.name for figure in self.figures]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"two figures are called {name!r}")
        return self
