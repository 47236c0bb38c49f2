"""Published records of trained networks, as their sources print them, and the groups of them that are twins."""

from collections import defaultdict
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, Field

from ctxbench.base import disk
from ctxbench.model.case import STRICT
from ctxbench.model.published import FigureText, Printed

# The body without a block.
PLAIN = "plain"
# The figure of each record that tables of twins are about.
ACCURACY = "accuracy"
NAMES = ("mmsegmentation", "timm")

# A body with its data and test size.
Setting = tuple[str, str]


class _Strict(BaseModel):
    model_config = STRICT


class TrainedNetwork(_Strict):
    """A trained network: the `block` in its `body`, trained by a `recipe`; `data` is the data set with the size.

    The block is a key of the registry, PLAIN, or a name that the registry does not have. `printed` holds accuracy in
    percent, and costs by their name with the unit. `source` is the file and the line, or the row of a CSV file.
    """

    block: str
    body: str
    data: str
    recipe: str
    source: str
    printed: Annotated[dict[str, FigureText], Field(min_length=1)]

    @property
    def setting(self) -> Setting:
        return self.body, self.data

    def number(self, figure: str) -> float:
        """A printed figure. KeyError if it is not printed."""
        return float(Printed.parse(self.printed[figure]).value)


class Records(_Strict):
    """The records of one source by name, with the keys of a table in `published/`.

    `repeats` says which of them should be equal but for the noise of training: those of a block in one setting by
    several recipes, or, where these are too few, those of a block in all settings.
    """

    title: str
    authors: str
    venue: str
    year: int
    link: str
    place: str
    seen: Literal["read"]
    device: str
    software: str
    measure: str
    repeats: Literal["recipe", "setting"]
    rows: Annotated[dict[str, TrainedNetwork], Field(min_length=1)]

    @property
    def twins(self) -> list[Mapping[str, float]]:
        """The accuracy of each block by group of twins; a group of one is none."""
        return [group for groups in self.by_setting().values() for group in groups]

    def by_setting(self, figure: str = ACCURACY) -> dict[Setting, list[Mapping[str, float]]]:
        """A figure of each block by group of twins, the groups of one setting together."""
        groups: dict[tuple[Setting, str], dict[str, float]] = defaultdict(dict)
        for record in self.rows.values():
            if figure in record.printed:
                groups[record.setting, record.recipe][record.block] = record.number(figure)
        found: dict[Setting, list[Mapping[str, float]]] = defaultdict(list)
        for (setting, _), group in groups.items():
            if len(group) > 1:
                found[setting].append(group)
        return found


@cache
def records(name: str) -> Records:
    content = disk.read_toml(Path(str(files(__package__) / f"{name}.toml")))
    return Records.model_validate(content)
