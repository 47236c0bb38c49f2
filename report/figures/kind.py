"""Figure. Plugins declare theirs as `FIGURES`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ctxbench.model.suite_file import Figure

from ..panels import Panel
from .layout import FigureSize
from .style import Drawing


@dataclass(frozen=True)
class FigureKind:
    """One figure: its name for `--figures`, a heading, what it needs, whether a panel has it, and how to draw it.

    A `curve` has tables of its numbers, too. Drawn are those that the suite names and those `always` drawn; where it
    names none, all but those that have to be `asked` for. `order` sorts all.
    """

    name: str
    title: str
    needs: str
    available: Callable[[Panel], Any]
    draw: Callable[[Sequence[Panel], FigureSize], Drawing]
    curve: Figure | None = None
    drawn: Literal["usually", "always", "asked"] = "usually"
    order: int = 0

    def is_in(self, panels: Sequence[Panel]) -> bool:
        """Return whether any of the panels has what it needs."""
        return any(map(self.available, panels))
