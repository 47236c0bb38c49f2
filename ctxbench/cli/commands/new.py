"""`ctxbench new`: a file to start a module from."""

from pathlib import Path
from typing import Annotated

import typer

from ctxbench.base.terminal import say


def new(
    path: Annotated[Path, typer.Argument(help="The file to write, such as my_module.py.")],
    class_name: Annotated[
        str | None, typer.Option("--class", help="The name of the class; default: made from the file's name.")
    ] = None,
) -> None:
    """Write a new file with a small working module to start from."""
    from ctxbench.cli.commands import template

    reference = template.write(path, class_name)
    say(f"wrote {path}; next: ctxbench verify {reference}")
