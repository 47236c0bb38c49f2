"""The keys of a published table: what a source prints, as printed, and of which block or network it prints it."""

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, BaseModel, Field, model_validator

from ctxbench.base.errors import unknown
from ctxbench.model import metrics
from ctxbench.model.case import STRICT
from ctxbench.model.conditions import Shape
from ctxbench.model.keys import QuantityKey, Scalar, ShapeKey, UnitText
from ctxbench.model.metric import Unit

_PREFIXES: dict[str, int] = {
    **{symbol: 1000**power for power, symbol in enumerate("KMGTP", 1)},
    **{f"{symbol}i": 1024**power for power, symbol in enumerate("KMGTP", 1)},
}
# The longest figure, in characters.
LONGEST = 40
_FIGURE = re.compile(r"\+?([0-9]{1,3}(?:,[0-9]{3})+|[0-9]++)(?:\.([0-9]++))?\s*(\w*)")


@dataclass(frozen=True)
class Printed:
    """A printed number without its unit: `value` with `decimals` digits after the point, and the `suffix` after it."""

    value: Fraction
    decimals: int
    suffix: str = ""

    @classmethod
    def parse(cls, text: str) -> Self:
        """A figure from `10.6M`, `+63.4G`, `1,411` or `7.4 GB`. ValueError for a text of another form."""
        found = _FIGURE.fullmatch(text.strip())
        if not found or len(text) > LONGEST:
            raise ValueError("write the figure as printed, such as '7.4', '10.6M', '804G' or '1,411'")
        whole, places, suffix = found[1].replace(",", ""), found[2] or "", found[3]
        if suffix and suffix.removesuffix("B") not in {*_PREFIXES, ""} and suffix != "ms":
            raise ValueError(
                f"the unit {suffix!r} is unknown; known are B, ms and {', '.join(_PREFIXES)}, with B or not"
            )
        return cls(Fraction(int(whole + places), 10 ** len(places)), len(places), suffix)

    @property
    def step(self) -> Fraction:
        """Unit of the last printed digit."""
        return Fraction(1, 10**self.decimals)

    def factor(self, unit: Unit) -> int:
        """Factor of the unit; a suffix that is not the symbol of the column's unit says it itself."""
        if self.suffix in ("", "ms", unit.symbol):
            return unit.factor
        return _PREFIXES.get(self.suffix.removesuffix("B"), 1)

    def rounds(self, number: Fraction, unit: Unit) -> bool:
        """Return whether a number, in units of one, rounds to this figure."""
        return abs(number / self.factor(unit) - self.value) <= self.step / 2


FigureText = Annotated[str, AfterValidator(lambda text: Printed.parse(text) and text)]


class PublishedKeys(BaseModel):
    """Keys of a table or a row, without its RECOUNT: who recounts it has, and checks, these in a subclass."""

    model_config = STRICT
    RECOUNT: ClassVar[Sequence[str]] = ("counts", "tool")

    @model_validator(mode="before")
    @classmethod
    def _without_recount(cls, content: Any) -> Any:
        left = {*cls.RECOUNT} - cls.model_fields.keys()
        return {key: each for key, each in content.items() if key not in left} if isinstance(content, dict) else content


class PublishedRow(PublishedKeys):
    """Published figures of a `block`, by default of the row's name; in a `network`, whose input `shape` then is.

    With a `network` and no `block` they are of the whole network.

    `notes` say of a figure why it differs or cannot be, below tables.
    """

    block: str = ""
    network: str = ""
    settings: dict[str, Scalar] = {}
    shape: ShapeKey | None = None
    printed: Annotated[dict[QuantityKey, FigureText], Field(min_length=1)]
    notes: dict[QuantityKey, str] = {}

    @model_validator(mode="after")
    def _notes_have_figures(self) -> Self:
        for key in self.notes:
            if key not in self.printed:
                raise unknown("figure of this row", key, self.printed)
        return self


class Published(PublishedKeys):
    """A table as a source prints it; digits stay strings.

    `seen`: whether the source was read, or its figures are recalled from memory. `tool` is the counter that the source
    names for its MACs, as `ctxbench show --as` calls it. `units` hold for figures without a suffix. `notes` are about
    the figures of a quantity in all rows.
    """

    RECOUNT = ("counts", "alternatives", "bounds", "keeps")
    title: str
    authors: str
    venue: str
    year: int
    seen: Literal["read", "recalled"]
    link: str = ""
    place: str = ""
    device: str = ""
    software: str = ""
    tool: str = ""
    shape: ShapeKey | None = None
    units: dict[QuantityKey, UnitText] = {}
    notes: dict[QuantityKey, str] = {}
    rows: Annotated[Mapping[str, PublishedRow], Field(min_length=1)]

    @property
    def source(self) -> str:
        """Source of the figures, in one line."""
        return ", ".join(filter(None, [self.authors, self.title, f"{self.venue} {self.year}", self.place]))

    @property
    def blocks(self) -> set[str]:
        return {row.block for row in self.rows.values() if row.block}

    def shape_of(self, row: str) -> Shape | None:
        return self.rows[row].shape or self.shape

    def unit(self, quantity: str) -> Unit:
        """In which unit the figures of a quantity are that have no suffix."""
        written = self.units.get(quantity)
        return Unit.parse(written) if written else metrics.quantity(quantity).unit

    @model_validator(mode="before")
    @classmethod
    def _blocks_have_names(cls, content: Any) -> Any:
        rows = content.get("rows") if isinstance(content, dict) else None
        if isinstance(rows, dict) and all(isinstance(row, dict) for row in rows.values()):
            own = {name: {} if row.get("network") else {"block": name} for name, row in rows.items()}
            return {**content, "rows": {name: {**own[name], **row} for name, row in rows.items()}}
        return content


def line_of(text: str, keys: tuple[str, ...]) -> int:
    """In which line of a TOML file the last of these keys stands that can be found, each inside the one before."""
    lines, found = text.splitlines(), 0
    for before, key in itertools.pairwise(("", *keys)):
        heads = [i for i, line in enumerate(lines) if line.strip() == f"[[{before}]]"]
        if key.isdigit() and int(key) < len(heads):
            found = heads[int(key)]
            continue
        pattern = re.compile(rf"(?<![\w-])[\"']?{re.escape(key)}[\"']?\s*[\].=]")
        found = next((i for i in range(found, len(lines)) if pattern.search(lines[i])), found)
    return found + 1


def plain_keys(place: tuple[str | int, ...]) -> tuple[str, ...]:
    """The keys on the way to a value, as a validation tells them, without its own words."""
    return tuple(str(part) for part in place if not str(part).startswith(("function-", "list[", "tuple[", "[key]")))
