"""A scan is counted as one operator, forward and backward."""

from typing import Any

import pytest
import torch
from test_macs_training import real_step
from wrapped import on_meta

from ctxbench import registry
from ctxbench.plugins.macs.counter import count_macs
from ctxbench.plugins.macs.training import count_training_macs

SCANNED = {"ss2d": "ctxbench::selective_scan", "vim": "ctxbench::selective_scan", "bi_wkv": "ctxbench::wkv"}


# The MACs of the scans at [1, 512, 32, 32].
FIGURES: list[tuple[str, dict[str, Any], int]] = [
    ("ss2d", {}, 10_485_760),
    ("ss2d", {"ssm_ratio": 2.0}, 20_971_520),
    ("ss2d", {"d_state": 16}, 136_314_880),
    ("vim", {}, 136_314_880),
    ("bi_wkv", {}, 3_145_728),
]


@pytest.mark.slow
@pytest.mark.parametrize(("key", "hparams", "macs"), FIGURES)
def test_a_scan_is_counted_as_one_operator(key: str, hparams: dict[str, Any], macs: int) -> None:
    module, x = on_meta(key, 1, 512, 32, 32, **hparams)
    assert count_macs(module, x).by_operator[SCANNED[key]] == macs


@pytest.mark.parametrize(("key", "hparams"), [("ss2d", {}), ("vim", {"d_state": 2}), ("bi_wkv", {})])
def test_a_scan_costs_twice_its_forward_in_the_backward_pass(key: str, hparams: dict[str, Any]) -> None:
    module, x = on_meta(key, 2, 64, 12, 10, **hparams)
    step, name = count_training_macs(module, x), SCANNED[key]
    assert step.by_operator[f"{name}_backward"] == 2 * step.by_operator[name]
    with torch.device("cpu"):
        _, real = real_step(registry.get(key).build(64, hparams), torch.rand(2, 64, 12, 10))
    assert step.macs_matmul == real.macs_matmul
