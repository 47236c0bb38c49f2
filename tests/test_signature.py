"""The options of a command are those that the signature and the docstring of its function declare."""

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from typer.testing import CliRunner

import ctxbench
from ctxbench.cli.options import OF_MODULE, Given
from ctxbench.cli.signature import command_of, documented
from ctxbench.model.conditions import CONDITIONS, Counts, Names, OneShape, Shapes

MEASURE = {
    "processes": Given(Annotated[int | None, typer.Option(help="How many.")]),
    "sample_s": Given(Annotated[float | None, typer.Option("--sample-time", help="How long.")], lambda s: s * 1000),
}


def measure(
    size: int,
    where: Sequence[str] | str,
    *,
    shape: Shapes | None = None,
    dtype: Names | None = None,
    threads: Counts | None = None,
    modules: Sequence[str] | None = None,
    settings: Mapping[str, Any] | None = None,
    runs: Sequence[Path] = (),
    out: str | Path | None = None,
    anyway: bool = False,
    progress: Callable[[], None] | None = None,
) -> None:
    """For Python callers.

    Args:
        size: How `large`,
            in pixels.
        where: Where.
        runs, out: Folders.
        anyway: Also then.

    Returns:
        Nothing.
    """


def one(module: str, shape: OneShape | None, *, dtype: str | None = None, hparams: object = None) -> None:
    """For Python callers."""


def called(function: Callable[..., None], *arguments: str, **options: Any) -> tuple[dict[str, Any], str | None]:
    """Arguments that a command gets for its function, and its own option."""
    told: list[tuple[dict[str, Any], str | None]] = []

    @command_of(function, **options)
    def command(asked: dict[str, Any], plot: Annotated[str | None, typer.Option(help="A drawing.")] = None) -> None:
        """For a terminal."""
        told.append((asked, plot))

    app = typer.Typer()
    app.command()(command)
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return told[0] if told else ({}, result.output)


NEEDED = ("--size", "3", "--where", "t4, a100")
OPTIONS = {"settings": MEASURE, "runs": list[Path] | None, "size": typer.Option(min=1)}


@pytest.mark.parametrize(
    ("arguments", "asked"),
    [
        ((), {}),
        (("--modules", "sa,se", "--modules", "da"), {"modules": ["sa", "se", "da"]}),
        (("--sample-time", "2"), {"settings": {"sample_s": 2000}}),
        (("--processes", "4", "--sample-time", "0.5"), {"settings": {"processes": 4, "sample_s": 500}}),
        (("--runs", "a", "--runs", "b"), {"runs": [Path("a"), Path("b")]}),
        (("--out", "a"), {"out": Path("a")}),
        (("--anyway",), {"anyway": True}),
        (("--shape", "1,8,4,4", "--shape", "2,8,4,4"), {"shape": ["1,8,4,4", "2,8,4,4"]}),
        (("--dtype", "float32,bfloat16", "--threads", "1,2"), {"dtype": ["float32", "bfloat16"], "threads": [1, 2]}),
    ],
)
def test_a_command_gets_what_was_given_as_arguments_of_its_function(
    arguments: tuple[str, ...], asked: Mapping[str, Any]
) -> None:
    found, plot = called(measure, *NEEDED, *arguments, **OPTIONS)
    assert found == {"size": 3, "where": ["t4", "a100"], "anyway": False, **asked}
    assert plot is None
    assert inspect.signature(measure).bind(**found)


def test_a_function_of_one_module_gets_one_value_of_a_condition_and_the_hyper_parameters_of_that_module() -> None:
    assert called(one, "sa", hparams=OF_MODULE)[0] == {"module": "sa", "shape": None}
    given = ("sa", "--shape", "1,8,4,4", "--dtype", "float16", "--set", "sa.d=3", "--set", "k=1")
    assert called(one, *given, hparams=OF_MODULE)[0] == {
        "module": "sa", "shape": (1, 8, 4, 4), "dtype": "float16", "hparams": {"d": 3, "k": 1},
    }  # fmt: skip
    with pytest.raises(ctxbench.UsageError, match=r"--set se\.d: this command is about sa, not se"):
        called(one, "sa", "--set", "se.d=3", hparams=OF_MODULE)


def test_a_commands_own_options_come_beside_those_of_its_function() -> None:
    assert called(measure, *NEEDED, "--plot", "a.svg", **OPTIONS)[1] == "a.svg"


def test_a_text_calls_other_arguments_as_their_options_are_called() -> None:
    def function(at: str, size: int) -> None:
        """Do it.

        Args:
            at: A place.
            size: Pixels of `at`, as `params`.
        """

    assert documented(function) == {"at": "A place.", "size": "Pixels of --at, as `params`."}


def test_help_has_the_options_in_the_order_of_the_function_with_the_texts_of_its_docstring() -> None:
    _, shown = called(measure, "--help", **OPTIONS)
    assert shown is not None
    options = re.findall(r"--[a-z-]+", shown)
    wanted = ["size", "where", "shape", "dtype", "threads", "modules", "module", "processes", "sample-time", "runs"]
    assert options[:10] == [f"--{each}" for each in wanted]
    assert "For a terminal." in shown
    assert "How large, in pixels." in shown
    assert shown.count("Folders.") == 2
    assert "progress" not in shown
    assert {each for each in CONDITIONS if f"--{each}" in options} == {"shape", "dtype", "threads"}


@pytest.mark.parametrize("name", [name for name in dir(ctxbench) if inspect.isfunction(getattr(ctxbench, name))])
def test_each_function_documents_each_argument_and_no_other(name: str) -> None:
    function = getattr(ctxbench, name)
    assert documented(function).keys() == inspect.signature(function).parameters.keys()
    assert {each.kind for each in inspect.signature(function).parameters.values()} <= {
        inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY,
    }  # fmt: skip
