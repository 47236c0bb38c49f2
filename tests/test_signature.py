"""The options of a command are those that the signature of its function declares."""

import inspect
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from typer.testing import CliRunner

from ctxbench.cli.options import Modules, condition_options, names, split
from ctxbench.cli.signature import Given, command_of
from ctxbench.model.conditions import CONDITIONS

Devices = Annotated[str, typer.Option(metavar="DEVICE[,DEVICE]", help="Where.")]
Runs = Annotated[list[Path] | None, typer.Option(help="Runs.")]
MEASURE = {
    "processes": Given(Annotated[int | None, typer.Option(help="How many.")]),
    "sample_s": Given(Annotated[float | None, typer.Option("--sample-time", help="How long.")], lambda s: s * 1000),
}


def measure(
    size: Annotated[int, typer.Option(min=1, help="How large.")],
    device: Annotated[Sequence[str] | str, Given(Devices, split)],
    *,
    modules: Annotated[Sequence[str] | None, Given(Modules, names)] = None,
    settings: Annotated[Mapping[str, Any] | None, MEASURE] = None,
    runs: Annotated[Sequence[Path], Given(Runs)] = (),
    anyway: Annotated[bool, typer.Option("--anyway", help="Also then.")] = False,
    progress: object = None,
    **conditions: Annotated[Any, condition_options("shape", "dtype", "threads")],
) -> None:
    """For Python callers."""


def called(*arguments: str) -> tuple[dict[str, Any], str | None]:
    """Arguments that a command gets for its function, and its own option."""
    told: list[tuple[dict[str, Any], str | None]] = []

    @command_of(measure)
    def command(asked: dict[str, Any], plot: Annotated[str | None, typer.Option(help="A drawing.")] = None) -> None:
        """For a terminal."""
        told.append((asked, plot))

    app = typer.Typer()
    app.command()(command)
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return told[0] if told else ({}, result.output)


NEEDED = ("--size", "3", "--device", "t4, a100")


@pytest.mark.parametrize(
    ("arguments", "asked"),
    [
        ((), {}),
        (("--modules", "sa,se", "--modules", "da"), {"modules": ["sa", "se", "da"]}),
        (("--sample-time", "2"), {"settings": {"sample_s": 2000}}),
        (("--processes", "4", "--sample-time", "0.5"), {"settings": {"processes": 4, "sample_s": 500}}),
        (("--runs", "a", "--runs", "b"), {"runs": [Path("a"), Path("b")]}),
        (("--anyway",), {"anyway": True}),
        (("--shape", "1,8,4,4", "--shape", "2,8,4,4"), {"shape": ["1,8,4,4", "2,8,4,4"]}),
        (("--dtype", "float32,bfloat16", "--threads", "1,2"), {"dtype": ["float32", "bfloat16"], "threads": [1, 2]}),
    ],
)
def test_a_command_gets_what_was_given_as_arguments_of_its_function(
    arguments: tuple[str, ...], asked: Mapping[str, Any]
) -> None:
    found, plot = called(*NEEDED, *arguments)
    assert found == {"size": 3, "device": ["t4", "a100"], "anyway": False, **asked}
    assert plot is None
    assert inspect.signature(measure).bind(**found)


def test_a_commands_own_options_come_beside_those_of_its_function() -> None:
    assert called(*NEEDED, "--plot", "a.svg")[1] == "a.svg"


def test_help_has_the_options_in_the_order_of_the_function_and_conditions_before_those_with_a_default() -> None:
    _, shown = called("--help")
    assert shown is not None
    options = re.findall(r"--[a-z-]+", shown)
    wanted = ["size", "device", "shape", "dtype", "threads", "modules", "module", "processes", "sample-time", "runs"]
    assert options[:10] == [f"--{each}" for each in wanted]
    assert "For a terminal." in shown
    assert "progress" not in shown
    assert {each for each in CONDITIONS if f"--{each.replace('_', '-')}" in options} == {
        "shape", "dtype", "threads", "device",
    }  # fmt: skip
