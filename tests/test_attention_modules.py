"""The attention and pyramid modules: outputs, gradients, exact counts, edge cases and refusals."""

import warnings
from typing import Any

import pytest
import torch
from reference_attention import REFERENCES
from torch import Tensor, nn
from torchprofile import profile_macs

from ctxbench import registry
from ctxbench.meta.differences import positions_first

pytestmark = pytest.mark.slow  # many small cases, which take seconds together

Shape = tuple[int, int, int, int]
FULL: Shape = (1, 512, 128, 128)

CASES: list[tuple[str, Shape, dict[str, Any]]] = [
    ("sa", (2, 6, 3, 5), {}),
    ("sa", (1, 4, 1, 1), {"d": 3}),
    ("sa", (2, 8, 3, 5), {"fused": True}),
    ("sa", (1, 6, 4, 3), {"d": 3, "fused": True}),
    ("da", (2, 8, 3, 4), {}),
    ("da", (2, 6, 2, 3), {"reduction": 2}),
    ("a2", (2, 6, 3, 5), {}),
    ("a2", (2, 4, 2, 3), {"c_m": 3, "c_n": 5}),
    ("apc", (2, 4, 7, 5), {}),
    ("apc", (2, 3, 2, 3), {"d": 5, "bottleneck": True}),
    ("dm", (2, 3, 7, 5), {}),
    ("dm", (2, 3, 2, 3), {"d": 4, "bottleneck": True}),
    ("acf", (2, 6, 5, 4), {}),
    ("acf", (2, 4, 3, 7), {"d": 3, "batch_norm": True}),
    ("acf", (1, 4, 1, 1), {}),
    ("linear", (2, 16, 3, 5), {}),
    ("linear", (1, 6, 1, 1), {"reduction": 2}),
    ("focused_linear", (2, 16, 3, 5), {}),
    ("focused_linear", (2, 6, 4, 3), {"heads": 2, "focus": 4, "kernel": 3, "positions": 12, "qkv_bias": False}),
    ("focused_linear", (1, 8, 1, 1), {}),
]
WITH_BATCH_NORM = [case for case in CASES if case[0] in ("da", "a2") or {"bottleneck", "batch_norm"} & case[2].keys()]
KEYS = tuple(REFERENCES)


def build(key: str, channels: int, hparams: dict[str, Any], dtype: torch.dtype = torch.float64) -> nn.Module:
    """The module with every parameter and statistic random, so that no scale or table is left at zero."""
    torch.manual_seed(0)
    module = registry.get(key).build(channels, hparams).to(torch.float64)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_(0.0, 0.6)
        for name, buffer in module.named_buffers():
            if buffer.is_floating_point():
                buffer.uniform_(0.5, 1.5) if name.endswith("var") else buffer.normal_(0.0, 0.5)
    return module.to(dtype)


def reference(key: str, module: nn.Module, x: Tensor, hparams: dict[str, Any]) -> tuple[Tensor, dict[str, Tensor]]:
    """The reference's output in float64 and the leaves it was computed from, by name."""
    named = {n: b.detach().double().clone() for n, b in module.named_buffers()}
    leaves = {n: p.detach().double().clone().requires_grad_() for n, p in module.named_parameters()}
    leaves["input"] = x.detach().double().clone().requires_grad_()
    extra = {"heads": hparams.get("heads", 8), "focus": hparams.get("focus", 3)} if key == "focused_linear" else {}
    return REFERENCES[key](named | leaves, leaves["input"], module.training, **extra), leaves


def assert_same(key: str, module: nn.Module, x: Tensor, hparams: dict[str, Any], tolerance: float) -> None:
    """The module's output, input gradient and parameter gradients equal the reference's."""
    expected, leaves = reference(key, module, x, hparams)
    x = x.clone().requires_grad_()
    output = module(x)
    weight = positions_first(torch.randn(expected.shape, dtype=torch.float64))
    torch.autograd.backward(expected, weight)
    torch.autograd.backward(output, weight.to(output.dtype))
    torch.testing.assert_close(output.double(), expected, rtol=tolerance, atol=tolerance)
    gradients = {n: p.grad.double() for n, p in module.named_parameters() if p.grad is not None}
    assert x.grad is not None
    gradients["input"] = x.grad.double()
    torch.testing.assert_close(gradients, {n: p.grad for n, p in leaves.items()}, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("images", [1, 2])
@pytest.mark.parametrize(("key", "shape", "hparams"), CASES)
def test_outputs_and_gradients_equal_the_equations(
    key: str, shape: Shape, hparams: dict[str, Any], images: int
) -> None:
    module = build(key, shape[1], hparams).eval()
    assert_same(key, module, torch.randn((images, *shape[1:]), dtype=torch.float64), hparams, 1e-10)


@pytest.mark.parametrize("images", [1, 2])
@pytest.mark.parametrize(("key", "shape", "hparams"), WITH_BATCH_NORM)
def test_training_uses_the_statistics_of_the_batch(
    key: str, shape: Shape, hparams: dict[str, Any], images: int
) -> None:
    module = build(key, shape[1], hparams).train()
    assert_same(key, module, torch.randn((images, *shape[1:]), dtype=torch.float64), hparams, 1e-9)


@pytest.mark.parametrize(("key", "shape", "hparams"), CASES)
def test_single_precision_stays_near_the_equations(key: str, shape: Shape, hparams: dict[str, Any]) -> None:
    module = build(key, shape[1], hparams, torch.float32).eval()
    assert_same(key, module, torch.randn(shape), hparams, 2e-3)


# The counts of Table 3's modules at the paper's input, as torchprofile 0.1.0 counts them; focused_linear with its
# published table has 16384 * 512 parameters more.
LEDGER = {
    "sa": (1_050_624, 292_057_776_128),
    "da": (5_048_962, 245_920_432_128),
    "a2": (1_054_720, 25_803_358_208),
    "apc": (2_126_898, 18_031_864_832),
    "dm": (3_147_776, 35_086_444_544),
    "acf": (787_456, 79_461_089_280),
    "linear": (328_321, 6_470_762_496),
    "focused_linear": (1_052_800, 18_513_658_368),
}


@pytest.mark.parametrize("key", KEYS)
def test_counts_at_the_paper_s_input(key: str) -> None:
    entry = registry.get(key)
    with torch.device("meta"):
        module = entry.build(512)
    assert sum(p.numel() for p in module.parameters()) == LEDGER[key][0]
    assert entry.closed_form("params", FULL) == LEDGER[key][0]
    assert entry.closed_form("macs", FULL) == LEDGER[key][1]


def test_the_published_position_table_is_counted() -> None:
    entry = registry.get("focused_linear")
    with torch.device("meta"):
        module = entry.build(512, {"positions": 128 * 128})
    assert sum(p.numel() for p in module.parameters()) == 9_441_408
    assert entry.closed_form("params", FULL, {"positions": 128 * 128}) == 9_441_408


@pytest.mark.parametrize(("key", "shape", "hparams"), CASES)
def test_closed_forms_equal_torchprofile_and_the_weights(key: str, shape: Shape, hparams: dict[str, Any]) -> None:
    entry = registry.get(key)
    module = build(key, shape[1], hparams).eval()
    x = torch.randn(shape, dtype=torch.float64)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="No handlers found")
        counted = profile_macs(module, (x,))
    assert entry.closed_form("macs", shape, hparams) == counted
    assert entry.closed_form("params", shape, hparams) == sum(p.numel() for p in module.parameters())
    assert tuple(module(x).shape) == (shape[0], entry.closed_form("out_channels", shape, hparams), *shape[2:])


def test_learned_scales_start_at_the_identity() -> None:
    x = torch.randn(2, 16, 3, 5)
    assert torch.equal(registry.get("linear").build(16)(x), x)
    dual = registry.get("da").build(16)
    assert torch.equal(dual.get_submodule("position")(x), x)
    assert torch.equal(dual.get_submodule("channel")(x), x)


@pytest.mark.parametrize("zero_pixels", [slice(0, 1), slice(0, 3)])
def test_linear_attention_takes_nothing_from_zero_vectors(zero_pixels: slice) -> None:
    module = build("linear", 16, {}).eval()
    for name, parameter in module.named_parameters():
        if name in ("query.bias", "key.bias"):
            nn.init.zeros_(parameter)
    x = torch.randn(2, 16, 3, 5, dtype=torch.float64)
    x[0, :, zero_pixels] = 0.0
    expected, _ = reference("linear", module, x, {})
    x.requires_grad_()
    output = module(x)
    output.square().sum().backward()
    torch.testing.assert_close(output, expected, rtol=1e-10, atol=1e-10)
    for gradient in [x.grad, *(p.grad for p in module.parameters())]:
        assert gradient is not None
        assert gradient.isfinite().all()
        assert gradient.abs().max() < 1e4


def test_linear_attention_takes_only_the_direction_of_short_vectors() -> None:
    module = build("linear", 16, {}, torch.float32).eval()
    x = torch.randn(2, 16, 3, 5)
    expected = module(x)
    with torch.no_grad():
        for name in ("query", "key"):
            for parameter in module.get_submodule(name).parameters():
                parameter.mul_(1e-16)
    torch.testing.assert_close(module(x), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_linear_attention_survives_opposite_queries_and_keys(dtype: torch.dtype) -> None:
    """With one channel a query can be opposite to every key: all weights 1 + q . k are zero."""
    module = build("linear", 2, {"reduction": 2}, dtype)
    with torch.no_grad():
        module.get_parameter("query.weight").zero_()
        module.get_parameter("key.weight").zero_()
        module.get_parameter("query.bias").fill_(-1.0)
        module.get_parameter("key.bias").fill_(1.0)
    x = torch.randn(1, 2, 20, 30, dtype=dtype, requires_grad=True)
    output = module(x)
    output.sum().backward()
    assert output.isfinite().all()
    assert x.grad is not None
    assert x.grad.isfinite().all()


@pytest.mark.parametrize("focus", [3, 8])
def test_focused_linear_attention_is_finite_for_zero_features(focus: int) -> None:
    """(1e-6)**8 squared is no float32 number: the power is taken of unit vectors."""
    module = build("focused_linear", 16, {"focus": focus}, torch.float32)
    with torch.no_grad():
        for name in ("query", "key_value"):
            module.get_parameter(f"{name}.bias").zero_()
    x = torch.zeros(1, 16, 4, 3, requires_grad=True)
    output = module(x)
    output.sum().backward()
    expected, _ = reference("focused_linear", module, x, {"focus": focus})
    torch.testing.assert_close(output.double(), expected, rtol=1e-4, atol=1e-5)
    for gradient in [x.grad, *(p.grad for p in module.parameters())]:
        assert gradient is not None
        assert gradient.isfinite().all()


@pytest.mark.parametrize(
    ("key", "channels", "hparams", "sentence"),
    [
        *((key, 0, {}, r"channels is 0; it must be at least 1") for key in KEYS),
        ("sa", 8, {"d": 0}, "d is 0; it must be at least 1"),
        ("a2", 8, {"c_n": -1}, "c_n is -1; it must be at least 1"),
        ("da", 4, {}, r"channels is 4; da needs at least reduction \(8\) channels"),
        ("da", 4, {"reduction": 0}, "reduction is 0; it must be at least 1"),
        ("linear", 7, {}, r"channels is 7; linear needs at least reduction \(8\) channels"),
        ("focused_linear", 12, {}, r"channels is 12; focused_linear needs a multiple of heads \(8\)"),
        ("focused_linear", 16, {"kernel": 4}, "kernel is 4; focused_linear needs an odd size"),
        ("focused_linear", 16, {"focus": 0}, "focus is 0; it must be at least 1"),
        ("focused_linear", 16, {"positions": -1}, r"positions is -1; it must be 0 \(no table\)"),
    ],
)
def test_impossible_modules_are_refused(key: str, channels: int, hparams: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        registry.get(key).build(channels, hparams)


@pytest.mark.parametrize("key", KEYS)
def test_wrong_inputs_are_refused(key: str) -> None:
    module = registry.get(key).build(16)
    with pytest.raises(ValueError, match=rf"^{key} takes an input \[B, C, H, W\]; this one has 3 dimensions$"):
        module(torch.randn(16, 4, 4))
    with pytest.raises(ValueError, match=rf"^{key} was built for 16 channels; the input has 8$"):
        module(torch.randn(1, 8, 4, 4))


def test_a_position_table_refuses_another_resolution() -> None:
    module = registry.get("focused_linear").build(16, {"positions": 12})
    assert module(torch.randn(1, 16, 4, 3)).shape == (1, 16, 4, 3)
    with pytest.raises(ValueError, match=r"table of 12 positions; the input has 20 \(H 4 x W 5\)"):
        module(torch.randn(1, 16, 4, 5))
