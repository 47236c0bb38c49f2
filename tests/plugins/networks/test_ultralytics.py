"""Networks that published tables of detectors name: what is put into them, and what they cost."""

import pytest
import torch
from torch import nn

from ctxbench.metrics.params import count_params
from ctxbench.networks._ultralytics import ResCBAM, detector, global_context, yolov8l
from ctxbench.plugins.macs.counter import count_macs
from ctxbench.plugins.macs.tools.calls import Calls
from ctxbench.plugins.macs.tools.reading import reading
from ctxbench.registry.networks import Network

C, H, W = 16, 6, 5


def test_a_residual_block_with_cbam() -> None:
    block, x = ResCBAM(C).eval(), torch.randn(2, C, H, W)
    assert block(x).shape == x.shape
    # 1x1, 3x3 and 1x1 with their norms; a full layer for the channels; 7x7 from two maps to one
    assert count_params(block) == 11 * C**2 + 3 * 2 * C + C**2 + C + 2 * 49
    assert count_macs(block, x).macs_matmul == 2 * (H * W * (11 * C**2 + 2 * 49) + C**2)


@pytest.mark.extra("networks")
def test_global_context_scales_the_map_by_a_narrow_layer() -> None:
    block, x = global_context(C), torch.randn(2, C, H, W)
    assert block(x).shape == x.shape
    assert count_params(block) == C + 1 + 2 * C * (C // 8) + C // 8 + C + 2 * (C // 8)


@pytest.mark.slow
@pytest.mark.extra("detectors")
def test_a_block_is_behind_each_stage_of_the_neck() -> None:
    widths: list[int] = []

    def make(channels: int) -> nn.Module:
        widths.append(channels)
        return nn.Conv2d(channels, channels, 1)

    with torch.device("meta"):
        model = Network("yolov8l", yolov8l).build(make, (1, 3, 64, 64)).to("meta")
    plain = detector(config="yolov8l.yaml", classes=9, fused=False)
    assert widths == [512, 256, 512, 512]
    assert count_params(model) - count_params(plain) == sum(each**2 + each for each in widths)
    calls = [Calls(each, (1, 3, 64, 64)) for each in (model, plain.to("meta"))]
    with_block, without = (reading("thop@0.1.1").count(each) for each in calls)
    assert with_block - without == sum(each**2 * places for each, places in zip(widths, (16, 64, 16, 4), strict=True))
