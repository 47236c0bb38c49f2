"""Counting on the meta device imports no compiler, leaves torch as it was, and predicts the same."""

import subprocess
import sys

import pytest

# Batch norm, a view's gradient and a checkpoint each import the compiler; a checkpoint does so in any case.
CODE = """
import sys, torch
from torch.utils.checkpoint import checkpoint
from ctxbench.plugins.macs.counter import count_macs
from ctxbench.plugins.memory.predict import predict_peak
class Block(torch.nn.Module):
    def __init__(self, layers):
        super().__init__()
        self.checkpointed = layers == "checkpoint"
        self.layers = torch.nn.Sequential(torch.nn.Conv2d(8, 8, 1), torch.nn.BatchNorm2d(8), torch.nn.ReLU())
    def forward(self, x):
        inner = checkpoint(self.layers, x, use_reentrant=False) if self.checkpointed else self.layers(x)
        return x + inner[..., :1]
if sys.argv[1] == "first":
    import torch._dynamo
x = torch.empty(1, 8, 16, 16)
def found(layers):
    block = Block(layers)
    half = Block(layers).half(), x.half()
    peaks = [predict_peak(*each, mode=mode).peak_bytes for each in ((block, x), half) for mode in ("train", "infer")]
    from ctxbench.meta.without_compiler import _StandIn
    assert not any(isinstance(module, _StandIn) for module in sys.modules.values())
    return [*peaks, count_macs(block, x).macs]
print(found("plain"))
if sys.argv[1] == "later":
    assert not {"torch._dynamo", "sympy"} & set(sys.modules), "imported"
print(found("checkpoint"))
if sys.argv[1] == "later":  # the real one is there when it is wanted
    compiled = torch.compile(torch.nn.BatchNorm2d(8), backend="eager")
    assert compiled(torch.ones(1, 8, 2, 2)).shape == (1, 8, 2, 2)
"""


@pytest.mark.long
@pytest.mark.processes
def test_the_numbers_are_those_with_the_compiler_imported_first() -> None:
    printed = [
        subprocess.run([sys.executable, "-c", CODE, way], check=True, capture_output=True, text=True).stdout
        for way in ("later", "first")
    ]
    assert printed[0] == printed[1]
    assert printed[0].count(",") == 2 * 4
