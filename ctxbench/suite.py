"""A suite: a TOML file that says what to measure, read into cases; every error names file, key and what is allowed."""

import itertools
import json
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from ctxbench import metrics, registry
from ctxbench.errors import UsageError, unknown
from ctxbench.metrics import predicted_time
from ctxbench.metrics.base import Unit
from ctxbench.predict.sheets import sheet
from ctxbench.settings import class_name

Shape = tuple[int, int, int, int]
Dtype = Literal["float32", "tf32", "bfloat16", "float16", "float64", "autocast-bfloat16", "autocast-float16"]
MemoryFormat = Literal["contiguous", "channels_last"]
Execution = Literal["eager", "compile", "graph"]
Scalar = bool | int | float | str
# What a figure may stand against, besides hyper-parameters: what a case's input says.
POINTS = ("positions", "batch", "channels")


def _as_list(value: Any) -> Any:
    return value if isinstance(value, list) else [value]


def _as_shapes(value: Any) -> Any:
    return value if isinstance(value, list) and value and isinstance(value[0], list | tuple) else [value]


def _shape(value: Any) -> Any:
    return parse_shape(value)


def _metric(name: str) -> str:
    """The name of a metric that a suite may ask for."""
    asked_for = [each for each, metric in metrics.metrics().items() if metric.asked_for]
    if name not in asked_for:
        raise unknown("metric", name, asked_for)
    return name


MetricName = Annotated[str, AfterValidator(_metric)]
QuantityKey = Annotated[str, AfterValidator(lambda key: metrics.quantity(key).key)]
PairText = Annotated[str, AfterValidator(lambda text: ":".join(parse_pair(text)))]
UnitText = Annotated[str, AfterValidator(lambda text: Unit.parse(text) and text)]
Positive = Annotated[int, Field(gt=0)]
OneOrMore = BeforeValidator(_as_list)


TargetName = Annotated[str, AfterValidator(lambda name: sheet(name) and name)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Axes(_Strict):
    """The grid: each key holds one value or a list; the cases are the product."""

    shape: Annotated[list[Annotated[Shape, BeforeValidator(_shape)]], BeforeValidator(_as_shapes), Field(min_length=1)]
    batch: Annotated[list[Positive], OneOrMore] = []
    channels: Annotated[list[Positive], OneOrMore] = []
    size: Annotated[list[Positive], OneOrMore] = []
    dtype: Annotated[list[Dtype], OneOrMore, Field(min_length=1)] = ["float32"]
    device: Annotated[list[str], OneOrMore, Field(min_length=1)] = ["auto"]
    memory_format: Annotated[list[MemoryFormat], OneOrMore, Field(min_length=1)] = ["contiguous"]
    execution: Annotated[list[Execution], OneOrMore, Field(min_length=1)] = ["eager"]
    threads: Annotated[list[Positive], OneOrMore] = []


class Measure(_Strict):
    """How a case's latency is measured: in how many processes, and how long in each, for each mode (infer, train).

    A latency's interval is over `processes`, which are fresh interpreters; fewer than three give none.
    `malloc` "keep": a CPU process keeps the memory that it frees; "default": as users' own processes do.
    `interval`: blocks until the 95 % interval of the median is within `target` of it on either side, or `budget_s` is
    spent, and for `min_time_s` at least.
    `paper`: `repeats` blocks of `passes` passes each, as Table 3 of the Hamburger paper was measured (20 of 100).
    `memory_device` is what the predicted peak is for: CUDA under the installed PyTorch, or under that of 2020.
    `predict_for` names devices (docs/prediction.md) for which the metric `predicted_time` predicts the time of a pass.
    `compile_timeout_s` is for the first pass of a mode with `execution = "compile"`, `timeout_s` for all else.
    """

    processes: Positive = 5
    malloc: Literal["keep", "default"] = "keep"
    protocol: Literal["interval", "paper"] = "interval"
    target: Annotated[float, Field(gt=0, lt=1)] = 0.02
    budget_s: Annotated[float, Field(gt=0, strict=False)] = 2.0
    warmup_s: Annotated[float, Field(ge=0, strict=False)] = 0.5
    min_time_s: Annotated[float, Field(ge=0, strict=False)] = 0.0
    min_samples: Positive = 1
    repeats: Positive = 20
    passes: Positive = 100
    flush_l2: bool = False
    memory_device: Literal["cuda", "cuda-2020"] = "cuda"
    predict_for: Annotated[list[TargetName], OneOrMore] = []
    cudnn_benchmark: bool = False
    memory_limit_gib: Annotated[float, Field(gt=0, strict=False)] | None = None
    timeout_s: Annotated[float, Field(gt=0, strict=False)] = 600.0
    compile_timeout_s: Annotated[float, Field(gt=0, strict=False)] = 600.0
    seed: int = 0


class Footnote(_Strict):
    """Why a published figure differs or cannot be reproduced; printed below the table."""

    module: str
    column: QuantityKey
    text: str


class Published(_Strict):
    """A paper's numbers as printed, for the input `shape`. A column's unit is given once; the digits stay strings.

    A row is named by its module (`sa`), or by module and settings (`criss_cross(reduction=8)`).
    """

    device: str = ""
    shape: Annotated[Shape, BeforeValidator(_shape)] | None = None
    params_unit: UnitText = "M = 2^20"
    macs_unit: UnitText = "G = 10^9"
    rows: dict[str, dict[QuantityKey, str]] = {}
    footnotes: list[Footnote] = []


class Gate(_Strict):
    """What `ctxbench check` counts as a change of latency, relative (0.05: 5 %).

    `margins` holds rows with a margin of their own, by module ("sa") or by module and mode ("sa train").
    """

    margin: Annotated[float, Field(gt=0, strict=False)] = 0.05
    margins: dict[str, Annotated[float, Field(gt=0, strict=False)]] = {}

    def of(self, module: str, mode: str) -> float:
        """The margin of a row."""
        return self.margins.get(f"{module} {mode}", self.margins.get(module, self.margin))


class Figure(_Strict):
    """A figure and its table in the report: the quantities `y` against `x`, a line for each module and setting.

    `x` is a hyper-parameter, or one of `POINTS`. `scale` names the axes that are logarithmic. With `fit`, a straight
    line on these axes is fitted: its slope (linear), exponent (log) or factor for each unit of x (log-y). Settings that
    change `along` with x tell no lines apart.
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


class SuiteFile(_Strict):
    """The keys of a suite file. `crossover` holds pairs FIRST:SECOND: above which n is the first cheaper?"""

    title: str
    source: str = ""
    modules: Annotated[list[str], Field(min_length=1)]
    metrics: list[MetricName] = Field(
        default_factory=lambda: [name for name, metric in metrics.metrics().items() if metric.default]
    )
    axes: Axes
    hparams: dict[str, dict[str, Scalar | list[Scalar]]] = {}
    exclude: list[dict[str, Scalar]] = []
    cases: list[dict[str, Scalar | list[int]]] = []
    crossover: list[PairText] = []
    measure: Measure = Measure()
    gate: Gate = Gate()
    published: Published = Published()
    figures: list[Figure] = []

    @model_validator(mode="after")
    def _names_differ(self) -> Self:
        names = [figure.name for figure in self.figures]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"two figures are called {name!r}")
        return self


@dataclass(frozen=True)
class Case:
    """One point of a suite. `device` is `cpu`, `cuda` or `cuda:N`; `threads` None leaves torch's default."""

    module: str
    reference: str
    hparams: Mapping[str, Any]
    shape: Shape
    dtype: str = "float32"
    memory_format: str = "contiguous"
    execution: str = "eager"
    device: str = "cpu"
    threads: int | None = None

    @property
    def entry(self) -> registry.Entry:
        """The registry's entry of the module; its class is imported if it is not registered by its key."""
        return registry.get(self.module if self.module in registry.names() else self.reference)

    @property
    def id(self) -> str:
        """A readable name, unique in a run: what differs from the defaults is spelled out."""
        hparams = ",".join(f"{name}={value}" for name, value in sorted(self.hparams.items()))
        parts = [f"{self.module}({hparams})" if hparams else self.module, "x".join(map(str, self.shape))]
        parts += [self.dtype, self.device]
        parts += [self.memory_format] * (self.memory_format != "contiguous")
        parts += [self.execution] * (self.execution != "eager")
        parts += [f"{self.threads}threads"] * (self.threads is not None)
        return " ".join(parts)

    @property
    def hparams_json(self) -> str:
        return json.dumps(dict(sorted(self.hparams.items())))


@dataclass(frozen=True)
class Overrides:
    """What the command line or a Python caller puts in place of a suite's own values; None keeps the suite's."""

    modules: list[str] | None = None
    shape: list[Shape] | None = None
    dtype: list[str] | None = None
    device: list[str] | None = None
    memory_format: list[str] | None = None
    execution: list[str] | None = None
    threads: list[int] | None = None
    metrics: list[str] | None = None
    hparams: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    measure: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Suite:
    """A suite as read: its name (the file's stem), where it lies, and its content.

    `chosen`: the modules are those that the caller named, not the file's.
    """

    name: str
    path: Path
    file: SuiteFile
    chosen: bool = False

    @property
    def named(self) -> set[str]:
        """The modules that the suite names one by one."""
        return {*self.file.modules, *(str(case.get("module", "")) for case in self.file.cases)}

    def cases(self, auto_device: str = "cpu") -> list[Case]:
        """The cases in order: module by module, then the product of the axes, then the explicit extra cases.

        `auto_device` stands in for the device `auto`. Raises UsageError for unknown modules and hyper-parameters.
        """
        missing: dict[str, UsageError] = {}
        found = self.cases_here(auto_device, missing)
        for error in missing.values():
            raise error
        for name in self.file.hparams:
            if not any(registry.means(name, case.module, case.reference) for case in found):
                registry.get(name)
        modules = {*registry.names(), *(case.module for case in found)}
        for row in self.file.gate.margins:
            if row.removesuffix(" infer").removesuffix(" train") not in modules:
                raise UsageError(f"{self.path}: [gate] margins: {unknown('module', row, modules)}")
        for name in self.file.published.rows:
            if name.partition("(")[0] not in modules:
                raise UsageError(f"{self.path}: [published.rows]: {unknown('module', name, modules)}")
        self._check_figures(found)
        for name in (name for pair in self.file.crossover for name in parse_pair(pair)):
            if name not in modules:
                raise UsageError(f"{self.path}: crossover: {unknown('module', name, modules)}")
        if not found:
            raise UsageError(f"{self.path}: the suite has no case left; loosen [[exclude]]")
        return found

    def _check_figures(self, cases: Sequence[Case]) -> None:
        """UsageError for a figure against a hyper-parameter that no module has."""
        entries = [*registry.entries(), *(case.entry for case in cases)]
        known = {*POINTS, *(each.name for entry in entries for each in entry.hyperparameters)}
        for figure in self.file.figures:
            for key, name in (("x", figure.x), *(("along", name) for name in figure.along)):
                if name not in known:
                    raise UsageError(f"{self.path}: key 'figures.{key}': {unknown('hyper-parameter', name, known)}")

    def cases_here(self, auto_device: str, missing: dict[str, UsageError]) -> list[Case]:
        """The cases of the modules that can be had; why not goes to `missing`, by the suite's name of the module.

        Raises UsageError if two modules have the same name.
        """
        found: list[Case] = []
        sources: list[tuple[str, Callable[[], Iterable[Case]]]] = []
        for name in self.file.modules:
            keys = [entry.key for entry in registry.entries() if not entry.broken] if name == "*" else [name]
            sources += [(key, partial(self._grid, key, auto_device)) for key in keys]
        for values in self.file.cases:
            sources.append((str(values.get("module", "")), partial(self._extra, values, auto_device)))
        for name, cases in sources:
            try:
                found += cases()
            except UsageError as error:
                missing[name] = error
        unique: dict[str, Case] = {}
        for case in found:
            known = unique.setdefault(case.id, case)
            if known.reference != case.reference:
                raise UsageError(
                    f"{known.reference} and {case.reference} have the same name {case.module!r}; rename one class, or "
                    "register it under another key"
                )
        return list(unique.values())

    def _grid(self, name: str, auto_device: str) -> Iterator[Case]:
        axes = self.file.axes
        entry = registry.get(name)
        hparams: dict[str, Any] = {}
        for given, settings in self.file.hparams.items():
            if registry.means(given, entry.key, entry.reference):
                hparams |= settings
        choices = [_as_list(value) for value in hparams.values()]
        shapes = [
            (b or shape[0], c or shape[1], s or shape[2], s or shape[3])
            for shape in axes.shape
            for b in axes.batch or [0]
            for c in axes.channels or [0]
            for s in axes.size or [0]
        ]
        threads: list[int | None] = [*axes.threads] or [None]
        for values, shape, dtype, device, layout, execution, count in itertools.product(
            itertools.product(*choices), shapes, axes.dtype, axes.device, axes.memory_format, axes.execution, threads
        ):
            chosen = entry.check_hparams(dict(zip(hparams, values, strict=True)))
            device = auto_device if device == "auto" else device
            case = Case(entry.key, entry.reference, chosen, shape, dtype, layout, execution, device, count)
            if not any(_matches(case, rule) for rule in self.file.exclude):
                yield case

    def _extra(self, values: Mapping[str, Any], auto_device: str) -> Iterator[Case]:
        axes = self.file.axes
        rest = dict(values)
        entry = registry.get(str(rest.pop("module", "")))
        shape = rest.pop("shape", axes.shape[0])
        device = rest.pop("device", axes.device[0])
        fixed = {name: rest.pop(name, getattr(axes, name)[0]) for name in ("dtype", "memory_format", "execution")}
        threads = rest.pop("threads", None)
        chosen = entry.check_hparams(rest)
        yield Case(
            entry.key,
            entry.reference,
            chosen,
            parse_shape(shape),
            **fixed,
            device=auto_device if device == "auto" else str(device),
            threads=threads,
        )


def _matches(case: Case, rule: Mapping[str, Any]) -> bool:
    """Whether a case has every value that an `exclude` rule names."""
    batch, channels, height, width = case.shape
    known: dict[str, Any] = {"batch": batch, "channels": channels, "height": height, "width": width}
    known |= {name: getattr(case, name) for name in ("dtype", "memory_format", "execution", "device", "threads")}
    known |= case.hparams
    return all(
        registry.means(str(value), case.module, case.reference) if name == "module" else known.get(name) == value
        for name, value in rule.items()
    )


def available() -> list[str]:
    """The names of the suites that come with ctxbench."""
    return sorted(
        item.name.removesuffix(".toml") for item in files("ctxbench.suites").iterdir() if item.name.endswith(".toml")
    )


def load(name_or_path: str, overrides: Overrides | None = None) -> Suite:
    """Read a suite by name, or by the path of a TOML file, and apply overrides. UsageError for anything malformed."""
    path = _find(name_or_path)
    suite = _validate(_read(path), str(path))
    if overrides is not None:
        suite = _override(suite, overrides)
    return Suite(path.stem, path, suite, chosen=overrides is not None and overrides.modules is not None)


def load_published(path: Path) -> dict[str, Any]:
    """The table `[published]` of a TOML file as plain values. UsageError for anything malformed."""
    content = _read(path)
    if "published" not in content:
        raise UsageError(f"{path} has no table [published]")
    try:
        return Published.model_validate(content["published"]).model_dump(mode="json")
    except ValidationError as error:
        raise UsageError(f"{path}: [published]: {_first_sentence(error)}") from None


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path} is not TOML: {error}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {path}: {error}") from None


def restore(name: str, path: Path, definition: Mapping[str, Any]) -> Suite:
    """The suite of a stored run, overrides included."""
    return Suite(name, path, _validate(definition, str(path)))


def _find(name_or_path: str) -> Path:
    if name_or_path.endswith(".toml") or "/" in name_or_path:
        path = Path(name_or_path)
        if not path.is_file():
            raise UsageError(f"there is no suite file {path}")
        return path
    if name_or_path not in available():
        raise unknown("suite", name_or_path, available())
    return Path(str(files("ctxbench.suites") / f"{name_or_path}.toml"))


def _validate(content: Mapping[str, Any], where: str) -> SuiteFile:
    try:
        suite = SuiteFile.model_validate(content)
    except ValidationError as error:
        raise UsageError(f"{where}: {_first_sentence(error)}") from None
    if suite.measure.predict_for and predicted_time.NAME not in suite.metrics:
        raise UsageError(f"{where}: measure.predict_for goes with {predicted_time.NAME!r} in metrics")
    return suite


def _first_sentence(error: ValidationError) -> str:
    """The first problem of a validation: key, what is wrong, value."""
    problem = error.errors()[0]
    names = [str(part) for part in problem["loc"] if not str(part).startswith(("function-", "list[", "tuple["))]
    key = ".".join(names)
    if problem["type"] == "extra_forbidden":
        model = _model_at(names[:-1])
        return str(unknown("key", names[-1], model.model_fields)) + (
            f" in [{'.'.join(names[:-1])}]" if names[:-1] else ""
        )
    if problem["type"] == "missing":
        return f"the key {key!r} is missing; docs/suites.md has an example with every key"
    message = problem["msg"].removeprefix("Value error, ")
    message = message[0].lower() + message[1:]
    if isinstance(problem["input"], dict):  # of a whole table, which is too long to print
        return f"key {key!r}: {message}" if key else message
    return f"key {key!r} is {problem['input']!r}: {message}"


def _model_at(names: list[str]) -> type[BaseModel]:
    models: dict[str, type[BaseModel]] = {
        "axes": Axes,
        "measure": Measure,
        "gate": Gate,
        "published": Published,
        "footnotes": Footnote,
        "figures": Figure,
    }
    return next((models[name] for name in reversed(names) if name in models), SuiteFile)


def _override(suite: SuiteFile, overrides: Overrides) -> SuiteFile:
    content = suite.model_dump()
    if overrides.modules is not None:
        content["modules"] = overrides.modules
    if overrides.metrics is not None:
        content["metrics"] = overrides.metrics
    for axis in ("shape", "dtype", "device", "memory_format", "execution", "threads"):
        value = getattr(overrides, axis)
        if value is not None:
            content["axes"][axis] = value
    if overrides.shape is not None:
        content["axes"] |= {"batch": [], "channels": [], "size": []}
    for key, hparams in _chosen_hparams(content["modules"], overrides.hparams).items():
        content["hparams"][key] = {**content["hparams"].get(key, {}), **hparams}
    content["measure"] |= overrides.measure
    if overrides.measure.get("predict_for"):
        content["metrics"] = [*dict.fromkeys([*content["metrics"], predicted_time.NAME])]
    if overrides.modules is not None:
        content["cases"] = []
        known = {*registry.names(), *content["modules"], *map(class_name, content["modules"])}
        content["hparams"] = {key: values for key, values in content["hparams"].items() if key in known}
    return _validate(content, "the command's options")


def _chosen_hparams(modules: Sequence[str], given: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Hyper-parameters by key. What is given without a module goes to every module that has it.

    UsageError for a module that the suite does not have, and for a name that none of its modules has.
    """
    if not given:
        return {}
    names = [name for each in modules for name in (registry.names() if each == "*" else [each])]
    entries = {entry.key: entry for entry in map(registry.get, names)}
    found: dict[str, dict[str, Any]] = {}
    for module, hparams in given.items():
        for name, value in hparams.items():
            if module:
                takers = [key for key, e in entries.items() if registry.means(module, key, e.reference)]
                takers = takers or [key for key in [registry.get(module).key] if key in entries]
            else:
                takers = [key for key, e in entries.items() if name in [p.name for p in e.hyperparameters]]
            if not takers:
                text = f"{module}.{name}" if module else name
                raise UsageError(f"--set {text}={value}: no module of this run has it ({', '.join(entries)})")
            for key in takers:
                found.setdefault(key, {})[name] = value
    return found


def parse_pair(text: str) -> tuple[str, str]:
    """Two modules, named as in tables, from `FIRST:SECOND`. UsageError for anything else."""
    parts = [part.strip() for part in text.split(":")]
    if len(parts) != 2 or not all(parts):
        raise UsageError(f"{text!r} is not FIRST:SECOND, such as ham_nmf:mhsa, with modules named as in the table")
    if parts[0] == parts[1]:
        raise UsageError(f"{text!r} names the same module twice; a crossover is between two modules")
    return parts[0], parts[1]


def parse_shape(value: Any) -> Shape:
    """A shape from `1,512,128,128`, a list or a tuple. UsageError unless it is four positive integers."""
    parts = value.replace("x", ",").split(",") if isinstance(value, str) else list(value)
    try:
        numbers = [int(part) for part in parts]
    except (TypeError, ValueError):
        raise UsageError(f"shape {value!r} is not four integers B,C,H,W, such as 1,512,128,128") from None
    if len(numbers) != 4:
        raise UsageError(f"shape {value!r} has {len(numbers)} numbers; it takes four, B,C,H,W, such as 1,512,128,128")
    if min(numbers) < 1:
        raise UsageError(f"shape {value!r} holds {min(numbers)}; each of B,C,H,W is at least 1")
    batch, channels, height, width = numbers
    return batch, channels, height, width
