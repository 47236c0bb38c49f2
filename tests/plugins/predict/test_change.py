"""Change of the predicted time of a module that changes, and what of the errors of both sides is left."""

import math

import pytest
from torch import Tensor, nn
from wrapped import Wrapped, meta

from ctxbench.base.call_sites import CallSite
from ctxbench.base.mode import Mode
from ctxbench.base.number import CONFIDENCE_SDS, HOST_OWN_SD, ratio
from ctxbench.plugins.predict import change
from ctxbench.plugins.predict.change import change_of
from ctxbench.plugins.predict.operators import Operator, operators_of
from ctxbench.plugins.predict.passes import time_of, training_error
from ctxbench.plugins.predict.rates import calibration
from ctxbench.plugins.predict.sheet import sheet
from ctxbench.plugins.predict.work import Work


def operators(sums: int, size: int, mode: Mode = "infer") -> list[Operator]:
    """Of a convolution, and so many sums."""

    def forward(x: Tensor, first: nn.Module) -> Tensor:
        y: Tensor = first(x)
        for _ in range(sums):
            y = y + x
        return y

    return operators_of(Wrapped(forward, nn.Conv2d(64, 64, 1)).to("meta"), meta(8, 64, size, size), mode=mode)


def small(name: str) -> Operator:
    return Operator(name, "forward", CallSite(), (Work("elementwise", 4096),))


def test_the_host_s_error_for_what_both_start_cancels() -> None:
    before = [small("mul")] * 20
    now = before + [small("add")] * 8
    on = sheet("t4").model_copy(update={"host_us": 1e4})  # so slow a host that it decides whatever the kernels take
    found = change_of(time_of(before, on), time_of(now, on), (before, now))
    error = CONFIDENCE_SDS * HOST_OWN_SD * math.hypot(20 / 28 - 1, 8 / 28)
    assert found.value == pytest.approx(1.4)
    assert found.ends == pytest.approx((1.4 * math.exp(-error), 1.4 * math.exp(error)))


@pytest.mark.parametrize("size", [8, 256])
def test_an_addition_has_a_narrower_band_than_the_ratio_of_two_other_passes(size: int) -> None:
    before, now = operators(2, size), operators(4, size)
    first, second = (time_of(each, sheet("t4")) for each in (before, now))
    found = change_of(first, second, (before, now))
    apart = ratio(second.time, first.time)
    assert found.value == apart.value > 1
    assert apart.low < found.low < found.value < found.high < apart.high


def test_what_training_adds_to_a_change_is_of_the_dtype(monkeypatch: pytest.MonkeyPatch) -> None:
    before, now = operators(2, 64, "train"), operators(4, 64, "train")
    first, second = (time_of(each, sheet("t4"), "float16") for each in (before, now))
    narrow = change_of(first, second, (before, now))
    monkeypatch.setattr(change, "training_error", {"float16": 1.0}.__getitem__)
    wide = change_of(first, second, (before, now))
    assert wide.low < narrow.low < narrow.high < wide.high
    errors = calibration().errors
    known = [training_error(dtype) for dtype in ("float16", "autocast-bfloat16", "tf32", "float32")]
    assert known == [errors["training, 16 bits"]] * 2 + [errors["training"]] * 2


def test_the_same_operators_take_exactly_as_long() -> None:
    before = operators(2, 16)
    time = time_of(before, sheet("t4"))
    assert change_of(time, time, (before, before)).ends == (1.0, 1.0)


def test_of_a_pass_without_kernels_there_is_no_change() -> None:
    before = operators(2, 16)
    empty = time_of([], sheet("t4"))
    assert math.isnan(change_of(empty, time_of(before, sheet("t4")), ([], before)).value)
