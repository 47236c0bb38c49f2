"""Kernels by name are told apart as predicted ones are, and the factor of a class is the median by time."""

import math
import sys
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

import fit_hopper
from prediction_model import use

from ctxbench.plugins.predict.rates import calibration


@pytest.mark.parametrize(
    ("operator", "kernel", "kind"),
    [
        ("aten::convolution_backward", "void wgrad_alg0_engine<float, 128>", "convolution, weight gradient"),
        ("aten::convolution_backward", "void cudnn::detail::dgrad_engine<float>", "convolution, input gradient"),
        ("aten::convolution_backward", "void at::native::reduce_kernel<512>", "bias"),
        ("aten::convolution_backward", "conv_depthwise2d_grad_weight_kernel<float>", "depthwise, weight gradient"),
        ("aten::_conv_depthwise2d", "conv_depthwise2d_forward_kernel_generic<float>", "depthwise"),
        ("aten::cudnn_batch_norm", "void cudnn::bn_fw_inf_1C11_kernel_NCHW", "batch norm"),
        ("aten::mul", "void at::native::elementwise_kernel<128, 2>", ""),
    ],
)
def test_a_kernel_is_of_its_operators_class(operator: str, kernel: str, kind: str) -> None:
    assert fit_hopper.kind_of(operator, kernel) == kind


def test_a_class_has_the_median_by_time_and_needs_three_blocks_that_agree() -> None:
    name = "convolution|float32"
    rows = [("a", name, 10.0, math.log(1.0)), ("b", name, 80.0, math.log(2.0)), ("c", name, 10.0, math.log(3.0))]
    columns = ["block", "class", "us", "log"]
    (found,) = fit_hopper.fitted(pd.DataFrame(rows, columns=columns))
    assert (found["blocks"], found["cases"], found["factor"]) == (3, 3, "2")
    assert not [*fit_hopper.fitted(pd.DataFrame(rows[:2], columns=columns))]
    apart = [(block, kind, us, 4 * log) for block, kind, us, log in rows]
    assert not [*fit_hopper.fitted(pd.DataFrame(apart, columns=columns))]


def test_a_block_of_half_a_shows_the_weight_gradient_of_float32() -> None:
    shipped = calibration()
    use(replace(shipped, hopper={}))
    frame = fit_hopper.kernels_of_half_a()
    assert not [name for name in frame["module"].unique() if not fit_hopper.in_half_a(name)]
    own = frame[(frame["module"] == "external") & (frame["dtype"] == "float32") & (frame["mode"] == "train")]
    found = {kind: log for _, kind, _, log in fit_hopper.told(own, fit_hopper.recorded)}
    use(shipped)
    assert 1.5 < math.exp(found["convolution, weight gradient|float32"]) < 4
