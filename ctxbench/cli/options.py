"""Options that several commands share, and how their texts are read."""

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_type_hints

import typer

from ctxbench import limits
from ctxbench.errors import UsageError
from ctxbench.executions import executions

if TYPE_CHECKING:
    from ctxbench.case import Case
    from ctxbench.suite.read import Overrides


def complete_network() -> list[str]:
    from ctxbench.registry import networks

    return networks.names()


EXIT_FAILED_CASES = 1
EXIT_USAGE = 2
EXIT_UNDECIDED = 3  # the number that `ctxbench check` has for inconclusive
EXIT_INTERNAL = 70  # EX_SOFTWARE of sysexits.h
EXIT_INTERRUPTED = 130

Shape = Annotated[
    list[str] | None, typer.Option("--shape", metavar="B,C,H,W", help="Input shape; may be given several times.")
]
OneShape = Annotated[
    str | None,
    typer.Option("--shape", metavar="B,C,H,W", help="Input shape; default: 1,512,128,128, or the network's own."),
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
Dtype = Annotated[str | None, typer.Option(help="Such as float32 or float32,bfloat16.")]
Device = Annotated[
    str | None,
    typer.Option(help="auto, cpu, cuda, cuda:N or, for predicted times, such as h100-sxm or sheet.toml; with commas."),
]
AlsoOn = Annotated[
    str | None,
    typer.Option("--for", metavar="DEVICE[,DEVICE]", help="Also on these devices, such as h100-sxm: predicted times."),
]
Execution = Annotated[
    str | None, typer.Option(help=f"Ways of running a module, with commas: {', '.join(executions())}.")
]
Network = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Modules inside networks: names or path.py:function, with commas.",
        autocompletion=complete_network,
    ),
]
Threads = Annotated[str | None, typer.Option(help="Number of CPU threads, such as 1 or 1,2.")]
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


SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600}


def complete_suite() -> list[str]:
    from ctxbench.suite.read import available

    return available()


def complete_module() -> list[str]:
    from ctxbench import registry

    return registry.names()


def complete_target() -> list[str]:
    from ctxbench.devices.sheet import sheets

    return [*sheets()]


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


def split(text: str | None) -> list[str] | None:
    return [part.strip() for part in text.split(",") if part.strip()] if text is not None else None


def names(texts: list[str] | None) -> list[str] | None:
    """The names in an option that may be given several times, each with commas."""
    return [name for text in texts for name in split(text) or []] if texts else None


def overrides_of(
    shape: list[str] | None,
    dtype: str | None,
    device: str | None,
    threads: str | None,
    also_on: str | None,
    execution: str | None = None,
    network: str | None = None,
    **measure: float | None,
) -> "Overrides":
    """What these options replace in a suite."""
    from ctxbench.case import parse_shape
    from ctxbench.suite.read import Overrides

    limits.SECONDS.check_option("--sample-time", measure.get("sample_s"))
    limits.PROCESSES.check_option("--processes", measure.get("processes"))
    return Overrides(
        shape=[parse_shape(text) for text in shape] if shape else None,
        dtype=split(dtype),
        device=split(device),
        threads=_numbers(threads),
        execution=split(execution),
        network=split(network),
        measure={name: value for name, value in measure.items() if value is not None},
        also_on=split(also_on) or [],
    )


def case_of(module: str, shape: str | None, chosen: list[str] | None, network: str | None) -> "Case":
    """The case that a command about one module means. UsageError for a wrong module, hyper-parameter or network."""
    from ctxbench import registry
    from ctxbench.case import Case, parse_shape
    from ctxbench.registry import networks
    from ctxbench.suite import settings

    entry = registry.get(module)
    hparams = settings.of_one_module(chosen or [], module, entry.key, settings.class_name(entry.reference))
    own = networks.shape_of(network) if network else None
    return Case(
        entry.key,
        entry.reference,
        entry.check_hparams(hparams),
        parse_shape(shape or own or "1,512,128,128"),
        defaults=entry.defaults,
        network=registry.absolute(network or ""),
    )


def _numbers(text: str | None) -> list[int] | None:
    if text is None:
        return None
    try:
        return [limits.integer(part) for part in text.split(",")]
    except ValueError:
        raise UsageError(f"--threads {text!r} is not a comma-separated list of integers") from None


def seconds(text: str, option: str) -> float:
    """`90s`, `10m`, `1h` or plain seconds. UsageError unless it is a positive time."""
    found = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([smh]?)\s*", text)
    if not found or float(found[1]) == 0:
        raise UsageError(f"{option} {text!r} is not a time, such as 90s or 10m")
    value = float(found[1]) * SECONDS[found[2]]
    limits.SECONDS.check_option(option, value)
    return value
