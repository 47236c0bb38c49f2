"""A module's passes, taken apart: on the device of a data sheet, or measured on this one."""

import inspect
import linecache
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tokenize import TokenError
from typing import cast

import torch
from torch import Tensor, nn

from ctxbench import devices
from ctxbench.base import clocks as this_machine
from ctxbench.base.call_sites import CallSites
from ctxbench.base.dtypes import DTYPES
from ctxbench.base.errors import UsageError
from ctxbench.base.mode import Mode
from ctxbench.base.texts import listed
from ctxbench.devices.clock import Clock, Step
from ctxbench.meta.gradient_order import misread
from ctxbench.meta.outputs import trained_input
from ctxbench.meta.recorder import Recorder
from ctxbench.metrics.matmul import matmul_rate
from ctxbench.model.case import Case, Measure
from ctxbench.model.conditions import CONDITIONS, Shape
from ctxbench.model.messages import Message, Values
from ctxbench.plugins.memory.convention import UnpredictableError
from ctxbench.plugins.memory.kernels import MemoryDevice as Kind
from ctxbench.plugins.memory.one_pass import prepared, run_pass, weight_tensors
from ctxbench.plugins.predict.probes import kernel
from ctxbench.plugins.predict.sheet import DeviceSpec
from ctxbench.plugins.profile.advice import advice
from ctxbench.plugins.profile.costs import Roof, Span
from ctxbench.plugins.profile.measured import measure, placed, torch_profiler
from ctxbench.plugins.profile.profile import Pass, Profile, SourceLines
from ctxbench.plugins.profile.python import sampled
from ctxbench.plugins.profile.static import Known, known, predicted
from ctxbench.plugins.profile.traces import write_traces
from ctxbench.results import environment
from ctxbench.worker.measurement import CaseMeasurement

# The calls of a pass of each mode, in time.
Timelines = Mapping[Mode, Sequence[Span]]
# A larger share of a pass outside of operators has its lines of Python told.
MUCH_BETWEEN = 0.2
# Seconds of the passes of each mode, and of the product that tells the rate of arithmetic.
SECONDS, PRODUCT_S = 2.0, 0.3
# Additions that tell the bandwidth: of maps as large as a block's, which a CPU has in its caches, as it has a block's.
ADDITION = {"cpu": 2097152, "cuda": 67108864}
TIMINGS = 7
SMALL_CALLS = 200


@dataclass(frozen=True)
class ProfileSubject:
    """Subject of a profile: a module and its input, on one device or on meta, and the dtype of its passes."""

    module: nn.Module
    x: Tensor
    about: str
    dtype: str = "float32"
    compiles: bool = False

    @property
    def autocast(self) -> torch.dtype | None:
        name = DTYPES[self.dtype].autocast
        return getattr(torch, name) if name else None

    def cast(self) -> AbstractContextManager[object]:
        """The context of its forward passes."""
        return torch.autocast(self.x.device.type, dtype=self.autocast) if self.autocast else nullcontext()


def profile_case(case: Case, modes: Sequence[Mode], sheet: DeviceSpec | None, trace: str | None) -> Profile:
    """The profile of a case: measured, or predicted for the device of a data sheet.

    Its timelines are written into the folder `trace`.
    """
    about = f"{case.title} {list(case.shape)} {case.computed_in}"
    try:
        if sheet is not None:
            subject = ProfileSubject(*case.on_meta(), about, case.dtype)
            profile, calls = predicted_profile(subject, modes, sheet)
        else:
            profile, calls = _measured_case(case, modes, about)
    except UnpredictableError as error:
        raise UsageError(str(error)) from None
    if trace is not None:
        write_traces(Path(trace), about, calls)
    return profile


def profile_module(
    module: nn.Module, shape: Shape, asked: Sequence[Mode], dtype: str, target: DeviceSpec | None
) -> Profile:
    """The profile of a module that is there already, on its own device, or on that of a data sheet."""
    tensor = next((each for _, each in weight_tensors(module)), torch.empty(0))
    own = getattr(torch, DTYPES[dtype].parameters)
    module = module.to(own)
    about = f"{type(module).__name__} {list(shape)} {dtype}"
    try:
        if target is not None:
            x = trained_input(module, torch.empty(shape, device="meta", dtype=own))
            subject = ProfileSubject(module, x, about, dtype)
            return predicted_profile(subject, asked, target)[0]
        x = trained_input(module, torch.randn(shape, device=tensor.device, dtype=own))
        subject = ProfileSubject(module, x, about, dtype)
        steps = {mode: partial(_step, subject, mode) for mode in asked}
        return measured_profile(subject, steps, devices.device(str(tensor.device)))[0]
    except UnpredictableError as error:
        raise UsageError(str(error)) from None


def _step(subject: ProfileSubject, mode: Mode) -> Step:
    """A pass of a module in a mode, in the autocast of its dtype."""
    subject.module.train(mode == "train")

    def step() -> object:
        subject.module.zero_grad(set_to_none=True)
        subject.x.grad = None
        with subject.cast():
            return run_pass(subject.module, (subject.x,), mode)

    return step


def _measured_case(case: Case, asked: Sequence[Mode], about: str) -> tuple[Profile, Timelines]:
    notes: list[str] = []

    def take(message: Message) -> None:
        if isinstance(message, Values):
            notes.extend(str(note) for note in message.notes)

    machine = environment.describe()
    name = case.device if case.device != "auto" else devices.auto(machine)
    devices.check(name, machine)
    case = replace(case, device=name)
    measurement = CaseMeasurement(case, Measure(), take, any_network=True)
    measurement.execution.check(case.device, case.dtype, case.memory_format)
    if measurement.execution.compiles:
        import torch._inductor.config

        torch._inductor.config.cpp.enable_kernel_profile = True  # the profiler sees a CPU's kernels, too
    measurement.load()
    subject = ProfileSubject(measurement.model, measurement.x, about, case.dtype, measurement.execution.compiles)
    steps = {mode: lambda mode=mode: measurement.first_pass(mode).step for mode in asked}
    profile, calls = measured_profile(subject, steps, measurement.device)
    passes = {mode: replace(each, notes=[*each.notes, *notes]) for mode, each in profile.passes.items()}
    return replace(profile, passes=passes), calls


def predicted_profile(subject: ProfileSubject, modes: Sequence[Mode], sheet: DeviceSpec) -> tuple[Profile, Timelines]:
    """The profile on the device of a data sheet, and its calls one after another. Nothing is measured."""
    passes: dict[Mode, Pass] = {}
    calls: dict[Mode, Sequence[Span]] = {}
    for mode in modes:
        made, found, calls[mode] = predicted(
            subject.module, subject.x, mode=mode, sheet=sheet, dtype=subject.dtype, autocast=subject.autocast
        )
        passes[mode] = replace(made, advice=advice(made, found.memory))
    return Profile(subject.about, sheet.title, passes, sources_of(passes.values())), calls


def measured_profile(
    subject: ProfileSubject, steps: Mapping[Mode, Callable[[], Step]], device: devices.Device
) -> tuple[Profile, Timelines]:
    """The profile as measured on the device of the module, and the calls of a pass. `steps` make a pass of a mode."""
    dtype = subject.autocast or getattr(torch, DTYPES[subject.dtype].parameters)
    roof = roof_of(device, device.clock(), dtype)
    passes: dict[Mode, Pass] = {}
    calls: dict[Mode, Sequence[Span]] = {}
    for mode, make in steps.items():
        found = _known(subject, mode, cast(Kind, device.kind), roof)
        recorder = None if subject.compiles else _recorded(subject, mode)
        step, others_share = make(), this_machine.here.others()
        where = placed(recorder.calls) if recorder else None
        times = measure(step, device.clock(), torch_profiler(device.kind), where, found.costs, SECONDS)
        made = Pass(mode, found.costs.all, roof, times.plain, times.profiled, others_share=others_share())
        wrong = misread(recorder.calls) if recorder and device.kind == "cpu" else []
        notes = [*found.missing, *map(str, wrong), *_of_names(subject.module, recorder)]
        made = replace(made, on_data=found.on_data, notes=notes)
        if recorder and made.between_share > MUCH_BETWEEN:
            made = replace(made, python=sampled(step, device.clock(), CallSites(subject.module), made))
        passes[mode], calls[mode] = replace(made, advice=advice(made, found.memory)), times.last
    threads = CONDITIONS["threads"].label(torch.get_num_threads())
    name = f"{device.name}, {threads}" if device.has_threads else device.name
    return Profile(subject.about, name, passes, sources_of(passes.values())), calls


def _known(subject: ProfileSubject, mode: Mode, kind: Kind, roof: Roof) -> Known:
    """Facts that need no clock; of a compiled module the compiler decides what runs."""
    if subject.compiles:
        return Known(missing=["no MACs and no bytes: the compiler decides what runs; --execution eager tells them"])
    given = (subject.module, subject.x)
    return known(*given, mode=mode, device=kind, dtype=subject.dtype, autocast=subject.autocast, roof=roof)


def _recorded(subject: ProfileSubject, mode: Mode) -> Recorder:
    """The calls of one pass, each with its place."""
    recorder = Recorder(subject.module)
    subject.x.grad = None
    with prepared(subject.module, mode), subject.cast(), recorder:
        run_pass(subject.module, (subject.x,), mode)
    return recorder


def _of_names(module: nn.Module, recorder: Recorder | None) -> list[str]:
    """Sentences on submodules that a tree of calls does not show as they are called or named."""
    names: dict[nn.Module, list[str]] = {}
    for name, child in module.named_modules(remove_duplicate=False):
        names.setdefault(child, []).append(name)
    firsts = {first for first, *others in names.values() if others}
    shared = [each for each in names.values() if each[0] in firsts and each[0].rpartition(".")[0] not in firsts]
    past = sorted(recorder.places.by_forward) if recorder else []
    return [
        *(f"{first} is {listed(others)}, too: its row has the calls under each name." for first, *others in shared),
        *(f"{name} is called by its forward, past its hooks." for name in past),
    ]


def roof_of(device: devices.Device, clock: Clock, dtype: torch.dtype) -> Roof:
    """Roof of a device: a large product's FLOP/s, an addition's bytes/s, the time of a call on one number."""

    def seconds(name: str) -> float:
        with torch.inference_mode():
            step = kernel(name).step(device.torch)
            clock.time_block(step, 1)
            return min(clock.time_block(step, 1) for _ in range(TIMINGS))

    numbers = ADDITION[device.kind]
    bandwidth = 3 * 4 * numbers / seconds(f"add {numbers}")
    flops = 2 * matmul_rate(clock, device, dtype, PRODUCT_S)
    return Roof(flops, bandwidth, seconds(f"small {SMALL_CALLS}") / SMALL_CALLS)


def sources_of(passes: Iterable[Pass]) -> list[SourceLines]:
    """The functions that the costs are booked to, as far as their source is available."""
    places = [cost.place for each in passes for cost in each.costs]
    lines = [line for place in places for line in (place.own, place.inner) if line is not None]
    functions: dict[tuple[str, int], int] = {}
    for line in lines:
        key = (line.file, line.first)
        functions[key] = max(functions.get(key, 0), line.number)
    found = (_source(file, first, last) for (file, first), last in sorted(functions.items()))
    return [source for source in found if source is not None]


def _source(file: str, first: int, last: int) -> SourceLines | None:
    below = linecache.getlines(file)[first - 1 :]
    try:
        block = inspect.getblock(below)
    except (TokenError, SyntaxError):
        block = below[: last - first + 1]
    return SourceLines(file, first, [line.rstrip("\n") for line in block]) if block else None
