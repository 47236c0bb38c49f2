"""`ctxbench profile`: each cost at its place, sums that agree, and planted slow lines in the first row."""

import json
import re
import weakref
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
import torch
from drawn_cases import blocks
from fake_clock import FakeClock
from field_cases import FEW
from torch import Tensor, nn

import ctxbench
from ctxbench import registry
from ctxbench.base import clocks as this_machine
from ctxbench.base.call_sites import LOSS, CallSite, Line
from ctxbench.base.errors import UsageError
from ctxbench.base.mode import MODES, Mode
from ctxbench.meta.outputs import trained_input
from ctxbench.meta.recorder import Recorder
from ctxbench.model.case import Case
from ctxbench.plugins.macs.counter import count_macs
from ctxbench.plugins.macs.training import count_training_macs
from ctxbench.plugins.memory.one_pass import run_pass
from ctxbench.plugins.memory.predict import predict_peak
from ctxbench.plugins.memory.profile import Phase
from ctxbench.plugins.predict.operators import operators_in, operators_of
from ctxbench.plugins.predict.passes import time_of
from ctxbench.plugins.predict.rates import HOST_KNOWN_SD, HOST_SD
from ctxbench.plugins.predict.sheet import sheet
from ctxbench.plugins.profile import child
from ctxbench.plugins.profile.advice import advice
from ctxbench.plugins.profile.costs import UNKNOWN, Cost, Costs, Roof, Span
from ctxbench.plugins.profile.measured import (
    FEWEST,
    Event,
    PlacedCalls,
    TimedKernel,
    measure,
    placed,
    spans_of,
    torch_profiler,
)
from ctxbench.plugins.profile.page import render_profile
from ctxbench.plugins.profile.profile import BYS, Pass, Profile
from ctxbench.plugins.profile.static import Known, known, predicted
from ctxbench.plugins.profile.texts import headline

pytestmark = pytest.mark.slow  # many small cases, which take seconds together

NORMED = Path(__file__).parents[2] / "fixtures" / "normed.py"
ROOF = Roof(1e12, 1e11, 1e-6)


class Packed:
    """Stand-in that autograd keeps for a saved tensor, as long as the graph is there."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor


def on_meta(key: str) -> tuple[nn.Module, Tensor]:
    with torch.device("meta"):
        module = registry.get(key).build(64, FEW.get(key, {}))
        return module, trained_input(module, torch.empty(1, 64, 16, 16))


@pytest.mark.parametrize("kernels", [0, 2])
def test_a_gpu_is_profiled_by_its_kernels(kernels: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch's profiler has them with `use_kineto` alone; without one, host times are not shown in their place."""
    asked: list[dict[str, Any]] = []

    class Fake:
        def __init__(self, **options: Any) -> None:
            asked.append(options)
            names = [("aten::mm", 0)] + [("gemm", 1)] * kernels  # device types: CPU, CUDA
            events = [kineto_event(name, device) for name, device in names]
            self.kineto_results = SimpleNamespace(events=lambda: events)

        def __enter__(self) -> "Fake":
            return self

        def __exit__(self, *error: object) -> None: ...

    monkeypatch.setattr(torch.autograd.profiler, "profile", Fake)
    if not kernels:
        with pytest.raises(UsageError, match="saw no kernel of the GPU"):
            torch_profiler("cuda")(lambda: None)
    else:
        events, found = torch_profiler("cuda")(lambda: None)
        assert ([each.name for each in events], [each.name for each in found]) == (["aten::mm"], ["gemm"] * kernels)
    assert asked == [{"use_device": "cuda", "use_kineto": True}]


def kineto_event(name: str, device: int) -> SimpleNamespace:
    values = {
        "name": name,
        "start_ns": 1,
        "end_ns": 5,
        "device_type": list(torch._C._autograd.DeviceType.__members__.values())[device],
        "linked_correlation_id": 7,
        "is_user_annotation": False,
        "sequence_nr": -1,
        "start_thread_id": 1,
        "correlation_id": 7,
    }
    return SimpleNamespace(**{key: lambda value=value: value for key, value in values.items()})


def counted(module: nn.Module, x: Tensor, mode: Mode) -> Costs:
    return known(module, x, mode=mode, device="cpu", dtype="float32", autocast=None, roof=ROOF).costs


def packed_bytes(module: nn.Module, x: Tensor) -> int:
    """Bytes that autograd keeps, by PyTorch's hooks: each storage once, without the input, the weights, the output."""
    packed: weakref.WeakSet[Packed] = weakref.WeakSet()

    def pack(tensor: Tensor) -> Packed:
        found = Packed(tensor)
        packed.add(found)
        return found

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda found: found.tensor):
        output = module(x)
    storages = [each.tensor.untyped_storage() for each in packed]
    others = {each.untyped_storage()._cdata for each in (x, output, *module.parameters(), *module.buffers())}
    return sum({each._cdata: each.nbytes() for each in storages if each._cdata not in others}.values())


# Blocks that together have each kind of operator of the registry.
FAMILIES = (
    *("acf", "agent", "aspp", "bi_wkv", "cbam", "deformable", "dm", "dwconv", "ema_multiscale", "grid", "ham_cd"),
    *("linear", "mdta", "mhsa", "non_local", "ppm", "simam", "spectral", "ss2d", "ssd", "swin"),
)


@pytest.mark.parametrize("key", FAMILIES)
def test_the_costs_of_all_lines_are_those_of_the_module(key: str) -> None:
    module, x = on_meta(key)
    for mode in MODES:
        whole = (count_macs if mode == "infer" else count_training_macs)(module, x).macs
        memory = predict_peak(module, x, mode=mode, device="cpu")
        taken = Pass(mode, counted(module, x, mode).all, ROOF, (1.0, 1.0, 1.0))
        lines = taken.parts("line")
        assert sum(part.macs for part in lines) == whole > 0
        assert sum(part.macs for part in taken.parts("operator")) == whole
        assert taken.parts("submodule")[0].macs == whole
        assert not [cost for cost in taken.costs if cost.macs and cost.place.own is None]
        kept = [block for block in memory.allocations if block.category == "saved for backward"]
        assert sum(part.peak_bytes for part in lines) == memory.peak_bytes
        saved = sum(part.saved_bytes for part in lines)
        assert saved == sum(block.bytes for block in kept)
        assert bool(saved) == (
            mode == "train" and key not in ("dwconv", "pool")
        )  # which keep their input and weight alone
        if mode == "train":
            real = registry.get(key).build(64, FEW.get(key, {})).train()
            numbers = sum(block.bytes for block in kept if block.saved_by == "number")  # which no hook gets
            assert saved == packed_bytes(real, trained_input(real, torch.randn(1, 64, 16, 16))) + numbers


# Slow lines. The gradient of the first three costs nothing: in training, a convolution's may be further from the roof.
FREE_GRADIENT = {
    "clone": "x = x.clone().clone().clone().clone()",
    "layout": "x = x.transpose(2, 3).contiguous().transpose(2, 3).contiguous().clone()",
    "copied thrice": "x = x.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2).contiguous().clone()",
}
SLOW = {
    "rows": "x = torch.stack([row * 2 for row in x.unbind(2)], 2)",
    "columns": "x = torch.cat([column.sigmoid() for column in x.split(1, 3)], 3)",
    "float64": "x = (x.double() * 2).float()",
    "double softmax": "x = x.double().softmax(1).float()",
    "item by item": "x = torch.stack([channel + 1 for channel in x.unbind(1)], 1)",
    "one by one": "x = sum(x.unbind(2)).unsqueeze(2) + x",
    "a cast and back": "x = x.double().float()",
    "gather": "x = x.gather(1, x.argmax(1, keepdim=True).expand(1, 512, *x.shape[2:]))[:, :64]",
    "a map": "x = (x.flatten(2).mT @ x[:, :, ::4, ::4].flatten(2)).softmax(-1).sum(-1).view_as(x[:, :1]) * x",
    "eight copies": "x = torch.cat([x] * 8, 1)[:, :64]",
}
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


PLANTS = [
    *(pytest.param(line, "infer", id=f"{name}-infer") for name, line in FREE_GRADIENT.items()),
    *(pytest.param(line, mode, id=f"{name}-{mode}") for name, line in SLOW.items() for mode in MODES),
]


def planted(line: str, folder: Path) -> str:
    """A block with this line."""
    path = folder / "planted.py"
    path.write_text(BLOCK.replace("PLANT", line), encoding="utf-8")
    return f"{path}:Planted"


def built(name: str, device: str, size: int = 128) -> tuple[nn.Module, Tensor]:
    with torch.device(device):
        return registry.get(name).build(64, {}), torch.zeros(1, 64, size, size)


@pytest.mark.drawn("profile", "predict")
@pytest.mark.parametrize(("line", "mode"), PLANTS)
def test_a_planted_slow_line_is_predicted_to_save_most(line: str, mode: Mode, tmp_path: Path) -> None:
    module, x = built(planted(line, tmp_path), "meta")
    target = "a100-40gb" if mode == "infer" else "t4"
    taken, _, spans = predicted(module, x, mode=mode, sheet=sheet(target), dtype="float32", autocast=None)
    parts = sorted(taken.parts("line"), key=lambda part: -part.saved_ms)
    assert parts[0].name == f"planted.py:{PLANTED_LINE}"
    assert {part.name for part in parts if part.line is None} <= {f"({LOSS})", "(weights)"}
    assert spans[-1].end / 1e6 == pytest.approx(taken.sum_ms.value, rel=1e-3)


# On a GPU the host decides, which is not known, or known, or the kernels do; a processor, whose calls have gaps.
T4 = sheet("t4")
DEVICES = (
    (HOST_SD, T4),
    (HOST_KNOWN_SD, T4),
    (HOST_KNOWN_SD, T4.model_copy(update={"host_us": 0.1})),
    (HOST_SD, T4.model_copy(update={"backend": "cpu", "launch_us": 2.0, "host_us": 8.0, "train_us": 5.0})),
)


@pytest.mark.parametrize("key", blocks())
def test_predicted_rows_add_up_to_the_time_of_the_pass(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or to what its kernels alone take, where no time is told."""
    module, x = on_meta(key)
    for mode in MODES:
        bound = []
        for host_sd, device in DEVICES:
            monkeypatch.setattr("ctxbench.plugins.predict.passes.HOST_SD", host_sd)
            time = time_of(operators_of(module, x, mode=mode, device=device.backend), device)
            taken, _, spans = predicted(module, x, mode=mode, sheet=device, dtype="float32", autocast=None)
            whole = pytest.approx(time.device_ms if time.time.unknown else time.time.value)
            assert [sum(part.ms.value for part in taken.parts(by)) for by in ("line", "operator")] == [whole] * 2
            assert taken.parts("submodule")[0].ms.value == taken.sum_ms.value == whole
            assert spans[-1].end / 1e6 == pytest.approx(taken.sum_ms.value, rel=1e-3)
            bound.append((time.is_launch_bound, "host" in time.time.unknown))
        assert bound == [(True, True), (True, False), (False, False), (False, False)]


class FakeMachine:
    """Each operator takes 1.2 times what it needs at the roofline, and each call a microsecond.

    A node of autograd has the number of one of the calls at its place.
    """

    def __init__(self, found: Known, calls: PlacedCalls) -> None:
        self.costs = {(cost.phase, cost.place, cost.operator): cost for cost in found.costs.all if cost.calls}
        self.calls, self.now = calls, 0
        self.gradients = [each for each in found.operators if each.phase == "backward"]

    def __call__(self, step: Callable[[], object]) -> tuple[list[Event], list[TimedKernel]]:
        step()
        forward = [self.event("forward", place, name, number) for number, (name, place) in enumerate(self.calls)]
        numbers = {place: number for number, (_, place) in enumerate(self.calls)}
        backward = []
        for each in self.gradients:
            event = self.event("backward", each.place, f"aten::{each.name}", -1)
            node = f"autograd::engine::evaluate_function: {each.place.node}"
            number = numbers.get(replace(each.place, node=""), -1)
            backward += [Event(node, event.start - 100, event.end + 100, number=number), event]
        return [*forward, *backward], []

    def event(self, phase: Phase, place: CallSite, name: str, number: int) -> Event:
        cost = self.costs.get((phase, place, name.removeprefix("aten::")))
        ideal_ms = max(cost.ideal_ms, cost.moved_bytes / ROOF.bandwidth * 1e3) / cost.calls if cost else 0.0
        start, self.now = self.now, self.now + 1_000 + round(1.2e6 * ideal_ms)
        self.now += 500
        return Event(name, start, self.now - 500, number=number)


@pytest.mark.drawn("profile", "predict")
@pytest.mark.parametrize(("line", "mode"), PLANTS)
def test_a_planted_slow_line_that_is_measured_saves_most(line: str, mode: Mode, tmp_path: Path) -> None:
    module, x = built(planted(line, tmp_path), "cpu", 64)
    module.train(mode == "train")
    found = known(module, x, mode=mode, device="cpu", dtype="float32", autocast=None, roof=ROOF)
    with Recorder(module) as recorder:
        run_pass(module, (x,), mode)
    calls = placed(recorder.calls)
    machine = FakeMachine(found, calls)
    times = measure(lambda: None, this_machine.here, machine, calls, found.costs, 0.1)
    taken = Pass(mode, found.costs.all, ROOF, times.plain, times.profiled)
    assert max(taken.parts("line"), key=lambda part: part.saved_ms).name == f"planted.py:{PLANTED_LINE}"
    assert not [span for span in times.last if span.place == UNKNOWN]
    assert len(times.last) == len(calls) + len(machine.gradients)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("key", ["mhsa", "swin", "focused_linear"])
def test_the_macs_of_an_operator_stand_where_its_time_stands(key: str, mode: Mode) -> None:
    module, x = Case(key, registry.get(key).reference, {}, (2, 64, 14, 12)).on_meta()
    taken, _, _ = predicted(module, x, mode=mode, sheet=sheet("t4"), dtype="float32", autocast=None)
    assert sum(each.macs for each in taken.costs) > 0
    assert [each.operator for each in taken.costs if each.macs and not sum(each.ms)] == []


@pytest.mark.parametrize("line", [pytest.param(line, id=name) for name, line in FREE_GRADIENT.items()])
def test_a_copy_is_named_in_training_where_another_line_saves_more(line: str, tmp_path: Path) -> None:
    module, x = built(planted(line, tmp_path), "meta")
    taken, found, _ = predicted(module, x, mode="train", sheet=sheet("t4"), dtype="float32", autocast=None)
    assert max(taken.parts("line"), key=lambda part: part.saved_ms).name != f"planted.py:{PLANTED_LINE}"
    assert f"Without the copies at planted.py:{PLANTED_LINE} (clone, " in " ".join(advice(taken, found.memory))


def test_the_gradient_of_a_write_into_a_view_is_booked_to_the_line_that_writes(tmp_path: Path) -> None:
    module, x = built(planted("x = x.clone(); x[:, :, ::2] = x[:, :, ::2] * 2; x[0].relu_()", tmp_path), "cpu", 8)
    memory = predict_peak(module, x, mode="train", device="cpu")
    with Recorder(module) as recorder:
        run_pass(module, (x,), "train")
    step = lambda: run_pass(module, (x,), "train")  # noqa: E731  # what is profiled
    spans = spans_of(*torch_profiler("cpu")(step), placed(recorder.calls))
    for calls in (operators_in(memory), spans):
        lines = {str(each.place.own) for each in calls if each.place.node == "CopySlices"}
        assert lines == {f"planted.py:{PLANTED_LINE}"}
    nodes = {block.place.node for block in memory.allocations if block.place.own is None and block.place.node != LOSS}
    assert nodes <= {"AccumulateGrad", *dict(module.named_parameters())}


def test_the_fewest_passes_justify_the_interval_that_is_told() -> None:
    passes = iter([9.0, *(0.02 * (1 + number * 5 % 13 / 100) for number in range(2 * FEWEST))])  # the first warms up

    def nothing(step: Callable[[], object]) -> tuple[list[Event], list[TimedKernel]]:
        step()
        return [], []

    times = measure(lambda: None, FakeClock(passes), nothing, None, Costs(), 0.0)
    assert not [*passes]
    assert (len(times.plain), max(times.plain) < 30) == (FEWEST, True)
    alone = Pass("infer", [], ROOF, times.plain, times.profiled)
    assert "[95 % interval]" in headline(Profile("", "", {"infer": alone}), "infer")
    assert "\n" not in headline(Profile("", "", {"infer": replace(alone, others_share=0.1)}), "infer")
    busy = headline(Profile("", "", {"infer": replace(alone, others_share=0.79)}), "infer")
    assert busy.endswith(
        "\nOther work kept 79% of the cores busy: these times, and the order of the rows, are doubtful."
    )
    drifting = Pass("infer", [], ROOF, [*range(1, 41)], [*range(2, 42)])
    assert "[the smallest and the largest of 40 passes]" in headline(Profile("", "", {"infer": drifting}), "infer")


def test_kernels_and_gradients_are_booked_to_the_calls_that_made_them() -> None:
    """A GPU's kernels count for the call that started them; the time in no kernel is between operators."""
    mine, other = CallSite("block", Line("net.py", 3)), CallSite("", Line("net.py", 9))
    node = "autograd::engine::evaluate_function: "
    events = [
        Event("aten::conv2d", 0, 40, number=7, id=1),  # a composite
        Event("aten::convolution", 10, 30, number=7, id=2),
        Event("aten::cudnn_convolution", 12, 28, id=3),
        Event("aten::relu_", 50, 60, number=8, id=4),
        Event("aten::detached", 70, 80, id=5),  # nobody knows
        Event(f"{node}ReluBackward0", 100, 140, thread=2, number=8, id=6),
        Event("ReluBackward0", 101, 139, thread=2, number=8, id=7),
        Event("aten::threshold_backward", 105, 130, thread=2, id=8),
        Event(f"{node}ConvolutionBackward0", 150, 190, thread=2, number=7, id=9),
        Event("ConvolutionBackward0", 151, 189, thread=2, number=7, id=10),
        Event("aten::convolution_backward", 152, 180, thread=2, id=11),
        Event("aten::add_", 181, 185, thread=2, id=12),
        Event(f"{node}torch::autograd::AccumulateGrad", 200, 210, thread=2, id=13),
        Event("torch::autograd::AccumulateGrad", 201, 209, thread=2, id=14),
        Event("aten::copy_", 202, 208, thread=2, id=15),
    ]
    kernels = [
        TimedKernel("implicit_gemm", 20, 120, 3),
        TimedKernel("relu", 121, 131, 4),
        TimedKernel("dgrad", 190, 400, 11),
    ]
    kernels.append(TimedKernel("spin", 0, 10**6, 0))  # of no operator
    calls = [("aten::convolution", mine), ("aten::view", mine), ("aten::relu", other)]
    spans = spans_of(events, kernels, calls)
    found = [(each.operator, each.place.own and each.place.own.number, each.place.node, each.busy) for each in spans]
    assert found == [
        ("aten::convolution", 3, "", 100),
        ("aten::relu_", 9, "", 10),
        ("aten::detached", None, "not attributed", 0),
        ("aten::threshold_backward", 9, "ReluBackward0", 0),
        ("aten::convolution_backward", 3, "ConvolutionBackward0", 210),
        ("aten::add_", 3, "ConvolutionBackward0", 0),
        ("aten::copy_", None, "AccumulateGrad", 0),
    ]
    assert [each.busy for each in spans_of(events, [], calls)] == [20, 10, 10, 25, 28, 4, 6]
    taken = Pass("train", of_spans(spans), ROOF, [500e-6] * 5, [600e-6] * 5)
    assert taken.sum_ms.value == pytest.approx(320e-6)
    assert taken.between_ms.value == pytest.approx(280e-6)
    assert taken.overhead.value == pytest.approx(1.2)


def of_spans(spans: list[Span]) -> list[Cost]:
    """The costs of five equal passes."""
    costs = Costs()
    for span in spans:
        costs.of(span.phase, span.place, span.operator).ms = [span.busy / 1e6] * 5
    return costs.all


def test_a_compiled_module_goes_by_kernel() -> None:
    events = [
        Event("Torch-Compiled Region: 0/0", 0, 100),
        Event("## Call CompiledFxGraph x ##", 10, 90),
        Event("graph_0_cpp_fused__softmax_1", 20, 40),
        Event("aten::bmm", 50, 80),
        Event("aten::resolve_conj", 55, 56),
        Event("autograd::engine::evaluate_function: CompiledFunctionBackward", 110, 200),
        Event("CompiledFunctionBackward", 111, 199),
        Event("triton_poi_fused_add_0", 120, 130),
    ]
    found = [(each.operator, each.place.node) for each in spans_of(events, [], None)]
    kernels = [("graph_0_cpp_fused__softmax_1", "compiled"), ("aten::bmm", "compiled")]
    assert found == [*kernels, ("triton_poi_fused_add_0", "CompiledFunctionBackward")]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("key", ["ham_nmf", "mhsa", "criss_cross"])
def test_what_the_profiler_sees_is_booked_to_the_lines_of_the_module(key: str, mode: Mode) -> None:
    module, x = registry.get(key).build(16, {}).train(mode == "train"), torch.randn(1, 16, 8, 8)
    with Recorder(module) as recorder:
        run_pass(module, (x,), mode)
    step = lambda: run_pass(module, (x,), mode)  # noqa: E731  # what is profiled
    spans = spans_of(*torch_profiler("cpu")(step), placed(recorder.calls))
    nowhere = {span.place.node for span in spans if span.place.own is None}
    assert nowhere <= ({LOSS, "AccumulateGrad"} if mode == "train" else set())
    assert {span.phase for span in spans} == ({"forward", "backward"} if mode == "train" else {"forward"})
    assert {span.place.module for span in spans if span.phase == "backward"} <= {
        place.module for _, place in placed(recorder.calls)
    }


NOTEBOOK = """import torch
from torch import nn

class Cell(nn.Module):
    def __init__(self):
        super().__init__()
        self.inside = nn.Conv2d(8, 8, 1)
    def forward(self, x):
        return self.inside(x).relu()
"""


def test_a_module_whose_source_is_no_file_goes_by_submodule_and_operator() -> None:
    names: dict[str, Any] = {"__name__": "notebook"}
    exec(compile(NOTEBOOK, "<cell>", "exec"), names)
    found = ctxbench.profile(names["Cell"](), (1, 8, 6, 5), target="a100-40gb")
    assert not found.sources
    assert re.search(r"^<cell>:9 .*\n(.*\n)*submodule +ms .*\n(.*\n)*operator +ms ", str(found), re.MULTILINE)
    taken = found.passes["infer"]
    assert [part.name for part in taken.parts("submodule")] == ["", "inside"]
    assert {part.name for part in taken.parts("operator")} >= {"convolution", "relu"}
    assert {part.name for part in taken.parts("line")} == {"<cell>:9", "(weights)"}
    assert "(no source" not in render_profile(found, "own")
    measured = ctxbench.profile(names["Cell"](), (1, 8, 6, 5), mode="infer").passes["infer"]
    assert [part.name for part in measured.parts("submodule")] == ["", "inside"]
    assert {part.name for part in measured.parts("operator") if part.ms.value} == {"convolution", "relu"}
    assert {part.name for part in measured.parts("line") if part.ms.value} == {"<cell>:9"}


@pytest.mark.parametrize(("name", "told"), [("Normed", 1), ("HandedOn", 0)])
def test_a_gradient_that_is_read_in_a_wrong_order_is_told(
    name: str, told: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child, "SECONDS", 0.01)
    monkeypatch.setattr(child, "roof_of", lambda *_: ROOF)
    block = registry.get(f"{NORMED}:{name}").build(8, {})
    assert str(ctxbench.profile(block, (1, 8, 5, 4), mode="train")).count("y.flatten(1).view_as(y)") == told


@pytest.mark.usefixtures("shared_server")
def test_a_module_that_raises_names_its_line_from_python(tmp_path: Path) -> None:
    name = planted("raise ValueError('no such day')", tmp_path)
    for target in (None, "t4"):
        with pytest.raises(ctxbench.UsageError, match=rf"no such day.*planted\.py(?:, line |:){PLANTED_LINE}"):
            ctxbench.profile(name, (1, 8, 6, 5), target=target)


def test_the_frames_of_a_measured_profile_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    module = nn.Sequential(nn.Conv2d(8, 8, 1), nn.ReLU())
    monkeypatch.setattr(this_machine.here, "others", lambda: lambda: 0.5)
    found = ctxbench.profile(module, (1, 8, 6, 5))
    assert [*found.passes] == ["infer", "train"]
    assert [taken.time.others_share for taken in found.passes.values()] == [0.5, 0.5]
    frames = [found.frame(by) for by in BYS]
    for mode, taken in found.passes.items():
        line, tree, operator = (frame[frame["mode"] == mode] for frame in frames)
        whole = tree[tree["submodule"] == ""]
        for column in ("macs", "saved_bytes", "peak_bytes", "moved_bytes", "calls"):
            assert line[column].sum() == operator[column].sum() == whole[column].item()
        assert taken.is_measured
        assert len(taken.pass_ms) == len(taken.profiled_ms) >= FEWEST
        assert set(tree["submodule"]) == {"", "0", "1"}
    # without weights: by the gradient of the input
    assert ctxbench.profile(module[1], (1, 8, 6, 5)).passes.keys() == {"infer", "train"}


def test_the_parts_of_the_flame_graph_are_as_wide_as_the_whole() -> None:
    first, second = (CallSite(name, Line("net.py", number)) for number, name in enumerate(("a", "b")))
    costs = [Cost("forward", first, "mul", ms=[1.0, 9.0, 1.0]), Cost("forward", second, "add", ms=[9.0, 1.0, 1.0])]
    taken = Pass("infer", costs, ROOF, [10.0, 10.0, 2.0], [10.0, 10.0, 2.0])
    page = render_profile(Profile("", "", {"infer": taken}), "own")
    whole, half = "100.0", "50.0"
    assert re.findall(r'data-width="([\d.]+)"', page) == [whole, half, whole, whole, half, whole, whole]


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"module": 3}, "modules holds int; it takes names"),
        ({"shape": (1, 8)}, "shape"),
        ({"target": "a100"}, "a100"),
        ({"mode": "eval"}, "eval"),
    ],
)
def test_a_wrong_argument_is_one_sentence(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ctxbench.UsageError, match=sentence):
        ctxbench.profile(**{"module": nn.Conv2d(8, 8, 1), "shape": (1, 8, 6, 5), **given})


@pytest.fixture
def block(tmp_path: Path) -> str:
    return planted(SLOW["rows"], tmp_path)


def test_the_command_prints_tables_of_100_columns_and_writes_its_files(
    command: Callable[..., Any], block: str, tmp_path: Path
) -> None:
    page, table, folder = tmp_path / "p.html", tmp_path / "p.csv", tmp_path / "trace"
    files = ("--html", page, "--csv", table, "--trace", folder)
    done = command("profile", block, "--shape", "1,8,16,16", "--threads", "1", *files)
    assert done.returncode == 0
    assert re.fullmatch(r"built: \S*planted\.py:\d+ Planted\(channels=8\)\n", done.stderr)
    rows = [line for line in done.stdout.splitlines() if not line.startswith(("- ", "cpu,", "wrote "))]
    assert max(map(len, rows)) <= 100
    for word in (
        "inference, on cpu, 1 thread",
        "training, on cpu",
        "All rows are of the same",
        "times as long",
        "first",
    ):
        assert word in done.stdout
    frame = pd.read_csv(table)
    assert set(frame["by"]) == {"line", "submodule", "operator"}
    assert frame.loc[(frame["by"] == "line") & (frame["mode"] == "infer"), "name"].str.contains("planted.py:12").any()
    html = page.read_text(encoding="utf-8")
    assert "return self.last(x)" in html
    assert not re.search(r"<(?:script|link|img)[^>]+(?:src|href)=", html)
    scope = json.loads((folder / "profile.speedscope.json").read_text(encoding="utf-8"))
    for each in scope["profiles"]:
        assert len(each["samples"]) == len(each["weights"])
        assert sum(each["weights"]) == each["endValue"]
        assert {frame for stack in each["samples"] for frame in stack} <= {*range(len(scope["shared"]["frames"]))}
    events = json.loads((folder / "trace.json").read_text(encoding="utf-8"))["traceEvents"]
    assert {event["args"]["line"] for event in events if event["name"] == "aten::stack"} == {"planted.py:12"}


def test_a_prediction_measures_nothing_and_finds_the_slow_line(command: Callable[..., Any], block: str) -> None:
    done = command("profile", block, "--shape", "1,64,64,64", "--for", "t4", "--mode", "infer")
    assert done.returncode == 0
    assert "predicted for Tesla T4, not measured" in done.stdout
    lines = done.stdout.splitlines()
    first = next(line for number, line in enumerate(lines) if "─" in lines[number - 1])
    assert first.startswith("planted.py:12")
    assert first.endswith("calls")
    assert "At planted.py:12, one module calls mul 64 times" in done.stdout


def test_where_no_time_is_known_rows_have_those_of_the_kernels_alone_or_shares(
    command: Callable[..., Any], tmp_path: Path
) -> None:
    where, table, page = (
        ("--shape", "1,64,80,80", "--for", "t4", "--mode", "infer"),
        tmp_path / "p.csv",
        tmp_path / "p.html",
    )
    bound = command("profile", "se", *where).stdout
    assert "not known: the host's time to launch the kernels decides" in bound
    alone = float(bound.partition("the kernels alone take ")[2].partition(" ")[0])
    assert float(bound.partition("sum of rows")[2].split()[0]) == pytest.approx(alone, rel=0.01)
    assert "All rows share what the kernels alone take, a lower bound of the pass." in bound
    unmeasured = command("profile", "mhsa", *where, "--csv", table, "--html", page).stdout
    assert "not known: 97% of the time is in fused attention, which nothing measured" in unmeasured
    assert not re.search(r"\d ms|^\S+ .* ms |GB/s  ", unmeasured, re.MULTILINE)
    frame = pd.read_csv(table)
    assert frame[[name for name in frame if "ms" in name and name != "ideal_ms"]].isna().all(axis=None)
    assert frame.loc[frame["by"] == "operator", "share"].sum() == pytest.approx(1)
    html = page.read_text(encoding="utf-8")
    assert ("97.3%" in html, re.search(r"\d ms\b|>ms<", html)) == (True, None)


@pytest.mark.extra("networks")
def test_a_network_goes_by_its_submodules_and_the_lines_of_the_module(command: Callable[..., Any], block: str) -> None:
    where = ("--network", "resnet18_os32", "--shape", "1,3,32,32", "--threads", "1", "--mode", "infer")
    done = command("profile", block, *where)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Planted in resnet18_os32 [1, 3, 32, 32]")
    assert "planted.py:12" in done.stdout
    tree = done.stdout.partition("\nsubmodule")[2].partition("\noperator")[0]
    assert re.search(r"^\(module\)  .*\n  backbone  .*\n(?:    .*\n){10}\d+ others, shorter$", tree, re.MULTILINE)


@pytest.mark.long
def test_a_compiled_execution_goes_by_kernel(command: Callable[..., Any], block: str) -> None:
    done = command("profile", block, "--shape", "1,8,16,16", "--threads", "1", "--execution", "compile")
    assert (done.returncode, done.stderr.count("\n")) == (0, 1)
    assert "(compiled)" in done.stdout
    assert "…FunctionBackward)" in done.stdout
    assert re.search(r"^\S*fused_\S+  ", done.stdout, re.MULTILINE)
    assert "no MACs and no bytes: the compiler decides what runs" in done.stdout
    assert "planted.py:" not in done.stdout


FAILING = BLOCK.replace("PLANT", "raise ValueError('no such day')")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--mode", "eval"), "unknown mode 'eval'"),
        (("--lines", "all"), "unknown lines 'all'"),
        (("--html", "p.txt"), "ends in .html"),
        (("--csv", "p"), "ends in .csv"),
        (("--for", "a100"), "unknown device 'a100'"),
        (("--for", "t4", "--execution", "compile"), "--execution is for what is measured"),
        (("--for", "t4", "--device", "cpu"), "--device is for what is measured"),
        (("--device", "t4"), "--for predicts"),
        (("--device", "cuda:9"), "cuda"),
        (("--threads", "two"), "--threads 'two' is not an integer"),
        pytest.param(
            ("--execution", "onnxruntime"),
            "--execution onnxruntime goes by no operator",
            marks=pytest.mark.plugin("runtimes"),
        ),
    ],
)
def test_a_wrong_option_is_one_sentence(
    command: Callable[..., Any], block: str, arguments: tuple[str, ...], sentence: str
) -> None:
    done = command("profile", block, "--shape", "1,8,6,5", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert sentence in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("how", [(), ("--for", "t4")])
def test_a_module_that_fails_names_its_line(command: Callable[..., Any], tmp_path: Path, how: tuple[str, ...]) -> None:
    path = tmp_path / "failing.py"
    path.write_text(FAILING, encoding="utf-8")
    done = command("profile", f"{path}:Planted", "--shape", "1,8,6,5", *how)
    assert done.returncode == 2
    assert "no such day" in done.stderr
    assert re.search(r"failing\.py(?::|, line )12", done.stderr)
