"""Parameters and MACs of the hams, and hyper-parameters and inputs that they refuse."""

from typing import Any

import pytest
import torch
from test_hams import CHANNELS, FULL_SIZE, HAMS, INNER, RANK, SHAPE, STEPS, build, every_ham, make_input

from ctxbench import registry
from ctxbench.metrics.params import count_params
from ctxbench.modules.ham_cd import HamCD
from ctxbench.plugins.macs.counter import count_macs, count_macs_torchprofile

pytestmark = pytest.mark.slow  # many small cases, which take seconds together


# The ledger's totals without the 3 multiplications of traced sizes, which this code does not have.
LEDGER = {"cd": 16_190_017_539 - 3, "nmf": 17_559_650_307 - 3, "vq": 16_121_856_003 - 3}


@every_ham
def test_params_and_macs_at_full_size(ham: str) -> None:
    entry = registry.get(f"ham_{ham}")
    with torch.device("meta"):
        module, x = HAMS[ham](512), torch.empty(FULL_SIZE)
    assert module(x).shape == FULL_SIZE
    assert entry.closed_form("params", FULL_SIZE) == count_params(module) == 525_824
    assert entry.closed_form("macs", FULL_SIZE) == count_macs(module, x).macs == LEDGER[ham]


@every_ham
@pytest.mark.parametrize(
    "hparams",
    [
        {"heads": 2, "steps": 1},
        {"layout": "channel"},
        {"layout": "channel", "heads": 2, "rank": 2},
        {"init": "fixed", "d": None, "heads": 3},
        {"init": "learned", "gradient": "bptt", "heads": 2},
        {"init": "online", "heads": 4},
        {"without": "ham", "init": "learned", "gradient": "bptt"},
        *({"without": part, "d": CHANNELS, "heads": 2} for part in ("lower", "upper", "breads")),
        {"without": "breads", "d": None, "layout": "channel"},
    ],
)
def test_closed_forms_hold_elsewhere(ham: str, hparams: dict[str, Any]) -> None:
    hparams = {"d": INNER, "rank": RANK, "steps": STEPS} | hparams
    module, entry = HAMS[ham](CHANNELS, **hparams), registry.get(f"ham_{ham}")
    assert count_params(module) == entry.closed_form("params", SHAPE, hparams)
    count = count_macs(module, torch.empty(SHAPE))
    assert count.macs == entry.closed_form("macs", SHAPE, hparams)
    assert count.macs == count_macs_torchprofile(module, torch.randn(SHAPE)).macs


@every_ham
@pytest.mark.parametrize(
    ("hparams", "sentence"),
    [
        ({"heads": 3}, "the inner width d = 8 is not divisible by heads = 3"),
        ({"heads": 0}, "heads is 0; it must be at least 1"),
        ({"d": -8}, "d is -8; it must be at least 1"),
        ({"rank": 0}, "rank is 0; it must be at least 1"),
        ({"steps": 0}, "steps is 0; it must be at least 1"),
        ({"temperature": 0.0}, "temperature is 0.0; it must be above 0"),
        ({"temperature": float("nan")}, "temperature is nan; it must be above 0"),
        ({"eta": 0.0}, "eta is 0.0; it must be above 0 and at most 1"),
        ({"layout": "column"}, "layout is 'column'; it must be one of spatial, channel"),
        ({"init": "warm"}, "init is 'warm'; it must be one of random, fixed, learned, online"),
        ({"gradient": "two_step"}, "gradient is 'two_step'; it must be one of one_step, bptt"),
        ({"without": "bread"}, "without is 'bread'; it must be one of nothing, ham, lower, upper, breads"),
        ({"without": "upper"}, "without='upper' leaves no projection between d = 8 and 6 channels"),
        ({"init": "learned", "gradient": "one_step"}, "the one-step gradient does not reach learned bases"),
        ({"init": "online", "layout": "channel"}, "in the channel layout it is H\\*W of the input"),
    ],
)
def test_impossible_hyperparameters_are_refused(ham: str, hparams: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        HAMS[ham](CHANNELS, **{"d": INNER} | hparams)


def test_beta_of_zero_is_refused() -> None:
    with pytest.raises(ValueError, match=r"beta is 0\.0; it must be above 0"):
        HamCD(CHANNELS, beta=0.0)


@every_ham
def test_impossible_inputs_are_refused(ham: str) -> None:
    module = build(ham)
    with pytest.raises(ValueError, match="3 dimensions"):
        module(torch.zeros(CHANNELS, 5, 7))
    with pytest.raises(ValueError, match="the input has 5"):
        module(torch.zeros(1, 5, 5, 7))
    with pytest.raises(ValueError, match="rank = 3 is more than the 2 columns that the spatial layout makes"):
        module(torch.zeros(1, CHANNELS, 1, 2, dtype=torch.float64))
    with pytest.raises(ValueError, match="rank = 3 is more than the 2 columns that the channel layout makes"):
        build(ham, layout="channel", heads=4)(make_input())
