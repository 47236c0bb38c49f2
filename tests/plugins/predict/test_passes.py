"""Passes that costs are read off: how often a block runs for its rows, and what the record of a pass holds."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from pydantic import TypeAdapter
from torch.nn.modules.module import register_module_forward_pre_hook

from ctxbench import registry
from ctxbench.base.mode import MODES, Mode
from ctxbench.meta.calls import Map, Writer
from ctxbench.model.case import Case, Measure
from ctxbench.model.messages import MissingColumns, Values
from ctxbench.model.metrics import static_metrics
from ctxbench.plugins.memory.predict import predict_peak
from ctxbench.plugins.memory.profile import MemoryProfile
from ctxbench.plugins.predict.operators import operators_in
from ctxbench.worker.protocol import MeasureCase, MeasureCases, Measured, Reply
from ctxbench.worker.tasks import perform

DEVICES = ("a100-40gb", "t4", "h100-sxm")
# MACs, peaks and times of a mode share a pass.
PASSES = 2
DRAWS = """
import random
from torch import nn

class Draws(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.mix = nn.Conv2d(channels, channels, 1)

    def forward(self, x):
        return self.mix(self.mix(x)) if random.random() < 0.5 else self.mix(x)
"""


@pytest.fixture
def passes() -> Iterator[list[str]]:
    """The names of the classes of all modules that are called."""
    called: list[str] = []
    hook = register_module_forward_pre_hook(lambda module, _: called.append(type(module).__name__))
    yield called
    hook.remove()


def told(*tasks: MeasureCase) -> list[list[Reply]]:
    """Messages of one process, by case."""
    found: list[list[Reply]] = [[]]

    def emit(message: Reply) -> bytes:
        if isinstance(message, Measured):
            found.append([])
        elif isinstance(message, Values | MissingColumns):
            found[-1].append(message)
        return b""

    perform(MeasureCases(tasks), emit)
    return found[:-1]


def tasks(module: str, reference: str, *devices: str) -> list[MeasureCase]:
    cases = [Case(module, reference, {}, (1, 32, 6, 5), device=each) for each in devices]
    return [MeasureCase(each, Measure(), static_metrics()) for each in cases]


@pytest.mark.parametrize("key", ["linear", "mhsa", "swin", "ss2d", "bi_wkv"])
def test_a_block_runs_as_often_for_three_devices_as_for_one(key: str, passes: list[str]) -> None:
    rows = tasks(key, registry.get(key).reference, *DEVICES)
    together = told(*rows)
    name = type(registry.get(key).build(32)).__name__
    assert passes.count(name) == PASSES
    assert together == [each for row in rows for each in told(row)]
    assert passes.count(name) == PASSES * (1 + len(DEVICES))


def test_the_peak_under_the_pytorch_of_2020_is_read_off_the_pass_of_today(passes: list[str]) -> None:
    metrics = ["params", "macs", "memory", "memory_2020"]
    case = Case("ham_nmf", registry.get("ham_nmf").reference, {}, (1, 32, 6, 5), device="meta")
    told(MeasureCase(case, Measure(), metrics))
    assert passes.count(type(registry.get("ham_nmf").build(32)).__name__) == PASSES


def test_a_block_that_draws_its_structure_runs_for_each_device_and_says_so_there(
    passes: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "drawing.py"
    path.write_text(DRAWS, encoding="utf-8")
    told(*tasks("Draws", f"{path}:Draws", DEVICES[0]))
    alone = passes.count("Draws")
    assert alone >= 2 * PASSES  # under two seeds
    rows = told(*tasks("Draws", f"{path}:Draws", *DEVICES[:2]))
    notes = [[each.code for message in row for each in getattr(message, "notes", ())] for row in rows]
    assert "drawn" in notes[0]
    assert notes[0] == notes[1]
    assert passes.count("Draws") == 3 * alone


@pytest.mark.parametrize("mode", MODES)
def test_the_record_of_a_pass_is_read_back_as_it_was_written(mode: Mode) -> None:
    case = Case("swin", registry.get("swin").reference, {}, (1, 32, 8, 8))
    profile, adapter = predict_peak(*case.on_meta(), mode=mode), TypeAdapter(MemoryProfile)
    text = adapter.dump_json(profile)
    again = adapter.validate_json(text)
    assert adapter.dump_json(again) == text
    assert again.timeline == profile.timeline
    assert operators_in(again) == operators_in(profile)
    assert again.peak_bytes == profile.peak_bytes


def test_tensors_of_a_call_become_numbers_and_share_memory_as_before() -> None:
    x = torch.empty(2, 3, 4, 5, device="meta")
    call = Writer(lambda tensor: tensor.is_meta).operation(
        torch.ops.aten.addcmul_.default, (x, x.transpose(2, 3), [torch.float16, 0.5, None]), (x, torch.ones(1)), (x,)
    )
    first = Map((2, 3, 4, 5), (60, 20, 5, 1), "float32", 4, 0)
    assert call.args == (first, Map((2, 3, 5, 4), (60, 20, 1, 5), "float32", 4, 0), ("torch.float16", 0.5, None))
    assert call.given == (first, Map((1,), (1,), "float32", 4, 1, on_device=False))
    assert (call.packet, call.operator, call.out) == ("aten.addcmul_", "addcmul", (first,))
    assert (call.is_view, call.is_pointwise) == (False, True)


@pytest.mark.parametrize(
    "tensor",
    [
        torch.empty(2, 3, 4, 5),
        torch.empty(2, 3, 4, 5).to(memory_format=torch.channels_last),
        torch.empty(1, 3, 1, 5).to(memory_format=torch.channels_last),
        torch.empty(2, 1, 4, 5),
        torch.empty(2, 3, 1, 1),
        torch.empty(2, 3, 1, 1).to(memory_format=torch.channels_last),
        torch.empty(2, 1, 1, 1).expand(2, 3, 4, 5),
        torch.empty(2, 3, 4, 5).transpose(2, 3),
        torch.empty(0, 3, 4, 5),
        torch.empty(6, 4),
        torch.empty(()),
        torch.empty(4, 6).T,
        torch.empty(2, 4, 5, 6).permute(0, 3, 1, 2)[:, ::2],
    ],
    ids=lambda each: "x".join(map(str, (*each.shape, "by", *each.stride()))),
)
def test_the_layout_of_a_map_is_that_of_its_tensor(tensor: torch.Tensor) -> None:
    (found,) = Writer(lambda _: True).operation(torch.ops.aten.relu.default, (), (tensor,), ()).given
    assert found.is_contiguous == tensor.is_contiguous()
    is_last = torch._prims_common.suggest_memory_format(tensor) is torch.channels_last
    assert found.is_channels_last == is_last
    assert (found.numel(), found.ndim, found.itemsize) == (tensor.numel(), tensor.dim(), 4)
