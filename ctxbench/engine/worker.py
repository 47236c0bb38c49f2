"""What a fresh child does: build one case, measure its metrics, report each value as it is known."""

import json
import os
import warnings
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ctxbench.engine import conditions
from ctxbench.engine.failures import DoesNotFit, NotFinite, Unsupported, describe_failure
from ctxbench.engine.static import measure_static, parameter_dtype
from ctxbench.results import CONTROL, MODES

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from ctxbench.engine.clock import Clock, Step
    from ctxbench.memory.convention import Mode
    from ctxbench.metrics.control_time import Control
    from ctxbench.suite import Case, Measure

# Tells the parent; the answer is its byte, where the child waits for one.
Emit = Callable[[dict[str, Any]], bytes | None]


def preload(static: bool = True) -> None:
    """Import what every child needs, before the fork; what static metrics need too, if `static`.

    Starts no thread and does not touch CUDA.
    """
    import torch

    import ctxbench.metrics.control_time
    import ctxbench.metrics.latency
    import ctxbench.registry

    ctxbench.registry.names()
    if not static:
        return
    import torch.utils.flop_counter

    import ctxbench.memory.predict
    import ctxbench.metrics.macs

    # The first meta computations import torch's decompositions: a second, once, here.
    layer = torch.nn.Conv2d(4, 4, 1, device="meta")
    image = torch.empty(1, 4, 2, 2, device="meta")
    ctxbench.metrics.macs.count_macs(layer, image)
    for mode in ("infer", "train"):
        ctxbench.memory.predict.predict_peak(layer, image, mode=mode)


def perform(task: Mapping[str, Any], emit: Emit) -> None:
    """Run one task.

    `environment`; `contract` (check a module); `cases` (what a suite has in this source tree); `pair` (one side of a
    gate's pair); `peak` (the matmul rate for a case's device, dtype and threads); `case` (measure it).
    Failures of a case are reported, not raised.
    """
    if task["task"] == "environment":
        from ctxbench import environment

        emit({"event": "environment", "environment": environment.describe()})
        return
    if task["task"] == "contract":
        from ctxbench import contract

        _limit_memory(task["memory_limit_gib"])
        contract.perform(task, emit)
        return
    if task["task"] in ("cases", "pair"):
        from ctxbench.engine import pair

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if task["task"] == "cases":
                pair.resolve(task, emit)
            else:
                _limit_memory(task["measure"]["memory_limit_gib"])
                pair.take_turns(task, emit)
        return
    from ctxbench.suite import Case, Measure

    case = Case.of(task["case"])
    settings = Measure(**task["measure"])
    _limit_memory(settings.memory_limit_gib)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            measurement = Measurement(case, settings, task["metrics"], task["counter"], task["force"], emit)
            if task["task"] == "peak":
                measurement.matmul_peak()
            else:
                measurement.run()
    except Exception as error:  # whatever a module raises is a result
        emit({"event": "failed", **describe_failure(error)})


class Measurement:
    """The metrics of one case, in an order that keeps them apart: static ones, memory, then latency."""

    def __init__(
        self, case: "Case", settings: "Measure", metrics: list[str], counter: str, force: bool, emit: Emit
    ) -> None:
        import torch

        from ctxbench import registry

        self.case, self.settings, self.metrics, self.counter, self.emit = case, settings, metrics, counter, emit
        self.force = force
        self.predicted: int | None = None  # bytes, the larger of both modes
        self.control: Control | None = None
        self.device = torch.device(case.device)
        self.torch = torch
        self.entry = registry.get(case.module if case.module in registry.names() else case.reference)

    def run(self) -> None:
        case = self.case
        self.predicted = measure_static(case, self.entry, self.settings, self.metrics, self.counter, self.emit)
        if not {"memory", "latency", "energy"} & set(self.metrics) or case.device == "meta":
            return
        model, x = self.load()
        if "memory" in self.metrics:
            for mode in MODES:
                self._memory(model, x, mode)
        before = {"busy_cores": conditions.busy_cores(), **conditions.snapshot(case.device)}
        self._note(*conditions.warnings(before))
        for mode in MODES:
            step, first_pass_s = self.first_pass(model, x, mode)
            if case.execution == "compile":
                self.emit({"event": "values", "values": {f"compile_{mode}_s": first_pass_s}})
            if "latency" in self.metrics:
                self._time_control()
                self._latency(step, first_pass_s, mode)
            if "energy" in self.metrics:
                self._energy(step, mode)
        if "latency" in self.metrics:
            self._time_control()
        around = {"before": before, "after": conditions.snapshot(case.device), "flags": self._flags()}
        self.emit({"event": "values", "values": {"conditions": json.dumps(around)}})

    def load(self) -> tuple["nn.Module", "Tensor"]:
        """The model and its input, on the case's device, once it is known to fit; torch's flags are set."""
        case = self.case
        self._set_flags()
        self._check_fit()
        self.torch.manual_seed(self.settings.seed)
        dtype = parameter_dtype(case)
        model = self.entry.build(case.shape[1], case.hparams).to(self.device, dtype)
        x = self.torch.randn(case.shape, device=self.device, dtype=dtype)
        if case.memory_format == "channels_last":
            self.torch.nn.utils.convert_conv2d_weight_memory_format(model, self.torch.channels_last)
            x = x.to(memory_format=self.torch.channels_last)
        if case.execution == "compile":
            model.compile()
        return model, x

    def matmul_peak(self) -> None:
        """Report the rate of a large matrix product on the case's device, dtype and threads."""
        from ctxbench.metrics.peak import matmul_peak

        self._set_flags()
        with self._autocast():
            rate = matmul_peak(self.clock(), self.device, self._compute_dtype())
        self.emit({"event": "values", "values": {"matmul_peak_macs_per_s": rate}})

    def _note(self, *sentences: str) -> None:
        if sentences:
            self.emit({"event": "values", "values": {}, "warnings": list(sentences)})

    def _check_fit(self) -> None:
        """Refuse a case whose predicted peak exceeds the memory free on its device."""
        if self.predicted is None or self.force:
            return
        if self.device.type == "cuda":
            free = self.torch.cuda.mem_get_info(self.device)[0]
        else:
            free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES") + _reclaimable()
        if self.predicted > free:
            raise DoesNotFit(
                f"predicted peak {self.predicted / 2**30:.1f} GiB, {free / 2**30:.1f} GiB free on {self.case.device}; "
                "measure it all the same with --force"
            )

    def _memory(self, model: "nn.Module", x: "Tensor", mode: "Mode") -> None:
        from ctxbench.memory.measure import measure_peak

        if self.case.execution == "compile" or self.case.dtype.startswith("autocast"):
            return
        self.emit({"event": "metric", "metric": f"memory_{mode}"})
        peak = measure_peak(model, x, mode=mode)
        self.emit({"event": "values", "values": {f"memory_{mode}_bytes": peak}})

    def _step(self, model: "nn.Module", x: "Tensor", mode: "Mode") -> "Step":
        """One pass: a forward in inference mode, or forward, `y.sum().backward()` with gradients None before."""
        torch = self.torch
        parameters = list(model.parameters())

        def infer() -> "Tensor":
            with torch.inference_mode(), self._autocast():
                return model(x)  # type: ignore[no-any-return]  # a module's call is untyped

        def train() -> "Tensor":
            for parameter in parameters:
                parameter.grad = None
            with self._autocast():
                y: Tensor = model(x)
            y.sum().backward()
            return y

        model.train(mode == "train")
        return train if mode == "train" else infer

    def first_pass(self, model: "nn.Module", x: "Tensor", mode: "Mode") -> tuple["Step", float]:
        """A pass as a function, and the seconds of the first (it allocates, compiles), whose output is checked."""
        self.emit({"event": "metric", "metric": f"first_{mode}"})
        step = self._step(model, x, mode)
        outputs: list[Any] = []
        seconds = self.clock().time_block(lambda: outputs.append(step()), 1)
        self._check_output(model, outputs[0], mode)
        return step, seconds

    def _check_output(self, model: "nn.Module", y: "Tensor", mode: "Mode") -> None:
        if not isinstance(y, self.torch.Tensor):
            raise TypeError(f"{self.entry.key} returns {type(y).__name__}; a context module returns one tensor")
        expected = self.entry.closed_form("out_channels", self.case.shape, self.case.hparams)
        batch, _, height, width = self.case.shape
        if y.shape != (batch, expected, height, width):
            raise ValueError(f"{self.entry.key} returns shape {list(y.shape)} for {list(self.case.shape)}")
        if not self.torch.isfinite(y).all():
            raise NotFinite(f"the output of the {mode} pass holds NaN or infinity")
        if mode == "train":
            for name, parameter in model.named_parameters():
                if parameter.grad is not None and not self.torch.isfinite(parameter.grad).all():
                    raise NotFinite(f"the gradient of {name} holds NaN or infinity")

    def clock(self) -> "Clock":
        from ctxbench.engine.clock import CpuClock, CudaClock

        return CudaClock(self.device, self.settings.flush_l2) if self.device.type == "cuda" else CpuClock()

    def synchronize(self) -> None:
        """Wait until the device has done what it was given."""
        if self.device.type == "cuda":
            self.torch.cuda.synchronize(self.device)

    def _latency(self, step: "Step", first_pass_s: float, mode: "Mode") -> None:
        from ctxbench.metrics.latency import measure_latency

        clock = self.clock()
        last = [clock.now()]

        def progress(count: int, ms: float) -> None:
            if clock.now() - last[0] > 0.5:
                last[0] = clock.now()
                self.emit({"event": "sample", "metric": f"latency_{mode}", "count": count, "ms": ms})

        self.emit({"event": "metric", "metric": f"latency_{mode}"})
        latency = measure_latency(step, first_pass_s, clock, self.settings, progress)
        self.emit({"event": "samples", "mode": mode, "samples": [vars(sample) for sample in latency.samples]})
        self.emit({"event": "values", "values": latency.columns(mode)})

    def _time_control(self) -> None:
        """Time a block of the control workload and report what all blocks so far say."""
        from ctxbench.metrics.control_time import Control, control_columns

        if self.control is None:
            self.control = Control(self.device, self.clock())
        samples = self.control.block()
        self.emit({"event": "samples", "mode": CONTROL, "samples": [vars(sample) for sample in samples]})
        self.emit({"event": "values", "values": control_columns(samples)})

    def _energy(self, step: "Step", mode: "Mode") -> None:
        from ctxbench.metrics.energy import NoEnergyCounter, measure_energy

        self.emit({"event": "metric", "metric": f"energy_{mode}"})
        try:
            joules = measure_energy(step, self.clock(), self.device)
        except NoEnergyCounter as error:
            self._note(str(error))
            return
        self.emit({"event": "values", "values": {f"energy_{mode}_j": joules}})

    def _compute_dtype(self) -> "torch.dtype":
        """The dtype of the matrix products: autocast's where that is on."""
        dtype: torch.dtype = getattr(self.torch, self.case.dtype.removeprefix("autocast-").replace("tf32", "float32"))
        return dtype

    def _autocast(self) -> AbstractContextManager[Any]:
        kind, _, name = self.case.dtype.partition("-")
        if kind != "autocast":
            return nullcontext()
        return self.torch.autocast(self.device.type, dtype=getattr(self.torch, name))

    def _flags(self) -> dict[str, Any]:
        """What `_set_flags` set, read back."""
        torch = self.torch
        return {
            "threads": torch.get_num_threads(),
            "tf32_matmul": torch.backends.cuda.matmul.allow_tf32,
            "tf32_cudnn": torch.backends.cudnn.allow_tf32,
            "cudnn_benchmark": torch.backends.cudnn.benchmark,
            "seed": self.settings.seed,
        }

    def _set_flags(self) -> None:
        """Make explicit what torch would choose by itself: threads, TF32, autotuning."""
        torch, case = self.torch, self.case
        if case.dtype == "tf32" and not case.device.startswith("cuda"):
            raise Unsupported("tf32 exists on CUDA devices only")
        if case.threads is not None:
            torch.set_num_threads(case.threads)
        torch.backends.cuda.matmul.allow_tf32 = case.dtype == "tf32"
        torch.backends.cudnn.allow_tf32 = case.dtype == "tf32"
        torch.backends.cudnn.benchmark = self.settings.cudnn_benchmark


def _reclaimable() -> int:
    """Bytes of page cache that Linux would give up; 0 elsewhere."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    sizes = {line.partition(":")[0]: int(line.split()[1]) * 1024 for line in lines if len(line.split()) > 1}
    return max(0, sizes.get("MemAvailable", 0) - sizes.get("MemFree", 0))


def _limit_memory(gib: float | None) -> None:
    """Cap the child's private memory (RLIMIT_DATA), so that a case that eats memory fails alone."""
    if gib is not None:
        import resource

        limit = int(gib * 2**30)
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
