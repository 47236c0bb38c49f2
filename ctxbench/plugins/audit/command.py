"""`ctxbench audit`: the figures of a published cost table, recounted."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from ctxbench.base.errors import UsageError
from ctxbench.cli.options import Given
from ctxbench.cli.printing import render, reporter
from ctxbench.cli.signature import command_of
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


@command_of(function.audit, table=typer.Argument(autocompletion=complete_table), blocks=Given(Blocks, parse_blocks))
def audit(asked: Mapping[str, Any]) -> None:
    """Recount a published cost table; print a verdict on each figure. Nothing is measured."""
    found = function.audit(**asked, progress=reporter())
    for part in found.parts:
        render(part)
