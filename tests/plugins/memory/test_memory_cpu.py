"""The tracker with its CPU table equals the profiler's allocation peak to the byte, on one thread."""

import copy
import os
from collections.abc import Callable
from typing import Any

import drawn_cases
import pytest
import torch
from field_cases import CASES, FEW, Shape
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional
from wrapped import Wrapped, meta

from ctxbench import registry
from ctxbench.base.mode import MODES
from ctxbench.meta.outputs import trained_input
from ctxbench.plugins.memory.kernel_rules import Call
from ctxbench.plugins.memory.kernels import MemoryDevice, MemoryRules
from ctxbench.plugins.memory.measure import measure_peak
from ctxbench.plugins.memory.norm_rules import THREAD_SUMS
from ctxbench.plugins.memory.predict import predict_peak

pytestmark = [  # many small cases, which take seconds together
    pytest.mark.slow,
    pytest.mark.processor,
    pytest.mark.usefixtures("plain_kernels"),
]


def assert_exact(module: nn.Module, *inputs: Tensor) -> None:
    for mode in MODES:
        profile, measured = (
            predict_peak(module, *inputs, mode=mode, device="cpu"),
            measure_peak(module, *inputs, mode=mode),
        )
        if torch.get_num_threads() > 1 and set(profile.marks.values()) == {THREAD_SUMS}:
            assert profile.peak_bytes <= measured
        else:
            assert (profile.marks, profile.peak_bytes) == ({}, measured), mode


@pytest.mark.parametrize("key", registry.names())
def test_every_module_of_the_registry(key: str) -> None:
    options = {"rank": 8} if key.startswith("ham") else FEW.get(key, {})
    module = registry.get(key).build(32, options)
    assert_exact(module, trained_input(module, torch.randn(2, 32, 12, 10)))


@pytest.mark.parametrize(("key", "shape", "hparams"), CASES)
def test_every_hyper_parameter_and_edge(key: str, shape: Shape, hparams: dict[str, Any]) -> None:
    module = registry.get(key).build(shape[1], hparams)
    assert_exact(module, trained_input(module, torch.randn(shape)))


def test_a_scan_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ctxbench.meta.scan.PIECE", 2**8)
    monkeypatch.setattr("ctxbench.meta.scan.LARGE", 1)
    assert_exact(registry.get("vim").build(8, {"d_state": 3}), torch.randn(2, 8, 6, 7))


FUSED = "aten._scaled_dot_product_flash_attention_for_cpu"
MARKED_IN_HALF = {  # in inference, in training
    **dict.fromkeys(
        ("a2", "non_local", "lite_mla", "shsa", "triplet", "cga"), ([], ["aten.native_batch_norm_backward"])
    ),
    **dict.fromkeys(("mhsa", "sra", "hilo", "rope_attention", "bra"), ([FUSED], [FUSED, f"{FUSED}_backward"])),
    "area": ([FUSED], [FUSED, "aten.native_batch_norm_backward", f"{FUSED}_backward"]),
    # No fused kernel of the CPU takes a bias that is trained.
    **dict.fromkeys(("swin", "grid", "dat"), ([FUSED], [])),
}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("key", registry.names())
def test_half_types_are_exact_or_marked(key: str, dtype: torch.dtype) -> None:
    options = {"rank": 8} if key.startswith("ham") else FEW.get(key, {})
    module = registry.get(key).build(32, options).to(dtype)
    for mode, marked in zip(MODES, MARKED_IN_HALF.get(key, ([], [])), strict=True):
        x = trained_input(module, torch.randn(2, 32, 12, 10).to(dtype))
        profile = predict_peak(module, x, mode=mode, device="cpu")
        measured = measure_peak(module, x, mode=mode)
        of_threads = [name for name, reason in profile.marks.items() if reason == THREAD_SUMS]
        assert [name for name in profile.marks if name in marked or name not in of_threads] == marked
        assert not of_threads or torch.get_num_threads() > 1
        assert profile.peak_bytes <= measured if profile.marks else profile.peak_bytes == measured


def test_several_outputs() -> None:
    """Three, of which one has no gradient and one is both saved and returned."""

    def forward(x: Tensor, first: nn.Module, second: nn.Module) -> dict[str, Any]:
        hidden = first(x)
        return {"out": second(hidden).softmax(1), "more": [hidden, x.argmax(1)]}

    assert_exact(Wrapped(forward, nn.Linear(8, 16), nn.Linear(16, 4)), torch.randn(32, 8))


def product(function: Callable[[Tensor, Tensor], Any], shape: tuple[int, ...]) -> nn.Module:
    """A function of the input and of a parameter."""
    return Wrapped(function, nn.Parameter(torch.randn(shape)))


def scaled(function: Callable[[Tensor], Any], shape: tuple[int, ...]) -> nn.Module:
    """A function of the input times a parameter of its shape."""
    return product(lambda x, scale: function(x * scale), shape)


def _resized(size: tuple[int, int], layout: torch.memory_format = torch.contiguous_format) -> Any:
    return lambda x: functional.interpolate(x.contiguous(memory_format=layout), size, mode="bilinear")


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.fft.rfft2(x).abs(),
        lambda x: torch.fft.rfft2(x.transpose(1, 3)).real,
        lambda x: torch.fft.rfft(x, dim=1).imag,
        lambda x: torch.fft.irfft2(torch.fft.rfft2(x)),
        lambda x: torch.fft.irfftn(torch.fft.rfftn(x, dim=(1, 2, 3)), dim=(1, 2, 3)),
        lambda x: torch.fft.fft2(x).real,
        lambda x: torch.fft.ifft(torch.complex(x, x), dim=0).imag,
        _resized((6, 8)),
        _resized((20, 20)),
        _resized((100, 90)),
        _resized((100, 90), torch.channels_last),
    ],
)
def test_fourier_transforms_and_bilinear_resizing(function: Callable[[Tensor], Tensor]) -> None:
    for shape in ((2, 6, 6, 8), (1, 3, 6, 8)):
        assert_exact(scaled(function, shape), torch.randn(shape))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(
    "function",
    [
        functional.mish,
        lambda x: x.max(dim=1)[0],
        lambda x: x.min(dim=1)[0],
        lambda x: x.clamp(-1, 1),
        lambda x: x.clamp(max=torch.ones_like(x, dtype=torch.int32)),
        lambda x: x.std((2, 3)),
        lambda x: x.var((1, 2), unbiased=False),
        lambda x: x.var(),
        lambda x: x.sum(),
        lambda x: x[:, :, 1:].sum(),
        lambda x: x - x.mean(),
        lambda x: 2**x,
        lambda x: x.copysign(-1.0),
        lambda x: x.triu(),
        lambda x: x.mT.tril(),
        lambda x: functional.pixel_unshuffle(x[..., :4, :4], 2),
        lambda x: functional.pixel_shuffle(x.flatten(2)[:1, :4, :35].view(1, 4, 5, 7), 2),
        lambda x: torch.normal(x, 2.0),
        lambda x: torch.normal(0.0, x.abs()),
        lambda x: torch.normal(x, x.abs()),
        lambda x: torch.ldexp(x, x.detach()[:, :1]),
        lambda x: torch.ldexp(x, torch.ones_like(x, dtype=torch.int64)),
        lambda x: torch.atan2(x[:1], x[:, :1]),  # its formula adds two numbers of unlike shapes
        lambda x: functional.layer_norm(x, x.shape[1:]),
        lambda x: functional.layer_norm(x, x.shape[3:]),
    ],
)
def test_forward_and_backward_take_what_they_take_on_the_cpu(
    function: Callable[[Tensor], Tensor], dtype: torch.dtype
) -> None:
    for shape in ((2, 6, 5, 7), (1, 64, 72, 72)):
        assert_exact(scaled(function, shape).to(dtype), torch.randn(shape).to(dtype))


def test_a_gradient_that_takes_other_operators_than_on_meta_is_marked() -> None:
    def marks(function: Callable[[Tensor], Tensor]) -> list[str]:
        shape = (2, 6, 5, 7)
        return list(predict_peak(scaled(function, shape), torch.randn(shape), mode="train", device="cpu").marks)

    assert marks(lambda x: x.max()) == ["aten.max"]
    assert marks(lambda x: x.clamp(x.mean(), x.sum())) == ["aten.clamp"]
    assert marks(lambda x: x[:, [0, 2]]) == ["__getitem__"]
    assert marks(lambda x: torch.xlogy(x, x)) == ["aten.xlogy"]


def test_a_pooling_that_meta_does_otherwise_is_marked() -> None:
    module, x = scaled(lambda x: functional.max_pool1d(x, 2), (2, 3, 8)), torch.randn(2, 3, 8)
    profiles = {mode: predict_peak(module, x, mode=mode, device="cpu") for mode in MODES}
    assert {mode: list(profile.marks) for mode, profile in profiles.items()} == {"infer": ["max_pool1d"], "train": []}
    assert profiles["train"].peak_bytes == measure_peak(module, x, mode="train")


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32], ids=str)
@pytest.mark.parametrize(
    ("table", "index"),
    [
        ((9, 4), lambda places: places.view(-1)),
        ((9, 9, 4), lambda places: (places, places.T)),
        ((4, 9, 3), lambda places: (slice(None), places)),
        ((9, 4, 9), lambda places: (places, slice(None), places[0])),
        ((9,), lambda places: places),
    ],
)
def test_integers_in_an_index_are_no_mask(
    table: tuple[int, ...], index: Callable[[Tensor], Any], dtype: torch.dtype
) -> None:
    """Sums with what is looked up in a table, as in attention with a bias by relative position."""
    places = nn.Parameter(torch.arange(144).view(12, 12).remainder(9).to(dtype), requires_grad=False)
    rows = nn.Parameter(torch.randn(table))
    module = Wrapped(lambda x, rows, places: x + rows[index(places)].square().sum(), rows, places)
    assert_exact(module, torch.randn(1, 2, 3, 3))


def einsum_attention(x: Tensor, project: nn.Module) -> Tensor:
    query, key, value = project(x).chunk(3, dim=2)
    affinity = torch.einsum("bnc,bmc->bnm", query, key) * query.shape[2] ** -0.5
    return torch.einsum("bnm,bmc->bnc", affinity.softmax(dim=2), value)


def residual(width: int, inplace: bool) -> nn.Module:
    layers = (nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width))
    body = nn.Sequential(*layers, nn.ReLU(inplace=inplace), *copy.deepcopy(layers))
    return Wrapped(lambda x, body: functional.relu(x + body(x)), body)


def in_place_and_views(x: Tensor, scale: Tensor) -> Tensor:
    y = x * scale
    first, second = y.chunk(2, dim=1)
    y = torch.cat([second, first.transpose(2, 3)], dim=1)
    y += 1
    y = y.mul_(2).flatten(2)
    return y[:, :, 1:].clone().clamp_(-1, 1)


MLP = nn.Sequential(nn.Linear(12, 48), nn.GELU(), nn.Linear(48, 12), nn.Dropout(0.1))


@pytest.mark.parametrize(
    ("module", "shape"),
    [
        (MLP, (4, 12)),
        (MLP, (2, 5, 12)),
        (Wrapped(einsum_attention, nn.Linear(8, 24)), (2, 24, 8)),
        (residual(6, inplace=True), (2, 6, 9, 7)),
        (residual(6, inplace=False), (1, 6, 8, 8)),
        (product(in_place_and_views, (6, 1, 1)), (2, 6, 5, 5)),
        (nn.Sequential(nn.Conv2d(4, 4, 3, stride=2), nn.GroupNorm(2, 4), nn.AdaptiveAvgPool2d(1)), (2, 4, 9, 9)),
        (nn.Sequential(nn.Conv2d(4, 8, 3, groups=4), nn.MaxPool2d(2), nn.LeakyReLU(), nn.AvgPool2d(2)), (2, 4, 14, 14)),
        (nn.Sequential(nn.Conv2d(4, 6, 3, padding=2, dilation=2), nn.Conv2d(6, 4, 3, dilation=3)), (2, 4, 9, 9)),
        (nn.Conv2d(6, 4, 3, padding=2, dilation=2, groups=2), (2, 6, 9, 9)),
        (nn.BatchNorm2d(4), (2, 4, 6, 6)),
        (nn.LayerNorm(8), (2, 6, 8)),
    ],

)  # fmt: skip
def test_further_modules(module: nn.Module, shape: tuple[int, ...]) -> None:
    assert_exact(module, torch.randn(shape))


@pytest.mark.parametrize("shape", [(3, 16, 9, 7), (30, 16), (3, 16, 50)], ids=str)
@pytest.mark.parametrize("data", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_group_norm_sums_half_types_in_float32(shape: tuple[int, ...], data: torch.dtype) -> None:
    assert_exact(nn.GroupNorm(4, 16).to(data), torch.randn(shape).to(data))
    assert_exact(nn.GroupNorm(4, 16, affine=False), torch.randn(shape).to(data).requires_grad_())
    if data.itemsize < 4:
        assert_exact(nn.GroupNorm(4, 16), torch.randn(shape).to(data))  # its statistics are float32


def test_group_norm_on_cuda_keeps_its_statistics_and_sums_by_channel_and_group() -> None:
    """[3, 8, 25] in two groups: 2 x [3, 2] statistics, [3, 8] factors, shifts and sums, each a block of 512 bytes."""
    image, weight, plain, flat = meta(3, 8, 5, 5), meta(8), (None, None), meta(3, 8)
    by_group, by_channel = 3 * 2 * 4, 3 * 8 * 4
    assert _inner("native_group_norm", image, weight, weight, 3, 8, 25, 2, 1e-5) == [by_channel] * 2
    assert _inner("native_group_norm", image, None, weight, 3, 8, 25, 2, 1e-5) == [by_channel] * 2
    assert _inner("native_group_norm", image, *plain, 3, 8, 25, 2, 1e-5) == []
    assert _inner("native_group_norm", flat, weight, weight, 3, 8, 1, 2, 1e-5) == []
    half = _inner("native_group_norm", image.half(), weight.half(), weight.half(), 3, 8, 25, 2, 1e-5)
    assert half == [by_group] * 2 + [by_channel] * 2
    double = _inner("native_group_norm", image.double(), weight.double(), None, 3, 8, 25, 2, 1e-5)
    assert double == [2 * by_channel] * 2

    def backward(x: Tensor, gamma: Tensor | None, *mask: bool) -> list[int]:
        statistics = meta(3, 2, dtype=x.dtype)
        sizes = (3, 8, x[0, 0].numel(), 2)
        return _inner("native_group_norm_backward", x, x, statistics, statistics, gamma, *sizes, mask)

    for x, gamma in ((image, weight), (image.half(), weight.half())):
        assert backward(x, gamma, True, True, True) == [by_channel] * 3 + [by_group] * 2
    assert backward(image, weight, False, True, True) == [by_channel] * 2
    assert backward(image, None, True, False, False) == [by_channel] * 2 + [by_group] * 2
    assert backward(flat, weight, True, True, True) == [by_group] * 2
    assert backward(flat, weight, False, True, True) == []

    maps, blocks = 3 * 8 * 8 * 16 * 4, 512
    module, x = nn.GroupNorm(2, 8), torch.randn(3, 8, 8, 16)
    peaks = {mode: predict_peak(module, x, mode=mode, device="cuda") for mode in MODES}
    assert [peak.marks for peak in peaks.values()] == [{}, {}]
    # weight and bias, output, mean and deviation, factors and shifts
    assert peaks["infer"].peak_bytes == 2 * blocks + maps + 4 * blocks
    # the sum and its gradient, the gradient of the map, two sums by channel, the weights' gradients
    assert peaks["train"].peak_bytes == 4 * blocks + maps + 2 * blocks + maps + 4 * blocks


def test_an_input_that_asks_for_a_gradient() -> None:
    assert_exact(nn.Conv2d(3, 3, 1), torch.randn(2, 3, 5, 5, requires_grad=True))


def _attend(x: Tensor) -> Tensor:
    tokens = x.flatten(2)
    affinity = (tokens.transpose(1, 2) @ tokens).softmax(dim=-1)
    return (tokens @ affinity.transpose(1, 2)).view(x.shape)


def _attend_by_tokens(x: Tensor) -> Tensor:
    tokens = x.flatten(2).transpose(1, 2)
    affinity = torch.softmax(tokens @ tokens.transpose(1, 2) / x.shape[1] ** 0.5, dim=-1)
    return (affinity @ tokens).transpose(1, 2).reshape(x.shape)


def _attend_over_channels(x: Tensor) -> Tensor:
    channels = x.flatten(2)
    return ((channels @ channels.transpose(1, 2)).softmax(dim=-1) @ channels).view(x.shape)


def _swap_halves(x: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=1)
    return torch.cat([second, first], dim=1)


OPERATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": functional.relu,
    "relu in place": lambda x: functional.relu(x.clone(), inplace=True),
    "sigmoid": torch.sigmoid,
    "gelu": functional.gelu,
    "gate": lambda x: x * torch.sigmoid(x),
    "softmax over channels": lambda x: x.softmax(dim=1),
    "softmax over positions": lambda x: x.flatten(2).softmax(dim=-1).view(x.shape),
    "log softmax": lambda x: functional.log_softmax(x, dim=1),
    "halve": lambda x: x * 0.5,
    "divide in place": lambda x: x.clone().div_(3),
    "one minus": lambda x: 1 - x,
    "inverse": lambda x: 1 / (x.abs() + 1),
    "square": lambda x: x**2,
    "less its mean": lambda x: x - x.mean(dim=(2, 3), keepdim=True),
    "less its maximum": lambda x: x - x.amax(dim=1, keepdim=True),
    "unit length": lambda x: functional.normalize(x, dim=1),
    "by its deviation": lambda x: x / (x.std(dim=(2, 3), keepdim=True) + 1e-5),
    "transpose": lambda x: x.transpose(2, 3),
    "transpose and copy": lambda x: x.transpose(2, 3).contiguous(),
    "attention": _attend,
    "attention by tokens": _attend_by_tokens,
    "attention over channels": _attend_over_channels,
    "swap halves": _swap_halves,
    "masked": lambda x: x.masked_fill(x < 0, 0.0),
    "add pooled": lambda x: x + functional.adaptive_avg_pool2d(x, 1),
    "max pool": lambda x: functional.max_pool2d(x, 3, 1, 1),
    "pad and cut": lambda x: functional.pad(x, (1, 1, 1, 1))[:, :, 1:-1, 1:-1],
    "clamp": lambda x: x.clamp(-1, 1),
}
LAYERS: dict[str, Callable[[int], nn.Module]] = {
    "conv 1x1": lambda width: nn.Conv2d(width, width, 1),
    "conv 3x3": lambda width: nn.Conv2d(width, width, 3, padding=1, bias=False),
    "batch norm": nn.BatchNorm2d,
}


class Chain(nn.Module):
    """A first convolution, then the named steps; `residual` adds the first map at the end."""

    def __init__(self, steps: list[str], width: int, residual: bool) -> None:
        super().__init__()
        self.steps, self.residual = steps, residual
        self.first = nn.Conv2d(width, width, 1)
        self.layers = nn.ModuleList(LAYERS[step](width) if step in LAYERS else nn.Identity() for step in steps)

    def forward(self, x: Tensor) -> Tensor:
        x = start = self.first(x)
        for step, layer in zip(self.steps, self.layers, strict=True):
            x = OPERATIONS[step](x) if step in OPERATIONS else layer(x)
        return x + start if self.residual else x


@settings(
    max_examples=16 if os.environ.get(drawn_cases.VARIABLE) == "drawn" else 80,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    steps=st.lists(st.sampled_from([*OPERATIONS, *LAYERS]), min_size=1, max_size=7),
    width=st.sampled_from([2, 4, 6]),
    side=st.sampled_from([4, 5, 6]),
    residual=st.booleans(),
)
def test_random_chains(steps: list[str], width: int, side: int, residual: bool) -> None:
    assert_exact(Chain(steps, width, residual), torch.randn(2, width, side, side))


def test_onednn_is_marked_and_not_guessed() -> None:
    with torch.backends.mkldnn.flags(enabled=True):
        profile = predict_peak(nn.Conv2d(8, 8, 3), torch.randn(2, 8, 9, 9), mode="infer", device="cpu")
    assert list(profile.marks) == ["aten.convolution"]
    assert "processor" in profile.marks["aten.convolution"]


PRODUCTS: dict[str, tuple[Any, tuple[int, ...], tuple[int, ...]]] = {  # function, shapes of input and weight
    "mm": (torch.mm, (200, 64), (64, 32)),
    "mm, small": (torch.mm, (16, 16), (16, 16)),
    "addmm": (lambda x, w: torch.addmm(x[:, :32], x, w), (200, 64), (64, 32)),
    "bmm": (torch.bmm, (4, 100, 64), (4, 64, 32)),
    "bmm, transposed": (lambda x, w: x @ w.transpose(1, 2), (4, 100, 64), (4, 32, 64)),
    "baddbmm": (lambda x, w: torch.baddbmm(x[..., :32], x, w), (4, 100, 64), (4, 64, 32)),
    "mv": (torch.mv, (200, 640), (640,)),
    "addmv": (lambda x, w: torch.addmv(x[:, 0], x, w), (200, 640), (640,)),
    "dot": (torch.dot, (640,), (640,)),
    "linear": (functional.linear, (2, 100, 64), (32, 64)),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", PRODUCTS)
def test_products_with_onednn_are_exact_or_marked(name: str, dtype: torch.dtype) -> None:
    function, shape, weight = PRODUCTS[name]
    module, x = product(function, weight).to(dtype), torch.randn(shape).to(dtype)
    with torch.backends.mkldnn.flags(enabled=True):
        for mode in MODES:
            profile, measured = predict_peak(module, x, mode=mode, device="cpu"), measure_peak(module, x, mode=mode)
            assert profile.peak_bytes <= measured if profile.marks else profile.peak_bytes == measured
            assert all("oneDNN multiplies" in reason for reason in profile.marks.values())


@pytest.mark.parametrize(("dtype", "question"), [(torch.bfloat16, "bf16"), (torch.float16, "fp16")], ids=str)
def test_half_products_are_marked_where_onednn_can(
    dtype: torch.dtype, question: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, x = product(torch.mm, (64, 32)).to(dtype), torch.randn(200, 64).to(dtype)
    for can in (False, True):
        monkeypatch.setattr(torch.ops.mkldnn, f"_is_mkldnn_{question}_supported", lambda can=can: can)
        with torch.backends.mkldnn.flags(enabled=True):
            marks = predict_peak(module, x, mode="infer", device="cpu").marks
            assert list(marks) == ["aten.mm"] * can
            assert predict_peak(module.float(), x.float(), mode="infer", device="cpu").marks == {}
        module.to(dtype)
        assert predict_peak(module, x, mode="infer", device="cpu").marks == {}  # oneDNN is off


def test_another_pytorch_or_processor_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    module, x = nn.ReLU(), torch.randn(2, 3)

    def predicted(device: MemoryDevice) -> list[str]:
        return predict_peak(module, x, mode="infer", device=device).unchecked

    monkeypatch.setattr(torch, "__version__", "2.13.1+cpu")
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    assert (predicted("cpu"), predicted("cuda")) == ([], [])
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    monkeypatch.setattr(torch, "__version__", "2.16.0")
    on_cpu, on_cuda = predicted("cpu"), predicted("cuda")
    assert on_cpu == [
        "The rules of the CPU's kernels were compared with PyTorch 2.11 to 2.15, not with 2.16.0.",
        "The rules of the CPU's kernels were compared on x86-64 processors, not on aarch64.",
    ]
    assert on_cuda == ["The rules of CUDA's kernels were read in the sources of PyTorch 2.13, not of 2.16.0."]


@pytest.mark.parametrize("device", ["cuda", "cuda-2020", "cpu"])
def test_no_operator_is_both_free_and_in_the_table_of_one_device_twice(device: str) -> None:
    from ctxbench.plugins.memory.kernels import KERNELS

    names = [name for row in KERNELS if device in row.devices for name in row.operators.split()]
    assert len(names) == len(set(names))
    assert all(row.why and row.source for row in KERNELS)


def test_adding_into_a_table_on_cuda_sorts_the_places() -> None:
    places, value = torch.empty(12, 12, dtype=torch.int32, device="meta"), meta(12, 12, 4)
    for is_added, grad, sizes in (
        (True, value, [8 * 144] * 5),  # cast to 64 bits; places and their order, as they are and sorted
        (True, value.transpose(0, 1), [*[8 * 144] * 5, 4 * 144 * 4]),
        (False, value, [8 * 144]),
    ):
        call = Call(torch.ops.aten.index_put.default, (meta(9, 4), [places], grad, is_added), (grad,))
        assert MemoryRules("cuda").inner(call) == (sizes, "")


def test_softmax_backward_on_cuda_allocates_one_more_map_and_a_copy_of_a_transposed_gradient() -> None:
    softmax = torch.ops.aten._softmax_backward_data.default
    output = torch.empty(2, 8, 16, device="meta")
    for grad, blocks in ((output, 1), (torch.empty(2, 16, 8, device="meta").transpose(1, 2), 2)):
        call = Call(softmax, (grad, output, 2, torch.float32), (grad, output))
        assert MemoryRules("cuda").inner(call) == ([1024] * blocks, "")
    assert MemoryRules("cuda").round(1) == 512
    assert MemoryRules("cpu").round(1) == 1


def _inner(operator: str, *args: object, device: MemoryDevice = "cuda") -> list[int]:
    tensors = tuple(value for value in args if isinstance(value, Tensor))
    sizes, reason = MemoryRules(device).inner(Call(getattr(torch.ops.aten, operator).default, args, tensors))
    assert not reason
    return list(sizes)


@pytest.mark.parametrize(
    ("dtype", "weights", "blocks"),
    [
        (torch.float32, torch.float32, [4 * 480]),
        (torch.float64, torch.float64, [8 * 480]),
        (torch.float16, torch.float32, [2 * 480]),
        (torch.float16, torch.float16, []),
        (torch.bfloat16, torch.bfloat16, []),
        (torch.bfloat16, torch.float32, []),
    ],
)
def test_batch_norm_on_cuda_is_cudnn_only_where_cudnn_takes_it(
    dtype: torch.dtype, weights: torch.dtype, blocks: list[int]
) -> None:
    image, weight = meta(2, 10, 6, 4, dtype=dtype), meta(10, dtype=weights)
    statistics = (weight, weight, weight, weight)
    of_a_sum = meta(1, dtype=dtype).expand(2, 10, 6, 4)
    rest = (True, 1e-5, [True, True, True])
    assert _inner("native_batch_norm_backward", of_a_sum, image, weight, *statistics, *rest) == blocks
    transposed = meta(2, 10, 4, 6, dtype=dtype).transpose(2, 3)  # its positions have no common stride
    assert _inner("native_batch_norm_backward", transposed, image, weight, *statistics, *rest) == [480 * dtype.itemsize]
    forward = (weight, weight, weight, weight, True, 0.1, 1e-5)
    assert _inner("native_batch_norm", transposed, *forward) == blocks


def test_batch_norm_of_rows_has_a_gradient_on_cuda() -> None:
    rows, weight = meta(6, 10), meta(10)
    rest = (weight, weight, weight, weight, weight, True, 1e-5, [True, True, True])
    assert _inner("native_batch_norm_backward", rows, rows, *rest) == [40, 40]  # two sums for each channel
    assert _inner("native_batch_norm_backward", rows, rows, *rest, device="cuda-2020") == []
    assert _inner("native_batch_norm_backward", rows, meta(10, 6).t(), *rest) == []
    many = Call(torch.ops.aten.native_batch_norm_backward.default, (meta(1793, 10),) * 2 + rest, ())
    assert "1792 rows" in MemoryRules("cuda").inner(many)[1]
    head = nn.Sequential(nn.Linear(16, 10), nn.BatchNorm1d(10)).to("meta")
    for device in ("cuda", "cuda-2020"):
        assert predict_peak(head, meta(6, 16), mode="train", device=device).marks == {}


def test_layer_norm_and_resizing_on_cuda_copy_what_is_not_dense() -> None:
    rows, weight, statistics = meta(6, 8), meta(8), meta(6, 1)
    rest = ([8], statistics, statistics, weight, weight, [True, True, True])
    assert _inner("native_layer_norm_backward", rows, rows, *rest) == []
    assert _inner("native_layer_norm_backward", meta(1).expand(6, 8), meta(8, 6).t(), *rest) == [4 * 48] * 2

    image, grad = meta(2, 8, 6, 6), meta(1).expand(2, 8, 9, 9)
    assert _inner("upsample_bilinear2d", image, [9, 9], True) == []
    assert _inner("upsample_bilinear2d", meta(2, 8, 6, 12)[..., ::2], [9, 9], True) == []
    assert _inner("upsample_bilinear2d_backward", grad, [9, 9], [2, 8, 6, 6], True) == [4 * 16 * 81]


def test_fourier_transforms_on_cuda_join_the_batch_and_keep_the_input_of_the_inverse() -> None:
    spectrum = torch.empty(2, 8, 6, 5, dtype=torch.complex64, device="meta")
    assert _inner("_fft_r2c", meta(2, 8, 6, 8), [2, 3], 1, True) == []
    assert _inner("_fft_c2c", spectrum, [2], 1, False) == [8 * 480]
    assert _inner("_fft_c2r", spectrum, [3], 1, 8) == [8 * 480]
    assert _inner("_fft_c2r", spectrum.transpose(2, 3), [2], 1, 8) == [8 * 480, 8 * 480]
    assert list(MemoryRules("cuda").workspaces({"_fft_c2r"})) == ["cuFFT"]


def test_norms_sum_by_image_and_channel_and_say_where_a_device_decides() -> None:
    image, groups, channels = meta(3, 8, 5, 5), meta(3, 2), meta(8)
    mask = [True, True, True]
    sums = _inner("native_group_norm_backward", image, image, groups, groups, channels, 3, 8, 25, 2, mask, device="cpu")
    assert sums == [2 * 3 * 8 * 4]
    for rows, is_known in ((2**16, True), (2**16 + 1, False)):
        wide, row = meta(rows, 4), meta(rows, 1)
        arguments = (wide, wide, [4], row, row, meta(4), meta(4), mask)
        tensors = tuple(value for value in arguments if isinstance(value, Tensor))
        call = Call(torch.ops.aten.native_layer_norm_backward.default, arguments, tensors)
        assert ("65536 rows" not in MemoryRules("cuda").inner(call)[1]) == is_known


def test_pooling_on_cuda_copies_what_it_does_not_read_by_strides() -> None:
    image, grad = meta(2, 8, 6, 6), meta(1).expand(2, 8, 3, 3)
    last = image.to(memory_format=torch.channels_last)
    cut = meta(2, 8, 6, 12)[..., ::2]
    assert _inner("_adaptive_avg_pool2d", image, [3, 3]) == _inner("_adaptive_avg_pool2d", last, [3, 3]) == []
    assert _inner("_adaptive_avg_pool2d", cut, [3, 3]) == [4 * 576]
    assert _inner("_adaptive_avg_pool2d_backward", grad, image) == [4 * 144]
    assert _inner("_adaptive_avg_pool2d_backward", grad, last) == []
    assert _inner("avg_pool2d_backward", grad, last, [2, 2], [2, 2]) == [4 * 144]
    assert _inner("avg_pool2d_backward", grad, cut, [2, 2], [2, 2]) == [4 * 144, 4 * 576]


def test_a_matrix_times_a_vector_copies_a_matrix_without_unit_stride() -> None:
    matrix, vector, of_a_sum = meta(6, 8), meta(8), meta(1).expand(8)
    cut = meta(6, 16)[:, ::2]
    for device in ("cuda", "cpu"):
        assert _inner("mv", matrix, vector, device=device) == []
        assert _inner("mv", meta(8, 6).t(), vector, device=device) == []
        assert _inner("mv", cut, vector, device=device) == [4 * 48]
        assert _inner("addmv", meta(6), cut, vector, device=device) == [4 * 48]
    assert _inner("mv", matrix, of_a_sum) == [4 * 8]
    assert_exact(product(lambda x, matrix: matrix @ x, (6, 8)), torch.randn(8))
    assert_exact(product(lambda x, matrix: matrix[:, ::2] @ x, (6, 16)), torch.randn(8))
