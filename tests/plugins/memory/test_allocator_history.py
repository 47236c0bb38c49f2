"""The comparison of a prediction with the blocks that the allocator made: events by hand, and from predictions."""

import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from ctxbench.plugins.memory.predict import predict_peak
from ctxbench.plugins.memory.profile import MemoryProfile

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))

from allocator_history import Block, UnmatchedBlock, compare, made_blocks, made_within, predicted_blocks

MIB = 2**20


@pytest.fixture
def profile() -> MemoryProfile:
    module = nn.Sequential(nn.Conv2d(64, 64, 1), nn.BatchNorm2d(64), nn.SiLU())
    return predict_peak(module.to("meta"), torch.empty(2, 64, 32, 32, device="meta"), mode="train")


def test_a_workspace_is_the_allocators_alone(profile: MemoryProfile) -> None:
    made = predicted_blocks(profile)
    assert compare(profile, made) == []
    operators = ("aten::conv2d", "aten::convolution", "aten::cudnn_convolution", "aten::empty")
    workspace = made_within(100 * MIB, operators)
    assert workspace == Block(100 * MIB, "cudnn_convolution", "conv2d > convolution")
    assert compare(profile, [made[0], workspace, *made[1:]]) == [UnmatchedBlock("allocator", workspace)]


def test_a_block_that_was_predicted_and_not_made_is_named_with_its_operator(profile: MemoryProfile) -> None:
    made = predicted_blocks(profile)
    copied = next(block for block in made if block.made_by.startswith("aten.silu_backward"))
    without = [block for block in made if block is not copied]
    assert [(each.only_in, each.block.bytes) for each in compare(profile, without)] == [("prediction", copied.bytes)]


def test_the_order_inside_one_kernel_does_not_matter() -> None:
    x = torch.empty(1, 64, 256, device="meta")
    # Its backward holds grad * output beside the result.
    module = nn.Sequential(nn.Linear(256, 256), nn.Softmax(dim=2)).to("meta")
    profile = predict_peak(module, x, mode="train")
    made = predicted_blocks(profile)
    first = next(i for i in range(len(made) - 1) if made[i].bytes != made[i + 1].bytes)
    made[first : first + 2] = reversed(made[first : first + 2])
    assert compare(profile, made) == []


def test_blocks_are_counted_whole() -> None:
    assert [made_within(size, ()).bytes for size in (1, 512, 513)] == [512, 512, 1024]


def test_the_profilers_events_name_the_operators() -> None:
    module, x = nn.Sequential(nn.Linear(64, 64), nn.SiLU()), torch.randn(2, 32, 64)
    made = made_blocks(lambda: module(x).sum().backward(), torch.device("cpu"))
    assert 4 * x.numel() in {block.bytes for block in made}
    assert {"addmm", "silu", "silu_backward"} <= {block.made_by for block in made}
