"""Counting on the meta device imports no compiler, leaves torch as it was, and predicts the same."""

import subprocess
import sys
from typing import cast

import pytest
from forked import in_fork

from ctxbench.engine.remote import task_of
from ctxbench.model.case import Case
from ctxbench.worker.protocol import Ask, Reply
from ctxbench.worker.questions import answer

# Batch norm, a view's gradient and a checkpoint each import the compiler.
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
print(found("plain"), found("checkpoint"))
if sys.argv[1] == "later":
    assert not {"torch._dynamo", "sympy"} & set(sys.modules), "imported"
    from ctxbench.meta.without_compiler import without_compiler
    with without_compiler():
        torch._dynamo.config.suppress_errors = True  # as a block may
    assert torch._dynamo.config.suppress_errors
    # the real one is there when it is wanted
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


def imported(task: Ask) -> set[str]:
    """Modules of torch's compiler that the answer to a question imports, in a process that has run nothing yet."""

    def emit(reply: Reply) -> bytes:
        assert type(reply).__name__ == "Payload", reply
        return b""

    answer(task, emit)
    return {"torch._dynamo", "sympy"} & {*sys.modules}


PPM = Case("ppm", "ctxbench.modules.ppm:PyramidPooling", {}, (1, 8, 6, 6))  # of which a remedy is a checkpoint
SS2D = Case("ss2d", "ctxbench.modules.ss2d:SelectiveScan2d", {}, (1, 8, 4, 4))


@pytest.mark.processes
@pytest.mark.parametrize(
    "task",
    [
        task_of("memory", PPM, "train", "cuda", None, "sum", "adamw", None, None),
        task_of("contract", SS2D.reference, 8, {}, (5, 4), None, False, 60.0, []),
    ],
    ids=lambda task: cast(str, task.question),
)
def test_a_child_that_compiles_nothing_imports_no_compiler(task: Ask) -> None:
    assert in_fork(imported, task) == set()
