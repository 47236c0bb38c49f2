"""A measured time below what a card needs, by its data sheet, to write the output."""

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import nn

from ctxbench.devices.cpu import Cpu
from ctxbench.plugins.predict.sheet import sheet
from ctxbench.worker.computed import impossible


class H100(Cpu):
    """The name alone of a card: 3,350 GB/s and 50 MiB of L2 by its data sheet."""

    def product(self, environment: Mapping[str, Any]) -> str:
        return "NVIDIA H100 80GB HBM3"

    @classmethod
    def fingerprint(cls) -> dict[str, Any]:
        return {}


def test_a_time_below_what_a_card_needs_to_write_an_output_is_impossible() -> None:
    x, model = torch.empty(1, 1, 4, 4), nn.BatchNorm2d(1)
    y = torch.empty(2, 50, 1024, 1024, dtype=torch.float16)  # 200 MiB, of which 150 go to the memory; never written
    least_ms = 150 * 2**20 / 3350e9 * 1e3
    assert (sheet("h100-sxm").bandwidth, sheet("h100-sxm").l2_mib) == (3350e9, 50)
    (note,) = impossible(y, x, model, H100(), "infer", 0.99 * least_ms)
    assert (note.code, note.about, note.values["mib"]) == ("impossible_time", "latency_infer", 200)
    assert note.values["least_ms"] == pytest.approx(least_ms)
    assert "NVIDIA H100 80GB HBM3 needs 0.047 ms or more to write the 200 MiB of the output" in str(note)
    assert [*impossible(y, x, model, H100(), "infer", 1.01 * least_ms)] == []
    # Nothing is written where the output is the input, or one number for all places.
    assert [*impossible(y.transpose(2, 3), y, model, H100(), "infer", 1e-6)] == []
    assert [*impossible(torch.empty(1).expand(2, 50, 1024, 1024), x, model, H100(), "infer", 1e-6)] == []
    assert [*impossible(y, x, model, Cpu(), "infer", 1e-6)] == []
