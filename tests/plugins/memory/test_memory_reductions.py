"""Global buffers of reductions on CUDA, against what an H200 allocated under PyTorch 2.11."""

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor, nn
from wrapped import Wrapped, meta

from ctxbench.plugins.memory.predict import predict_peak
from ctxbench.plugins.memory.reduction_rules import partial_results


def ones(*shape: int) -> Tensor:
    """The gradient of a sum: one number, expanded."""
    return torch.empty((), device="meta").expand(shape)


@pytest.mark.parametrize(
    ("data", "dims", "allocated"),
    [
        (ones(4096, 128), [0], 262_144),  # bias of a linear layer that the sum follows
        (ones(1, 512, 128, 128), [0, 2, 3], 2_162_688),  # bias of a convolution that the sum follows
        (meta(1, 512, 128, 128), None, 2_560),  # the sum of an output
        (meta(1, 4096, 384), [0, 1], 12_582_912),
        (meta(1, 16384, 1536), [0, 1], 138_412_032),
        (meta(1, 4096, 64), [1], 524_288),
        (meta(1, 16384, 64), [1], 2_097_152),
        (meta(1, 64, 64, 128).permute(0, 3, 1, 2), [0, 2, 3], 4_194_304),
        (meta(1, 128, 128, 512).permute(0, 3, 1, 2), [0, 2, 3], 67_108_864),
    ],
)
def test_partial_results_are_those_of_an_h200(data: Tensor, dims: Sequence[int] | None, allocated: int) -> None:
    results, semaphores = partial_results(data, dims, 4)
    assert -(-results // 512) * 512 == allocated
    assert semaphores <= 512


def test_a_warp_reduces_short_rows_without_a_buffer() -> None:
    assert partial_results(meta(1, 128, 64, 64), [2, 3], 4) == []
    assert partial_results(meta(0, 8), [0], 4) == []
    assert partial_results(meta(), None, 4) == []


def test_size_one_and_the_order_of_dimensions_do_not_matter() -> None:
    expected = partial_results(meta(4096, 384), [0], 4)
    assert expected == [12_582_912, 12]
    assert partial_results(meta(64, 1, 64, 384), (0, 2), 4) == expected
    assert partial_results(meta(64, 64, 384).transpose(0, 1), [-3, 1], 4) == expected
    assert partial_results(meta(4096, 384), 0, 8) == [2 * 12_582_912, 12]


def test_the_peak_has_them_on_cuda() -> None:
    x = torch.empty(16, 256, 384, device="meta")
    mean = Wrapped(lambda x: x.mean((0, 1)))
    assert predict_peak(mean, x, mode="infer", device="cuda").peak_bytes == 1536 + 12_582_912 + 512


@pytest.mark.parametrize(("reduce", "bytes_a_result"), [("amax", 2), ("sum", 4), ("var", 16), ("argmax", 16)])
def test_a_result_takes_what_the_operator_adds_up(reduce: str, bytes_a_result: int) -> None:
    module, x = Wrapped(lambda x: getattr(x, reduce)(dim=0)), meta(4096, 384, dtype=torch.bfloat16)
    profile = predict_peak(module, x, mode="infer", device="cuda")
    assert profile.timeline[-1].inner[0] == bytes_a_result * 384 * 64 * 128


def inner_of_the_gradient(*layers: nn.Module) -> list[int]:
    x = torch.empty(1, 64, 512, 512, device="meta")
    profile = predict_peak(nn.Sequential(*layers).to("meta"), x, mode="train", device="cuda")
    (step,) = [step for step in profile.timeline if step.op.startswith("aten.convolution_backward")]
    return list(step.inner)


def test_a_convolution_sums_its_bias_after_its_copies() -> None:
    copied = [4 * 2 * 512 * 512]  # the gradient of a sum is expanded
    assert inner_of_the_gradient(nn.Conv2d(64, 2, 1)) == copied
    assert inner_of_the_gradient(nn.Conv2d(64, 2, 1, bias=False)) == copied
    assert partial_results(meta(1, 2, 512, 512), [0, 2, 3], 4) == [4 * 2 * 32, 4 * 2]
    assert inner_of_the_gradient(nn.Conv2d(64, 2, 1), nn.ReLU()) == [512, 512]
    assert inner_of_the_gradient(nn.Conv2d(64, 2, 1, bias=False), nn.ReLU()) == []
