"""Result of a function, which prints as its command does."""

from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ctxbench.table.table import Table

if TYPE_CHECKING:
    import pandas as pd

Value = TypeVar("Value")


@dataclass(frozen=True, repr=False)
class Result(Generic[Value]):
    """Result of a command: `value` as it is, and the tables and sentences that the command prints, in their order."""

    value: Value
    parts: tuple[Table | str, ...]

    @property
    def tables(self) -> tuple[Table, ...]:
        return tuple(part for part in self.parts if isinstance(part, Table))

    @property
    def lines(self) -> tuple[str, ...]:
        """The sentences."""
        return tuple(part for part in self.parts if isinstance(part, str))

    @property
    def frame(self) -> "pd.DataFrame":
        """The first table as a data frame."""
        return self.tables[0].data

    def __repr__(self) -> str:
        """The tables and the sentences as the command prints them."""
        from ctxbench.table.terminal import as_text  # rich, which a value does not need

        return as_text(self.parts)

    def _repr_html_(self) -> str:
        """The same in a notebook."""
        from ctxbench.table.html import render_html  # jinja2, as above

        return "".join(
            render_html(part, f"table{number}") if isinstance(part, Table) else f"<p>{escape(part)}</p>"
            for number, part in enumerate(self.parts)
        )


NOTHING: Result[None] = Result(None, ())


class Stopped(KeyboardInterrupt):
    """Ctrl-C where something was known by then: its sentence says how much, and what goes on from there.

    It is the `result`, or the runs in the folder `path`.
    """

    def __init__(self, sentence: str, result: Result[Any] = NOTHING, path: Path | None = None) -> None:
        super().__init__(sentence)
        self.result, self.path = result, path
