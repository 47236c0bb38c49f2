"""Counting on the meta device imports no compiler, leaves torch as it was, and predicts the same."""

import subprocess
import sys

import pytest

# Batch norm, a view's gradient and a checkpoint each import the compiler; a checkpoint does so in any case.
CODE = """
import sys, torch
from torch.utils.checkpoint import checkpoint
from ctxbench.macs.counter import count_macs
from ctxbench.memory import predict_peak
class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Conv2d(8, 8, 1), torch.nn.BatchNorm2d(8), torch.nn.ReLU())
    def forward(self, x):
        inner = checkpoint(self.layers, x, use_reentrant=False) if sys.argv[2] == "checkpoint" else self.layers(x)
        return x + inner[..., :1]
if sys.argv[1] == "first":
    import torch._dynamo
block, x = Block(), torch.empty(1, 8, 16, 16)
found = [predict_peak(block, x, mode=mode).peak_bytes for mode in ("train", "infer")] + [count_macs(block, x).macs]
from ctxbench.without_compiler import _StandIn
assert not any(isinstance(module, _StandIn) for module in sys.modules.values())
if sys.argv[1:] == ["later", "plain"]:
    assert not {"torch._dynamo", "sympy"} & set(sys.modules), "imported"
    compiled = torch.compile(torch.nn.BatchNorm2d(8), backend="eager")  # the real one is there when it is wanted
    assert compiled(torch.ones(1, 8, 2, 2)).shape == (1, 8, 2, 2)
print(found)
"""


@pytest.mark.processes
@pytest.mark.parametrize("layers", ["plain", "checkpoint"])
def test_the_numbers_are_those_with_the_compiler_imported_first(layers: str) -> None:
    printed = [
        subprocess.run([sys.executable, "-c", CODE, way, layers], check=True, capture_output=True, text=True).stdout
        for way in ("later", "first")
    ]
    assert printed[0] == printed[1]
    assert printed[0].count(",") == 2
