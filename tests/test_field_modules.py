"""The eighteen modules of the field: outputs, gradients, exact counts, edge cases and refusals."""

import inspect
import itertools
from typing import Any

import pytest
import torch
from reference_field import REFERENCES
from torch import Tensor, nn

from ctxbench import registry
from ctxbench.macs.counter import count_macs
from ctxbench.memory import predict_peak
from ctxbench.metrics.params import count_params
from ctxbench.mode import MODES

Shape = tuple[int, int, int, int]
FULL: Shape = (1, 512, 128, 128)

CASES: list[tuple[str, Shape, dict[str, Any]]] = [
    ("mhsa", (2, 8, 3, 5), {}),
    ("mhsa", (1, 6, 1, 1), {"heads": 3}),
    ("non_local", (2, 6, 3, 5), {}),
    ("non_local", (2, 6, 3, 5), {"scale": False, "sub_sample": True}),
    ("non_local", (2, 6, 4, 3), {"mode": "gaussian", "reduction": 3, "sub_sample": True}),
    ("non_local", (2, 4, 3, 3), {"mode": "dot_product"}),
    ("non_local", (2, 4, 3, 5), {"mode": "concatenation", "sub_sample": True}),
    ("non_local", (2, 4, 1, 1), {"mode": "concatenation", "sub_sample": True}),
    ("criss_cross", (2, 8, 3, 5), {}),
    ("criss_cross", (2, 4, 4, 3), {"recurrence": 3, "reduction": 2}),
    ("criss_cross", (1, 8, 1, 1), {}),
    ("gc", (2, 32, 3, 5), {}),
    ("gc", (2, 8, 3, 4), {"pooling": "avg", "fusion": "mul", "reduction": 2}),
    ("gc", (1, 8, 1, 1), {"fusion": "both", "reduction": 4}),
    ("ema", (2, 6, 3, 5), {"bases": 4}),
    ("ema", (2, 6, 3, 4), {"bases": 3, "steps": 2, "gradient": "unrolled", "momentum": 0.5}),
    ("ema", (2, 4, 1, 1), {"bases": 3}),
    ("ppm", (2, 8, 7, 5), {}),
    ("ppm", (1, 8, 4, 9), {"fuse": False}),
    ("ppm", (2, 4, 1, 1), {}),
    ("aspp", (2, 6, 7, 5), {"width": 4, "rate": 2}),
    ("aspp", (1, 4, 3, 4), {"width": 3, "rate": 1}),
    ("apnb", (2, 6, 9, 10), {}),
    ("apnb", (2, 6, 3, 1), {"reduction": 3}),
    ("isa", (2, 4, 5, 6), {"block": 2}),
    ("isa", (1, 6, 4, 7), {"block": 3, "reduction": 3}),
    ("isa", (2, 4, 1, 1), {"block": 2}),
    ("efficient", (2, 8, 3, 5), {}),
    ("efficient", (2, 8, 4, 3), {"reduction": 1, "heads": 4}),
    ("efficient", (1, 4, 1, 1), {}),
    ("external", (2, 6, 3, 5), {"memory": 5}),
    ("external", (2, 4, 1, 1), {"memory": 3}),
    ("spectral", (2, 6, 6, 8), {}),
    ("spectral", (2, 5, 5, 7), {}),
    ("spectral", (2, 4, 1, 1), {}),
    ("agent", (2, 16, 9, 8), {}),
    ("agent", (2, 6, 3, 5), {"heads": 2, "pool": 4, "qkv_bias": False}),
    ("mila", (2, 16, 3, 5), {}),
    ("mila", (2, 8, 4, 3), {"heads": 2}),
    ("rala", (2, 32, 3, 4), {}),
    ("rala", (2, 16, 4, 3), {"heads": 2}),
    ("mala", (2, 32, 3, 4), {}),
    ("mala", (1, 16, 1, 1), {"heads": 2}),
    ("polaformer", (2, 16, 3, 5), {}),
    ("polaformer", (2, 8, 4, 3), {"heads": 2, "alpha": 2, "kernel": 3, "qkv_bias": False}),
    ("se", (2, 16, 3, 5), {}),
    ("se", (1, 8, 1, 1), {"reduction": 4, "bias": False}),
]

# params, MACs at the full shape: the facts of the field, or our own form where its extras differ.
FIGURES: dict[str, tuple[int, int]] = {
    "mhsa": (1_050_624, 292_057_776_128),
    "non_local": (526_592, 146_037_276_672),
    "criss_cross": (328_321, 15_586_033_664),
    "gc": (33_889, 16_810_016),
    "ema": (525_824, 12_356_419_584),
    "ppm": (4_982_784, 77_354_663_168),
    "aspp": (4_131_840, 65_519_354_624),
    "apnb": (920_576, 15_967_771_648),
    "isa": (2_366_464, 42_739_957_760),
    "efficient": (525_568, 10_737_418_240),
    "external": (591_360, 9_672_065_024),
    "spectral": (525_824, 6_484_459_520),
    "se": (33_312, 8_421_888),
}
PRODUCTS: dict[str, int] = {
    "agent": 18_899_533_824,
    "mila": 22_171_090_944,
    "rala": 22_775_070_720,
    "mala": 22_766_682_112,
    "polaformer": 23_865_589_760,
}


def build(key: str, channels: int, hparams: dict[str, Any], seed: int = 0) -> nn.Module:
    """The module in float64 with every parameter and statistic random, so that nothing is left at zero."""
    torch.manual_seed(seed)
    module = registry.get(key).build(channels, hparams).double()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_(0.0, 0.5)
        for name, buffer in module.named_buffers():
            if buffer.is_floating_point():
                buffer.uniform_(0.5, 1.5) if name.endswith("var") else buffer.normal_(0.0, 0.5)
    return module


def leaves_of(module: nn.Module, x: Tensor) -> dict[str, Tensor]:
    found = {n: b.detach().clone() for n, b in module.named_buffers()}
    found |= {n: p.detach().clone().requires_grad_(p.requires_grad) for n, p in module.named_parameters()}
    return found | {"input": x.detach().clone().requires_grad_()}


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(("key", "shape", "hparams"), CASES)
def test_output_and_gradients_are_those_of_the_equations(
    key: str, shape: Shape, hparams: dict[str, Any], training: bool
) -> None:
    module = build(key, shape[1], hparams).train(training)
    values = shape[0] * shape[2] * shape[3]
    if training and values == 1 and any(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in module.modules()):
        pytest.skip("batch normalisation of one value")
    x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    leaves = leaves_of(module, x)
    y = module(x)
    expected = REFERENCES[key](leaves, leaves["input"], training, **hparams)
    torch.testing.assert_close(y, expected, rtol=1e-9, atol=1e-9)
    weights = torch.randn_like(y)
    (y * weights).sum().backward()
    (expected * weights).sum().backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad, leaves["input"].grad, rtol=1e-7, atol=1e-8)
    for name, parameter in module.named_parameters():
        grad = leaves[name].grad
        if parameter.requires_grad:
            own = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            torch.testing.assert_close(own, torch.zeros_like(own) if grad is None else grad, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize(("key", "shape", "hparams"), CASES)
def test_the_closed_forms_are_the_counts(key: str, shape: Shape, hparams: dict[str, Any]) -> None:
    entry = registry.get(key)
    for size in (shape, (1, *shape[1:]), (3, shape[1], shape[2] + 2, shape[3] + 1)):
        with torch.device("meta"):
            module = entry.build(size[1], hparams)
        assert count_params(module) == entry.closed_form("params", size, hparams)
        count = count_macs(module, torch.empty(size, device="meta"))
        assert count.macs == entry.closed_form("macs", size, hparams)


@pytest.mark.parametrize("key", REFERENCES)
def test_the_figures_at_the_full_shape(key: str) -> None:
    entry = registry.get(key)
    with torch.device("meta"):
        module = entry.build(FULL[1])
    count = count_macs(module, torch.empty(FULL, device="meta"))
    if key in FIGURES:
        assert (count_params(module), count.macs) == FIGURES[key]
    else:
        assert count.macs_matmul == PRODUCTS[key]


def test_every_hyper_parameter_is_moved_by_a_case() -> None:
    for key in REFERENCES:
        names = {p.name for p in registry.get(key).hyperparameters}
        moved = {name for case, _, hparams in CASES if case == key for name in hparams}
        assert names == moved, key


def test_the_bases_of_ema_move_in_training_and_never_in_eval() -> None:
    module = build("ema", 6, {"bases": 4})
    x = torch.randn(2, 6, 3, 5, dtype=torch.float64)
    before = module.get_buffer("bases").clone()
    module.eval()(x)
    assert torch.equal(module.get_buffer("bases"), before)
    module.train()(x)
    assert not torch.equal(module.get_buffer("bases"), before)


@pytest.mark.parametrize(
    ("key", "channels", "hparams", "sentence"),
    [
        ("mhsa", 6, {"heads": 4}, "mhsa needs a multiple of heads"),
        ("non_local", 4, {"mode": "cosine"}, "non_local knows embedded_gaussian, gaussian, dot_product, concatenation"),
        ("non_local", 1, {}, "non_local has 1 channels, fewer than reduction"),
        ("criss_cross", 8, {"recurrence": 0}, "recurrence is 0; it must be at least 1"),
        ("gc", 16, {}, "has one channel to normalise over"),
        ("gc", 32, {"fusion": "sum"}, "gc knows add, mul, both"),
        ("ema", 8, {"gradient": "half"}, "ema knows none, unrolled"),
        ("ema", 8, {"momentum": 2.0}, "must be from 0 to 1"),
        ("efficient", 8, {"heads": 3}, "efficient needs a multiple of heads"),
        ("agent", 6, {}, "agent needs a multiple of heads"),
        ("mila", 6, {"heads": 2}, "mila needs a multiple of 4"),
        ("rala", 8, {"heads": 4}, "rala has 2 channels a head; it needs a multiple of 4"),
        ("mala", 6, {"heads": 4}, "mala needs a multiple of heads"),
        ("polaformer", 16, {"kernel": 4}, "polaformer needs an odd size"),
        ("polaformer", 24, {}, "polaformer has 3 channels a head; it needs an even number"),
    ],
)
def test_what_does_not_fit_is_refused_with_a_sentence(
    key: str, channels: int, hparams: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        registry.get(key).build(channels, hparams)


def test_every_module_says_its_source() -> None:
    for key in REFERENCES:
        cls = registry.get(key).load()
        assert "Source:" in (inspect.getmodule(cls).__doc__ or "")


@pytest.mark.parametrize(("key", "hparams"), [("mhsa", {}), ("sa", {"fused": True})])
def test_fused_attention_holds_no_map_of_all_pairs(key: str, hparams: dict[str, Any]) -> None:
    module, image = registry.get(key).build(64, hparams), torch.empty(1, 64, 64, 64, device="meta")
    for device, mode in itertools.product(("cuda", "cpu"), MODES):
        profile = predict_peak(module, image, mode=mode, device=device)  # type: ignore[arg-type]  # a plain str
        assert profile.unfused == {}
        assert max(block.bytes for block in profile.allocations) < 4 * 4096**2
