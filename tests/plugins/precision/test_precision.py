"""The error against float64: worked by hand for one layer, exact where it must be, and what has none says why."""

from pathlib import Path
from typing import Any

import pytest
import torch
from field_cases import FEW
from torch import Tensor, nn

from ctxbench import registry
from ctxbench.base.mode import MODES, Mode
from ctxbench.model.case import Case, Measure
from ctxbench.model.conditions import Shape
from ctxbench.model.messages import Values
from ctxbench.model.metric import TimedPass
from ctxbench.plugins.precision import metric as precision
from ctxbench.worker.measurement import CaseMeasurement

pytestmark = pytest.mark.slow  # many small cases, which take seconds together

NORMED = Path(__file__).parents[2] / "fixtures" / "normed.py"
SMALL: Shape = (2, 64, 8, 6)


def measured(module: str, mode: Mode = "infer", dtype: str = "float32", **hparams: Any) -> dict[str, Any]:
    """Values that the metric reports of a case; the case's weights are as before."""
    found: dict[str, Any] = {}

    def take(message: object) -> None:
        if isinstance(message, Values):
            found.update(message.values)

    case = Case(module, registry.get(module).reference, hparams, SMALL, dtype=dtype, threads=1)
    measurement = CaseMeasurement(case, Measure(), take)
    measurement.load()
    before = {name: each.clone() for name, each in measurement.model.state_dict().items()}
    precision.time(measurement, mode, TimedPass(lambda: measurement.x, 0.0))
    for name, each in measurement.model.state_dict().items():
        assert torch.equal(each, before[name]), name
    return found


def test_errors_worked_by_hand() -> None:
    assert precision.relative_error(torch.tensor([3.0, 4.5]), torch.tensor([3.0, 4.0])) == pytest.approx(0.1)
    assert precision.relative_error(torch.zeros(2), torch.zeros(2)) == 0


@pytest.mark.parametrize("mode", ["infer", "train"])
def test_float64_has_no_error_and_fewer_bits_have_a_larger_one(mode: Mode) -> None:
    assert measured("sa", mode, "float64") == {f"error_{mode}": 0}
    errors = [measured("sa", mode, dtype)[f"error_{mode}"] for dtype in ("float32", "float16", "bfloat16")]
    assert 0 < errors[0] < 1e-5 < errors[1] < 0.5 * errors[2] < 0.1
    assert 0 < measured("sa", mode, "autocast-bfloat16")[f"error_{mode}"] < 2 * errors[2]


def test_the_error_of_one_rounded_weight() -> None:
    model = nn.Linear(1, 1, bias=False).double()
    nn.init.constant_(model.weight, 1 / 3)
    x = torch.ones(1, 1, dtype=torch.float64)
    exact: Tensor = precision._result(model, x, "infer")
    rounded = precision._result(model.to(torch.bfloat16), x.to(torch.bfloat16), "infer")
    third = torch.tensor(1 / 3).bfloat16().item()
    assert precision.relative_error(rounded, exact) == pytest.approx(abs(third * 3 - 1), rel=1e-6)


@pytest.mark.parametrize("module", ["linear", "criss_cross", "gc"])
def test_a_branch_that_starts_switched_off_counts(module: str) -> None:
    """Keep the branch on: the output would else be the input, and float32 would be exact."""
    assert measured(module)["error_infer"] > 0


def test_bases_drawn_in_each_forward_have_no_error_and_fixed_ones_have() -> None:
    assert measured("ham_cd", rank=4) == {"error_reason": "the module draws random numbers in every forward pass"}
    assert 0 < measured("ham_cd", rank=4, init="fixed")["error_infer"] < 1e-3


def test_too_little_memory_for_float64_is_a_reason() -> None:
    case = Case("sa", registry.get("sa").reference, {}, SMALL, threads=1)
    found: dict[str, Any] = {}
    measurement = CaseMeasurement(case, Measure(), lambda message: found.update(getattr(message, "values", {})))
    measurement.load()
    measurement.predicted_bytes = 2**60
    precision.time(measurement, "infer", TimedPass(lambda: measurement.x, 0.0))
    assert found == {"error_reason": "the same in float64 takes 2147483648.0 GiB, more than is free"}


# With parameters that are drawn, their offsets leave the map, where all is zero.
NEAR: dict[str, dict[str, Any]] = {key: {"offset_scale": 0.1} for key in ("dcnv3", "dcnv4")}


@pytest.mark.parametrize("module", registry.names())
def test_every_module_has_both_errors(module: str) -> None:
    hparams = {"init": "fixed", "rank": 4} if module.startswith("ham") else (FEW | NEAR).get(module, {})
    for mode in MODES:
        assert 0 < measured(module, mode, **hparams)[f"error_{mode}"] < 1e-2


@pytest.mark.parametrize(("name", "told"), [("Normed", 1), ("HandedOn", 0)])
def test_a_gradient_whose_float64_is_as_wrong_has_a_note(name: str, told: int) -> None:
    """PyTorch's own float64 is no truth where its batch norm reads a gradient in a wrong order."""
    codes: list[str] = []

    def take(message: object) -> None:
        codes.extend(note.code for note in message.notes) if isinstance(message, Values) else None

    case = Case(name, f"{NORMED}:{name}", {}, (1, 8, 5, 4), threads=1)
    CaseMeasurement(case, Measure(), take).run(["precision"])
    assert codes.count("misread_gradient") == told
