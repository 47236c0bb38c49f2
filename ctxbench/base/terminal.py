"""Text for a person's terminal: none of a module or of a run folder commands the terminal that it is printed on."""

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ctxbench.base.texts import safe

if TYPE_CHECKING:
    from rich.console import Console

is_verbose = False


def say(text: str, *, stderr: bool = False) -> None:
    """Print a line."""
    print(safe(text), file=sys.stderr if stderr else sys.stdout, flush=stderr)


def detail(text: str) -> None:
    """Print a line on standard error if `ctxbench -v` asked for it."""
    if is_verbose:
        say(text, stderr=True)


def console(*, stderr: bool = False, width: int | None = None, styled: bool = True) -> "Console":
    """A console that obeys neither characters nor markup in the texts that it is given."""
    from rich.console import Console
    from rich.segment import Segment
    from rich.text import Text

    class Safe(Console):
        def render_str(self, text: str, **options: Any) -> Text:
            return super().render_str(safe(text), **options)

        def render(self, renderable: Any, options: Any = None) -> Iterable[Segment]:
            if isinstance(renderable, Text) and safe(renderable.plain) != renderable.plain:
                # Before lines are broken: an escaped character is longer.
                styled = [(safe(c), renderable.get_style_at_offset(self, i)) for i, c in enumerate(renderable.plain)]
                renderable = Text.assemble(*styled)
            for segment in super().render(renderable, options):
                yield segment if segment.control else Segment(safe(segment.text), segment.style)

    return Safe(stderr=stderr, width=width, color_system="auto" if styled else None, markup=False, emoji=False)
