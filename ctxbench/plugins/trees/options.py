"""The option that `check` and `history` share."""

from pathlib import Path
from typing import Annotated

import typer

Adapters = Annotated[
    list[Path] | None,
    typer.Option(
        "--adapter",
        metavar="FILE",
        help="A file of your working tree that takes its place in each commit, such as a wrapper of a block.",
    ),
]
