"""`ctxbench new`: a file to start a module from."""

from pathlib import Path
from typing import Annotated

import typer

from ctxbench.base.errors import UsageError
from ctxbench.base.terminal import say


def new(
    path: Annotated[Path | None, typer.Argument(help="The file to write, such as my_module.py.")] = None,
    class_name: Annotated[
        str | None, typer.Option("--class", help="The name of the class; default: made from the file's name.")
    ] = None,
    around: Annotated[
        str | None,
        typer.Option(metavar="path.py:Class", help="Instead, print a module of maps around your block of tokens."),
    ] = None,
) -> None:
    """Write a new file with a small working module to start from."""
    from ctxbench.cli.commands import template

    if around is not None:
        if path is not None or class_name is not None:
            raise UsageError("--around prints what to put into a file; leave out the file and --class")
        say(template.around(around).rstrip())
        return
    if path is None:
        raise UsageError("name the file to write, such as ctxbench new my_module.py")
    reference = template.write(path, class_name)
    say(f"wrote {path}; next: ctxbench verify {reference}")
