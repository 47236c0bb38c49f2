"""Kernels that run on a GPU, and their dtype: what PyTorch's sources and kernels measured on an H200 say."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from wrapped import Wrapped, meta

from ctxbench.plugins.predict.effects import effects_of
from ctxbench.plugins.predict.operators import _IRREGULAR, operators_of
from ctxbench.plugins.predict.passes import time_of
from ctxbench.plugins.predict.rates import Era, calibration, hopper_class, rate
from ctxbench.plugins.predict.sheet import by_title, sheet
from ctxbench.plugins.predict.work import DEPTH_S, TAP_S, Convolution, Product, Work, matrix_product


def test_bfloat16_depthwise_convolutions_of_contiguous_maps_have_the_rate_of_float32() -> None:
    """cuDNN computes them in float16 alone, and channels last; PyTorch's own kernel takes the others."""
    layer, x, card = (
        nn.Conv2d(256, 256, 7, padding=3, groups=256, bias=False),
        meta(1, 256, 128, 128),
        sheet("a100-40gb"),
    )

    def ms(dtype: torch.dtype, name: str, last: bool = False) -> float:
        image = x.to(dtype, memory_format=torch.channels_last if last else torch.contiguous_format)
        (kernel,) = time_of(operators_of(layer.to("meta", dtype), image, mode="infer"), card, name).kernels
        assert kernel.dtype == ("float32" if name == "bfloat16" and not last else name)
        return kernel.ms

    single, half, other = ms(torch.float32, "float32"), ms(torch.float16, "float16"), ms(torch.bfloat16, "bfloat16")
    assert other == pytest.approx(single, rel=1e-6)  # by arithmetic: 256 x 49 x 128^2 taps
    assert half < 0.5 * single
    assert ms(torch.bfloat16, "bfloat16", last=True) == pytest.approx(ms(torch.float16, "float16", last=True))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_an_operator_is_priced_in_the_dtype_of_its_arguments(dtype: torch.dtype) -> None:
    def product(x: Tensor) -> Tensor:
        return x.float() @ x.float().mT

    def ms(x: Tensor, name: str) -> float:
        found = time_of(operators_of(Wrapped(product), x, mode="infer"), sheet("h200"), name)
        (kernel,) = (each for each in found.kernels if each.work.product)
        assert kernel.dtype == "float32"
        return kernel.ms

    name = str(dtype).removeprefix("torch.")
    inside, alone = ms(meta(2048, 2048).to(dtype), name), ms(meta(2048, 2048), "float32")
    assert inside == alone  # not at the rate of tensor cores
    assert inside > 2 * 2048**3 / sheet("h200").peak("float32") * 1e3


@pytest.mark.parametrize("side", [64, 128])
def test_a_depthwise_filter_as_large_as_the_map_takes_a_thread_for_each_output(side: int) -> None:
    """PyTorch's own kernel on an H200: 1.33 ms for a filter of 128 x 128, 0.365 ms for one of 64 x 64."""
    maps, filters = meta(1, 32, side + 2, side + 2), meta(32, 1, side, side)
    found = operators_of(Wrapped(lambda x: nn.functional.conv2d(x, filters, groups=32)), maps, mode="infer")
    (kernel,) = time_of(found, sheet("h200")).kernels
    assert kernel.work.serial_s == side**2 * TAP_S
    assert kernel.ms == pytest.approx({64: 0.365, 128: 1.33}[side], rel=0.1)
    assert 10 * kernel.work.bytes / sheet("h200").bandwidth < kernel.ms / 1e3  # neither bytes nor arithmetic


@pytest.mark.parametrize(("positions", "us"), [(16384, (515, 645)), (4096, (20, 163))])
def test_the_depth_of_a_product_in_a_batch_is_not_split(positions: int, us: tuple[int, int]) -> None:
    """Linear attention's K^T V on an H200: blocks take 515 to 645 us over 16,384 positions, 25 to 83 over 4,096."""
    sides = Product(8, 64, 64, positions)
    alone, batch = (matrix_product(each) for each in (Product(1, 64, 64, positions), sides))
    known, card = effects_of(sheet("h200"), "cuda"), sheet("h200")
    found = {work.product: 1e6 * rate(work, known).seconds(work, card, "float32")[0] for work in (alone, batch)}
    assert us[0] <= found[sides] <= us[1]
    assert [moved for _, moved in batch.ways(card)] == [pytest.approx(positions * DEPTH_S * card.bandwidth)]
    assert found[alone.product] < 0.1 * found[sides]
    # tensor cores take 1.5 ns a position: other kernels
    assert [moved for _, moved in batch.ways(card, "bfloat16")] == [batch.bytes]


@pytest.mark.parametrize(("name", "is_hopper"), [("h200", True), ("h100-pcie", True), ("a100-40gb", False)])
def test_hopper_cards_have_factors_of_their_own_and_no_winograd_in_float32(name: str, is_hopper: bool) -> None:
    card = sheet(name)
    known = effects_of(card, "cuda")
    weight = Convolution(1, 512, 512, (128, 128), (128, 128), (3, 3), (1, 1), (1, 1)).work("weight gradient")
    assert [len([*weight.ways(card, dtype)]) for dtype in ("float32", "tf32")] == [2 - is_hopper, 2]
    assert hopper_class(weight, "float32") == "convolution, weight gradient|float32"
    log, sd = calibration().hopper[hopper_class(weight, "float32")]
    own = rate(weight, known)
    assert math.log(own.factor) == pytest.approx(known.shared + log * is_hopper)
    assert (own.own == sd) == is_hopper
    assert own.knows_card or not is_hopper
    # with TF32 other engines run
    assert rate(weight, known, "tf32").factor == pytest.approx(math.exp(known.shared))


def test_weight_gradients_on_an_h200_reach_a_seventh_of_the_peak_without_tf32() -> None:
    """The first H200 measured 0.15 of the peak: 6.743 ms for 68.7 GFLOP (results/gpu-h200/calibrated.toml)."""
    card, sides = sheet("h200"), (1, 512, 512, (128, 128), (128, 128), (1, 1), (1, 1), (1, 1))
    works = [Convolution(*sides).work(turn) for turn in ("forward", "weight gradient")]
    forward, weight = (rate(each, effects_of(card, "cuda")).seconds(each, card, "float32")[0] for each in works)
    share = 2 * 512**2 * 128**2 / weight / card.peak("float32")
    assert 0.1 < share < 0.2
    assert weight > 2 * forward


def transposed_softmax_gradient(side: int, dtype: torch.dtype) -> list[Work]:
    grad, out = (meta(1, side, side, dtype=dtype) for _ in range(2))
    function = Wrapped(lambda x: torch.ops.aten._softmax_backward_data(x.transpose(1, 2), out, -1, dtype))
    return [work for each in operators_of(function, grad, mode="infer") for work in each.works]


@pytest.mark.parametrize(("dtype", "ms"), [(torch.float32, 1.94), (torch.bfloat16, 1.77)])
def test_a_number_that_is_read_across_moves_a_sector(dtype: torch.dtype, ms: float) -> None:
    """An H200 copies a transposed gradient of 16,384 x 16,384 numbers in 1.94 ms in float32, and 1.77 in 16 bits."""
    size, card = torch.tensor([], dtype=dtype).itemsize, sheet("h200")
    softmax, copy = transposed_softmax_gradient(16384, dtype)
    assert copy.across_bytes == softmax.across_bytes == (32 - size) * 16384**2
    assert [moved for _, moved in copy.ways(card)] == [(32 + size) * 16384**2]
    name = str(dtype).removeprefix("torch.")
    seconds, _ = rate(copy, effects_of(card, "cuda", name), name).seconds(copy, card, name)
    assert 0.9 < seconds * 1e3 / ms < 1.3
    # maps that the cache holds, and processors, whose caches keep what surrounds a number
    small = transposed_softmax_gradient(1024, dtype)[1]
    assert [moved for _, moved in small.ways(card)] == [2 * size * 1024**2]
    cpu = card.model_copy(update={"backend": "cpu"})
    assert [moved for _, moved in copy.ways(cpu)] == [2 * size * 16384**2]


def across(function: Callable[..., Any], *shape: int) -> int:
    found = operators_of(Wrapped(function), meta(*shape), mode="infer")
    return sum(work.across_bytes for each in found for work in each.works)


def test_only_arguments_in_another_order_are_read_across() -> None:
    assert across(lambda x: x.transpose(0, 1).contiguous(), 64, 64) == 28 * 64**2
    assert across(lambda x: x + x.transpose(0, 1), 64, 64) == 28 * 64**2
    assert across(lambda x: x[:, ::2].contiguous(), 64, 64) == 4 * 64 * 32  # every second number
    for same in (torch.relu, lambda x: x.transpose(0, 1) * 2, lambda x: x + x[:1], lambda x: x[:1].expand(9, 64) + 1):
        assert across(same, 64, 64) == 0


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "autocast-bfloat16"])
def test_single_products_in_16_bits_have_the_rate_of_published_ones(dtype: str) -> None:
    name, work = dtype.removeprefix("autocast-"), matrix_product(Product(1, 8192, 8192, 8192), 2)
    for title, is_measured in (("NVIDIA H100 80GB HBM3", True), ("NVIDIA H200", False)):
        card = by_title(title)
        assert card is not None
        known = effects_of(card, "cuda", name)
        own = calibration().products
        assert known.products == own[title if is_measured else "any"]
        found = rate(work, known, name)
        flops, moved = next(work.ways(card, name))
        share = max(flops / own["any"].compute / card.peak(name), moved / own["any"].bandwidth / card.bandwidth)
        expected = share * (known.products.card or 1.0) + own["any"].call_s - 3e-6
        assert found.seconds(work, card, name)[0] == pytest.approx(expected)
        assert found.knows_card == is_measured
        # neither a batch, nor another unit, nor another class
        for other, own_dtype in (
            (matrix_product(Product(2, 8192, 8192, 8192), 2), name),
            (work, "float32"),
            (Work("elementwise", 2**30), name),
        ):
            assert rate(other, known, own_dtype).call_s == 0


@pytest.mark.parametrize(
    ("name", "dtype", "era", "is_told"),
    [
        ("a100-40gb", "bfloat16", "cuda", True),
        ("a100-40gb", "bfloat16", "cuda-2020", False),
        ("rtx-3090", "bfloat16", "cuda", False),  # whose networks in float16 were measured
        ("t4", "float16", "cuda", False),
        ("v100-pcie", "float16", "cuda", False),  # before Ampere
    ],
)
def test_published_products_stand_for_cards_whose_own_passes_are_not_known(
    name: str, dtype: str, era: Era, is_told: bool
) -> None:
    assert (effects_of(sheet(name), era, dtype).products is not None) == is_told


# What the gradient of upsampling takes beside that of its output.
SIZES = ("output_size", "input_size", "align_corners")


@pytest.mark.parametrize(("channels", "side", "us"), [(32, 64, (917, 1374)), (128, 128, (18982, 31818))])
def test_sums_that_meet_in_the_gradient_of_upsampling_wait_for_each_other(
    channels: int, side: int, us: tuple[int, int]
) -> None:
    """An H200 takes so long for the four gradients of `ppm`: the shortest is in float32, the longest in 16 bits."""
    seconds, card = 0.0, sheet("h200")
    for small in (1, 2, 3, 6):
        sizes = [side] * 2, [1, channels, small, small], False
        gradient = Wrapped(partial(torch.ops.aten.upsample_bilinear2d_backward, **dict(zip(SIZES, sizes, strict=True))))
        found = operators_of(gradient, meta(1, channels, side, side), mode="infer")
        (work,) = (each for one in found for each in one.works)
        known = rate(work, effects_of(card, "cuda"))
        assert (work.kind, known.is_assumed) == ("irregular", True)
        seconds += known.seconds(work, card, "float32")[0]
    assert us[0] < seconds * 1e6 < us[1]


IRREGULAR = """gather scatter_add index_add index_put _unsafe_index_put _unsafe_masked_index_put_accumulate put take
    embedding_dense_backward grid_sampler_3d_backward upsample_nearest2d_backward _upsample_nearest_exact1d_backward
    reflection_pad2d_backward replication_pad3d_backward unfold_backward col2im max_unpool2d masked_select cumsum sort
    unique_dim mode"""
REGULAR = """select_scatter slice_scatter diagonal_scatter slice_backward constant_pad_nd im2col roll upsample_nearest2d
    max_pool2d_with_indices add mul convolution_backward mm"""


def test_what_reads_or_adds_by_an_index_is_of_a_class_that_nothing_measured() -> None:
    """All operators that PyTorch has are asked about, and some of each kind looked at."""
    own = {name.removeprefix("aten::").partition(".")[0] for name in torch._C._dispatch_get_all_op_names()}
    found = {name for name in own if _IRREGULAR.search(name)}
    assert found >= {*IRREGULAR.split()}
    assert own - found >= {*REGULAR.split()}
