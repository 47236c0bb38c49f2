"""The gradients of a module against differences of its values: wrong backwards that are planted, and right ones."""

import functools
from collections.abc import Callable
from typing import Any

import broken_modules as broken
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import ctxbench
from ctxbench import register, registry
from ctxbench.base.errors import UsageError
from ctxbench.modules import area
from ctxbench.plugins.verify.checks import CHECKS, run_checks
from ctxbench.plugins.verify.contract import CheckResult
from ctxbench.plugins.verify.subject import Subject
from ctxbench.plugins.verify.verify import verify


def check(cls: Any, channels: int = 8, **hparams: Any) -> CheckResult:
    entry = registry.get(cls) if isinstance(cls, str) else registry.of_class(cls)
    subject = Subject(entry, entry.load() if isinstance(cls, str) else cls, channels, hparams, (11, 9))
    (found,) = run_checks(subject, [each for each in CHECKS if each.name == "exact gradients"])
    return found


class Scale(torch.autograd.Function):
    """x * w, whose backward multiplies the two gradients by `wrong`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, wrong: tuple[float, float]) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.wrong = wrong
        return x * weight

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        (gradient,) = gradients
        first, second = ctx.wrong
        to_x = first * gradient * weight if first else None
        return to_x, second * (gradient * x).sum((0, 2, 3), keepdim=True), None


def scaled(first: float, second: float) -> type[nn.Module]:
    """`Base` with a factor of each channel in front, whose own backward is off by these factors."""

    class Scaled(broken.Base):
        def __init__(self, channels: int) -> None:
            super().__init__(channels)
            self.factor = nn.Parameter(torch.ones(1, channels, 1, 1))

        def forward(self, x: Tensor) -> Tensor:
            scaled = Scale.apply(x, self.factor, (first, second))  # type: ignore[no-untyped-call]  # PyTorch's
            y: Tensor = super().forward(scaled)
            return y + 0.5 * x

    return Scaled


@pytest.mark.parametrize(
    ("first", "second", "leaf"),
    [
        pytest.param(0.9, 1.0, "the input", id="off by a factor"),
        pytest.param(-1.0, 1.0, "the input", id="a sign"),
        pytest.param(1.0, 0.9, "factor", id="of one parameter"),
        pytest.param(0.0, 1.0, "the input", id="a forgotten path"),
    ],
)
def test_a_wrong_backward_is_told_with_what_it_is_the_gradient_of(first: float, second: float, leaf: str) -> None:
    found = check(scaled(first, second))
    assert found.outcome == "failed"
    assert found.fact.startswith(f"of one image in train, the gradient of {leaf} is off by ")
    assert found.fact.endswith(": of Scale, whose backward is written by hand")
    assert "written by hand" in found.hint


def test_a_right_backward_of_its_own_passes() -> None:
    assert check(scaled(1.0, 1.0)).outcome == "passed"


Kinked = broken.with_forward(lambda base, x: base(x).abs() + functional.relu(x) + functional.max_pool2d(x, 3, 1, 1))
HalfDetached = broken.with_forward(lambda base, x: base(x) * x.detach().sigmoid())
Shifted = broken.with_forward(lambda base, x: (base(x) - x.detach()) + x)


def test_a_kink_is_no_fault() -> None:
    found = check(Kinked)
    assert (found.outcome, found.mark) == ("passed", "")
    assert found.fact == "the gradients of the input and of all parameters are those of central differences"


def test_a_gradient_that_is_stopped_is_declared() -> None:
    found = check(HalfDetached)
    assert found.outcome == "failed"
    assert "right with what is computed without a gradient held constant" in found.fact
    assert "stops_gradient=True" in found.hint
    declared = register("half_detached", title="Half", listed=False, stops_gradient=True)(HalfDetached)
    found = check(declared)
    assert (found.outcome, found.fact.partition(":")[0]) == ("passed", "as declared, a part has no gradient")


def test_what_is_declared_to_stop_and_does_not_is_told() -> None:
    class Whole(broken.Base):
        pass

    found = check(register("whole_gradient", title="Whole", listed=False, stops_gradient=True)(Whole))
    assert (found.outcome, found.hint) == ("failed", "correct stops_gradient= in @register")


def test_a_wrong_backward_beside_a_declared_stop_is_told() -> None:
    class Both(scaled(0.9, 1.0)):  # type: ignore[misc]  # a class of a function
        def forward(self, x: Tensor) -> Tensor:
            y: Tensor = super().forward(x) * x.detach().sigmoid()
            return y

    declared = register("both_gradients", title="Both", listed=False, stops_gradient=True)(Both)
    assert ": of Scale, whose backward is written by hand" in check(declared).fact


def normed(after: Callable[[Tensor], Tensor]) -> type[nn.Module]:
    class Normed(broken.Base):
        def __init__(self, channels: int) -> None:
            super().__init__(channels)
            self.norm = nn.BatchNorm2d(channels)

        def forward(self, x: Tensor) -> Tensor:
            return after(self.norm(super().forward(x)))

    return Normed


def tokens(y: Tensor) -> Tensor:
    """Layer normalisation of the tokens of a map, as a map."""
    rows = functional.layer_norm(y.flatten(2).transpose(1, 2), y.shape[1:2])
    return rows.transpose(1, 2).reshape(y.shape)


def test_the_operator_whose_backward_reads_a_wrong_order_is_named() -> None:
    found = check(normed(tokens))
    assert found.outcome == "failed"
    assert found.fact.startswith("of one image in train, the gradient of ")
    assert "native_batch_norm_backward of torch" in found.fact
    assert "y.flatten(1).view_as(y)" in found.hint
    assert check(normed(lambda y: tokens(y.flatten(1).view_as(y)))).outcome == "passed"


def test_an_order_that_only_arrives_from_outside_breaks_no_contract_and_is_told() -> None:
    found = check(normed(lambda y: y))
    assert (found.outcome, found.mark) == ("passed", "")  # an order from outside marks no row
    assert "a gradient that arrives positions first" in found.fact
    assert "native_batch_norm_backward of torch" in found.fact
    assert check("area", 32).mark == ""


def test_area_as_it_was_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(area, "gradient_in_order", lambda y: y)
    found = check("area", 16, head_width=8, area=3, kernel_size=5)
    assert found.outcome == "failed"
    assert "native_batch_norm_backward" in found.fact


def test_a_module_of_float32_alone_is_not_judged() -> None:
    assert check(broken.Float32Only).outcome == "not applicable"


@pytest.mark.processes
@pytest.mark.usefixtures("shared_server")
def test_a_shape_says_channels_and_size(monkeypatch: pytest.MonkeyPatch) -> None:
    check = functools.partial(verify, compilers=False)  # which take seconds
    monkeypatch.setattr("ctxbench.plugins.verify.function.check_contract", check)
    found = ctxbench.verify("se", shape=(1, 16, 5, 7)).value
    assert "[2, 16, 5, 7] to [2, 16, 5, 7]" in next(each.fact for each in found if each.name == "shape and dtype")
    with pytest.raises(UsageError, match="a shape says the channels and the size: give it alone"):
        ctxbench.verify("se", shape=(1, 16, 5, 7), channels=16)
