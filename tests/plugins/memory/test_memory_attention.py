"""Fused attention: its path on CUDA by PyTorch's rules, its bytes by hand; on the CPU equal to the profiler's peak."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from test_memory_cpu import assert_exact
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from wrapped import Wrapped

from ctxbench.base.mode import Mode
from ctxbench.plugins.memory.convention import UnpredictableError
from ctxbench.plugins.memory.measure import measure_peak
from ctxbench.plugins.memory.predict import predict_peak
from ctxbench.plugins.memory.profile import MemoryProfile

pytestmark = pytest.mark.slow  # many small cases, which take seconds together

PREFIX = "aten._scaled_dot_product_"
FUSED = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]


class SelfAttention(nn.Module):
    """Queries, keys and values from one projection without bias; `mask` is None, `bool` or `float`."""

    def __init__(self, heads: int, channels: int, mask: str = "", causal: bool = False, dropout: float = 0.0) -> None:
        super().__init__()
        self.project = nn.Linear(heads * channels, 3 * heads * channels, bias=False)
        self.heads, self.mask, self.causal, self.dropout = heads, mask, causal, dropout

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        query, key, value = [
            t.view(batch, length, self.heads, -1).transpose(1, 2) for t in self.project(x).chunk(3, dim=2)
        ]
        mask = torch.ones(length, length, device=x.device, dtype=getattr(torch, self.mask)) if self.mask else None
        out = functional.scaled_dot_product_attention(query, key, value, mask, self.dropout, self.causal)
        return out.transpose(1, 2).reshape(batch, length, width)


def heads(**options: Any) -> nn.Module:
    layer = nn.MultiheadAttention(16, 2, **options)
    return Wrapped(lambda x, layer: layer(x, x, x, need_weights=False)[0], layer)


def predict(
    mode: Mode, dtype: torch.dtype, length: int = 128, channels: int = 16, mask: str = "", causal: bool = False
) -> MemoryProfile:
    module = SelfAttention(2, channels, mask, causal).to("meta", dtype)
    return predict_peak(module, torch.empty(2, length, 2 * channels, dtype=dtype, device="meta"), mode=mode)


def path(profile: MemoryProfile) -> str:
    fused = [step.op for step in profile.timeline if step.op.startswith(PREFIX)]
    return fused[0].removeprefix(PREFIX).partition("_")[0] if fused else "math"


# In all three: 2 images, 2 heads, 128 positions, 16 channels; every size is a multiple of 512 unless it says so.


def test_the_flash_path_by_hand() -> None:
    with sdpa_kernel(FUSED):
        train, infer = predict("train", torch.bfloat16), predict("infer", torch.bfloat16)
    each, weight, rows = 2 * 2 * 2 * 128 * 16, 2 * 96 * 32, 4 * 2 * 2 * 128
    logsumexp, random_state = rows, 2 * 512
    forward = weight + 3 * each + each + logsumexp + random_state
    assert (path(train), infer.peak_bytes, infer.marks) == ("flash", forward, {})
    loss = 2 * 512  # the sum and its gradient
    gradients, copy_of_the_gradient = 3 * each, each
    inside = copy_of_the_gradient + rows + rows * 32  # sums; the query's gradient, channels padded to 32, in float32
    assert (train.peak_bytes, train.marks) == (forward + loss + gradients + inside, {})
    assert train.at_op == PREFIX + "flash_attention_backward.default"


def test_the_memory_efficient_path_by_hand() -> None:
    train, infer = predict("train", torch.float32), predict("infer", torch.float32)
    each, weight, rows = 4 * 2 * 2 * 128 * 16, 4 * 96 * 32, 4 * 2 * 2 * 128
    forward = weight + 3 * each + each  # no logsumexp without a backward pass; seed and offset are on the host
    assert (path(train), infer.peak_bytes, infer.marks) == ("efficient", forward, {})
    tiles = 4 * (2 * 2) * (128 // 64) * (64 * 64 + 4)
    tiles = -(-tiles // 512) * 512  # 131,200 bytes
    inside = each + rows + tiles  # the gradient's copy, the sums of gradient * output, the workspace
    assert (train.peak_bytes, train.marks) == (forward + rows + 2 * 512 + 3 * each + inside, {})
    assert train.at_op == PREFIX + "efficient_attention_backward.default"


def test_the_math_path_by_hand() -> None:
    with sdpa_kernel(SDPBackend.MATH):
        train, infer = predict("train", torch.float32), predict("infer", torch.float32)
    each, weight, affinity = 4 * 2 * 2 * 128 * 16, 4 * 96 * 32, 4 * 2 * 2 * 128 * 128
    inside = affinity // 4 + 512 + 512  # a boolean for each number and for each row, and a zero
    # the projection; the scaled queries, which a variable keeps; the affinity before and after the softmax
    assert (path(infer), infer.marks) == ("math", {})
    assert infer.peak_bytes == weight + 3 * each + each + 2 * affinity + inside
    # in the softmax's backward: the scaled, dense queries and keys, the values' gradient, the output, and four maps
    assert (train.peak_bytes, train.marks) == (weight + 4 * each + 2 * 512 + 4 * affinity, {})
    assert train.at_op == "aten._softmax_backward_data.default"


@pytest.mark.parametrize(
    ("dtype", "options", "expected"),
    [
        (torch.float16, {}, "flash"),
        (torch.bfloat16, {"channels": 256}, "flash"),
        (torch.bfloat16, {"channels": 12}, "flash"),  # padded to 16 channels
        (torch.bfloat16, {"causal": True}, "flash"),
        (torch.bfloat16, {"channels": 264}, "efficient"),
        (torch.bfloat16, {"mask": "bool"}, "efficient"),
        (torch.bfloat16, {"mask": "bool", "channels": 12}, "math"),
        (torch.float32, {"channels": 12}, "efficient"),
        (torch.float32, {"channels": 6}, "math"),
        (torch.float64, {}, "math"),
    ],
)
def test_the_path_on_cuda(dtype: torch.dtype, options: dict[str, Any], expected: str) -> None:
    with sdpa_kernel(FUSED):
        assert path(predict("infer", dtype, **options)) == expected


def test_a_path_that_is_switched_off_is_not_taken() -> None:
    with sdpa_kernel([SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]):
        assert path(predict("infer", torch.bfloat16)) == "efficient"
    with sdpa_kernel([SDPBackend.MATH, SDPBackend.FLASH_ATTENTION], set_priority=True):
        assert path(predict("infer", torch.bfloat16)) == "math"
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION), pytest.raises(UnpredictableError, match="cuDNN's kernel"):
        predict("infer", torch.bfloat16)
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION), pytest.raises(UnpredictableError, match="no path"):
        predict("infer", torch.float32)


def test_heads_of_12_channels_are_padded_to_16() -> None:
    with sdpa_kernel(FUSED):
        infer = predict("infer", torch.bfloat16, channels=12)
    each, padded, weight = 2 * 2 * 2 * 128 * 12, 2 * 2 * 2 * 128 * 16, 2 * 72 * 24
    weight = -(-weight // 512) * 512  # 3,456 bytes
    # the projection; three padded maps and their output; logsumexp; the random state
    assert infer.peak_bytes == weight + 3 * each + 4 * padded + 4 * 2 * 2 * 128 + 2 * 512


class Grouped(nn.Module):
    """Attention of 4 heads of queries, and fewer of keys and of values, with 16 channels each."""

    def __init__(self, keys: int, values: int | None = None, mask: str = "", causal: bool = False) -> None:
        super().__init__()
        self.heads = (4, keys, keys if values is None else values)
        self.project = nn.Linear(64, 16 * sum(self.heads), bias=False)
        self.mask, self.causal = mask, causal

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        parts = self.project(x).split([16 * each for each in self.heads], dim=2)
        query, key, value = (part.view(batch, length, -1, 16).transpose(1, 2) for part in parts)
        mask = torch.ones(length, length, device=x.device, dtype=getattr(torch, self.mask)) if self.mask else None
        out = functional.scaled_dot_product_attention(query, key, value, mask, is_causal=self.causal, enable_gqa=True)
        return out.transpose(1, 2).reshape(batch, length, width)


def grouped(mode: Mode, dtype: torch.dtype, keys: int) -> MemoryProfile:
    module = Grouped(keys).to("meta", dtype)
    return predict_peak(module, torch.empty(2, 128, 64, dtype=dtype, device="meta"), mode=mode)


def test_grouped_queries_on_cuda_by_hand() -> None:
    with sdpa_kernel(FUSED):
        train, infer, equal = (grouped(*each) for each in (
            ("train", torch.bfloat16, 2), ("infer", torch.bfloat16, 2), ("infer", torch.bfloat16, 4),
        ))  # fmt: skip
        assert path(grouped("infer", torch.float32, 2)) == "math"
        assert path(grouped("infer", torch.float32, 4)) == "efficient"
    weight, each, rows = 2 * 64 * 128, 2 * 2 * 4 * 128 * 16, 4 * 2 * 4 * 128
    forward = weight + 2 * each + each + rows + 2 * 512  # keys and values are half as many as queries
    assert (path(infer), infer.peak_bytes, infer.marks) == ("flash", forward, {})
    assert (path(equal), equal.peak_bytes) == ("flash", forward + each + 2 * 64 * 64)
    gradients, expanded = each + 2 * (each // 2), 2 * each
    inside = each + rows + rows * 32 + expanded
    assert (train.peak_bytes, train.marks) == (forward + 2 * 512 + gradients + inside, {})


@pytest.mark.parametrize(
    ("dtype", "length", "channels", "mark"),
    [
        (torch.bfloat16, 128, 16, "scaled_dot_product_attention"),  # cuDNN, where the device prefers it
        (torch.bfloat16, 512, 16, "aten._scaled_dot_product_flash_attention"),  # split keys
        (torch.float32, 128, 80, "aten._scaled_dot_product_efficient_attention_backward"),  # tiles by the device
    ],
)
def test_what_depends_on_the_device_is_marked(dtype: torch.dtype, length: int, channels: int, mark: str) -> None:
    assert mark in predict("train", dtype, length, channels).marks


def test_many_queries_do_not_split_their_keys() -> None:
    with sdpa_kernel(FUSED):
        assert predict("train", torch.bfloat16, length=64 * 77).marks == {}  # 2 * 2 * 77 blocks of queries


def test_the_pytorch_of_2020_takes_the_math_path() -> None:
    module, tokens = SelfAttention(2, 16), torch.empty(2, 128, 32, device="meta")
    assert path(predict_peak(module, tokens, mode="train", device="cuda-2020")) == "math"


@pytest.fixture
def _no_fast_path(plain_kernels: None) -> Iterator[None]:
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    yield
    torch.backends.mha.set_fastpath_enabled(fast)


@pytest.mark.processor
@pytest.mark.usefixtures("_no_fast_path")
@pytest.mark.parametrize("length", [5, 40, 200, 800])
@pytest.mark.parametrize(("mask", "causal"), [("", False), ("", True), ("bool", False), ("float", False)])
def test_the_cpu_path_equals_the_profiler(length: int, mask: str, causal: bool) -> None:
    assert_exact(SelfAttention(2, 8, mask, causal), torch.randn(2, length, 16))
    assert_exact(SelfAttention(1, 8, mask, causal).double(), torch.randn(2, length, 8, dtype=torch.float64))


@pytest.mark.processor
@pytest.mark.usefixtures("_no_fast_path")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("heads", [(1, 1), (2, 2), (4, 4), (2, 4)], ids=str)
@pytest.mark.parametrize(("mask", "causal"), [("", False), ("", True), ("bool", False)])
def test_grouped_queries_on_the_cpu_equal_the_profiler(
    dtype: torch.dtype, heads: tuple[int, int], mask: str, causal: bool
) -> None:
    assert_exact(Grouped(*heads, mask, causal).to(dtype), torch.randn(2, 40, 64, dtype=dtype))


@pytest.mark.processor
@pytest.mark.usefixtures("_no_fast_path")
def test_the_math_path_on_the_cpu_equals_the_profiler() -> None:
    with sdpa_kernel(SDPBackend.MATH):
        assert_exact(SelfAttention(2, 8), torch.randn(2, 40, 16))
        assert_exact(SelfAttention(2, 8, causal=True), torch.randn(2, 40, 16))


@pytest.mark.processor
@pytest.mark.usefixtures("_no_fast_path")
def test_multihead_attention_equals_the_profiler() -> None:
    assert_exact(heads(batch_first=True), torch.randn(2, 40, 16))
    assert_exact(heads(), torch.randn(40, 2, 16))
    assert_exact(heads(dropout=0.1), torch.randn(40, 2, 16))


class Unfused(nn.Module):
    """Attention that PyTorch fuses in inference on no device, each of another reason."""

    def __init__(self, why: str) -> None:
        super().__init__()
        options: dict[str, Any] = {"bias_k": {"add_bias_kv": True}, "zeros": {"add_zero_attn": True}}.get(why, {})
        heads = 1 if why == "odd heads" else 2
        self.layer = nn.MultiheadAttention(16, heads, batch_first=why not in ("batch second", "function"), **options)
        self.why = why

    def forward(self, x: Tensor) -> Tensor:
        layer, keys = self.layer, x.sin() if self.why == "other keys" else x
        if self.why != "function":
            out: Tensor = layer(x, keys, keys, need_weights=False)[0]
            return out
        inside = (layer.in_proj_weight, layer.in_proj_bias, None, None, False, 0.0)
        last = (layer.out_proj.weight, layer.out_proj.bias, False)
        return functional.multi_head_attention_forward(x, x, x, 16, 2, *inside, *last, need_weights=False)[0]


@pytest.mark.processor
@pytest.mark.usefixtures("plain_kernels")
@pytest.mark.parametrize("why", ["batch second", "odd heads", "other keys", "bias_k", "zeros", "function"])
def test_multihead_attention_that_no_device_fuses_equals_the_profiler(why: str) -> None:
    module, tokens = Unfused(why), torch.randn(40, 2, 16)
    assert predict_peak(module, tokens, mode="infer", device="cpu").peak_bytes == measure_peak(
        module, tokens, mode="infer"
    )
    assert predict_peak(module, tokens, mode="infer").peak_bytes > 0


@pytest.mark.processor
@pytest.mark.usefixtures("_no_fast_path")
@pytest.mark.parametrize("mask", [(), (40, 40), (2, 40, 40)], ids=str)
def test_three_dimensions_on_the_cpu_equal_the_profiler(mask: tuple[int, ...]) -> None:
    assert_exact(one_head(mask), torch.randn(2, 40, 8))
    assert_exact(one_head(mask, dropout=0.1), torch.randn(2, 40, 8))


def one_head(mask: tuple[int, ...], dropout: float = 0.0) -> nn.Module:
    """Attention of maps [batch, positions, channels]."""

    def forward(x: Tensor, project: nn.Module) -> Tensor:
        query, key, value = project(x).chunk(3, dim=2)
        ones = torch.ones(mask, dtype=torch.bool, device=x.device) if mask else None
        return functional.scaled_dot_product_attention(query, key, value, ones, dropout)

    return Wrapped(forward, nn.Linear(8, 24, bias=False))


def test_half_types_on_the_cpu_are_marked() -> None:
    module, tokens = SelfAttention(2, 16).bfloat16(), torch.empty(2, 8, 32, dtype=torch.bfloat16, device="meta")
    marks = predict_peak(module, tokens, mode="infer", device="cpu").marks
    assert "packed" in marks["aten._scaled_dot_product_flash_attention_for_cpu"]


def test_multihead_attention_on_cuda_takes_the_same_path_as_its_function() -> None:
    module, tokens = heads(batch_first=True).to("meta"), torch.empty(2, 128, 16, device="meta")
    assert path(predict_peak(module, tokens, mode="train")) == "efficient"
    with sdpa_kernel(FUSED):
        assert path(predict_peak(module.bfloat16(), tokens.bfloat16(), mode="train")) == "flash"
