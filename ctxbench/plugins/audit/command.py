"""`ctxbench audit`: the figures of a published cost table, recounted."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from ctxbench.base.errors import UsageError
from ctxbench.cli.options import Given, SettingsOption, complete_module, of_one_module, split
from ctxbench.cli.printing import render, reporter
from ctxbench.cli.signature import command_of
from ctxbench.model import hparams
from ctxbench.plugins.audit import card as cards
from ctxbench.plugins.audit import function


def complete_table() -> list[str]:
    from ctxbench.model.read_suite import available

    return available("published")


def parse_blocks(texts: list[str]) -> dict[str, str]:
    """References by the names of blocks. UsageError for a text of another form."""
    found = {}
    for text in texts:
        name, equals, reference = text.partition("=")
        if not (equals and name and reference):
            raise UsageError(f"--block {text!r} is not NAME=REFERENCE, such as mine=my_module.py:MyContext")
        found[name] = reference
    return found


Blocks = Annotated[
    list[str] | None,
    typer.Option(
        "--block", metavar="NAME=REFERENCE", help="Which class a block of the table is: mine=my_module.py:MyContext."
    ),
]


def settings_of(chosen: list[str], of: str | None) -> dict[str, Any]:
    """The hyper-parameters of what the figures are of. UsageError if that is not said."""
    if of is None:
        raise UsageError("--set goes with --of, which names what the figures are of")
    return of_one_module(chosen, of)


@command_of(
    function.audit,
    table=typer.Argument(autocompletion=complete_table),
    blocks=Given(Blocks, parse_blocks),
    hparams=Given(SettingsOption, settings_of, beside=("of",)),
)
def audit(asked: Mapping[str, Any]) -> None:
    """Recount a published cost table, or figures of one line; print a verdict on each. Nothing is measured."""
    found = function.audit(**asked, progress=reporter())
    for part in found.parts:
        render(part)


@command_of(
    cards.card,
    modules=Annotated[list[str], typer.Argument(metavar="NAME...", autocompletion=complete_module)],
    hparams=Given(SettingsOption, hparams.parse),
    counted_as=Given(Annotated[str | None, typer.Option("--as", metavar="NAMES")], split),
    measured=typer.Option(metavar="RUN"),
)
def card(asked: Mapping[str, Any]) -> None:
    """Write the costs of blocks into a file for a supplement, which `audit` recounts. Nothing is measured."""
    for part in cards.card(**asked, progress=reporter()).parts:
        render(part)
