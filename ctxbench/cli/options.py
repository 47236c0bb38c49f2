"""Options that several commands share, and how their texts are read."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, get_args, get_type_hints

import typer

from ctxbench.base import disk, limits
from ctxbench.base.errors import UsageError
from ctxbench.model import hparams
from ctxbench.model.conditions import CONDITIONS, SHAPE, Condition

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


@dataclass(frozen=True)
class Given:
    """Option of a parameter: the type that typer reads, and what makes the argument of it.

    `argument` takes what was read, then the arguments of the parameters that are named `beside` it.
    """

    read_as: Any
    argument: Callable[..., Any] = lambda given: given
    beside: Sequence[str] = ()


ModulesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--modules",
        "--module",
        metavar="NAME[,NAME]",
        help="Modules: keys, path.py:Class or package.module:Class, with commas; may be given several times.",
    ),
]
SettingsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="[MODULE.]NAME=VALUE",
        help="Set a hyper-parameter, such as steps=3 or ham_nmf.steps=3; repeat it to try several values. The word "
        "channels stands for the input's number of channels.",
    ),
]
InProcessOption = Annotated[
    bool, typer.Option("--in-process", help="For debugging: measure in this process, not in fresh ones.")
]
RunItsCode = Annotated[
    bool, typer.Option("--run-its-code", help="Run the code that the run folder names, wherever it lies.")
]
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


def split(text: str | None) -> list[str] | None:
    return [part.strip() for part in text.split(",") if part.strip()] if text is not None else None


def condition(name: str, one: bool = False) -> Given:
    """Option of a condition that takes several values, or `one`."""
    kind: Any = list[str] if name == "shape" and not one else str
    read = partial(_value if one else _values, CONDITIONS[name])
    return Given(Annotated[kind | None, condition_option(name, one)], read)


def condition_option(name: str, one: bool = False) -> Any:
    """The option of a command for a condition, as typer has it."""
    each = CONDITIONS[name]
    several = "may be given several times" if each is SHAPE else "with commas"
    default = ", or the network's own" * (each is SHAPE)
    default = f"default: {each.id_text(each.default)}{default}" if each.always_shown else ""
    text = "; ".join(filter(None, [each.help, default if one else several]))
    return typer.Option(each.option, metavar=each.metavar, help=f"{text}.", autocompletion=each.choices)


def names(texts: list[str] | None) -> list[str] | None:
    """The names in an option that may be given several times, each with commas."""
    return [name for text in texts for name in split(text) or []] if texts else None


def of_one_module(chosen: list[str], module: str) -> dict[str, Any]:
    """The hyper-parameters of the module that a command is about. UsageError for those of another one."""
    from ctxbench import registry

    own = [module, registry.own_name(module)]
    if any(name and name not in own for name in hparams.parse(chosen)):
        entry = registry.get(module)
        names = [*own, entry.key, registry.own_name(entry.reference)]
        return hparams.of_one_module(chosen, *names, configs=entry.configs)
    return hparams.of_one_module(chosen, *own)


def _value(condition: Condition, given: Any) -> Any:
    """The value in the text of a condition's option that takes one, or the value itself."""
    if isinstance(given, str) and condition.kind is int and condition is not SHAPE:
        try:
            given = limits.integer(given)
        except ValueError:
            raise UsageError(f"{condition.option} {given!r} is not an integer") from None
    return condition.checked(given)


def _values(condition: Condition, given: str | list[str]) -> list[Any]:
    """The values in the texts of a condition's option, which are checked with the suite; shapes are read there."""
    if not isinstance(given, str):
        return [*given]
    if condition.kind is not int:
        return split(given) or []
    try:
        return [limits.integer(part) for part in given.split(",")]
    except ValueError:
        raise UsageError(f"{condition.option} {given!r} is not a comma-separated list of integers") from None


def seconds(text: str, option: str) -> float:
    """`90s`, `10m`, `1h` or plain seconds. UsageError unless it is a positive time."""
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([smh]?)", text.strip())
    if not found or float(found[1]) == 0:
        raise UsageError(f"{option} {text!r} is not a time, such as 90s or 10m")
    value = float(found[1]) * SECONDS[found[2]]
    limits.SECONDS.check_option(option, value)
    return value


SampleTime = Annotated[
    float | None,
    typer.Option("--sample-time", help="Seconds for the latency samples of a mode in each process, at most."),
]
# Options of a parameter of this name in every function, but where its command says otherwise (`command_of`).
SHARED: dict[str, Any] = {
    "module": Annotated[
        str, typer.Argument(help="A key, path.py:Class or package.module:Class.", autocompletion=complete_module)
    ],
    "modules": Given(ModulesOption, names),
    "hparams": Given(SettingsOption, hparams.parse),
    "suite": typer.Option(autocompletion=complete_suite),
    "target": typer.Option("--for", metavar="DEVICE", autocompletion=complete_target),
    "also_on": typer.Option(
        "--for", metavar="DEVICE[,DEVICE]", help="Also on these devices, such as h100-sxm: predicted times."
    ),
    "processes": Given(int | None, partial(limits.PROCESSES.check_option, "--processes")),
    "measure": {"sample_s": Given(SampleTime, partial(limits.SECONDS.check_option, "--sample-time"))},
}
OF_MODULE = Given(SettingsOption, of_one_module, beside=("module",))
