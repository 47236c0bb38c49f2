"""The first number that is not finite, on lines where one was planted, at the scale that float64 expects; losses."""

import inspect
import math
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from wrapped import Wrapped

from ctxbench import registry
from ctxbench.model.case import Case, Measure
from ctxbench.model.messages import Values
from ctxbench.model.record import columns
from ctxbench.results.run_folder import RunFolder
from ctxbench.worker.measurement import CaseMeasurement
from ctxbench_science.stability import metric
from ctxbench_science.stability.stability import SCALES, STEPS, Overflow, losses, overflows

pytestmark = pytest.mark.slow  # many small passes, which take seconds together

HALF, BFLOAT, FULL = torch.float16, torch.bfloat16, torch.float32
X = torch.randn(1, 4, 8, 8, generator=torch.Generator().manual_seed(0))


def no_maximum(x: Tensor) -> Tensor:
    scores = x.flatten(2)
    weights = scores.exp()  # planted
    return (weights / weights.sum(2, keepdim=True)).view_as(x)


def no_maximum_in_place(x: Tensor) -> Tensor:
    scores = x * 1
    scores.exp_()  # planted
    return scores / (1 + scores)


def sum_of_squares(x: Tensor) -> Tensor:
    small = (x / 64).square()
    return x / (1 + small.sum((2, 3), keepdim=True))  # planted


def root(x: Tensor) -> Tensor:
    squares = (x / 256).square() * (x > 0)
    return squares.sqrt()  # planted


def exponent(x: Tensor) -> float:
    return x.exp().max().item()


def planted(function: Callable[[Tensor], Tensor]) -> str:
    """The line of a function that says so."""
    lines, first = inspect.getsourcelines(function)
    (line,) = [number for number, line in enumerate(lines, first) if line.endswith("# planted\n")]
    return f"test_stability.py:{line}"


@pytest.mark.parametrize("dtype", [HALF, BFLOAT, FULL])
@pytest.mark.parametrize(
    ("function", "operator", "largest"),
    [
        (no_maximum, "exp", exponent),
        (no_maximum_in_place, "exp_", exponent),
        (sum_of_squares, "sum", lambda x: (x / 64).square().sum((2, 3)).max().item()),
    ],
)
def test_an_overflow_is_told_with_its_line_at_the_scale_that_float64_expects(
    function: Callable[[Tensor], Tensor], operator: str, largest: Callable[[Tensor], float], dtype: torch.dtype
) -> None:
    beyond = [scale for scale in SCALES if largest(scale * X.double()) > torch.finfo(dtype).max]
    expected = Overflow(operator, f"at {planted(function)}", "infinity", beyond[0]) if beyond else None
    assert overflows(Wrapped(function), X, dtype)[0] == expected
    assert beyond or operator == "sum"


def test_a_gradient_that_is_not_finite_is_told_apart_from_the_forward_pass() -> None:
    for dtype in (HALF, BFLOAT, FULL):
        found = Overflow("div", f"in the gradient of {planted(root)}", "infinity", 1)
        assert overflows(Wrapped(root), X, dtype) == (None, found)
    assert overflows(Wrapped(lambda x: (x * 30000).sum(2, keepdim=True) + x), X, HALF)[1] is None  # not tried


def test_running_statistics_count() -> None:
    model = nn.BatchNorm2d(4)
    forward, gradient = overflows(model, X, HALF)
    beyond = [scale for scale in SCALES if 0.1 * (scale * X.double()).var((0, 2, 3)).max() > torch.finfo(HALF).max]
    assert forward is not None
    assert (forward.operator, forward.scale, gradient) == ("native_batch_norm", beyond[0], None)
    assert overflows(model, X, FULL, HALF) == (None, None)  # under autocast they are float32
    assert torch.equal(model.state_dict()["running_var"], torch.ones(4))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.masked_fill(torch.eye(8).bool(), -math.inf).softmax(-1),
        lambda x: (x + (1 - torch.eye(8, dtype=x.dtype)).log()).softmax(-1),
        lambda x: torch.relu(x).sqrt(),  # an infinite gradient, which relu replaces by 0
        lambda x: torch.relu(x) ** torch.ones(1, dtype=x.dtype, requires_grad=True),  # log(0) in its gradient
    ],
)
def test_what_is_infinite_on_purpose_does_not_count(function: Callable[[Tensor], Tensor]) -> None:
    assert overflows(Wrapped(function), X, HALF) == (None, None)


def test_what_is_infinite_on_purpose_counts_where_it_spoils_the_results() -> None:
    def all_masked(x: Tensor) -> Tensor:
        scores = x.masked_fill(torch.ones(8, 8).bool(), -math.inf)
        return scores.softmax(-1)  # planted

    found = Overflow("_softmax", f"at {planted(all_masked)}", "NaN", 1)
    assert overflows(Wrapped(all_masked), X, HALF) == (found, None)
    heavy = Factor()
    nn.init.constant_(heavy.factor, 1e5)
    assert overflows(heavy, X, HALF) == (Overflow("a weight", "of the module", "infinity", 1), None)


@pytest.mark.parametrize("dtype", [HALF, BFLOAT])
def test_stable_blocks(dtype: torch.dtype) -> None:
    x = torch.randn(1, 64, 8, 8, generator=torch.Generator().manual_seed(0))
    assert overflows(registry.get("identity").build(64, {}), x, dtype) == (None, None)
    torch.manual_seed(0)
    assert overflows(registry.get("mhsa").build(64, {}), x, dtype)[0] is None


def test_autocast_has_the_casts_of_cuda_where_a_module_does_not_switch_it_off() -> None:
    def product(x: Tensor, device: str = "") -> Tensor:
        """Overflows in float16; autocast is switched off for it on this device."""
        with torch.autocast(device, enabled=False) if device else nullcontext():
            return torch.matmul(x, 1000 * torch.ones(8, 8)) / 8000

    forward, _ = overflows(Wrapped(product), X, FULL, HALF)
    beyond = [scale for scale in SCALES if (scale * 1000 * X.double().sum(3)).abs().max() > torch.finfo(HALF).max]
    assert forward is not None
    assert (forward.operator, forward.scale) == ("mm", beyond[0])
    for device in ("cpu", "cuda"):
        assert overflows(Wrapped(partial(product, device=device)), X, FULL, HALF) == (None, None)
    assert overflows(Wrapped(no_maximum), X, FULL, HALF) == overflows(Wrapped(no_maximum), X, FULL)  # exp is in float32
    assert not torch.is_autocast_enabled("cpu")
    assert not torch.is_autocast_enabled("cuda")


def test_losses_of_a_dtype_beside_those_of_float32() -> None:
    exact = losses(Factor(), X, FULL)
    assert losses(Factor(), X, FULL) == exact
    assert len(exact) == STEPS
    assert exact[-1] < 0.8 * exact[0]
    near = losses(Factor(), X, BFLOAT)
    assert near != exact
    assert near == pytest.approx(exact, rel=0.02)
    # what the scaled loss leaves out are no updates: the others are as in float32
    scaled = losses(Factor(), 8 * X, HALF)
    assert 0 < len(scaled) < STEPS
    assert scaled == pytest.approx(losses(Factor(), 8 * X, FULL)[: len(scaled)], rel=0.02)


def test_losses_end_with_one_that_is_not_finite() -> None:
    too_large = losses(Wrapped(lambda x: x * 60000), X, HALF)
    assert len(too_large) == 1
    assert not math.isfinite(too_large[0])


class NotFinite(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return gradients[0] * (math.nan if gradients[0].dtype == HALF else 1)


class Factor(nn.Module):
    """A factor, whose gradient is a sum over all numbers."""

    def __init__(self, channels: int = 4) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.full((1, channels, 1, 1), 3.0))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.factor


class Lost(Factor):
    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = NotFinite.apply(super().forward(x))  # type: ignore[no-untyped-call]  # PyTorch's is not typed
        return out


class FullOnly(Factor):
    def forward(self, x: Tensor) -> Tensor:
        if x.dtype == HALF:
            raise NotImplementedError("'block' not implemented for 'Half'")
        return super().forward(x)


def measured(reference: str, dtype: str = "float16", **changed: Any) -> dict[str, Any]:
    """The columns that the metric fills of a case."""
    found: dict[str, Any] = {}

    def take(message: object) -> None:
        if isinstance(message, Values):
            found.update(message.values)

    entry = registry.get(reference)
    case = Case(entry.key, entry.reference, {}, (1, 4, 8, 8), dtype=dtype, threads=1)
    measurement = CaseMeasurement(replace(case, **changed), Measure(), take)
    measurement.load()
    metric.measure(measurement, "infer")
    metric.measure(measurement, "train")
    return found


def test_a_row() -> None:
    row = measured("se", shape=(1, 64, 8, 8))
    assert (row["finite_forward"], row["overflow_forward"]) == (4096, "")
    assert 0 < row["loss_gap"] < 0.01
    assert row["loss_left_out"] == 0
    assert 0 < measured("ema", shape=(1, 64, 8, 8))["loss_gap"] < 0.01  # its passes update its bases
    exact = measured("se", "float32", shape=(1, 64, 8, 8))
    assert exact == {
        "finite_forward": 4096, "overflow_forward": "", "finite_gradient": 4096, "overflow_gradient": "",
        "loss_gap": 0, "loss_left_out": 0,
    }  # fmt: skip


def test_a_row_without_numbers_says_why() -> None:
    lost = measured(f"{__file__}:Lost")
    assert (lost["finite_forward"], lost["finite_gradient"]) == (4096, 0)
    assert lost["overflow_gradient"].startswith("mul in the gradient")
    assert lost["loss_reason"] == "in float16 no step has finite gradients"
    missing = measured(f"{__file__}:FullOnly")
    assert set(missing) == {"finite_reason", "loss_reason"}
    assert all("not implemented for 'Half'" in reason for reason in missing.values())
    assert measured("ham_cd", hparams={"rank": 4}, shape=(1, 64, 8, 8))["loss_reason"] == (
        "the module draws random numbers in every forward pass"
    )
    eager = "it is measured in eager execution only"
    assert measured("sa", execution="compile") == {"finite_reason": eager, "loss_reason": eager}
    large = "the input has more than 1,048,576 elements, which takes minutes on a CPU"
    assert measured("sa", shape=(1, 16, 512, 256)) == {"finite_reason": large, "loss_reason": large}


def test_the_sentence_of_a_row() -> None:
    empty = dict.fromkeys(column.name for column in metric.METRIC.columns) | {"dtype": "float16"}
    overflow = {"finite_forward": 4, "overflow_forward": "exp at block.py:9 gives infinity at scale 16"}
    whole = {**overflow, "finite_gradient": 4, "overflow_gradient": "", "loss_gap": 0.0123, "loss_left_out": 3}
    assert metric.sentence(empty | whole) == (
        "in float16: forward pass finite up to scale 4 (exp at block.py:9 gives infinity at scale 16); gradients "
        "finite as far; loss of a short training within 1.2 % of float32's, 3 steps left out."
    )
    sooner = {"finite_gradient": 0, "overflow_gradient": "mul in the gradient of block.py:9 gives NaN at scale 1"}
    assert "; gradients finite up to scale 0 (mul in the gradient of block.py:9 gives NaN at scale 1); loss" in (
        metric.sentence(empty | whole | sooner)
    )
    assert metric.sentence(empty | {"finite_reason": "none", "loss_reason": "none"}) == "in float16: not known: none."
    assert metric.sentence(empty) == ""


def test_a_run_from_before_the_metric_is_read() -> None:
    rows = RunFolder.open(Path(__file__).parents[3] / "results" / "deploy-cpu").rows()
    assert {metric.sentence(row) for row in rows} == {""}


@pytest.mark.plugin("verify")
def test_verify_deep_has_a_line_for_each_dtype(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from ctxbench.plugins.verify.command import _print_deep

    empty = dict.fromkeys(columns()) | {"message": "killed"}

    def run(suite: str, *, metrics: list[str], dtype: tuple[str, ...] = ("float32",), **given: Any) -> SimpleNamespace:
        known = {"finite_forward": 4, "overflow_forward": "", "finite_gradient": 4, "overflow_gradient": ""}
        rows = [{**empty, **(known if each == "bfloat16" else {}), "dtype": each} for each in dtype]
        return SimpleNamespace(folder=SimpleNamespace(rows=lambda: rows))

    monkeypatch.setattr("ctxbench.run", run)
    _print_deep("block.py:Mine", 64, {})
    assert capsys.readouterr().out.splitlines() == [
        "Mine has no recall in float32: killed",
        "Mine in bfloat16: forward pass finite up to scale 4; gradients finite up to scale 4.",
        "Mine has no stability in float16: killed",
        "Mine has no stability in autocast-float16: killed",
    ]
