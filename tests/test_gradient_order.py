"""A block whose gradient PyTorch reads in a wrong order on a CPU: its rows say so, and what is right says nothing."""

from pathlib import Path

import pytest
import torch
from torch import nn

from ctxbench import registry
from ctxbench.base.notes import Note
from ctxbench.meta.gradient_order import WAY_OUT, misread
from ctxbench.meta.recorder import Recorder
from ctxbench.model.case import Case, Measure
from ctxbench.model.conditions import Shape
from ctxbench.model.messages import Values
from ctxbench.worker.measurement import CaseMeasurement

FILE = Path(__file__).parent / "fixtures" / "normed.py"


def seen(module: nn.Module, images: int, device: str) -> bool:
    with torch.device(device), Recorder(module) as recorder:
        module.to(device)(torch.randn(images, 8, 5, 4, device=device)).sum().backward()
    return bool(misread(recorder.calls))


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("norm", [nn.BatchNorm2d(8), nn.InstanceNorm2d(8), nn.BatchNorm2d(8).eval()])
def test_a_wrong_order_is_seen_with_data_and_without(norm: nn.Module, device: str) -> None:
    block = registry.get(f"{FILE}:Normed").build(8, {})
    block.norm = norm
    other = registry.get(f"{FILE}:HandedOn").build(8, {})
    assert [seen(block, images, device) for images in (1, 2)] == [True, False]
    assert not seen(other, 1, device)


def notes(name: str, shape: Shape, execution: str = "eager") -> list[Note]:
    found: list[Note] = []

    def take(message: object) -> None:
        found.extend(message.notes if isinstance(message, Values) else ())

    case = Case("mine", f"{FILE}:{name}", {}, shape, execution=execution, threads=1)
    CaseMeasurement(case, Measure(), take).run(["latency"])
    return [each for each in found if each.code == "misread_gradient"]


def test_a_row_that_is_measured_says_so_with_the_way_out() -> None:
    (note,) = notes("Normed", (1, 8, 5, 4))
    assert str(note).startswith("Gradients of this block are wrong here: on a CPU, ")
    assert str(note).endswith(f"{WAY_OUT}.")
    assert notes("Normed", (2, 8, 5, 4)) == notes("HandedOn", (1, 8, 5, 4)) == []
