"""Output of a fresh process on a case, for a person."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from ctxbench.base import number

# What a column holds that a person is to see: words, or numbers and how they were obtained.
CellKind = number.NumberOrigin | Literal["label", "text"]


@dataclass(frozen=True, slots=True)
class Shown:
    """Output to show next: a text, or rows below their headings, each with what its column holds.

    `value` is the number that the text says.
    """

    text: str = ""
    columns: Mapping[str, CellKind] = field(default_factory=dict)
    rows: Sequence[Sequence[str]] = ()
    value: number.Number | None = None
