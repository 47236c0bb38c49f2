"""Text for a person's terminal: none of a module or of a run folder commands the terminal that it is printed on."""

import sys
import unicodedata
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

# Control, format (which turn the direction of a text) and surrogate characters; ends of lines and of paragraphs.
_OBEYED = ("Cc", "Cf", "Cs", "Zl", "Zp")


def safe(text: str) -> str:
    """The text with each character that a terminal would obey escaped, but for line feeds and tabs."""
    if text.isprintable():
        return text
    return "".join(
        character.encode("unicode_escape").decode()
        if unicodedata.category(character) in _OBEYED and character not in "\n\t"
        else character
        for character in text
    )


def say(text: str, *, stderr: bool = False) -> None:
    """Print a line."""
    print(safe(text), file=sys.stderr if stderr else sys.stdout, flush=stderr)


def console(*, stderr: bool = False, width: int | None = None) -> "Console":
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

    return Safe(stderr=stderr, width=width, markup=False, emoji=False)
