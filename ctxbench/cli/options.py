"""Options that several commands share, and how their texts are read."""

import inspect
import itertools
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_type_hints

import typer

from ctxbench.base import disk, limits
from ctxbench.base.errors import UsageError
from ctxbench.model.conditions import CONDITIONS, SHAPE, Condition

if TYPE_CHECKING:
    from ctxbench.model.case import Case
    from ctxbench.model.read_suite import Overrides


EXIT_FAILED_CASES = 1
EXIT_USAGE = 2
EXIT_UNDECIDED = 3  # the number that `ctxbench check` has for inconclusive
EXIT_INTERNAL = 70  # EX_SOFTWARE of sysexits.h
EXIT_INTERRUPTED = 130


def complete_suite() -> list[str]:
    from ctxbench.model.read_suite import available

    return available()


def complete_module() -> list[str]:
    from ctxbench import registry

    return registry.names()


def complete_target() -> list[str]:
    from ctxbench.devices import known

    return [*known()]


Module = Annotated[
    str, typer.Argument(help="A key, path.py:Class or package.module:Class.", autocompletion=complete_module)
]
Modules = Annotated[
    list[str] | None,
    typer.Option(
        "--modules",
        "--module",
        metavar="NAME[,NAME]",
        help="Modules: keys, path.py:Class or package.module:Class, with commas; may be given several times.",
    ),
]
SuiteName = Annotated[
    str, typer.Option(help="A suite's name, or the path of a TOML file.", autocompletion=complete_suite)
]
OneMode = Annotated[str, typer.Option("--mode", help="train or infer.")]
AlsoOn = Annotated[
    str | None,
    typer.Option("--for", metavar="DEVICE[,DEVICE]", help="Also on these devices, such as h100-sxm: predicted times."),
]
Processes = Annotated[
    int | None,
    typer.Option(
        help="Fresh processes for each case's latency, whatever a suite's budget; fewer than 3 give no interval."
    ),
]
SampleTime = Annotated[
    float | None,
    typer.Option("--sample-time", help="Seconds for the latency samples of a mode in each process, at most."),
]
Budget = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="Time for the whole suite, such as 5m: wide intervals get more processes."),
]
InProcess = Annotated[
    bool, typer.Option("--in-process", help="For debugging: measure in this process, not in fresh ones.")
]
Ray = Annotated[
    str | None,
    typer.Option(metavar="ADDRESS", help="Spread the cases over a Ray cluster: HOST:PORT, or local for this host."),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="[MODULE.]NAME=VALUE",
        help="Set a hyper-parameter, such as steps=3 or ham_nmf.steps=3; one that is given twice has both values; the "
        "word channels is the input's number of channels.",
    ),
]


# What was given to an option of a condition: a text, with commas or, of a shape, several texts.
Texts = str | list[str]
SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600}


def check_drawing(plot: Path | None) -> None:
    """UsageError where a drawing, if one is asked for, cannot be written."""
    if plot is not None:
        if plot.suffix.lower() not in (".png", ".svg"):
            raise UsageError(f"--plot {plot}: the name of a drawing ends in .png or .svg")
        disk.check_place(plot)


def check_texts(command: Any, parameters: Iterable[Any], given: Mapping[str, Any]) -> None:
    """UsageError for an empty text, as of a shell's variable without a value, and for a number in odd digits.

    `given` are texts, or several, by the names of a command's parameters. What is empty by default may be.
    """
    types = get_type_hints(command)
    for each in parameters:
        found = given.get(each.name)
        name = each.opts[0] if each.param_type_name == "option" else each.name.upper()
        for text in found if isinstance(found, list | tuple) else [found]:
            if text == "" and each.default != "":
                raise UsageError(f"{name} is empty; give it a value, or leave it out")
            # int() and float() take the digits of all scripts, and 1_000
            is_odd = isinstance(text, str) and (not text.isascii() or "_" in text)
            if is_odd and {int, float} & {types[each.name], *get_args(types[each.name])}:
                raise UsageError(f"{name} {text!r} is not a number in the digits 0 to 9")


def asked_for() -> list[str]:
    """The metrics that a command may be asked for by name."""
    from ctxbench.model.metrics import metrics

    return [name for name, metric in metrics().items() if metric.asked_for]


def elsewhere(what: str) -> Callable[..., Any]:
    """The function of a plugin that measures cases on other machines. UsageError where no plugin brings one."""
    from ctxbench.plugin import brought

    for plugin, (name, reference) in brought("slots"):
        if name == what:
            function: Callable[..., Any] = plugin.load(reference)
            return function
    raise UsageError("--ray: no plugin is installed that spreads cases over a cluster")


def split(text: str | None) -> list[str] | None:
    return [part.strip() for part in text.split(",") if part.strip()] if text is not None else None


def with_conditions(*names: str, one: bool = False) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorator of a command, whose parameter `conditions` gets the texts of these conditions' options, where given.

    None named are all. With `one`, an option takes one value.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = {name: _option(CONDITIONS[name], one) for name in names or CONDITIONS}
        types, parameters = get_type_hints(command, include_extras=True), []
        keyword = inspect.Parameter.KEYWORD_ONLY
        for each in inspect.signature(command).parameters.values():
            if each.name == "conditions":
                parameters += [inspect.Parameter(n, keyword, default=None, annotation=own[n]) for n in own]
            else:
                parameters.append(each.replace(kind=keyword, annotation=types[each.name]))

        def taken(**given: Any) -> None:
            texts = {name: given.pop(name) for name in own}
            command(**given, conditions={name: text for name, text in texts.items() if text})

        taken.__name__, taken.__doc__, taken.__module__ = command.__name__, command.__doc__, command.__module__
        taken.__annotations__ = {each.name: each.annotation for each in parameters}
        taken.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # mypy knows no such attribute of a function
        return taken

    return decorate


def _option(condition: Condition, one: bool) -> Any:
    """The type of a command's parameter for a condition."""
    several = "may be given several times" if condition is SHAPE else "with commas"
    default = ", or the network's own" * (condition is SHAPE)
    default = f"default: {condition.id_text(condition.default)}{default}" if condition.always_shown else ""
    text = "; ".join(filter(None, [condition.help, default if one else several]))
    option = typer.Option(
        condition.option, metavar=condition.metavar, help=f"{text}.", autocompletion=condition.choices
    )
    return Annotated[list[str] | None if condition is SHAPE and not one else str | None, option]


def names(texts: list[str] | None) -> list[str] | None:
    """The names in an option that may be given several times, each with commas."""
    return [name for text in texts for name in split(text) or []] if texts else None


def overrides_of(conditions: Mapping[str, Texts], also_on: str | None = None, **measure: float | None) -> "Overrides":
    """Overrides of a suite's values by these options."""
    from ctxbench.model.read_suite import Overrides

    limits.SECONDS.check_option("--sample-time", measure.get("sample_s"))
    limits.PROCESSES.check_option("--processes", measure.get("processes"))
    return Overrides(
        conditions={name: _values(CONDITIONS[name], given) for name, given in conditions.items()},
        measure={name: value for name, value in measure.items() if value is not None},
        also_on=split(also_on) or [],
    )


def cases_of(module: str, conditions: Mapping[str, Texts], chosen: list[str] | None) -> list["Case"]:
    """The cases of `case_of` for each combination of the values in these texts."""
    values = (_values(CONDITIONS[name], given) for name, given in conditions.items())
    return [case_of(module, dict(zip(conditions, each, strict=True)), chosen) for each in itertools.product(*values)]


def case_of(module: str, conditions: Mapping[str, Any], chosen: list[str] | None) -> "Case":
    """The case that a command about one module means. UsageError for a wrong module, hyper-parameter or condition."""
    from ctxbench import registry
    from ctxbench.model import hparams as settings
    from ctxbench.model.case import one_case

    entry = registry.get(module)
    hparams = settings.of_one_module(chosen or [], module, entry.key, settings.class_name(entry.reference))
    return one_case(module, {name: _value(CONDITIONS[name], value) for name, value in conditions.items()}, hparams)


def _value(condition: Condition, given: Any) -> Any:
    """The value in the text of a condition's option that takes one, or the value itself."""
    if isinstance(given, str) and condition.kind is int and condition is not SHAPE:
        try:
            given = limits.integer(given)
        except ValueError:
            raise UsageError(f"{condition.option} {given!r} is not an integer") from None
    return condition.checked(given)


def _values(condition: Condition, given: Texts) -> list[Any]:
    """The values in the texts of a condition's option. Those that are no integers are checked with the suite."""
    if not isinstance(given, str):
        return [condition.checked(text) for text in given]
    if condition.kind is not int:
        return split(given) or []
    try:
        return [limits.integer(part) for part in given.split(",")]
    except ValueError:
        raise UsageError(f"{condition.option} {given!r} is not a comma-separated list of integers") from None


def seconds(text: str, option: str) -> float:
    """`90s`, `10m`, `1h` or plain seconds. UsageError unless it is a positive time."""
    found = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([smh]?)\s*", text)
    if not found or float(found[1]) == 0:
        raise UsageError(f"{option} {text!r} is not a time, such as 90s or 10m")
    value = float(found[1]) * SECONDS[found[2]]
    limits.SECONDS.check_option(option, value)
    return value
