"""Counts and memory of a scan, and what a fused one would save, by the predicted time."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from field_cases import FEW
from torch import Tensor
from wrapped import on_meta

from ctxbench.base.mode import MODES, Mode
from ctxbench.plugins.macs.counter import count_macs
from ctxbench.plugins.memory.predict import predict_peak
from ctxbench.plugins.memory.remedy import remedies
from ctxbench.plugins.predict.operators import operators_in
from ctxbench.plugins.predict.passes import time_of
from ctxbench.plugins.predict.sheet import sheets

pytestmark = pytest.mark.slow  # small cases, which take seconds together

SCANNED = {"ss2d": "ctxbench::selective_scan", "vim": "ctxbench::selective_scan", "bi_wkv": "ctxbench::wkv"}


@pytest.mark.drawn("predict", "memory", "scan")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("key", SCANNED)
def test_what_a_fused_scan_would_save_at_most_is_named(key: str, mode: Mode) -> None:
    module, x = on_meta(key, 1, 64, 32, 32, **({} if key == "bi_wkv" else {"d_state": 2}))
    profile = predict_peak(module, x, mode=mode)
    (line,) = profile.scans
    (remedy,) = [each for each in remedies(module, x, mode=mode) if "a fused scan" in each.change]
    assert f"a fused scan at {line}, at best" in remedy.change
    inner = 64 * {"ss2d": 4, "vim": 4, "bi_wkv": 1}[key]  # routes times D, of both directions
    maps = {"ss2d": 2 * inner + 4 * 4, "vim": 2 * inner + 2 * 4, "bi_wkv": 2 * inner}[key]
    weights = {"ss2d": 3 * inner, "vim": 3 * inner, "bi_wkv": 2 * inner}[key]
    read, written = 4 * (maps * x[0, 0].numel() + weights), 4 * inner * x[0, 0].numel()
    assert profile.scans[line] == (read + written if mode == "infer" else 3 * read + 2 * written)
    assert 4 * inner * x[0, 0].numel() <= remedy.peak_bytes < profile.peak_bytes
    found = time_of(operators_in(profile), sheets()["a100-80gb"])
    within = sum(kernel.ms for kernel in found.kernels if profile.in_scan(str(kernel.operator.place)))
    assert profile.scans[line] / sheets()["a100-80gb"].bandwidth * 1e3 < within < found.device_ms


def test_a_module_without_a_scan_has_none_to_fuse() -> None:
    module, x = on_meta("nc_ssd", 1, 64, 16, 16)
    assert predict_peak(module, x, mode="train").scans == {}
    assert not any("scan" in each.change for each in remedies(module, x, mode="train"))


def test_predict_says_what_a_fused_scan_would_save(command: Any) -> None:
    told = command("predict", "bi_wkv", "--for", "t4", "--shape", "8,256,128,128")
    assert "The kernels of the scan at bi_wkv.py:" in told.stdout
    assert "for the bytes that it must move" in told.stdout


KEYS = ("ss2d", "vim", "nc_ssd", "bi_wkv")


@pytest.mark.drawn("macs", "memory", "scan")
@pytest.mark.parametrize("key", KEYS)
def test_macs_and_memory_grow_as_the_positions(key: str) -> None:
    sizes = [on_meta(key, 1, 64, side, side, **FEW.get(key, {})) for side in (32, 64, 128)]
    counts: list[Callable[[torch.nn.Module, Tensor], int]] = [
        lambda module, x: count_macs(module, x).macs,
        lambda module, x: predict_peak(module, x, mode="infer").peak_bytes,
        lambda module, x: predict_peak(module, x, mode="train").peak_bytes,
    ]
    for count in counts:
        small, middle, large = (count(*size) for size in sizes)
        assert (large - middle) / (middle - small) == pytest.approx(4, rel=0.02)
