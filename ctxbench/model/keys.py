"""Types of keys that the files of suites and of published tables share."""

from typing import Annotated

from pydantic import AfterValidator, BeforeValidator

from ctxbench.model import metrics
from ctxbench.model.conditions import Shape, parse_shape
from ctxbench.model.metric import Unit

Scalar = bool | int | float | str
# Of a hyper-parameter: one value, or a list of several, each of which may be a list itself.
_One = Scalar | None
HparamValues = _One | list[_One | list[_One | list[_One]]]
ShapeKey = Annotated[Shape, BeforeValidator(parse_shape)]
QuantityKey = Annotated[str, AfterValidator(lambda key: metrics.quantity(key).key)]
UnitText = Annotated[str, AfterValidator(lambda text: Unit.parse(text) and text)]
