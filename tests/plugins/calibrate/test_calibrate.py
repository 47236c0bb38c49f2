"""A device's own file: what is measured, what is refused, and what the prediction makes of it."""

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import Done, machines
from torch import nn

from ctxbench.base import clocks as this_machine
from ctxbench.base.errors import UsageError
from ctxbench.engine.client import ForkServer
from ctxbench.engine.exit import Exit
from ctxbench.plugins.calibrate.calibrate import calibrate, text_of
from ctxbench.plugins.calibrate.child import BLOCK_S, BLOCKS, PLACEMENTS, time_kernels
from ctxbench.plugins.calibrate.wire import GpuProperties, KernelTime
from ctxbench.plugins.predict.effects import compared, effects_of
from ctxbench.plugins.predict.operators import operators_of
from ctxbench.plugins.predict.passes import calls_of, time_of
from ctxbench.plugins.predict.probes import KEPT_MAPS, KERNELS, LAYERS, TRAINED_LAYERS, kernel
from ctxbench.plugins.predict.rates import HOST_KNOWN_SD, rate
from ctxbench.plugins.predict.sheet import DeviceSpec, sheet
from ctxbench.plugins.predict.work import Convolution
from ctxbench.worker.lines import plain
from ctxbench.worker.protocol import Payload, Reply

pytestmark = pytest.mark.slow  # many small cases, which take seconds together

CPU = {"cpu": "A processor", "torch_threads": 2, "gpus": [], "packages": {"torch": "2.13"}}
GPU = {**CPU, "gpus": [{"name": "Tesla T4"}], "torch_build": {"cuda": "12.8"}, "driver": "570"}
PROPERTIES = {
    "major": 8, "minor": 6, "multi_processor_count": 28, "clock_rate": 1_777_000, "memory_clock_rate": 7_501_000,
    "memory_bus_width": 192, "L2_cache_size": 2_359_296,
}  # fmt: skip


# What the host takes, milliseconds: 2 and 20 us an operator in inference.
HOST_MS = {"small 200": 0.4, LAYERS: 1.2, TRAINED_LAYERS: 4.2}


def expected_ms(name: str, on: DeviceSpec) -> float:
    """Predicted milliseconds of a kernel on a device whose own kernels are not known."""
    plain = on.model_copy(update={"kernels_ms": {}, "title": "none"})
    known = kernel(name)
    operators = operators_of(known.module, *known.inputs("meta"), mode="infer", device=on.backend)
    return time_of(operators, plain).device_ms


class Server:
    """A fork server whose child reports these times: of a kernel by its name, `factor` times what is expected.

    It ends after `kernels` of them, and of the last one tells `load`: the share of others and of the time on a core.
    """

    def __init__(
        self,
        on: DeviceSpec,
        factor: float = 1.0,
        controls: tuple[float, ...] = (5.0, 5.1),
        properties: GpuProperties | None = None,
        kernels: int | None = None,
        load: tuple[float, float] = (0.0, 1.0),
    ) -> None:
        self.on, self.factor, self.controls, self.properties = on, factor, controls, properties
        self.kernels, self.load = kernels, load
        self.name, self.threads, self.asked = "", None, [""]

    def run(self, task: Any, on_message: Callable[[Reply], None], timeout_s: float | None = None) -> Exit:
        self.name, self.threads, self.asked = map(json.loads, task.arguments)
        if self.properties is not None:
            on_message(Payload(plain(self.properties)))
        for ms in self.controls[:1]:
            on_message(Payload(plain(KernelTime("control", ms))))
        told = self.asked[: self.kernels]
        for name in told:
            ms = HOST_MS.get(name) or self.factor * expected_ms(name, self.on)
            on_message(Payload(plain(KernelTime(name, ms, *(self.load if name == told[-1] else ())))))
        for ms in self.controls[1:]:
            on_message(Payload(plain(KernelTime("control", ms))))
        return Exit(0, 0, False, "RuntimeError: no such device")


def content(name: str, environment: Mapping[str, Any], server: Server, threads: int | None = None) -> dict[str, Any]:
    return calibrate(name, threads, environment, server, lambda kernel, ms: None)  # type: ignore[arg-type]  # a fake


def test_a_known_gpu_keeps_its_data_sheet_and_has_its_own_times(tmp_path: Path) -> None:
    found = content("cuda", GPU, Server(sheet("t4"), factor=1.3))
    assert {k: v for k, v in found.items() if k not in ("kernels_ms", "host_us")} == sheet("t4").model_dump(
        exclude_none=True, exclude_defaults=True
    )
    assert found["host_us"] == 20.0  # 1.2 ms for 60 operators
    path = tmp_path / "mine.toml"
    path.write_text(text_of("mine", found))
    mine = sheet(str(path))
    assert mine == DeviceSpec.model_validate(found)
    assert len(mine.kernels_ms) == len(KERNELS["cuda"]) - 1
    assert all(text.startswith("1.3") for _, _, text in compared(mine))
    works = operators_of(
        nn.Conv2d(512, 512, 1, bias=False, device="meta"), torch.empty(8, 512, 128, 128, device="meta"), mode="infer"
    )[0].works
    of_mine = rate(works[0], effects_of(mine, "cuda"))
    assert of_mine.factor == pytest.approx(1.3, rel=0.05)  # a little drawn to that of all its classes
    # a class that was not measured has what all its classes share
    norm = operators_of(nn.LayerNorm(512, device="meta"), torch.empty(4096, 512, device="meta"), mode="infer")[0].works[
        0
    ]
    of_norm = rate(norm, effects_of(mine, "cuda"))
    assert of_norm.factor == pytest.approx(1.27, rel=0.05)
    assert of_norm.sd > of_mine.sd


@pytest.mark.parametrize("name", ["tesla-p4", "t4", "h200"])
def test_the_kernels_of_a_gpu_take_less_than_two_minutes(name: str) -> None:
    """By predicted times: the passes of each placement and its blocks; the largest tensors fit a card of 8 GB."""
    seconds = {each: expected_ms(each, sheet(name)) / 1e3 for each in KERNELS["cuda"]}
    total = sum(PLACEMENTS * (3 * each + BLOCKS * max(BLOCK_S, each)) for each in seconds.values())
    assert total < 60
    moved = {each: sum(map(math.prod, kernel(each).shapes)) * 4 for each in KERNELS["cuda"]}
    assert max(moved.values()) < 3 * 2**30


def test_the_kernels_of_a_gpu_are_of_the_classes_that_differ_by_card() -> None:
    """Both gradients of convolutions, copies along another dimension, and layers as blocks have them."""
    mine = DeviceSpec.model_validate(content("cuda", GPU, Server(sheet("t4"))))
    groups = {group for group, _, _ in compared(mine)}
    turns = ("", ", input gradient", ", weight gradient")
    kinds = ("convolution 1x1", "convolution 3x3", "depthwise convolution")
    wanted = {kind + turn for kind in kinds for turn in turns} | {
        "copy",
        "softmax, input gradient",
        "batch norm, input gradient",
    }
    assert wanted <= groups
    operators = operators_of(kernel(LAYERS).module, torch.empty(1, 8, 4, 4, device="meta"), mode="infer")
    assert sum(each.name != "_to_copy" for each in operators) == 60  # the weights are moved once


def test_an_own_factor_of_a_hopper_card_stands_on_that_of_its_architecture() -> None:
    """A card that takes what is predicted of an H200 has factors of 1 beside those of Hopper."""
    card, times = sheet("h200"), {}
    for name in (each for each in KERNELS["cuda"] if each != LAYERS):
        known = kernel(name)
        times[name] = time_of(operators_of(known.module, *known.inputs("meta"), mode="infer"), card).device_ms
    mine = card.model_copy(update={"kernels_ms": times})
    for kind, turn in (("convolution 1x1", "weight gradient"), ("strided convolution 1x1", "weight gradient")):
        stride = 1 + kind.startswith("strided")
        sides = ((128, 128), (128 // stride,) * 2, (1, 1), (stride,) * 2, (1, 1))
        work = Convolution(8, 512, 512, *sides).work(turn)  # type: ignore[arg-type]  # a turn
        assert work.kind == kind
        assert rate(work, effects_of(mine, "cuda")).factor == pytest.approx(
            rate(work, effects_of(card, "cuda")).factor, rel=0.1
        )


def test_an_unknown_gpu_has_what_its_driver_tells() -> None:
    environment = {**GPU, "gpus": [{"name": "NVIDIA GeForce RTX 3060"}]}
    found = content("cuda:0", environment, Server(sheet("t4"), properties=GpuProperties(PROPERTIES)))
    # 28 multiprocessors of 128 cores at 1777 MHz; 192 bits at 7501 MHz, twice a clock: 12.7 TFLOP/s and 360 GB/s
    assert found["peak_tflops"]["float32"] == pytest.approx(12.74, rel=1e-3)
    assert found["bandwidth_gb_s"] == pytest.approx(360, rel=1e-3)
    assert (found["l2_mib"], found["processors"]) == (2.25, 28)
    silent = GpuProperties({**PROPERTIES, "clock_rate": 0})
    with pytest.raises(
        UsageError, match="no data sheet of NVIDIA GeForce RTX 3060, and torch does not tell its clock_rate"
    ):
        content("cuda:0", environment, Server(sheet("t4"), properties=silent))


def test_a_cpu_is_a_device_like_any_other() -> None:
    plain = DeviceSpec(
        title="x", peak_tflops={"float32": 0.1}, bandwidth_gb_s=50, l2_mib=1, processors=1, backend="cpu"
    )
    found = content("cpu", CPU, Server(plain), threads=1)
    own = DeviceSpec.model_validate(found)
    assert (own.title, own.backend, own.launch_us, own.host_us) == ("A processor, 1 thread", "cpu", 2.0, 20.0)
    for told, wanted in ((("AVX2", None), "AVX2"), (("AVX2", "AVX512_CORE"), "AVX512"), (("DEFAULT", "SSE41"), None)):
        environment = {**CPU, **dict(zip(("cpu_capability", "onednn_max_isa"), told, strict=True))}
        assert content("cpu", environment, Server(plain), threads=1).get("instructions") == wanted
    # 4.2 ms for the calls of a step of the same layers
    layers = nn.Sequential(*[nn.Conv2d(8, 8, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU()] * 20).to("meta")
    step = operators_of(layers, torch.empty(1, 8, 4, 4, device="meta"), mode="train", device="cpu")
    assert own.train_us == pytest.approx(4200 / calls_of(step), rel=1e-3)
    assert DeviceSpec.model_validate(content("cpu", CPU, Server(plain))).title == "A processor, 2 threads"
    layer, x = nn.Conv2d(512, 512, 1, bias=False, device="meta"), torch.empty(1, 512, 64, 64, device="meta")
    predicted = time_of(operators_of(layer, x, mode="infer", device="cpu"), own)
    # what an operator takes in a layer, 20 us, stands in place of the 3 us that the made-up processor has
    alone = expected_ms("convolution 1 512 512 1 64 1 1", plain) + 0.017
    assert predicted.time.value == pytest.approx(alone, rel=0.02)
    assert predicted.time.high / predicted.time.low < 3
    operators = operators_of(layer, x, mode="train", device="cpu")
    trained = time_of(operators, own)
    gaps = trained.device_ms - sum(each.ms for each in trained.kernels)
    assert gaps == pytest.approx((own.train_us or 0) * calls_of(operators) / 1e3)
    assert trained.time.errors["operators"] == pytest.approx(HOST_KNOWN_SD * gaps / trained.device_ms)


def test_convolutions_whose_results_are_kept_tell_those_of_training() -> None:
    """They take 1.44 times as long: so do convolutions in training, and those of inference 1.2 times, the middle."""
    plain = DeviceSpec(
        title="x", peak_tflops={"float32": 0.1}, bandwidth_gb_s=50, l2_mib=1, processors=1, backend="cpu"
    )
    times = {name: expected_ms(name, plain) * 1.44 ** name.startswith("kept ") for name in KERNELS["cpu"]}
    known = effects_of(plain.model_copy(update={"kernels_ms": times}), "cuda")
    work = Convolution(1, 384, 384, (14, 14), (14, 14), (1, 1), (1, 1), (1, 1)).work()
    alone = effects_of(
        plain.model_copy(
            update={"kernels_ms": {name: ms for name, ms in times.items() if not name.startswith("kept convolution")}}
        ),
        "cuda",
    )
    factors = [rate(work, known, trains=trains).factor for trains in (False, True)]
    assert factors[1] / factors[0] == pytest.approx(1.2, rel=0.01)
    assert [rate(work, alone, trains=trains).factor for trains in (False, True)] == [pytest.approx(1, rel=0.05)] * 2


def test_of_a_data_sheet_the_host_alone_is_measured() -> None:
    server = Server(sheet("t4"))
    found = content("a100-40gb", CPU, server)
    assert (server.name, server.asked) == ("cpu", ["small 200"])
    assert found["title"] == sheet("a100-40gb").title
    assert found["host_us"] == 16.0  # 8 times the 2 us of an operator here
    assert "this host's small operator, 2 us, times 8" in found["source"]
    with pytest.raises(UsageError, match="unknown device 'a100-4gb'; did you mean 'a100-40gb'"):
        content("a100-4gb", CPU, server)


@pytest.mark.parametrize(
    ("server", "sentence"),
    [
        (
            {"controls": (5.0, 6.0)},
            "was not idle: a control workload before and after the kernels took 5.00 to 6.00 ms",
        ),
        ({"controls": (5.0,)}, "could not be measured on cuda: it last printed: RuntimeError: no such device"),
        ({"kernels": 3, "load": (0.11, 1.0)}, "while .* was measured, other work used 11% of the cores"),
        ({"kernels": 3, "load": (0.0, 0.89)}, "the measuring thread ran on a core for 89% of the time"),
    ],
)
def test_a_busy_or_dead_device_is_told(server: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        content("cuda", GPU, Server(sheet("t4"), **server))


def test_a_gpu_that_others_compute_on_is_refused() -> None:
    with pytest.raises(UsageError, match="cuda is shared with processes 4242, 4243: end them, then try again"):
        content("cuda", GPU, Server(sheet("t4"), properties=GpuProperties(PROPERTIES, [4242, 4243])))


def test_a_file_that_cannot_be_of_the_device_is_refused() -> None:
    good = content("cuda", GPU, Server(sheet("t4")))
    h100 = sheet("h100-sxm").model_dump(exclude_none=True, exclude_defaults=True)
    wrong = {**h100, "kernels_ms": good["kernels_ms"]}
    with pytest.raises(UsageError, match="Are they of another device"):
        compared(DeviceSpec.model_validate(wrong))
    few = {**good, "kernels_ms": dict(list(good["kernels_ms"].items())[:4])}
    with pytest.raises(UsageError, match="has 4 measured kernels, and 5 are needed"):
        compared(DeviceSpec.model_validate(few))
    unknown = {**good, "kernels_ms": {**good["kernels_ms"], "product 1 2": 1.0}}
    with pytest.raises(UsageError, match="'product 1 2' of a calibration does not have the sizes of 'product'"):
        compared(DeviceSpec.model_validate(unknown))
    with pytest.raises(UsageError, match="unknown kernel of a calibration 'sofmax'; did you mean 'softmax'"):
        kernel("sofmax 8 8")


@pytest.mark.parametrize("name", sorted({*KERNELS["cpu"], *KERNELS["cuda"]}))
def test_each_kernel_is_one_that_the_prediction_knows(name: str) -> None:
    known = kernel(name)
    found = operators_of(known.module, *known.inputs("meta"), mode="infer")
    assert [work.kind for each in found for work in each.works if work.kind == "unknown"] == []
    assert name in HOST_MS or len(found) == (KEPT_MAPS if name.startswith("kept ") else 1)


def test_kernels_are_timed_in_the_process_that_measures(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[KernelTime] = []
    monkeypatch.setattr("ctxbench.plugins.calibrate.child.BLOCK_S", 1e-4)
    time_kernels("cpu", 1, ["add 8", "small 2"], seen.append)  # type: ignore[arg-type]  # no other comes
    assert [each.name for each in seen] == ["control", "add 8", "small 2", "control"]
    assert all(0 < each.ms < math.inf for each in seen)
    assert PLACEMENTS > 1


@pytest.mark.parametrize(("busy", "tries"), [(0, 1), (1, 2), (2, 3), (9, 3)])
def test_a_kernel_is_measured_anew_while_others_compute(monkeypatch: pytest.MonkeyPatch, busy: int, tries: int) -> None:
    shares = [0.5] * busy + [0.0] * 9
    monkeypatch.setattr(this_machine.here, "others", lambda: lambda: shares.pop(0))
    monkeypatch.setattr(this_machine.here, "on_core", lambda: lambda: 1.0)
    seen: list[KernelTime] = []
    time_kernels("cpu", 1, [], seen.append)  # type: ignore[arg-type]  # no other comes
    assert [each.others_share for each in seen] == [0.5 if busy == 9 else 0.0] * 2
    assert len(shares) == busy + 9 - tries - (3 if busy == 9 else 1)


def test_a_machine_that_is_always_busy_is_refused(
    command: Callable[..., Done], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(machines.VARIABLE, "restless")
    monkeypatch.setattr("ctxbench.engine.client.ForkServer", ForkServer)  # one of its own, on that machine
    done = command("calibrate", "--device", "cpu", "--threads", "1", "--out", tmp_path / "mine.toml")
    assert done.returncode == 2
    assert "while control was measured, other work used 100% of the cores (limit: 10%)" in done.stderr
    assert "a core for 40% of the time (at least 90% is needed), so nothing was written" in done.stderr
    assert [*tmp_path.iterdir()] == []


@pytest.mark.at_rest
def test_of_a_data_sheet_the_command_writes_the_host_alone(command: Callable[..., Done], tmp_path: Path) -> None:
    path = tmp_path / "there.toml"
    done = command("calibrate", "--device", "t4", "--out", path)
    assert done.returncode == 0, done.stderr
    found = sheet(str(path))
    assert found.title == "Tesla T4"
    assert 1 < (found.host_us or 0) < 1e4
    done = command("predict", "ham_nmf", "--shape", "1,64,16,16", "--for", path)
    assert "us an operator, scaled" in done.stdout


def test_wrong_files_are_told_before_anything_is_measured(command: Callable[..., Done], tmp_path: Path) -> None:
    done = command("calibrate", "--out", tmp_path / "mine.txt")
    assert (done.returncode, "ends in .toml" in done.stderr) == (2, True)
    (tmp_path / "mine.toml").write_text("")
    done = command("calibrate", "--out", tmp_path / "mine.toml")
    assert (done.returncode, "already exists and was not changed" in done.stderr) == (2, True)
