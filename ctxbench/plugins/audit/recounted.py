"""A published table with the keys that say how it is recounted: its closed forms, alternatives and bounds."""

import itertools
from collections.abc import Iterable, Mapping
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, Field, model_validator

from ctxbench.base.errors import unknown
from ctxbench.model import metrics
from ctxbench.model.case import STRICT
from ctxbench.model.conditions import Shape
from ctxbench.model.keys import QuantityKey, Scalar, ShapeKey
from ctxbench.model.published import Published, PublishedRow
from ctxbench.registry.formula import evaluate

# What is counted of a block or network for an audit (`child.py`), and the sizes of the input.
COUNTS = (
    "params", "params_bias", "params_norm", "params_vectors", "params_matrices", "buffers",
    "macs", "macs_matmul", "macs_layers", "macs_norm", "macs_train",
    "memory_train", "memory_infer", "memory_train_2020", "memory_infer_2020",
)  # fmt: skip
SIZES = ("B", "C", "H", "W", "n", "N")


def sizes(shape: Shape) -> dict[str, int]:
    """The sizes of an input [B, C, H, W] by their names in a form: `n = H*W`, `N = B*n`."""
    batch, channels, height, width = shape
    values = (batch, channels, height, width, height * width, batch * height * width)
    return dict(zip(SIZES, values, strict=True))


def _form(text: str, names: Iterable[str]) -> str:
    """A closed form (`ctxbench.registry.formula`) of these names and the sizes. ValueError for anything else."""
    evaluate(text, dict.fromkeys((*names, *SIZES), 1))
    return text


CountForm = Annotated[str, AfterValidator(lambda text: _form(text, COUNTS))]
FigureForm = Annotated[str, AfterValidator(lambda text: _form(text, metrics.quantities()))]
Forms = dict[QuantityKey, CountForm]


class _Strict(BaseModel):
    model_config = STRICT


class RecountedRow(PublishedRow):
    """A row whose `counts` and `tool` take the place of the table's."""

    counts: Forms = Field({})
    tool: str = ""


class Alternative(_Strict):
    """Another configuration of the `rows` (none: of all): each key that is given takes the place of the row's own."""

    about: str
    rows: list[str] = []
    block: str = ""
    network: str | None = None
    settings: dict[str, Scalar] = {}
    shape: ShapeKey | None = None
    counts: Forms = {}


class LeastFigure(_Strict):
    """A figure of the `rows` is no less than the form `least` of the other figures that are printed in its row."""

    quantity: QuantityKey
    least: FigureForm
    why: str
    rows: Annotated[list[str], Field(min_length=1)]


class Keep(_Strict):
    """Two rows that differ in one key alone differ in this quantity as all such rows of their shape do.

    `pairs` are the values that the key has in two such rows; none: any two.
    """

    quantity: QuantityKey
    differing: Literal["network", "block"]
    pairs: list[Annotated[list[str], Field(min_length=2, max_length=2)]] = []
    why: str


class RecountedTable(Published):
    """A published table, and how it is recounted.

    `counts` are closed forms of COUNTS: what the source says that a figure is, where that is not the count itself.
    """

    counts: Forms = Field({})
    rows: Annotated[Mapping[str, RecountedRow], Field(min_length=1)]
    alternatives: dict[str, Alternative] = Field({})
    bounds: list[LeastFigure] = Field([])
    keeps: list[Keep] = Field([])

    def tool_of(self, row: str) -> str:
        """The counter that the source names for a row; "" if it names none."""
        return self.rows[row].tool or self.tool

    @model_validator(mode="after")
    def _rows_are_there(self) -> Self:
        named = [each.rows for each in self.alternatives.values()] + [each.rows for each in self.bounds]
        for row in itertools.chain(*named):
            if row not in self.rows:
                raise unknown("row", row, self.rows)
        return self
