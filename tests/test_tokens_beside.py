"""Tokens beside a map: a class token and registers, which a block of tokens takes before the positions."""

from pathlib import Path
from typing import Any

import pytest
import torch

from ctxbench import registry
from ctxbench.base.call_sites import WRAPPER
from ctxbench.base.errors import UsageError
from ctxbench.model.case import Case
from ctxbench.model.read_suite import load
from ctxbench.plugins.macs.counter import count_macs
from ctxbench.plugins.memory.predict import predict_peak

BESIDE = """
import torch
from torch import nn

class Block(nn.Module):  # the mean over all tokens, then a layer, on each token
    def __init__(self, dim):
        super().__init__()
        self.layer = nn.Linear(dim, dim)
    def forward(self, x):
        b, n, c = x.shape
        return x + self.layer(x.mean(1, keepdim=True) * x)

class Second(Block):
    def forward(self, x):
        n, b, c = x.shape
        return super().forward(x.transpose(0, 1)).transpose(0, 1)

class Knows(Block):
    def __init__(self, dim, num_prefix_tokens=1):
        super().__init__(dim)
        self.num_prefix_tokens = num_prefix_tokens

class Map(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.layer = nn.Conv2d(channels, channels, 1)
    def forward(self, x):
        return self.layer(x)

class Either(nn.Module):
    def __init__(self, dim):
        super().__init__()
    def forward(self, x):
        return x * 2
"""

SUITE = """
title = "Tokens"
question = "What do they cost?"
minutes = 1
source = "a test"
modules = ["{block}"]
metrics = ["params"]

[axes]
shape = [1, 8, 4, 4]

[hparams."{block}"]
num_prefix_tokens = [0, 5]

[[figures]]
name = "tokens"
title = "Tokens"
x = "num_prefix_tokens"
y = ["params"]
"""


@pytest.fixture
def beside(tmp_path: Path) -> Path:
    path = tmp_path / "beside.py"
    path.write_text(BESIDE, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("name", "given", "count"),
    [
        ("Block", {}, 0),
        ("Block", {"num_prefix_tokens": 5}, 5),
        ("Second", {"num_prefix_tokens": 5}, 5),
        ("Knows", {}, 1),
        ("Knows", {"num_prefix_tokens": 5}, 5),
    ],
)
def test_tokens_beside_a_map_are_computed_with_it_and_dropped(
    beside: Path, name: str, given: dict[str, Any], count: int
) -> None:
    """y = x + W (m * x) + b of each position; m is the mean over the positions and `count` tokens of ones."""
    case = Case(name, f"{beside}:{name}", given, (2, 6, 3, 5))
    made: Any = registry.get(case.reference).build(6, given)
    assert made.told.startswith("[N, B, C]" if name == "Second" else "[B, N, C]")
    assert made.told.endswith(f"{count} token{'s' * (count > 1)} before the positions") == (count > 0)
    x = torch.randn(2, 6, 3, 5, generator=torch.Generator().manual_seed(0))
    mean = (x.sum((2, 3), keepdim=True) + count) / (15 + count)
    weight, bias = made.block.layer.weight, made.block.layer.bias[:, None, None]
    torch.testing.assert_close(made(x), x + torch.einsum("oc,bchw->bohw", weight, mean * x) + bias)
    assert sum(each.numel() for each in made.parameters()) == 6 * 6 + 6  # the tokens are the layer's before
    assert count_macs(*case.on_meta()).macs_matmul == 2 * (15 + count) * 6 * 6


@pytest.mark.parametrize(
    ("name", "count", "words"),
    [
        ("Map", 5, "Map takes maps, which have no further tokens: leave out num_prefix_tokens"),
        ("Either", 5, "Either takes maps"),
        ("Block", -1, "num_prefix_tokens is -1; it must be 0 or more"),
        ("Block", "many", "num_prefix_tokens.*must be int"),
    ],
)
def test_tokens_beside_a_map_that_cannot_be_are_a_sentence(beside: Path, name: str, count: Any, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        registry.get(f"{beside}:{name}").build(6, {"num_prefix_tokens": count})


def test_a_block_of_maps_may_be_told_that_it_has_no_tokens_beside_them(beside: Path) -> None:
    assert registry.get(f"{beside}:Map").build(6, {"num_prefix_tokens": 0})(torch.ones(1, 6, 2, 2)).shape == (
        1,
        6,
        2,
        2,
    )


def test_tokens_beside_a_map_are_in_its_memory(beside: Path) -> None:
    """The peak is that of the block on 1,024 + 8 tokens, and the copy that has these from the map."""
    made: Any = registry.get(f"{beside}:Block").build(64, {"num_prefix_tokens": 8})
    found = predict_peak(made, torch.empty(1, 64, 32, 32, device="meta"), mode="infer")
    alone = predict_peak(made.block, torch.empty(1, 1032, 64, device="meta"), mode="infer")
    copies = [(each.bytes, each.shape) for each in found.groups() if each.where == WRAPPER]
    assert (1032 * 64 * 4, (1, 1032, 64)) in copies
    assert found.peak_bytes == alone.peak_bytes + 1032 * 64 * 4


def test_a_figure_may_stand_against_the_number_of_tokens(beside: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(beside.parent)
    path = beside.with_name("suite.toml")
    path.write_text(SUITE.format(block="beside.py:Block"), encoding="utf-8")
    assert [point.hparams for point in load(str(path)).points] == [{"num_prefix_tokens": count} for count in (0, 5)]
