"""`ctxbench profile`: each cost at its place, sums that agree, and planted slow lines in the first row."""

import weakref
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from ctxbench import registry, this_machine
from ctxbench.attribution.measured import Calls, Event, Kernel, Recorder, measure, spans_of
from ctxbench.attribution.profile import UNKNOWN, Costs, Pass, Roof
from ctxbench.attribution.static import known, predicted
from ctxbench.devices.sheet import sheet
from ctxbench.macs.counter import count_macs
from ctxbench.macs.training import count_training_macs
from ctxbench.memory import predict_peak
from ctxbench.memory.one_pass import run_pass
from ctxbench.mode import MODES, Mode

ROOF = Roof(1e12, 1e11, 1e-6)


class Packed:
    """What autograd keeps in place of a saved tensor, as long as the graph is there."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor


def on_meta(key: str) -> tuple[nn.Module, Tensor]:
    with torch.device("meta"):
        return registry.get(key).build(64, {}), torch.empty(1, 64, 16, 16)


def counted(module: nn.Module, x: Tensor, mode: Mode) -> Costs:
    return known(module, x, mode=mode, device="cpu", dtype="float32", autocast=None, roof=ROOF).costs


@pytest.mark.parametrize("key", registry.names())
def test_the_macs_of_all_lines_are_those_of_the_module(key: str) -> None:
    module, x = on_meta(key)
    wholes = {"infer": count_macs(module, x).macs, "train": count_training_macs(module, x).macs}
    for mode, whole in wholes.items():
        taken = Pass(mode, counted(module, x, mode).all, ROOF, (1.0, 1.0, 1.0))  # type: ignore[arg-type]
        assert sum(part.macs for part in taken.parts("line")) == whole > 0
        assert sum(part.macs for part in taken.parts("operator")) == whole
        assert taken.parts("submodule")[0].macs == whole
        assert not [cost for cost in taken.costs if cost.macs and cost.place.own is None]


@pytest.mark.parametrize("key", registry.names())
def test_the_bytes_of_all_lines_are_those_of_the_peak_and_of_what_is_saved(key: str) -> None:
    module, x = on_meta(key)
    for mode in MODES:
        memory = predict_peak(module, x, mode=mode, device="cpu")
        parts = Pass(mode, counted(module, x, mode).all, ROOF, (1.0, 1.0, 1.0)).parts("line")
        saved = sum(block.bytes for block in memory.allocations if block.category == "saved for backward")
        assert sum(part.peak_bytes for part in parts) == memory.peak_bytes
        assert sum(part.saved_bytes for part in parts) == saved
        assert bool(saved) == (mode == "train")


@pytest.mark.parametrize("key", registry.names())
def test_what_the_lines_save_is_what_autograd_packs(key: str) -> None:
    """Counted by PyTorch's own hooks on the CPU, each storage once, without the input, the weights and the output."""
    torch.manual_seed(0)
    module, x = registry.get(key).build(64, {}).train(), torch.randn(1, 64, 16, 16)
    packed: weakref.WeakSet[Packed] = weakref.WeakSet()

    def pack(tensor: Tensor) -> Packed:
        found = Packed(tensor)
        packed.add(found)
        return found

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda found: found.tensor):
        output = module(x)
    storages = [each.tensor.untyped_storage() for each in packed]
    others = {each.untyped_storage()._cdata for each in (x, output, *module.parameters(), *module.buffers())}
    sizes = {each._cdata: each.nbytes() for each in storages if each._cdata not in others}
    memory = predict_peak(module, x, mode="train", device="cpu")
    numbers = sum(block.bytes for block in memory.allocations if block.saved_by == "number")  # which no hook gets
    assert sum(cost.saved_bytes for cost in counted(module, x, "train").all) == sum(sizes.values()) + numbers


NAMES = (
    "clone", "layout", "rows", "columns", "float64", "double softmax", "item by item", "copied twice", "one by one",
    "a cast and back",
)  # fmt: skip
# Ten slow lines, each of which changes no result.
PLANTS = dict(
    zip(
        NAMES,
        (
            "x = x.clone().clone().clone().clone()",
            "x = x.transpose(2, 3).contiguous().transpose(2, 3).contiguous().clone()",
            "x = torch.stack([row * 2 for row in x.unbind(2)], 2)",
            "x = torch.cat([column.sigmoid() for column in x.split(1, 3)], 3)",
            "x = (x.double() * 2).float()",
            "x = x.double().softmax(1).float()",
            "x = torch.stack([channel + 1 for channel in x.unbind(1)], 1)",
            "x = x.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2).contiguous()",
            "x = sum(x.unbind(2)).unsqueeze(2) + x",
            "x = x.double().float()",
        ),
        strict=True,
    )
)
BLOCK = """import torch
from torch import nn


class Planted(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.first, self.last = nn.Conv2d(channels, channels, 1), nn.Conv2d(channels, channels, 1)

    def forward(self, x):
        x = self.first(x).relu()
        PLANT
        return self.last(x)
"""
PLANTED_LINE = 12


@pytest.fixture(params=[pytest.param(line, id=name) for name, line in PLANTS.items()])
def planted(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The file of a block with one slow line."""
    path = tmp_path / "planted.py"
    path.write_text(BLOCK.replace("PLANT", request.param), encoding="utf-8")
    return path


def built(path: Path, device: str) -> tuple[nn.Module, Tensor]:
    with torch.device(device):
        return registry.get(f"{path}:Planted").build(64, {}), torch.zeros(1, 64, 128, 128)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("target", ["a100-40gb", "t4"])
def test_a_planted_slow_line_is_predicted_to_save_most(planted: Path, target: str, mode: Mode) -> None:
    module, x = built(planted, "meta")
    taken, _, spans = predicted(module, x, mode=mode, sheet=sheet(target), dtype="float32", autocast=None)
    first = taken.parts("line")[0]
    assert first.name == f"planted.py:{PLANTED_LINE}"
    assert sum(cost.ms[0] for cost in taken.costs if cost.ms) == pytest.approx(taken.time.value)
    assert spans[-1].end / 1e6 == pytest.approx(taken.time.value, rel=1e-3)


class FakeMachine:
    """Each operator takes 1.2 times what it needs at the roofline, and each call a microsecond."""

    def __init__(self, costs: Costs, calls: Calls) -> None:
        self.costs, self.calls, self.now = costs, calls, 0

    def __call__(self, step: Callable[[], object]) -> tuple[list[Event], list[Kernel]]:
        step()
        found = []
        known = {(cost.place, f"aten::{cost.operator}"): cost for cost in self.costs.all if cost.calls}
        for name, place in self.calls:
            cost = known.get((place, name))
            ideal_ms = max(cost.ideal_ms, cost.moved_bytes / ROOF.bandwidth * 1e3) / cost.calls if cost else 0.0
            ns = 1_000 + round(1.2e6 * ideal_ms)
            found.append(Event(name, self.now, self.now + ns))
            self.now += ns + 500
        return found, []


def test_a_planted_slow_line_that_is_measured_saves_most(planted: Path) -> None:
    module, x = built(planted, "cpu")
    costs = counted(module.eval(), x, "infer")
    with Recorder(module) as recorder:
        run_pass(module, (x,), "infer")
    times = measure(lambda: None, this_machine.here, FakeMachine(costs, recorder.calls), recorder.calls, costs, 0.1)
    taken = Pass("infer", costs.all, ROOF, times.plain, times.profiled)
    assert taken.parts("line")[0].name == f"planted.py:{PLANTED_LINE}"
    assert not [span for span in times.last if span.place == UNKNOWN]
    assert len(times.last) == len(recorder.calls)
