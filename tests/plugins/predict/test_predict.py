"""Times on devices that are not here: data sheets, closed forms on a made-up device, classes, bands, bad input."""

import itertools
import math
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from field_cases import FEW
from torch import Tensor, nn
from wrapped import Wrapped, meta

from ctxbench import registry
from ctxbench.base.call_sites import CallSite
from ctxbench.base.dtypes import TF32, TF32_CONVOLUTIONS
from ctxbench.base.errors import UsageError
from ctxbench.base.mode import MODES, Mode
from ctxbench.base.number import CONFIDENCE_SDS
from ctxbench.meta.outputs import trained_input
from ctxbench.plugins.macs.counter import count_macs
from ctxbench.plugins.macs.training import count_training_macs
from ctxbench.plugins.memory.convention import UnpredictableError
from ctxbench.plugins.memory.predict import predict_peak
from ctxbench.plugins.memory.training import with_loss
from ctxbench.plugins.predict import NO_TF32, rates
from ctxbench.plugins.predict import effects as predict_effects
from ctxbench.plugins.predict import passes as predict_passes
from ctxbench.plugins.predict.effects import effects_of
from ctxbench.plugins.predict.listed import device_table
from ctxbench.plugins.predict.operators import Operator, operators_of
from ctxbench.plugins.predict.passes import time_of
from ctxbench.plugins.predict.probes import Probe
from ctxbench.plugins.predict.rates import (
    DTYPE_SD,
    HOST_SD,
    HOST_US,
    Calibration,
    Effects,
    Efficiency,
    Era,
    Factor,
    calibration,
    shared,
)
from ctxbench.plugins.predict.sheet import DeviceSpec, sheet, sheets
from ctxbench.plugins.predict.work import (
    BLOCK_RATE,
    CACHED,
    FAST_REACH,
    NO_FAST,
    ROWS,
    THREAD_S,
    VECTOR,
    Convolution,
    Product,
    Turn,
    Work,
)

pytestmark = pytest.mark.slow  # many small cases, which take seconds together

FIGURES = ["bandwidth_gb_s", "l2_mib", "memory_gib", "peak_tflops", "power_w", "processors"]
# One processor, so that there are no partial waves: 1 TFLOP/s, 100 GB/s.
MADE_UP = DeviceSpec(
    title="Made up",
    peak_tflops={"float32": 1.0, "float16": 4.0},
    bandwidth_gb_s=100,
    l2_mib=1,
    power_w=50,
    processors=1,
)
LAUNCH_MS = 0.003
# The largest tile, 128 x 256, reaches 85.3 / (85.3 + 16) of an endless one's rate.
TILE_RATE = (128 * 256 / 384) / (128 * 256 / 384 + 16)


@pytest.fixture
def plain_rates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every class at its whole peak and half of the bandwidth; devices differ by 0.3, classes 0.2, kernels 0.1."""
    kinds = ("large product", "elementwise", "row reduction")
    table = {(kind, "float32"): Efficiency(1.0, 0.5, 0.2) for kind in kinds}
    errors = {"known": 0.1, "unknown": 0.3, "training": 0.4}
    plain = Calibration(table, {}, {"float32": 0.0, "float16": 0.0}, errors, kernel_sd=0.1)
    monkeypatch.setattr(rates, "calibration", lambda: plain)
    monkeypatch.setattr(predict_effects, "calibration", lambda: plain)
    monkeypatch.setattr(predict_passes, "calibration", lambda: plain)


@pytest.mark.parametrize("name", sheets())
def test_every_figure_of_a_data_sheet_has_a_source(name: str) -> None:
    found = sheet(name)
    assert sorted(figure for figures in found.source.values() for figure in figures) == FIGURES
    assert found.peak("float32") == found.peak_tflops["float32"] * 1e12


def test_a_device_is_suggested_for_a_misspelt_one() -> None:
    with pytest.raises(
        UsageError, match="unknown device 'titan-x'; did you mean 'titan-x-maxwell' or 'titan-x-pascal' or 'titan-xp'"
    ):
        sheet("titan-x")


GOOD = {
    "title": '"Mine"',
    "peak_tflops": "{ float32 = 2 }",
    "bandwidth_gb_s": "100",
    "l2_mib": "1",
    "power_w": "10",
    "processors": "4",
}


def own_file(folder: Path, **changes: str) -> Path:
    values = {name: text for name, text in {**GOOD, **changes}.items() if text}
    path = folder / "mine.toml"
    path.write_text("[mine]\n" + "\n".join(f"{name} = {text}" for name, text in values.items()), encoding="utf-8")
    return path


def test_a_file_of_ones_own_is_a_device(tmp_path: Path) -> None:
    path = own_file(tmp_path)
    assert sheet(str(path)).peak("float32") == 2e12
    assert sheet(f"{path}:mine").title == "Mine"
    with pytest.raises(UsageError, match=r"unknown device of .*mine\.toml 'main'; did you mean 'mine'"):
        sheet(f"{path}:main")
    path.write_text(path.read_text() + path.read_text().replace("[mine]", "\n[other]"))
    with pytest.raises(UsageError, match=r"has 2 devices; name one, such as .*mine\.toml:mine"):
        sheet(str(path))


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"peak_tflops": ""}, "[mine] lacks peak_tflops"),
        ({"peak_tflops": "{ float16 = 2 }"}, "[mine] lacks peak_tflops.float32"),
        ({"peak_tflops": "{ float32 = -2 }"}, "peak_tflops.float32 is -2: input should be greater than 0"),
        ({"peak_tflops": "{ float32 = 2, fp8 = 3 }"}, "peak_tflops.fp8"),
        ({"bandwidth_gb_s": "0"}, "bandwidth_gb_s is 0: input should be greater than 0"),
        ({"power_w": "inf"}, "power_w is inf"),
        ({"processors": "1.5"}, "processors is 1.5"),
        ({"powr_w": "10"}, "unknown key 'powr_w'; did you mean 'power_w'"),
        ({"title": "Mine"}, "is not TOML"),
    ],
)
def test_a_wrong_file_is_told_by_its_key(tmp_path: Path, changes: dict[str, str], sentence: str) -> None:
    with pytest.raises(UsageError) as caught:
        sheet(str(own_file(tmp_path, **changes)))
    assert sentence in str(caught.value)
    assert "mine.toml" in str(caught.value)


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no file"):
        sheet(str(tmp_path / "none.toml"))


def test_a_device_without_a_unit_for_the_dtype_says_which_it_has() -> None:
    with pytest.raises(UsageError, match="NVIDIA TITAN Xp has no unit for bfloat16; its peaks are of float32, float64"):
        time_of([], sheet("titan-xp"), "bfloat16")


def test_tiles_and_waves_of_a_product() -> None:
    whole = 2 * 1024**3 / TILE_RATE
    assert Product(1, 1024, 1024, 1024).tiled_flops(1) == pytest.approx(whole)
    # 32 tiles of 128 x 256 on 33 processors: a wave of 33, unless smaller tiles or a split depth fill it better
    one_wave = 2 * 33 * 128 * 256 * 1024 / TILE_RATE
    assert whole < Product(1, 1024, 1024, 1024).tiled_flops(33) <= one_wave
    # one row takes a tile of 16 rows: 16 x 256 reads 272 numbers for 4096 products
    rate = (16 * 256 / 272) / (16 * 256 / 272 + 16)
    assert Product(1, 1, 1024, 1024).tiled_flops(1) == pytest.approx(2 * 16 * 1024 * 1024 / rate)


@pytest.mark.usefixtures("plain_rates")
def test_a_linear_layer_takes_the_milliseconds_of_its_closed_form() -> None:
    layer, x = nn.Linear(1024, 1024, bias=False, device="meta"), meta(1024, 1024)
    (operator,) = operators_of(layer, x, mode="infer")
    assert (operator.name, operator.works) == (
        "mm",
        (Work("large product", 12 * 2**20, Product(1, *[1024] * 3), form=CACHED),),
    )
    found = time_of([operator], MADE_UP)
    product_ms = 2 * 1024**3 / TILE_RATE / 1e12 * 1e3
    assert found.device_ms == pytest.approx(product_ms + LAUNCH_MS)
    share = product_ms / found.device_ms
    parts = {"device": 0.3, "large product": 0.2, "kernels": 0.1}
    assert found.time.errors == pytest.approx({source: share * sd for source, sd in parts.items()})
    factor = math.exp(1.2816 * share * math.sqrt(0.3**2 + 0.2**2 + 0.1**2))
    assert found.time.ends == pytest.approx((found.time.value / factor, found.time.value * factor), rel=1e-4)
    assert found.host_ms == HOST_US / 1e3
    assert [kernel.bound for kernel in found.kernels] == ["arithmetic"]
    assert not found.is_launch_bound
    # a pass with gradients has one error more
    trained = time_of(operators_of(layer, x, mode="train"), MADE_UP).time.errors
    assert (trained["training"], "training" in found.time.errors) == (0.4, False)
    # in float16, on four times the peak
    half = time_of(operators_of(layer.half(), x.half(), mode="infer"), MADE_UP, "float16")
    assert half.time.value == pytest.approx(product_ms / 4 + LAUNCH_MS)
    assert half.kernels[0].rate.own == pytest.approx(math.hypot(0.2, DTYPE_SD))
    # a training step: the product, the sum of the output, and the weight's gradient; the input has none
    step = time_of(operators_of(layer.float(), x, mode="train"), MADE_UP)
    products = [kernel for kernel in step.kernels if kernel.work.product]
    assert [(k.operator.name, k.operator.phase) for k in products] == [("mm", "forward"), ("mm", "backward")]
    assert [kernel.ms for kernel in products] == pytest.approx([product_ms] * 2)


@pytest.mark.usefixtures("plain_rates")
@pytest.mark.parametrize(
    ("forward", "moved"),
    [
        (torch.relu, 2),
        (lambda x: x + x, 2),  # one tensor is read, once
        (lambda x: x * x.mean(), 2),
        (lambda x: x + x[:1, :1].expand(512, 1024), 2),  # the expanded number is there once
        (lambda x: x.t().contiguous(), 9),  # a sector of 32 bytes is read for each number
    ],
)
def test_an_elementwise_kernel_takes_the_time_of_its_bytes(forward: Callable[[Tensor], Tensor], moved: int) -> None:
    found = time_of(operators_of(Wrapped(forward), meta(512, 1024), mode="infer"), MADE_UP)
    ms = moved * 4 * 512 * 1024 / 50e9 * 1e3
    last = found.kernels[-1]
    assert (last.work.kind in ("elementwise", "copy"), last.bound) == (True, "bandwidth")
    assert last.ms == pytest.approx(ms, rel=1e-5)


def test_views_cost_nothing() -> None:
    views = Wrapped(lambda x: torch.relu(x.reshape(8, 16, 4).transpose(1, 2)[:, :2].unsqueeze(0).expand(3, -1, -1, -1)))
    found = operators_of(views, meta(8, 64), mode="infer")
    assert [(each.name, each.works[0].bytes) for each in found] == [("relu", 4 * (8 * 2 * 16 + 3 * 8 * 2 * 16))]


@pytest.mark.parametrize(("key", "mode"), itertools.product(registry.names(), MODES))
def test_products_have_the_sides_that_the_counting_rules_multiply(key: str, mode: str) -> None:
    entry = registry.get(key)
    with torch.device("meta"):
        model = entry.build(32, FEW.get(key, {}))
    x = trained_input(model, meta(2, 32, 12, 10))
    found = operators_of(model, x, mode=mode)
    products = [work.product for each in found for work in each.works if work.product]
    fused = sum(work.flops / 2 for each in found for work in each.works if work.kind == "fused attention")
    count = count_training_macs if mode == "train" else count_macs
    assert sum(product.macs for product in products) + fused == count(model, x).macs_matmul


@pytest.mark.parametrize(
    ("layer", "kinds"),
    [
        (nn.Conv2d(64, 32, 1, bias=False), ["convolution 1x1"]),
        (nn.Conv2d(64, 32, 3, padding=1, bias=False), ["convolution 3x3"]),
        (nn.Conv2d(64, 32, 3, padding=1), ["convolution 3x3", "elementwise"]),  # cuDNN's bias is a kernel of its own
        (nn.Conv2d(64, 32, 5, bias=False), ["other convolution"]),
        (nn.Conv2d(64, 32, 3, dilation=2, bias=False), ["other convolution"]),
        (nn.Conv2d(64, 64, 3, groups=64, bias=False), ["depthwise convolution"]),
        (nn.Conv2d(64, 64, 3, groups=8, bias=False), ["grouped convolution"]),
        (nn.Conv2d(64, 32, 1, stride=2, bias=False), ["strided convolution 1x1"]),
        (nn.ConvTranspose2d(64, 32, 2, stride=2, bias=False), ["other convolution"]),
        (nn.BatchNorm2d(64), ["elementwise"]),
        (nn.GroupNorm(4, 64), ["row reduction", "elementwise"]),  # the sums, and what uses them
        (nn.MaxPool2d(3), ["pooling"]),
        (nn.AdaptiveAvgPool2d(3), ["pooling"]),
        (Wrapped(lambda x: x.sort()[0]), ["irregular"]),
        (Wrapped(lambda x: x.cumsum(1)), ["irregular"]),
        (nn.LayerNorm(16), ["norm"]),
        (nn.GELU(), ["transcendental"]),
        (nn.Softmax(dim=-1), ["softmax"]),
        (Wrapped(lambda x: x.sum(1)), ["row reduction"]),
        (Wrapped(lambda x: torch.fft.rfft2(x).real.clone()), ["FFT", "copy"]),
        (Wrapped(lambda x: torch.complex(x, x).real.clone()), ["elementwise", "copy"]),
        (Wrapped(torch.linalg.inv), ["elementwise", "elementwise", "solver"]),
        (Wrapped(lambda x: torch.cat([x, x])), ["copy"]),
    ],
    ids=str,
)
def test_the_class_of_an_operator(layer: nn.Module, kinds: list[str]) -> None:
    found = operators_of(layer.to("meta"), meta(2, 64, 16, 16), mode="infer")
    assert [work.kind for each in found for work in each.works] == kinds


def test_a_convolution_and_its_gradients_have_the_same_products_turned() -> None:
    layer = nn.Conv2d(64, 32, 3, padding=1, bias=False, device="meta")
    x = meta(2, 64, 16, 12).requires_grad_()
    found = operators_of(layer, x, mode="train")
    works = [work for each in found for work in each.works if work.kind == "convolution 3x3"]
    positions, depth = 2 * 16 * 12, 64 * 9
    assert [work.product for work in works] == [
        Product(1, positions, 32, depth),
        Product(1, positions, depth, 32),
        Product(1, 32, depth, positions),
    ]
    tiles = 2 * 4 * 3  # 4 x 4 outputs each
    assert [work.winograd for work in works] == [
        Product(36, tiles, 32, 64),
        Product(36, tiles, 64, 32),
        Product(36, 32, 64, tiles),
    ]


def test_winograd_takes_a_quarter_of_the_products_of_a_large_map() -> None:
    large = Convolution(1, 256, 256, (64, 64), (64, 64), (3, 3), (1, 1), (1, 1)).work()
    assert large.product is not None
    assert large.winograd is not None
    assert large.product.macs / large.winograd.macs == 4.0
    assert Convolution(3, 7, 11, (5, 9), (5, 9), (3, 3), (1, 1), (1, 1)).work().winograd == Product(
        36, 3 * 2 * 3, 11, 7
    )


def test_rows_that_do_not_fit_into_the_cache_are_read_twice() -> None:
    def moved(columns: int) -> float:
        (operator,) = operators_of(nn.Softmax(dim=-1), meta(64, columns), mode="infer")
        ((_, found),) = operator.works[0].ways(MADE_UP)
        return found / (4 * 64 * columns)

    # two rows in flight may take half a MiB
    assert (moved(65536), moved(65537)) == (2, 3)


def test_training_reads_a_channel_of_batch_norm_twice() -> None:
    layer, x, size = nn.BatchNorm2d(8, device="meta"), meta(4, 8, 16, 16), 4 * 4 * 8 * 16 * 16

    def norms(mode: str) -> list[int]:
        found = operators_of(layer, x, mode=mode)
        return [round(work.bytes / size) for each in found for work in each.works if work.kind == "batch norm"]

    assert norms("infer") == []  # an elementwise kernel
    assert norms("train") == [3, 2]  # backward: the input twice; the sum's gradient is one number, the input has none


def test_an_operator_of_no_class_is_marked_and_its_bytes_counted() -> None:
    library = torch.library.Library("ctxbench_test", "DEF")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", torch.empty_like, "Meta")
    own = Wrapped(lambda x: torch.ops.ctxbench_test.twice(x))
    found = operators_of(own, meta(256, 1024), mode="infer")
    assert [(work.kind, work.bytes) for each in found for work in each.works] == [("unknown", 2 * 2**20)]
    predicted = time_of(found, sheet("titan-xp"))
    assert predicted.unknown == ["ctxbench_test.twice"]
    told = [str(note) for note in predicted.notes()]
    assert "Of no known class, their bytes alone are counted: ctxbench_test.twice." in told
    assert "100% of the time is in classes without measurements: unknown." in told


def test_a_dtype_without_efficiencies_is_that_of_the_operator() -> None:
    double = Wrapped(lambda x: (x.double().relu() + 1).float())
    found = time_of(operators_of(double, meta(256, 1024), mode="infer"), sheet("titan-xp"), "float32")
    told = "No efficiencies of some classes were measured in float64: those of another dtype stand in."
    assert told in map(str, found.notes())
    single = time_of(operators_of(Wrapped(torch.relu), meta(256, 1024), mode="infer"), sheet("titan-xp"), "float32")
    assert not [note for note in single.notes() if note.code == "time_dtype"]


def test_a_module_that_meta_cannot_run_says_why() -> None:
    with pytest.raises(UnpredictableError, match="reads a tensor's values"):
        operators_of(Wrapped(lambda x: x * x.sum().item()), meta(4, 4), mode="infer")


@pytest.mark.usefixtures("plain_rates")
def test_a_pass_of_small_kernels_is_bound_by_their_launches() -> None:
    small = Operator("relu", "forward", CallSite(), (Work("elementwise", 4),))
    found = time_of([small] * 100, MADE_UP)
    assert found.is_launch_bound
    assert found.time.value == pytest.approx(100 * HOST_US / 1e3)
    factor = math.exp(CONFIDENCE_SDS * HOST_SD)
    assert found.time.ends == pytest.approx((found.time.value / factor, found.time.value * factor))
    assert (found.time.low / 0.1, found.time.high / 0.1) == pytest.approx((8, 65), rel=0.02)  # microseconds an operator
    assert found.time.errors == {"host": HOST_SD}
    assert {kernel.bound for kernel in found.kernels} == {"launches"}
    assert str(found.notes()[0]).startswith(
        "Launch-bound: the host's time to launch the kernels (23 us an operator, assumed) is longer than theirs"
    )
    assert found.time.unknown == ("the host's time to launch the kernels decides, whose band is a factor of 8 wide")
    assert found.time.text() == "not known"


def test_keeping_the_gradient_of_a_parameter_takes_the_host_as_long_as_four_operators() -> None:
    block = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8, bias=False)).to("meta")
    step = operators_of(block, meta(2, 8), mode="train")
    kept = [each for each in step if each.name == "AccumulateGrad"]
    assert len(kept) == 3
    assert not any(each.works for each in kept)
    found = time_of(step, sheet("h200"))
    assert found.host_ms == pytest.approx((len(step) - 3 + 3 * 4) * HOST_US / 1e3)
    assert found.device_ms == time_of(step[:-3], sheet("h200")).device_ms
    block.requires_grad_(False)[0].weight.requires_grad_(True)
    assert operators_of(block, meta(2, 8), mode="train").count(kept[0]) == 1
    assert kept[0] not in operators_of(block, meta(2, 8), mode="infer")
    assert kept[0] not in operators_of(block, meta(2, 8), mode="train", device="cpu")


def test_efficiencies_are_below_the_data_sheet_and_their_errors_are_finite() -> None:
    found = rates.calibration()
    assert 0.05 < found.kernel_sd < 0.3
    assert 0 <= found.errors["known"] < found.errors["unknown"] < 0.3
    assert 0 < found.errors["training"] < 0.3
    for (group, dtype), each in found.efficiencies.items():
        assert 0 < each.bandwidth <= 1.5, (group, dtype)
        assert each.compute * TILE_RATE < 1.3, (group, dtype)
    assert all(abs(log) < math.log(1.5) for log in found.devices.values())


def test_a_class_measured_on_a_device_has_a_factor_between_its_own_and_that_of_the_device() -> None:
    one = {"measured": Factor({CACHED: [(0.0, 0.5)]}, 0.1)}
    found = Effects(*shared(one.values(), class_sd=0.2, device_sd=0.3), 0.0, one)
    # a normal prior of 0.3 for the device and 0.2 for the class, and a measurement of 0.5 with an error of 0.1
    variance = 0.3**2 + 0.2**2 + 0.1**2
    log = 0.5 * 0.3**2 / variance
    assert found.shared == pytest.approx(log)
    assert found.shared_sd == pytest.approx(math.sqrt(0.3**2 - 0.3**4 / variance))
    of_both, device, own = found.of("measured", 0.2, 1.0)
    assert of_both == pytest.approx(0.5 * (0.3**2 + 0.2**2) / variance)  # the mean of what is known of the sum of both
    assert device**2 + own**2 == pytest.approx((0.3**2 + 0.2**2) * 0.1**2 / variance)
    assert found.of("other", 0.2, 1.0) == pytest.approx((log, found.shared_sd, 0.2))
    nothing = Effects(*shared([], 0.2, 0.3), 0.0)
    assert nothing.of("other", 0.2, 1.0) == pytest.approx((0.0, 0.3, 0.2))


def test_between_two_measured_sizes_a_factor_is_on_the_line_through_them() -> None:
    factor = Factor({CACHED: [(math.log(1e3), 0.0), (math.log(1e5), 1.0)]}, 0.1)
    assert [factor.at(size) for size in (1, 1e3, 1e4, 1e5, 1e9)] == pytest.approx([0, 0, 0.5, 1, 1])


def test_between_two_measured_forms_a_factor_is_on_the_line_through_them_and_beyond_less_is_known() -> None:
    """Such as the taps of a filter, of which 9 and 81 were measured."""
    factor = Factor({9.0: [(0.0, 1.0)], 81.0: [(0.0, 3.0)]}, 0.1)
    assert [factor.at(5.0, taps) for taps in (1, 9, 27, 81, 243)] == pytest.approx([1, 1, 2, 3, 3])
    third = rates.FORM_SD * math.log(3)
    assert [factor.beyond(taps) for taps in (3, 9, 27, 81, 243)] == pytest.approx([third, 0, 0, 0, third])
    alone = Factor({9.0: [(0.0, 1.0)]}, 0.1)
    assert (alone.at(5.0, 49), alone.beyond(49)) == (1, 0)
    known = Effects(0.0, 0.0, 0.0, {"measured": factor}, 0.5)
    assert known.of("measured", 0.5, 1.0, 243)[2] == pytest.approx(
        math.hypot(known.of("measured", 0.5, 1.0, 81)[2], third)
    )


def test_kernels_of_one_class_differ_by_form() -> None:
    """Taps of filters; short rows, few keys; products with a vector; copies of whole rows; reads of a pooling."""

    def form(function: Callable[..., Any], *shapes: tuple[int, ...]) -> float:
        (found,) = operators_of(Probe(function), *(meta(*shape) for shape in shapes), mode="infer", device="cpu")
        return found.works[-1].form

    assert [form(lambda x: x.softmax(-1), (8, rows)) for rows in (49, 196, 4096)] == [49, 196, 196]
    assert [form(torch.mm, (64, 64), (64, columns)) for columns in (1, 64)] == [VECTOR, CACHED]
    assert form(lambda x: x.t().contiguous(), (64, 32)) == CACHED
    assert form(lambda x: x.transpose(0, 1).contiguous(), (4, 8, 64)) == ROWS
    attention = torch.nn.functional.scaled_dot_product_attention
    assert [form(attention, *[(1, 2, keys, 8)] * 3) for keys in (49, 400)] == [49, 196]
    functional = torch.nn.functional
    # 25 outputs of a map of 196 numbers, and 9 reads for each of 196; each begins a window, which is 10 reads
    assert form(lambda x: functional.adaptive_avg_pool2d(x, 5), (1, 8, 14, 14)) == pytest.approx((196 + 250) / 221)
    assert form(lambda x: functional.avg_pool2d(x, 3, 1, 1), (1, 8, 14, 14)) == pytest.approx(19 / 2)


# Sides of a depthwise filter over a map of 14 x 14, its dilation, and what oneDNN's fast kernels take: the output with
# AVX-512 and with AVX2, the input's gradient, the weight's.
FAST = [
    ((3, 3), 1, (True, True, True, True)),
    ((11, 1), 1, (True, True, True, True)),
    ((21, 1), 1, (True, True, True, False)),
    ((5, 5), 1, (True, True, True, False)),
    ((1, 7), 1, (True, True, True, False)),
    ((1, 9), 1, (True, True, True, False)),
    ((1, 11), 1, (True, False, True, False)),
    ((3, 3), 2, (True, True, False, False)),
    ((3, 3), 5, (True, False, False, False)),
    ((5, 5), 3, (True, False, False, False)),
    ((13, 13), 1, (True, False, True, False)),
    ((15, 15), 1, (False, False, True, False)),
    ((7, 7), 3, (False, False, False, False)),
]
TURNS: tuple[Turn, ...] = ("forward", "input gradient", "weight gradient")


@pytest.mark.parametrize(("side", "dilation", "fast"), FAST)
def test_a_depthwise_convolution_that_no_fast_kernel_takes_is_of_another_form(
    side: tuple[int, int], dilation: int, fast: tuple[bool, ...]
) -> None:
    """A Xeon takes 2 to 20 us for a tap of 384 channels at 14 x 14 with oneDNN's fast kernels, else 55 to 110."""
    works = [depthwise(side, dilation).work(turn) for turn in TURNS]
    narrow, wide = (Effects(0.0, 0.0, 0.0, reach=FAST_REACH[each]) for each in ("AVX2", "AVX512"))
    forms = [wide.form(works[0]), *map(narrow.form, works)]
    assert forms == [math.prod(side) if each else NO_FAST for each in fast]
    assert [wide.form(each) for each in works[1:]] == forms[2:]


def depthwise(side: tuple[int, int], dilation: int, channels: int = 8) -> Convolution:
    return Convolution(1, channels, channels, (14, 14), (14, 14), side, (1, 1), (dilation, dilation), groups=channels)


@pytest.mark.processor
@pytest.mark.parametrize("channels", [8, 12])
def test_onednn_takes_its_fast_kernels_where_the_rule_says(channels: int) -> None:
    """oneDNN's log names the kernel, such as `jit_dw:avx2`, which is a fast one, and `x64:gemm:jit`."""
    instructions = torch.backends.cpu.get_cpu_capability()
    reach = {str(each): columns for each, columns in FAST_REACH.items()}.get(instructions)
    if reach is None or not torch.backends.mkldnn.is_available():
        pytest.skip(f"the rule is of AVX2 and AVX-512 with oneDNN; here is {instructions}")
    program = f"""
import torch
for (high, wide), dilation in {[each[:2] for each in FAST]}:
    pad = [high // 2 * dilation, wide // 2 * dilation]
    x, w = torch.ones(1, {channels}, 14, 14), torch.ones({channels}, 1, high, wide)
    y = torch.conv2d(x, w, None, 1, pad, dilation, {channels})
    for mask in ([True, False, False], [False, True, False]):
        torch.ops.aten.convolution_backward(y, x, w, None, [1, 1], pad, [dilation] * 2, False, [0, 0], {channels}, mask)
"""
    log = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "ONEDNN_VERBOSE": "1"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    found = re.findall(r",exec,cpu,convolution,(\w+):", log)
    known = Effects(0.0, 0.0, 0.0, reach=reach)
    works = [depthwise(*each[:2], channels).work(turn) for each in FAST for turn in TURNS]
    assert [kernel == "jit_dw" for kernel in found] == [known.form(work) != NO_FAST for work in works]


def test_the_gaps_of_a_calibrated_cpu_are_its_operators_and_in_training_views_too() -> None:
    """Of a GPU each kernel has one: the bias of a convolution is a kernel of its own there."""
    cpu = MADE_UP.model_copy(update={"backend": "cpu", "host_us": 8.0, "train_us": 6.0, "launch_us": 2.0})

    layers = nn.Sequential(nn.Conv2d(8, 8, 1), nn.Flatten(2), nn.Unflatten(2, (4, 4))).to("meta")

    def gaps(mode: Mode, on: DeviceSpec) -> tuple[float, int, int]:
        operators = operators_of(layers, meta(1, 8, 4, 4), mode=mode, device="cpu")
        found = time_of(operators, on)
        us = 1e3 * (found.device_ms - sum(each.ms for each in found.kernels))
        return us, len(operators), len(found.kernels)

    us, operators, kernels = gaps("infer", cpu)
    assert us == pytest.approx(8.0)
    assert (operators, kernels) == (1, 2)
    us, operators, kernels = gaps("train", cpu)
    assert us == pytest.approx(6.0 * round(us / 6.0))
    assert round(us / 6.0) >= operators + 4  # two views and their gradients
    assert gaps("train", MADE_UP)[0] == pytest.approx(3.0 * kernels)
    assert time_of(operators_of(layers, meta(1, 8, 4, 4), mode="train", device="cpu"), cpu).host_ms == 0


def test_a_mask_whose_exponentials_are_denormal_numbers_has_no_known_time_on_a_cpu() -> None:
    """exp(-100) is 3.7e-44, below the least normal number of float32, 1.2e-38."""
    cpu = MADE_UP.model_copy(update={"backend": "cpu"})

    def masked(value: float, on: DeviceSpec) -> str:
        def function(x: Tensor, mask: Tensor) -> Tensor:
            return x.masked_fill(mask > 0, value).softmax(-1)

        return time_of(operators_of(Probe(function), meta(2048, 2048), meta(2048, 2048), mode="infer"), on).time.unknown

    assert "a CPU takes far longer for the denormal numbers of its mask" in masked(-100.0, cpu)
    assert "denormal" not in masked(-math.inf, cpu) + masked(-80.0, cpu) + masked(-100.0, MADE_UP)


def test_a_device_with_measurements_has_its_own_factor() -> None:
    relu = Work("elementwise", 2**30)
    own = rates.rate(relu, effects_of(sheet("v100-pcie"), "cuda"))
    other = rates.rate(relu, effects_of(sheet("rtx-4090"), "cuda"))
    measured = rates.calibration().devices["Tesla V100-PCIE-32GB", "float32", "cuda"]
    assert math.log(own.factor) == pytest.approx(measured)
    assert other.factor == 1
    assert (own.device, other.device) == tuple(rates.calibration().errors[card] for card in ("known", "unknown"))
    assert own.sd < other.sd
    seconds, _ = own.seconds(relu, sheet("v100-pcie"), "float32")
    assert seconds == pytest.approx(own.factor * 2**30 / (own.bandwidth * 900e9))


@pytest.mark.parametrize(
    ("card", "dtype", "told"),
    [
        ("v100-pcie", "float32", []),
        ("v100-pcie", "float16", ["float16"]),  # the other V100 was measured in it
        ("rtx-3090", "autocast-float16", []),
        ("rtx-3090", "float32", ["float32"]),
        ("rtx-4090", "float32", ["float32"]),
    ],
)
def test_a_card_without_a_measured_kernel_has_a_note(card: str, dtype: str, told: list[str]) -> None:
    relu = Operator("relu", "forward", CallSite(), (Work("elementwise", 2**30),), dtype.removeprefix("autocast-"))
    found = time_of([relu], sheet(card), dtype)
    assert [str(note) for note in found.notes() if note.code == "time_card"] == [
        f"A part of the time is in kernels of which none was measured on this card in {each}: other cards stand for "
        "it, and the band is wider."
        for each in told
    ]
    assert found.time.errors["device"] == pytest.approx(
        rates.calibration().errors["unknown" if told else "known"], rel=0.01
    )


def test_upsampling_of_contiguous_maps_takes_a_thread_for_each_pixel_over_all_maps() -> None:
    layer, x = nn.Upsample(scale_factor=2, mode="bilinear"), meta(64, 512, 7, 7)
    (operator,) = operators_of(layer, x, mode="infer")
    assert [work.serial_s for work in operator.works] == [64 * 512 * THREAD_S]
    ms = time_of([operator], sheet("rtx-3090")).device_ms
    assert 64 * 512 * 0.2e-3 < ms < 64 * 512 * 0.5e-3  # timm's EfficientFormerV2: 0.24 to 0.38 us a map
    (last,) = operators_of(layer, x.to(memory_format=torch.channels_last), mode="infer")
    assert [work.serial_s for work in last.works] == [0.0]
    assert time_of([last], sheet("rtx-3090")).device_ms < ms / 50


def norm_without_autocast(x: Tensor, norm: nn.Module, project: nn.Module) -> Any:
    """A norm in float32 and a layer under the case's autocast."""
    with torch.autocast(device_type=x.device.type, enabled=False):
        x = norm(x.float())
    return project(x)


@pytest.mark.parametrize(
    ("autocast", "dtype"), [(None, "float32"), (torch.float16, "autocast-float16")], ids=["without", "with"]
)
def test_a_part_that_switches_autocast_off_has_a_time(autocast: torch.dtype | None, dtype: str) -> None:
    module = Wrapped(norm_without_autocast, nn.LayerNorm(64), nn.Linear(64, 64)).to("meta")
    found = operators_of(module, meta(256, 64), mode="infer", autocast=autocast)
    dtypes = {each.name: each.dtype for each in found}
    assert (dtypes["native_layer_norm"], dtypes["addmm"]) == ("float32", dtype.removeprefix("autocast-"))
    assert time_of(found, sheet("rtx-3090"), dtype).device_ms > 0


def test_kernels_of_a_class_err_alike_and_several_classes_average_out() -> None:
    def scatter(*works: Work) -> float:
        return time_of([Operator("relu", "forward", CallSite(), works)], sheet("t4")).time.errors["kernels"]

    relu, found = Work("elementwise", 2**29), rates.calibration()
    alone = scatter(relu)
    assert alone == pytest.approx(found.kernel_sd, rel=0.01)
    assert scatter(relu, relu, Work("elementwise", 2**28)) == pytest.approx(alone, rel=0.01)
    # a reduction that takes as long
    shares = [found.efficiencies[kind, "float32"].bandwidth for kind in ("row reduction", "elementwise")]
    as_long = Work("row reduction", round(2**29 * shares[0] / shares[1]))
    assert scatter(relu, as_long) == pytest.approx(alone / math.sqrt(2), rel=0.01)


def test_the_software_of_2020_inverts_a_single_matrix_with_the_host() -> None:
    def ms(era: Era, *shape: int) -> float:
        return time_of(
            operators_of(Wrapped(torch.linalg.inv), meta(*shape), mode="infer"), sheet("t4"), era=era
        ).time.value

    # PyTorch's pull request 42403 on an RTX 2070 SUPER: 7.69 and 0.288 ms; a batch of one 0.42 and 0.281
    assert ms("cuda-2020", 64, 64) == pytest.approx(7.69, rel=0.1)
    assert ms("cuda", 64, 64) == pytest.approx(0.288, rel=0.15)
    assert ms("cuda-2020", 1, 64, 64) == pytest.approx(0.42, rel=0.15)
    assert ms("cuda", 1, 64, 64) == pytest.approx(0.281, rel=0.15)
    found = time_of(operators_of(Wrapped(torch.linalg.inv), meta(64, 64), mode="infer"), sheet("t4"))
    assert found.time.unknown == "100% of the time is in solver, which nothing measured"
    assert "With the PyTorch of 2020" not in " ".join(map(str, found.notes()))


def test_tf32_changes_products_alone() -> None:
    known = effects_of(sheet("a100-40gb"), "cuda")
    relu, depthwise = Work("elementwise", 2**30), Work("depthwise convolution", 2**30, Product(512, 2**20, 1, 9))
    for work in (relu, depthwise):
        assert rates.rate(work, known, "tf32") == rates.rate(work, known, "float32")
    large = Work("convolution 3x3", 2**30, Product(1, 2**16, 2**10, 2**10))
    seconds = [rates.rate(large, known, d).seconds(large, sheet("a100-40gb"), d)[0] for d in ("float32", "tf32")]
    assert seconds[0] > 3 * seconds[1]
    assert rates.rate(large, known, "tf32").has_dtype
    weight = Work("norm", 2**20, turn="input gradient")
    assert rates.rate(weight, known).has_dtype
    assert not rates.rate(Work("large product", 2**20, Product(1, 512, 512, 512)), known, "bfloat16").has_dtype


def test_power_limits_the_peak_of_each_unit() -> None:
    assert rates.sustained(10.0, 0.0) == 1.0
    assert rates.sustained(10.0, 10.0) == 0.5
    assert rates.sustained(math.inf, 10.0) == 1.0
    card = sheet("a100-sxm-40gb")
    of_float32, of_tensor_cores = 400 / 19.5, 400 / 312
    assert card.watts_per_tflops("float32") == card.watts_per_tflops("float64") == pytest.approx(of_float32)
    assert card.watts_per_tflops("float16") == card.watts_per_tflops("tf32") == pytest.approx(of_tensor_cores)
    product = Work("large product", 1, Product(1, 4096, 4096, 4096))
    relu, none = Work("elementwise", 1), Effects(0.0, 0.0, 0.0)
    watts = rates.calibration().watts
    limits = [rates.rate(work, none, dtype).watts for work in (product, relu) for dtype in ("float16", "float32")]
    assert limits == [watts["float16"], watts["float32"], watts["float32"], watts["float32"]]


def test_what_is_no_product_has_the_peak_of_float32_in_every_dtype_of_tensor_cores() -> None:
    depthwise = Work("depthwise convolution", 1, Product(512, 2**12, 1, 9))
    dense = Work("convolution 3x3", 1, Product(1, 2**12, 512, 512))
    units = [rates.unit_of(work, dtype) for work in (depthwise, dense) for dtype in ("float16", "tf32", "float64")]
    assert units == ["float32", "float32", "float64", "float16", "tf32", "float64"]


def test_tensor_cores_convert_maps_of_16_bits_to_channels_last() -> None:
    layer, x = nn.Conv2d(64, 32, 3, padding=1, bias=False, device="meta").half(), meta(2, 64, 16, 12, dtype=torch.half)
    last = operators_of(layer, x.to(memory_format=torch.channels_last), mode="infer")[-1].works[-1]
    (first,) = operators_of(layer, x, mode="infer")[0].works
    maps = 2 * 2 * (64 + 32) * 16 * 12
    assert (first.converted_bytes, last.converted_bytes, last.channels_last) == (2 * maps, 0, True)
    card = sheet("t4")
    assert rates.conversion_s(first, card, "float16") == 2 * maps / (rates.CONVERSION * 320e9)
    for other in ("float32", "tf32"):
        assert rates.conversion_s(first, card, other) == 0
    assert rates.conversion_s(first, sheet("p100-pcie"), "float16") == 0  # no tensor cores
    known = effects_of(card, "cuda")
    assert rates.rate(first, known, "float16").has_layout
    assert rates.rate(last, known, "float16").has_layout
    plain, unknown = (rates.rate(work, known) for work in (first, last))  # float32's units were measured in one layout
    assert (plain.has_layout, unknown.has_layout) == (True, False)
    assert unknown.own == pytest.approx(math.hypot(plain.own, rates.LAYOUT_SD))


def test_convolutions_of_few_channels_a_group_have_a_class_for_each_layout() -> None:
    def group(channels: int, layout: torch.memory_format) -> str:
        layer = nn.Conv2d(64, 64, 3, groups=channels, bias=False, device="meta")
        return operators_of(layer, meta(2, 64, 8, 8).to(memory_format=layout), mode="infer")[-1].works[-1].group

    assert group(64, torch.contiguous_format) == "depthwise convolution"
    assert group(64, torch.channels_last) == "depthwise convolution, channels last"
    assert group(8, torch.channels_last) == "grouped convolution, channels last"


def test_a_few_long_rows_take_the_time_of_their_blocks() -> None:
    layer, x = nn.LayerNorm([64, 256, 256], device="meta"), meta(16, 64, 256, 256)
    for name in ("t4", "l40s", "h100-pcie", "b200"):
        # KernelBench's problem 40 took 6 to 10 ms on these cards
        assert 5 < time_of(operators_of(layer, x, mode="infer"), sheet(name)).device_ms < 14, name
    (many,) = operators_of(nn.LayerNorm(64, device="meta"), meta(2**20, 64), mode="infer")[0].works
    ((_, moved),) = many.ways(sheet("h100-pcie"))
    assert moved == many.bytes


def test_group_norm_sums_by_blocks_and_reads_the_map_again() -> None:
    (operator,) = operators_of(nn.GroupNorm(4, 64, device="meta"), meta(2, 64, 16, 16), mode="infer")
    size = 4 * 2 * 64 * 16 * 16
    sums, rest = operator.works
    assert (sums.bytes, sums.serial_s, rest.bytes) == (size, size // 8 / BLOCK_RATE, 2 * size)


def test_the_window_of_a_pooling_is_read_by_each_output() -> None:
    (operator,) = operators_of(nn.MaxPool2d(3, stride=1), meta(2, 8, 16, 16), mode="infer")
    outputs = 2 * 8 * 14 * 14
    numbers = 2 * 8 * 256 + outputs
    work = Work("pooling", 4 * 2 * 8 * 256 + 12 * outputs, flops=2.0 * 9 * outputs, form=19 * outputs / numbers)
    assert operator.works == (work,)


@pytest.mark.parametrize(("optimizer", "kernels", "touched"), [("sgd", 4, 11), ("adamw", 8, 20)])
def test_an_optimizer_reads_and_writes_the_weights_and_its_state(optimizer: str, kernels: int, touched: int) -> None:
    layer = nn.Linear(16, 8, device="meta")
    weights = 16 * 8 + 8
    passes = [
        operators_of(layer, meta(2, 16), mode="train", device=device, optimizer=optimizer)
        for device in ("cuda", "cuda-2020")
    ]
    together, one_by_one = ([each for each in found if each.phase == "optimizer"] for found in passes)
    assert (len(together), len(one_by_one)) == (kernels, 2 * kernels)
    for step in (together, one_by_one):
        assert sum(work.bytes for each in step for work in each.works) == 4 * touched * weights
        assert {str(each.place) for each in step} == {"the optimizer"}
    assert all(parameter.grad is None for parameter in layer.parameters())


def test_a_training_step_may_begin_with_the_cross_entropy_of_classes() -> None:
    layer = nn.Conv2d(8, 19, 1, device="meta")
    names = [each.name for each in operators_of(with_loss(layer, "cross-entropy"), meta(2, 8, 4, 4), mode="train")]
    assert names.index("_log_softmax") < names.index("nll_loss2d_forward") < names.index("nll_loss2d_backward")
    assert names[-3:] == ["convolution_backward", "AccumulateGrad", "AccumulateGrad"]


def test_what_pytorch_does_by_itself_is_tf32_in_convolutions_alone() -> None:
    both = nn.Sequential(nn.Conv2d(256, 256, 3, padding=1, bias=False), nn.Flatten(2), nn.Linear(4096, 512, bias=False))
    operators = operators_of(both.to("meta"), meta(4, 256, 64, 64), mode="infer")

    def times(card: str, dtype: str) -> list[float]:
        return [kernel.ms for kernel in time_of(operators, sheet(card), dtype).kernels if kernel.work.product]

    convolution, product = times("a100-40gb", TF32_CONVOLUTIONS)
    assert (convolution, product) == (times("a100-40gb", TF32)[0], times("a100-40gb", "float32")[1])
    assert times("t4", TF32_CONVOLUTIONS) == times("t4", "float32")  # has no TF32


def test_a_wide_convolution_may_take_a_workspace_beside_the_peak() -> None:
    x, layer = meta(2, 2048, 64, 64), nn.Conv2d(2048, 512, 3, padding=1, bias=False, device="meta")
    found = predict_peak(layer, x, mode="infer")
    tiles = 2 * 16 * 16
    workspace = 4 * 36 * (tiles * (2048 + 512) + 2048 * 512)
    assert found.high_bytes == found.peak_bytes + workspace
    narrow = nn.Conv2d(512, 512, 3, padding=1, bias=False, device="meta")
    assert predict_peak(narrow, meta(2, 512, 64, 64), mode="infer").high_bytes == 2**20 * 25


def test_devices_are_listed_with_what_was_measured_on_each(command: Callable[..., Any]) -> None:
    table = device_table()
    assert [row.cells[0].text for row in table.rows] == list(sheets())
    cells = {row.cells[0].text: [cell.text for cell in row.cells[1:7]] for row in table.rows}
    assert cells["a100-40gb"][:5] == ["19.5", "156", "312", "1555", "40"]
    assert ("NVIDIA A100-PCIE-40GB", "float32", "cuda") in calibration().devices
    assert cells["a100-40gb"][5] == "float32 (cuda)"
    assert cells["t4"][5] == "float16 (cuda-2020), float32 (cuda), float32 (cuda-2020)"
    assert cells["jetson-orin"][5] == "none"
    assert cells["h200"][5] == "16 bits (some classes), float32 (some classes)"
    told = command("list", "--devices").stdout
    assert all(name in told for name in sheets())


def test_a_time_in_float32_says_what_pytorchs_own_default_takes() -> None:
    module, x = nn.Conv2d(256, 256, 3, padding=1), torch.empty(4, 256, 64, 64)
    operators = operators_of(module, x, mode="infer", device="cuda")
    times = {dtype: time_of(operators, sheet("a100-40gb"), dtype) for dtype in ("float32", "tf32-convolutions")}
    default = times["tf32-convolutions"].time.value
    assert default < 0.7 * times["float32"].time.value
    (note,) = [note for note in times["float32"].notes() if note.code == NO_TF32]
    assert note.values == {"ms": default, "ratio": default / times["float32"].time.value}
    assert f"takes {default / times['float32'].time.value:.2f} times as long: --dtype tf32-convolutions." in str(note)
    assert "ms" not in note.shared.split()
    for name, dtype in (("a100-40gb", "tf32-convolutions"), ("a100-40gb", "tf32"), ("t4", "float32")):
        assert NO_TF32 not in [each.code for each in time_of(operators, sheet(name), dtype).notes()]
