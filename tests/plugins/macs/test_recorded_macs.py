"""MACs that are read off the pass that is recorded for memory: those of a pass of their own, or none."""

import gc
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from wrapped import Wrapped

from ctxbench.base.mode import MODES, Mode
from ctxbench.meta import watch
from ctxbench.meta.scan import selective_scan, wkv
from ctxbench.plugins.macs.counter import MacCount, count_macs
from ctxbench.plugins.macs.metric import _recorded
from ctxbench.plugins.macs.training import count_training_macs
from ctxbench.plugins.memory.kernels import MemoryDevice
from ctxbench.plugins.memory.predict import predict_peak


def after_a_convolution(function: Callable[[Tensor], Tensor]) -> nn.Module:
    return nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), Wrapped(function))


FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "activations": lambda x: functional.silu(functional.gelu(functional.leaky_relu(x))) * functional.hardswish(x),
    "attention": lambda x: (x.flatten(2).mT @ x.flatten(2)).softmax(-1) @ x.flatten(2).mT,
    "checkpoint": lambda x: checkpoint(torch.tanh, x * x, use_reentrant=False),
    "einsum": lambda x: torch.einsum("bchw,bdhw->bcd", x, x) * 2,
    "linalg": lambda x: torch.linalg.inv(x.flatten(2) @ x.flatten(2).mT),
    "norms": lambda x: functional.instance_norm(functional.group_norm(functional.layer_norm(x, x.shape[1:]), 2)),
    "pools": lambda x: functional.adaptive_avg_pool2d(functional.avg_pool2d(functional.max_pool2d(x, 2), 2), 1),
    "resized": lambda x: functional.interpolate(x, scale_factor=2, mode="bilinear"),
    "sums": lambda x: torch.addcmul(x, x, x).mean((2, 3)).prod(1).cumsum(0),
}


def scanned(x: Tensor) -> Tensor:
    """Two scans of positions, the second of what the first gives: [B, C, n, 1]."""
    value = x.flatten(2).mT  # [B, n, C]
    rate, some = -x[:1, :, 0, :2], value[:, None, :, :2]
    read = selective_scan(value[:, None], value[:, None] * value[:, None], rate, some, some, x[:1, :, 0, 0])[:, 0]
    return wkv(read, value, x[0, :, 0, 0], x[0, :, 0, 1]).mT[..., None]


MODULES = {
    **{name: after_a_convolution(each) for name, each in FUNCTIONS.items()},
    "batch norm": nn.Sequential(nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4), nn.PReLU(4), nn.Linear(8, 3)),
    "transposed": nn.Sequential(nn.ConvTranspose2d(4, 2, 2, 2), nn.GLU(1)),
}
REPLACED = {
    "dropout": after_a_convolution(lambda x: functional.dropout(x * x, 0.5)),
    "mish": after_a_convolution(functional.mish),
    "rms norm": nn.RMSNorm(8),
    "recurrent": nn.Sequential(nn.Flatten(2), nn.LSTM(64, 4)),
}


SCANNED = {
    "scans": after_a_convolution(scanned),
    "scans in a checkpoint": after_a_convolution(lambda x: checkpoint(scanned, x * x, use_reentrant=False)),
    "scans in an old checkpoint": after_a_convolution(lambda x: checkpoint(scanned, x * x, use_reentrant=True)),
}


def recorded(module: nn.Module, mode: Mode) -> MacCount | None:
    dtype = next(module.parameters()).dtype if [*module.parameters()] else None
    case = SimpleNamespace(autocast_dtype=None, device="meta")
    measurement: Any = SimpleNamespace(
        case=case, on_meta=(module, torch.empty(2, 4, 8, 8, dtype=dtype)), once=lambda name, make: make()
    )
    return _recorded(measurement, mode)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", MODULES)
def test_they_are_those_of_a_pass_of_their_own(name: str, mode: Mode) -> None:
    count = count_training_macs if mode == "train" else count_macs
    own, found = count(MODULES[name], torch.empty(2, 4, 8, 8)), recorded(MODULES[name], mode)
    assert found is not None
    assert (found.macs, found.macs_matmul) == (own.macs, own.macs_matmul)
    assert (found.uncounted, found.estimates) == (own.uncounted, own.estimates)
    assert found.by_place == own.by_place


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", REPLACED)
def test_what_is_recorded_by_a_device_s_kernels_takes_a_pass_of_its_own(name: str, mode: Mode) -> None:
    assert recorded(REPLACED[name], mode) is None


def attended(channels: int, causal: bool = False, mask: Tensor | None = None) -> nn.Module:
    def attend(x: Tensor) -> Tensor:
        own = x[..., :channels]
        return functional.scaled_dot_product_attention(own, own * own, own, mask, is_causal=causal)

    return after_a_convolution(attend)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("module", "dtype", "other"),
    [
        (attended(8), torch.float32, ()),
        (attended(8, causal=True), torch.float32, ()),
        (attended(8, mask=torch.zeros(8, 8, device="meta")), torch.float32, ()),
        (attended(8, mask=torch.zeros(8, 8, dtype=torch.bool, device="meta")), torch.bfloat16, ()),
        (attended(8), torch.float16, ()),
        (attended(6), torch.float64, ("train",)),
        (attended(6), torch.float32, ("train",)),
        (attended(6), torch.float16, MODES),
    ],
)
def test_attention_counts_the_same_but_where_a_kernel_has_other_products(
    module: nn.Module, dtype: torch.dtype, other: tuple[Mode, ...], mode: Mode
) -> None:
    count, module = count_training_macs if mode == "train" else count_macs, module.to(dtype)
    own, found = count(module, torch.empty(2, 4, 8, 8, dtype=dtype)), recorded(module, mode)
    assert (found is None) == (mode in other)
    if found:
        assert (found.macs, found.macs_matmul) == (own.macs, own.macs_matmul)
        assert (found.uncounted, found.estimates) == (own.uncounted, own.estimates)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", SCANNED)
def test_a_scan_counts_as_a_whole_in_each_direction(name: str, mode: Mode) -> None:
    count = count_training_macs if mode == "train" else count_macs
    found = recorded(SCANNED[name], mode)
    assert (found is None) == (mode == "train" and name != "scans")  # it runs again
    if found:
        own = count(SCANNED[name], torch.empty(2, 4, 8, 8))
        assert (found.macs, found.uncounted, found.estimates) == (own.macs, own.uncounted, own.estimates)


@pytest.mark.parametrize("device", ["cuda", "cpu"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", [*MODULES, "scans"])
def test_the_record_is_the_same_where_composite_operators_are_not_asked_for(
    name: str, mode: Mode, device: MemoryDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, x = (MODULES | SCANNED)[name], torch.empty(2, 4, 8, 8)
    seen = predict_peak(module, x, mode=mode, device=device)
    monkeypatch.setattr(watch, "composites", list)
    monkeypatch.setattr(watch, "SCANS", ())
    plain = predict_peak(module, x, mode=mode, device=device)
    assert seen.timeline == plain.timeline
    assert (seen.marks, seen.scans) == (plain.marks, plain.scans)
    assert [each.operation for each in plain.calls] == [each.call for each in plain.timeline]


def test_a_pass_leaves_nothing_of_itself_with_pytorch() -> None:
    def watches() -> int:
        gc.collect()
        return sum(isinstance(each, watch.PassWatch) for each in gc.get_objects())

    before = watches()
    count_training_macs(MODULES["pools"], torch.empty(2, 4, 8, 8))
    assert watches() == before
