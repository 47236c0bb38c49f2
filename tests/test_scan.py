"""Scans: equal to a loop in float64, counted and explained as one operator, linear in the positions."""

import pytest
import torch
from reference_scans import scanned, weighed
from torch import Tensor
from wrapped import on_meta

from ctxbench import registry
from ctxbench.meta import scan
from ctxbench.meta.scan import SCANS, selective_scan, wkv
from ctxbench.metrics.params import count_params

KEYS = ("ss2d", "vim", "nc_ssd", "bi_wkv")
SCANNED = {"ss2d": "ctxbench::selective_scan", "vim": "ctxbench::selective_scan", "bi_wkv": "ctxbench::wkv"}
ERRORS = ((torch.float32, 1e-6), (torch.float64, 1e-12))
# Ranges of steps, and the rate: as at the start of training, hardly a decay, nothing kept.
REGIMES = [(1e-3, 0.1, 1.0), (1e-3, 0.1, 16.0), (1e-5, 1e-4, 1.0), (1e-7, 1e-6, 1.0), (1.0, 10.0, 16.0)]


def assert_near(found: Tensor, expected: Tensor, error: float) -> None:
    assert (found.double() - expected).abs().max() <= error * expected.abs().max()


@pytest.mark.parametrize(
    ("length", "shortest", "longest", "rate"),
    [*((length, *regime) for length in (1, 2, 3, 5, 64, 1000) for regime in REGIMES), (4_096, *REGIMES[1])],
)
def test_a_selective_scan_is_the_loop_over_the_positions(
    length: int, shortest: float, longest: float, rate: float
) -> None:
    torch.manual_seed(0)
    value, enter, leave = torch.randn(4, length), torch.ones(1, length), torch.ones(1, length)
    step = torch.empty(4, length).uniform_(shortest, longest)
    rates, skip = torch.full((4, 1), -rate), torch.zeros(4)
    parts = (value, step, rates, enter, leave, skip)
    expected = scanned(*(each.double() for each in parts))
    for dtype, error in ERRORS:
        value, step, rates, enter, leave, skip = (each.to(dtype) for each in parts)
        value, step, enter, leave = (each.T[None, None] for each in (value, step, enter, leave))
        assert_near(selective_scan(value, step, rates[None], enter, leave, skip[None])[0, 0].T, expected, error)


@pytest.mark.parametrize("length", [1, 2, 3, 24, 25])
def test_pieces_of_all_states_are_the_loop_too(length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In inference on the CPU, here in pieces of 2 positions of two images of 4 channels with 3 states each."""
    taken: list[int] = []
    in_pieces = scan._read_in_pieces

    def noted(positions: int, *parts: Tensor) -> Tensor:
        taken.append(positions)
        return in_pieces(positions, *parts)

    monkeypatch.setattr(scan, "PIECE", 2 * 2 * 4 * 3)
    monkeypatch.setattr(scan, "LARGE", 1)
    monkeypatch.setattr(scan, "_read_in_pieces", noted)
    torch.manual_seed(0)
    value, step = torch.randn(2, 1, length, 4), torch.empty(2, 1, length, 4).uniform_(1e-3, 0.1)
    enter, leave = torch.randn(2, 2, 1, length, 3)
    rate, skip = -torch.empty(1, 4, 3).uniform_(1, 16), torch.randn(1, 4)
    for dtype, error in ERRORS:
        parts = [each.to(dtype) for each in (value, step, rate, enter, leave, skip)]
        with torch.inference_mode():
            found = selective_scan(*parts)
        assert (selective_scan(*parts) - found).abs().max() <= error * found.abs().max()
        for image in range(2):
            x, t, b, c = (each[image, 0].double().T for each in (value, step, enter, leave))
            expected = scanned(x, t, rate[0].double(), b, c, skip[0].double())
            assert_near(found[image, 0].T, expected, error)
    assert taken == [2] * len(ERRORS)


@pytest.mark.parametrize("length", [1, 2, 35, 1000])
@pytest.mark.parametrize("decay", [-70.0, 0.0, 5.0, 300.0])
def test_wkv_is_the_weighted_mean_over_all_pairs(length: int, decay: float) -> None:
    torch.manual_seed(0)
    value, key = torch.randn(2, length), 5 * torch.randn(2, length)
    decays, first = torch.tensor([decay, 1.0]) / length, torch.tensor([0.5, -1.0]) / length
    expected = weighed(*(each.double() for each in (value, key, decays, first)))
    for dtype, error in ERRORS:
        parts = [each.to(dtype) for each in (value.T[None], key.T[None], decays, first)]
        assert_near(wkv(*parts)[0].T, expected, error)


@pytest.mark.parametrize(
    ("key", "params"),
    [
        ("ss2d", (12_224, 171_776, 671_232)),
        ("vim", (40_704, 482_304, 1_816_576)),
        ("nc_ssd", (36_656, 437_552, 1_660_208)),
        ("bi_wkv", (16_704, 263_424, 1_051_136)),
    ],
)
def test_parameters_are_those_of_the_public_classes(key: str, params: tuple[int, ...]) -> None:
    assert tuple(count_params(on_meta(key, 1, channels, 1, 1)[0]) for channels in (64, 256, 512)) == params


# The names and shapes under which public weights are stored, at 32 channels.
PUBLISHED: dict[str, dict[str, tuple[int, ...]]] = {
    "ss2d": {
        "in_proj.weight": (32, 32), "conv2d.weight": (32, 1, 3, 3), "x_proj_weight": (4, 4, 32),
        "dt_projs_weight": (4, 32, 2), "dt_projs_bias": (4, 32), "A_logs": (128, 1), "Ds": (128,),
        "out_norm.weight": (32,), "out_norm.bias": (32,), "out_proj.weight": (32, 32),
    },
    "vim": {
        "in_proj.weight": (128, 32), "conv1d.weight": (64, 1, 4), "conv1d.bias": (64,), "x_proj.weight": (34, 64),
        "dt_proj.weight": (64, 2), "dt_proj.bias": (64,), "A_log": (64, 16), "D": (64,), "conv1d_b.weight": (64, 1, 4),
        "conv1d_b.bias": (64,), "x_proj_b.weight": (34, 64), "dt_proj_b.weight": (64, 2), "dt_proj_b.bias": (64,),
        "A_b_log": (64, 16), "D_b": (64,), "out_proj.weight": (32, 64),
    },
    "nc_ssd": {
        "in_proj.weight": (272, 32), "conv2d.weight": (192, 1, 3, 3), "conv2d.bias": (192,), "dt_bias": (16,),
        "A_log": (16,), "D": (16,), "norm.weight": (64,), "norm.bias": (64,), "out_proj.weight": (32, 64),
    },
    "bi_wkv": {
        "spatial_decay": (32,), "spatial_first": (32,), "spatial_mix_k": (1, 1, 32), "spatial_mix_v": (1, 1, 32),
        "spatial_mix_r": (1, 1, 32), "key.weight": (32, 32), "value.weight": (32, 32), "receptance.weight": (32, 32),
        "output.weight": (32, 32),
    },
}  # fmt: skip


@pytest.mark.parametrize("key", KEYS)
def test_public_weights_have_these_names_and_shapes(key: str) -> None:
    state = registry.get(key).build(32).state_dict()
    assert {name: tuple(each.shape) for name, each in state.items()} == PUBLISHED[key]


@pytest.mark.parametrize(("key", "bias"), [("ss2d", "dt_projs_bias"), ("vim", "dt_proj.bias"), ("nc_ssd", "dt_bias")])
def test_steps_start_from_a_thousandth_to_a_tenth(key: str, bias: str) -> None:
    step = torch.nn.functional.softplus(registry.get(key).build(64).state_dict()[bias].double())
    assert step.min() * (1 + 1e-4) >= 0.001
    assert step.max() <= 0.1 * (1 + 1e-4)


def test_the_operators_are_those_of_the_rules() -> None:
    assert {f"ctxbench::{each.__name__}" for each in SCANS} == set(SCANNED.values())
