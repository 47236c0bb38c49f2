"""The modules of the field: outputs, gradients, exact counts, edge cases and refusals."""

import inspect
import itertools
import math
from typing import Any

import pytest
import torch
from field_cases import CASES, FEW, Shape
from reference_attention import REFERENCES as ATTENTION
from reference_attention import project
from reference_backbones import REFERENCES as BACKBONES
from reference_blocks import REFERENCES as BLOCKS
from reference_deformable import REFERENCES as DEFORMABLE
from reference_detectors import REFERENCES as DETECTORS
from reference_field import REFERENCES as FIELD
from reference_field import em_steps
from reference_mixers import REFERENCES as MIXERS
from reference_scans import SCAN_REFERENCES
from test_hams import HAMS
from test_macs import assert_torchprofile_agrees
from torch import Tensor, nn

from ctxbench import registry
from ctxbench.base.errors import UsageError
from ctxbench.base.mode import MODES
from ctxbench.meta.differences import positions_first
from ctxbench.meta.influence import changed_by
from ctxbench.metrics.params import count_params
from ctxbench.plugins.macs.counter import count_macs
from ctxbench.plugins.memory.predict import predict_peak
from ctxbench.registry.entry import Entry

pytestmark = pytest.mark.slow  # many small cases, which take seconds together

REFERENCES = ATTENTION | FIELD | BLOCKS | SCAN_REFERENCES | MIXERS | DETECTORS | BACKBONES | DEFORMABLE
FULL: Shape = (1, 512, 128, 128)
PLACES = """A block needs four entries in the tests:
its equations in float64, in REFERENCES of a tests/reference_*.py;
each hyper-parameter moved by a case, in CASES of tests/field_cases.py;
its params and MACs at the full shape, in FIGURES (or PRODUCTS) of tests/test_field_modules.py;
its params at three widths, in PARAMS of tests/test_blocks.py, if public weights of it can be loaded."""

# Params and MACs at the full shape, as counted on the public code; those of Table 3's modules as torchprofile 0.1.0
# counts them.
FIGURES: dict[str, tuple[int, int]] = {
    "sa": (1_050_624, 292_057_776_128),
    "da": (5_048_962, 245_920_432_128),
    "a2": (1_054_720, 25_803_358_208),
    "apc": (2_126_898, 18_031_864_832),
    "dm": (3_147_776, 35_086_444_544),
    "acf": (787_456, 79_461_089_280),
    "linear": (328_321, 6_470_762_496),
    "focused_linear": (1_052_800, 18_513_658_368),
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
    "mdta": (1_062_408, 18_480_136_192),
    "xca": (1_050_632, 18_253_643_776),
    "msca": (844_288, 13_757_317_120),
    "lka": (826_880, 13_514_047_488),
    "lska": (802_304, 13_094_617_088),
    "lsk": (958_662, 15_673_147_392),
    "caa": (537_600, 8_791_261_184),
    "ela": (4_608, 17_956_864),
    "cbam": (33_412, 18_481_664),
    "coord": (25_648, 21_110_784),
    "pool": (0, 8_388_608),
    "dwconv": (25_600, 411_041_792),
    "gated_cnn": (2_125_482, 34_784_755_712),
    "eca": (5, 8_391_680),
    "simam": (0, 8_389_632),
    "swin": (1_053_328, 19_435_824_128),
    "grid": (1_053_328, 19_435_824_128),
    "area": (1_078_784, 86_352_330_752),
    "neighborhood": (1_053_328, 18_010_341_376),
    "deformable": (574_560, 9_563_013_120),
    "ttt": (1_149_312, 19_941_294_080),
    "hilo": (993_280, 70_743_228_416),
    "mlca": (10, 16_870_400),
}
# Params and the MACs of products and convolutions alone, where the public code has more elementwise multiplications.
PRODUCTS: dict[str, tuple[int, int]] = {
    "agent": (1_055_744, 18_899_533_824),
    "mila": (1_323_520, 22_171_090_944),
    "rala": (1_326_592, 22_775_070_720),
    "mala": (1_326_592, 22_766_682_112),
    "polaformer": (1_315_968, 23_865_589_760),
    "sra": (5_246_464, 30_601_641_984),
    # The public code sums the keys of each head by a product with ones.
    "lite_mla": (1_399_296, 24_016_584_704 - 2 * 128 * 128 * 512),
    "focal": (1_069_571, 17_490_247_680),
    "ss2d": (671_232, 10_880_024_576),
    "vim": (1_816_576, 29_125_246_976),
    "nc_ssd": (1_660_208, 29_295_116_288),
    "bi_wkv": (1_051_136, 17_179_869_184),
    "ema_multiscale": (2_624, 1_226_833_920),
    "shsa": (279_037, 38_113_689_600 - 128 * 128 * (2 * 109 + 2 * 16 + 512)),
    "triplet": (300, 98 * (2 * 128 * 512 + 128 * 128)),
    "cga": (348_292, 6_635_214_656 - 19 * 19 * 49 * (3 * 64 + 2 * 512)),
    "rope_attention": (1_050_112, 292_091_330_560 - 4 * 128 * 128 * 512),
    "bra": (1_063_936, 44_931_930_624 - 3 * 49 * 512),
    "dcnv3": (974_688, 16_308_502_528 - 128 * 128 * (512 + 5 * 9 * 512 + 2 * 32 * 9)),
    "dcnv2": (2_484_251, 41_070_624_768 - 128 * 128 * 5 * 9 * 512),
    "dcnv4": (968_032, 16_224_616_448 - 128 * 128 * (5 * 9 * 512 + 2 * 32 * 9)),
    "hypergraph": (6_042_112, 26_002_588_160 - 3 * 128 * 128 * 512 - 512),
    "dat": (1_064_208, 84_892_712_960 - 4096 * (5 * 512 + 128**2 * (4 * 16 + 2 * 8))),
    # A solver that is not counted stands there for the inverse of 256 triangles in each head and direction; the state
    # behind the last chunk is left out here.
    "gated_delta": (1_591_448, 34_124_857_344 + 12 * (256 * (64**2 * 192 + 64 * (64**2 - 1) // 3) - 64 * 64 * 128)),
    # The public form has a triangle of all pairs of 256 chunks in both directions; a scan takes its place.
    "ssd": (1_659_232, 42_295_361_536 - 2 * 256**2 * 64 * 1024),
}


# Operators that the convention has no rule for.
UNCOUNTED = {"spectral": {"aten::_fft_r2c", "aten::_fft_c2c", "aten::_fft_c2r"}}


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


@pytest.mark.parametrize(("images", "training"), [(1, False), (1, True), (2, True)])
@pytest.mark.parametrize(("key", "shape", "hparams"), CASES)
def test_output_and_gradients_are_those_of_the_equations(
    key: str, shape: Shape, hparams: dict[str, Any], images: int, training: bool
) -> None:
    if shape[2:] != (1, 1):
        shape = (images, *shape[1:])
    module = build(key, shape[1], hparams).train(training)
    values = shape[0] * shape[2] * shape[3]
    if training and values == 1 and any(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in module.modules()):
        with pytest.raises(ValueError, match="Expected more than 1 value per channel"):
            module(torch.randn(shape, dtype=torch.float64))
        return
    x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    leaves = leaves_of(module, x)
    y = module(x)
    assert key in REFERENCES, PLACES
    expected = REFERENCES[key](leaves, leaves["input"], training, **hparams)
    torch.testing.assert_close(y, expected, rtol=1e-9, atol=1e-9)
    assert y.shape[1] == registry.get(key).closed_form("out_channels", shape, hparams)
    weights = positions_first(torch.randn_like(y))
    y.backward(weights)
    expected.backward(weights)
    assert x.grad is not None
    torch.testing.assert_close(x.grad, leaves["input"].grad, rtol=1e-7, atol=1e-8)
    for name, parameter in module.named_parameters():
        grad = leaves[name].grad
        if parameter.requires_grad:
            own = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            torch.testing.assert_close(own, torch.zeros_like(own) if grad is None else grad, rtol=1e-7, atol=1e-8)


# So many times as far off: logits grow with the square of the input, from features that are rounded; focused_linear
# takes third powers of such features.
ROUGH = {"cga": 6, "sa": 6, "da": 2, "dat": 2, "focused_linear": 12}


@pytest.mark.parametrize("scale", [0.1, 1.0, 5.0])
@pytest.mark.parametrize("key", REFERENCES)
def test_half_types_stay_close_to_float64(key: str, scale: float) -> None:
    for dtype, error in ((torch.float16, 2e-3), (torch.bfloat16, 1.5e-2)):
        torch.manual_seed(0)
        module = registry.get(key).build(64, FEW.get(key, {})).eval()
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.add_(0.05 * torch.randn_like(parameter) * (not parameter.any()))  # no gate stays closed
            module = module.to(dtype)
            x = (scale * torch.randn(1, 64, 24, 24)).to(dtype)
            y, expected = module(x).double(), module.double()(x.double())
        assert (y - expected).abs().max() < ROUGH.get(key, 1) * error * expected.abs().max()


@pytest.mark.parametrize(("key", "shape", "hparams"), CASES)
def test_the_closed_forms_are_the_counts_and_torchprofile_s(key: str, shape: Shape, hparams: dict[str, Any]) -> None:
    entry = registry.get(key)
    module = entry.build(shape[1], hparams)
    assert count_params(module) == entry.closed_form("params", shape, hparams)
    other = (3, shape[1], shape[2] + 2, shape[3] + 1)
    for size in (shape, *[other] * ("positions" not in hparams)):
        count = count_macs(module, torch.empty(size, device="meta"))
        assert count.macs == entry.closed_form("macs", size, hparams)
        assert count.uncounted.keys() == UNCOUNTED.get(key, set())
    assert_torchprofile_agrees(module, torch.rand(shape))


@pytest.mark.parametrize("key", REFERENCES)
def test_the_figures_at_the_full_shape(key: str) -> None:
    """FIGURES by the closed forms, which `test_macs.py` finds to be the counts."""
    entry = registry.get(key)
    assert key in FIGURES or key in PRODUCTS, PLACES
    if key in FIGURES:
        assert (entry.closed_form("params", FULL), entry.closed_form("macs", FULL)) == FIGURES[key]
    else:
        with torch.device("meta"):
            module = entry.build(FULL[1])
        count = count_macs(module, torch.empty(FULL, device="meta"))
        assert (count_params(module), count.macs_matmul) == PRODUCTS[key]


def test_each_block_of_the_registry_has_a_reference() -> None:
    own = {each.key for each in registry.entries() if each.reference.startswith(registry.BUILT_IN)}
    tested = {case for case, _, _ in CASES} & REFERENCES.keys() & (FIGURES.keys() | PRODUCTS.keys())
    assert own - tested - {*(f"ham_{each}" for each in HAMS), "identity"} == set(), PLACES


def test_the_declared_growth_is_that_of_the_macs() -> None:
    steps: list[tuple[Shape, Shape]] = [
        ((1, 512, 2**20, 2**20), (1, 512, 2**22, 2**22)),  # where lower powers of n weigh nothing
        ((1, 2**20, 64, 64), (1, 2**22, 64, 64)),  # and of C
    ]
    for entry in (each for each in registry.entries() if each.reference.startswith(registry.BUILT_IN)):
        for small, large in steps:
            ratio = closed_form(entry, large) / closed_form(entry, small)
            assert growth(entry, large) / growth(entry, small) == pytest.approx(ratio, rel=0.05), entry.key


def closed_form(entry: Entry, shape: Shape) -> int:
    found = entry.closed_form("macs", shape)
    assert found is not None
    return found


def growth(entry: Entry, shape: Shape) -> float:
    """The value of the declared growth."""
    _, channels, height, width = shape
    names = {p.name: channels if p.default is None else p.default for p in entry.hyperparameters}
    names |= {"n": height * width, "C": channels, "H": height, "W": width, "log": math.log2}
    return float(eval(entry.complexity, {}, names))  # noqa: S307  # this repository's own text


def test_every_hyper_parameter_is_moved_by_a_case() -> None:
    for key in REFERENCES:
        names = {p.name for p in registry.get(key).hyperparameters}
        moved = {name for case, _, hparams in CASES if case == key for name in hparams}
        assert names == moved, key


@pytest.mark.parametrize("gradient", ["none", "unrolled"])
@pytest.mark.parametrize("momentum", [0.9, 0.0, 1.0])
def test_the_bases_of_ema_move_in_training_and_never_in_eval(gradient: str, momentum: float) -> None:
    module = build("ema", 6, {"bases": 4, "steps": 2, "gradient": gradient, "momentum": momentum})
    x = torch.randn(2, 6, 3, 5, dtype=torch.float64)
    before = module.get_buffer("bases").clone()
    module.eval()(x)
    assert torch.equal(module.get_buffer("bases"), before)
    leaves = leaves_of(module, x)
    final = [em_steps(before[0], project(leaves, "input", image), 2)[0] for image in x.flatten(2)]
    module.train()(x)
    moved = momentum * before[0] + (1 - momentum) * sum(final) / 2
    torch.testing.assert_close(module.get_buffer("bases")[0], moved, rtol=1e-12, atol=1e-12)


def test_the_first_convolution_of_ema_is_trained_only_through_all_steps() -> None:
    for gradient, trained in (("none", False), ("unrolled", True)):
        module = build("ema", 6, {"bases": 4, "gradient": gradient})
        module(torch.randn(2, 6, 3, 5, dtype=torch.float64)).sum().backward()
        assert (module.get_parameter("input.weight").grad is not None) is trained


@pytest.mark.parametrize(
    ("key", "channels", "hparams", "sentence"),
    [
        ("sa", 8, {"d": 0}, "d is 0; it must be at least 1"),
        ("a2", 8, {"c_n": -1}, "c_n is -1; it must be at least 1"),
        ("da", 4, {}, r"channels is 4; da needs at least reduction \(8\) channels"),
        ("da", 4, {"reduction": 0}, "reduction is 0; it must be at least 1"),
        ("linear", 7, {}, r"channels is 7; linear needs at least reduction \(8\) channels"),
        ("focused_linear", 12, {}, r"channels is 12; focused_linear needs a multiple of heads \(8\)"),
        ("focused_linear", 16, {"kernel": 4}, "kernel is 4; focused_linear needs an odd size"),
        ("focused_linear", 16, {"focus": 0}, "focus is 0; it must be at least 1"),
        ("focused_linear", 16, {"positions": -1}, r"positions is -1; it must be 0 \(no table\)"),
        ("mhsa", 6, {"heads": 4}, "mhsa needs a multiple of heads"),
        ("non_local", 4, {"mode": "cosine"}, "it must be one of embedded_gaussian, gaussian, dot_product, concat"),
        ("non_local", 1, {}, "non_local has 1 channels, fewer than reduction"),
        ("criss_cross", 8, {"recurrence": 0}, "recurrence is 0; it must be at least 1"),
        ("gc", 16, {}, "has one channel to normalise over"),
        ("gc", 32, {"fusion": "sum"}, "fusion is 'sum'; it must be one of add, mul, both"),
        ("gc", 32, {"pooling": "max"}, "pooling is 'max'; it must be one of att, avg"),
        ("gc", 8, {"reduction": 16}, "gc has 8 channels, fewer than reduction"),
        ("ema", 8, {"gradient": "half"}, "gradient is 'half'; it must be one of none, unrolled"),
        ("ema", 8, {"bases": 0}, "bases is 0; it must be at least 1"),
        ("ema", 8, {"momentum": 2.0}, "must be from 0 to 1"),
        ("efficient", 8, {"heads": 3}, "efficient needs a multiple of heads"),
        ("ppm", 3, {}, "ppm has 3 channels, fewer than reduction"),
        ("aspp", 8, {"rate": 0}, "rate is 0; it must be at least 1"),
        ("apnb", 4, {"reduction": 0}, "reduction is 0; it must be at least 1"),
        ("isa", 8, {"block": 0}, "block is 0; it must be at least 1"),
        ("external", 8, {"memory": -1}, "memory is -1; it must be at least 1"),
        ("spectral", 1, {}, "spectral has 1 channels, fewer than reduction"),
        ("se", 8, {}, "se has 8 channels, fewer than reduction"),
        ("agent", 6, {}, "agent needs a multiple of heads"),
        ("agent", 16, {"pool": 0}, "pool is 0; it must be at least 1"),
        ("mila", 6, {"heads": 2}, "mila needs a multiple of 4"),
        ("rala", 8, {"heads": 4}, "rala has 2 channels a head; it needs a multiple of 4"),
        ("mala", 6, {"heads": 4}, "mala needs a multiple of heads"),
        ("polaformer", 16, {"kernel": 4}, "polaformer needs an odd size"),
        ("polaformer", 24, {}, "polaformer has 3 channels a head; it needs an even number"),
        ("sra", 6, {}, "sra needs a multiple of heads"),
        ("sra", 8, {"reduction": 0}, "reduction is 0; it must be at least 1"),
        ("mdta", 6, {}, "mdta needs a multiple of heads"),
        ("xca", 6, {}, "xca needs a multiple of heads"),
        ("lite_mla", 16, {}, "lite_mla needs a multiple of dim"),
        ("lite_mla", 32, {"scale": 4}, "lite_mla needs an odd size"),
        ("ss2d", 8, {"d_conv": 4}, "d_conv is 4; ss2d needs an odd size"),
        ("nc_ssd", 8, {"d_conv": 2}, "d_conv is 2; nc_ssd needs an odd size"),
        *((key, 0, {}, "channels is 0; it must be at least 1") for key in ("lka", *ATTENTION)),
        ("lska", 8, {"kernel_size": 9}, "kernel_size is 9; it must be one of 7, 11, 23, 35, 41, 53"),
        ("lsk", 1, {}, "lsk has 1 channel; it needs at least 2"),
        ("caa", 8, {"kernel_size": 4}, "caa needs an odd size"),
        ("ela", 24, {}, "ela needs a multiple of norm_groups"),
        ("ela", 16, {"group_width": 3}, "ela needs a multiple of group_width"),
        ("triplet", 8, {"kernel_size": 2}, "triplet needs an odd size"),
        ("shsa", 4, {}, "shsa attends with 0 of 4 channels"),
        ("shsa", 8, {"partial_dim": 9}, "shsa attends with 9 of 8 channels"),
        ("hilo", 48, {}, "hilo needs a multiple of head_width"),
        ("hilo", 32, {"alpha": 1.5}, "alpha is 1.5; it must be from 0 to 1"),
        ("mlca", 8, {"kernel_size": 2}, "mlca needs an odd size"),
        ("cga", 6, {}, "cga needs a multiple of heads"),
        ("cga", 8, {"kernel_size": 4}, "cga needs an odd size"),
        ("rope_attention", 48, {}, "rope_attention needs a multiple of head_width"),
        ("rope_attention", 12, {"head_width": 6}, "head_width is 6; rope_attention needs a multiple of 4"),
        ("rope_attention", 64, {"rope": "xy"}, "rope is 'xy'; it must be one of dinov3, eva02"),
        ("bra", 48, {}, "bra needs a multiple of head_width"),
        ("bra", 32, {"n_win": 1}, "topk is 4; it must be at most n_win squared"),
        ("hypergraph", 24, {}, "hypergraph needs a multiple of head_width"),
        ("hypergraph", 16, {"context": "sum"}, "context is 'sum'; it must be one of both, mean, max"),
        ("dcnv2", 16, {"kernel_size": 2}, "dcnv2 needs an odd size"),
        ("dcnv2", 16, {"deform_groups": 3}, "dcnv2 needs a multiple of deform_groups"),
        ("dcnv4", 24, {}, "dcnv4 needs a multiple of group_width"),
        ("dcnv4", 16, {"dw_kernel_size": 2}, "dcnv4 needs an odd size"),
        ("dcnv4", 16, {"kernel_size": 1, "remove_center": True}, "it must be at least 3"),
        ("dcnv3", 24, {}, "dcnv3 needs a multiple of group_width"),
        ("dat", 96, {}, "channels is 96; dat needs a multiple of group_width"),
        ("dat", 64, {"head_width": 48}, "group_width is 64; dat needs a multiple of head_width"),
        ("dat", 64, {"kernel_size": 4}, "dat needs an odd size"),
        ("dat", 64, {"stride": 5}, "kernel_size is 5; dat needs one above stride"),
        ("gated_delta", 12, {}, "gated_delta needs a multiple of 8, or a head_width"),
        ("gated_delta", 8, {"chunk_size": 48}, "chunk_size is 48; gated_delta needs a power of two"),
        ("gated_delta", 8, {"head_width": -1}, "head_width is -1; it must be at least 1"),
        ("dcnv3", 16, {"kernel_size": 1, "remove_center": True}, "it must be at least 3"),
        ("focal", 8, {"focal_window": 4}, "focal needs an odd size"),
        ("focal", 8, {"focal_level": 0}, "focal_level is 0; it must be at least 1"),
        ("cbam", 8, {}, "cbam has 8 channels, fewer than reduction"),
        ("coord", 8, {"reduction": 0}, "reduction is 0; it must be at least 1"),
        ("pool", 8, {"pool_size": 2}, "pool needs an odd size"),
        ("dwconv", 8, {"kernel_size": 4}, "dwconv needs an odd size"),
        ("gated_cnn", 8, {"expansion_ratio": 0.5}, "4 inner channels; conv_ratio asks to convolve 8 of them"),
        ("gated_cnn", 8, {"conv_ratio": 0.1}, "convolved_channels is 0; it must be at least 1"),
        ("eca", 8, {"kernel_size": 4}, "eca needs an odd size"),
        ("simam", 8, {"e_lambda": 0.0}, "e_lambda is 0.0; it must be above 0"),
        ("swin", 48, {}, "swin needs a multiple of head_width"),
        ("swin", 32, {"shift_size": 7}, "shift_size is 7; it must be from 0 to window_size - 1"),
        ("grid", 48, {}, "grid needs a multiple of head_width"),
        ("grid", 32, {"partition": "rows"}, "partition is 'rows'; it must be one of grid, block"),
        ("area", 48, {}, "area needs a multiple of head_width"),
        ("area", 32, {"kernel_size": 4}, "area needs an odd size"),
        ("neighborhood", 48, {}, "neighborhood needs a multiple of head_width"),
        ("neighborhood", 32, {"kernel_size": 1}, "kernel_size is 1; it must be at least 3"),
        ("deformable", 6, {}, "deformable needs a multiple of heads"),
        ("ttt", 48, {}, "ttt needs a multiple of head_width"),
        ("ema_multiscale", 48, {}, "ema_multiscale needs a multiple of groups"),
        ("ssd", 16, {}, "ssd needs a multiple of head_width"),
        ("ssd", 32, {"chunk_size": 0}, "chunk_size is 0; it must be at least 1"),
    ],
)
def test_what_does_not_fit_is_refused_with_a_sentence(
    key: str, channels: int, hparams: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        registry.get(key).load()(channels, **hparams)


@pytest.mark.parametrize(
    ("key", "hparams", "sentence"),
    [
        ("mhsa", {"heads": "two"}, "hyper-parameter 'heads' is 'two'; it must be int"),
        ("agent", {"pool": 2.5}, "hyper-parameter 'pool' is 2.5; it must be int"),
        ("non_local", {"mode": 1}, "hyper-parameter 'mode' is 1; it must be Literal"),
        ("non_local", {"mode": "cosine"}, "hyper-parameter 'mode' is 'cosine'; it must be Literal"),
        ("ppm", {"fuse": "perhaps"}, "hyper-parameter 'fuse' is 'perhaps'; it must be bool"),
        ("ema", {"momentum": "slow"}, "hyper-parameter 'momentum' is 'slow'; it must be float"),
        ("spectral", {"width": 4}, "unknown hyper-parameter of 'spectral' 'width'"),
    ],
)
def test_a_hyper_parameter_of_a_wrong_type_is_refused(key: str, hparams: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        registry.get(key).build(32, hparams)


@pytest.mark.parametrize("key", REFERENCES)
def test_an_input_of_another_form_is_refused(key: str) -> None:
    module = registry.get(key).build(32, FEW.get(key, {}))
    for shape, sentence in (((2, 32, 8), "this one has 3 dimensions"), ((2, 31, 4, 4), "the input has 31")):
        with pytest.raises(ValueError, match=sentence):
            module(torch.zeros(shape))


def test_with_one_pass_criss_cross_sees_its_row_and_column_alone() -> None:
    module = build("criss_cross", 8, {"recurrence": 1})
    seen = changed_by(module.eval(), torch.randn(1, 8, 5, 6, dtype=torch.float64), (2, 3))
    expected = torch.zeros(5, 6, dtype=torch.bool)
    expected[2, :] = expected[:, 3] = True
    assert torch.equal(seen, expected)


def test_every_module_says_its_source() -> None:
    for key in REFERENCES.keys() - ATTENTION.keys():
        cls = registry.get(key).load()
        assert "Source:" in (inspect.getmodule(cls).__doc__ or "")


@pytest.mark.parametrize(("key", "hparams"), [("mhsa", {}), ("sa", {"fused": True})])
def test_fused_attention_holds_no_map_of_all_pairs(key: str, hparams: dict[str, Any]) -> None:
    module, image = registry.get(key).build(64, hparams), torch.empty(1, 64, 64, 64, device="meta")
    for device, mode in itertools.product(("cuda", "cpu"), MODES):
        profile = predict_peak(module, image, mode=mode, device=device)  # type: ignore[arg-type]  # a plain str
        assert profile.unfused == {}
        assert max(block.bytes for block in profile.allocations) < 4 * 4096**2


def test_a_head_that_the_fused_kernel_does_not_take_falls_back_and_is_told() -> None:
    # 2 channels a head: CUDA's kernel for float32 needs a multiple of 4.
    module, image = registry.get("mhsa").build(8, {"heads": 4}), torch.empty(1, 8, 32, 32, device="meta")
    profile = predict_peak(module, image, mode="infer", device="cuda")
    assert list(profile.unfused) != []
    assert max(block.bytes for block in profile.allocations) == 4 * 4 * 1024**2
