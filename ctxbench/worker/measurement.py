"""One case, measured: its module and input, its passes, and the metrics in an order that keeps them apart."""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from ctxbench import devices
from ctxbench.base import clocks as this_machine
from ctxbench.base import load as machine_load
from ctxbench.base.mode import MODES, Mode
from ctxbench.base.notes import Note
from ctxbench.devices.clock import Clock, Step
from ctxbench.executions import Execution, execution
from ctxbench.executions.base import Built
from ctxbench.meta.built import after_first_pass
from ctxbench.meta.gradient_order import misread
from ctxbench.meta.outputs import loss_of, trained, trained_input
from ctxbench.meta.recorder import Recorder
from ctxbench.meta.without_compiler import without_compiler
from ctxbench.metrics.compile import compile_deadline, compiler_caches
from ctxbench.metrics.matmul import matmul_rate
from ctxbench.model import metrics
from ctxbench.model.case import Case, Measure
from ctxbench.model.control import Control
from ctxbench.model.failures import DoesNotFit, StaleOutput
from ctxbench.model.messages import Doing, Message, MissingColumns, Values
from ctxbench.model.metric import Made, Metric, TimedPass
from ctxbench.worker import computed, drawn
from ctxbench.worker.guards import SideEffects
from ctxbench.worker.output import at_one_position, check_output, check_type

# Counts under as many other seeds, until one is another: a drawn structure may be the same twice.
OTHER_SEEDS = 3


class CaseMeasurement:
    """View of a case for metrics (`ctxbench.model.metric.Measurement`)."""

    def __init__(
        self,
        case: Case,
        settings: Measure,
        emit: Callable[[Message], object],
        counter: str = "ctxbench",
        force: bool = False,
        any_network: bool = False,
        kept: str = "",
        known: "dict[str, tuple[Any, Exception | None]] | None" = None,
    ) -> None:
        self.case, self.settings, self.emit, self.counter, self.force = case, settings, emit, counter, force
        self.is_block = not (case.network or any_network)
        self.kept, self.finds_compiled = kept, os.path.exists(kept)
        self.predicted_bytes: int | None = None
        self._known = {} if known is None else known
        self._reported: dict[str, Any] = {}
        self._side_effects = SideEffects()
        self.entry = case.entry  # from here on the module's code may run

    def run(self, names: Sequence[str]) -> None:
        """Measure the metrics of these names, and those that need not be asked for; tell what that changed."""
        self._run(names)
        self.report({}, *self._side_effects.notes())

    def _run(self, names: Sequence[str]) -> None:
        # of another one the contract's check says how far it reaches
        local = self.entry.locality(self.case.shape, self.case.hparams) if self.case.is_known else ""
        marks = [Note("mark", {"text": local})] * bool(local)
        self.report({"title": self.entry.title, "family": self.entry.family, "built": self.case.call}, *marks)
        wanted = metrics.wanted(names)
        with without_compiler():  # also around the module's construction on meta
            self._count(wanted)
        if not devices.has_clock(self.case.device):
            return
        self._known.clear()
        self._compute(wanted)
        timed = any(metric.asked_for and (metric.measure or metric.time) for metric in wanted)
        if self._trains_here and (timed or any(metric.compute for metric in wanted)):
            self.report({}, *self._trial[1])
        if not timed:
            return
        self.execution.check(self.case.device, self.case.dtype, self.case.memory_format)
        with compiler_caches(self.kept) if self.execution.compiles else nullcontext():
            self._measure(wanted)

    def _count(self, wanted: Sequence[Metric]) -> None:
        """Count under the case's seed; where the module drew, under others too, and tell what that changes."""
        counting = [metric.count for metric in wanted if metric.count]
        drawn.seed(self.settings.seed)
        before = drawn.states()
        with drawn.asked_of_the_system() as asked:
            for count in counting:
                count(self)
        if not counting or not (asked or drawn.states() != before or self._holds_generator):
            return
        self._known.clear()  # on another device it draws again, and is told there, too
        for number in range(1, OTHER_SEEDS + 1):
            settings = self.settings.model_copy(update={"seed": self.settings.seed + number})
            other = CaseMeasurement(self.case, settings, lambda message: None, self.counter, force=True)
            drawn.seed(settings.seed)
            for count in counting:
                with suppress(Exception):  # such as a pass of which nothing is left
                    count(other)
            if notes := [*drawn.differences(self._reported, other._reported)]:
                self.report({}, *notes)
                return

    @property
    def _holds_generator(self) -> bool:
        """Return whether a module of a user's has a generator that no seed of ours reaches."""
        if self.case.is_known:
            return False
        with suppress(Exception):  # what cannot be made has told so
            return drawn.holds_generator(self.on_meta[0])
        return False

    def _compute(self, wanted: Sequence[Metric]) -> None:
        """Compute what needs data and no clock, with the threads of the case."""
        for metric in wanted:
            if metric.compute and self.case.network:
                self.mark_missing([column for column, _ in metric.promised(static=False)], Note("no_network_function"))
            elif metric.compute:
                self._set_flags()
                self.emit(Doing(metric.name))
                metric.compute(self)

    def _measure(self, wanted: Sequence[Metric]) -> None:
        """Measure what needs the device."""
        self.load()
        modes: Sequence[Mode] = MODES
        if note := self._no_training():
            modes = ("infer",)
            timed = [metric for metric in wanted if metric.measure or metric.time]
            promised = [column for metric in timed for column, _ in metric.promised(static=False)]
            self.mark_missing([column for column in promised if "_train" in column], note)
        for metric in wanted:
            for mode in modes if metric.measure else ():
                assert metric.measure is not None
                metric.measure(self, mode)
        if any(metric.asked_for and metric.time for metric in wanted):
            self._time(wanted, modes)
        self.report({}, *[Note("changes_input")] * (not torch.equal(self.x, self._input())))

    def _no_training(self) -> Note | None:
        """Reason why nothing trains: the execution, or a module of a user's for inference alone; None if it can."""
        if reason := self.execution.no_training:
            return Note("no_training", {"execution": self.case.execution, "reason": reason})
        if self.case.is_known:
            return None
        return None if self._trial[0] else Note("inference_only")

    @property
    def _trains_here(self) -> bool:
        """Return whether PyTorch's own operators on a CPU give the gradients of a module of a user's."""
        own = not self.case.is_known
        return own and self.device.kind == "cpu" and not (self.execution.compiles or self.execution.no_training)

    @cached_property
    def _trial(self) -> tuple[bool, list[Note]]:
        """Facts of a training step without data: whether it has a gradient, and notes on the order of gradients."""
        has_gradient, notes = True, list[Note]()
        with suppress(Exception):  # a pass with data tells
            model, x = self.case.on_meta()
            with without_compiler(), torch.device("meta"):
                y = model.train()(x)
                if has_gradient := bool(trained(y)):
                    with Recorder(model) as recorder:
                        loss_of(y).backward()
                    notes = misread(recorder.calls)
        return has_gradient, notes

    def _time(self, wanted: Sequence[Metric], modes: Sequence[Mode]) -> None:
        """Run the passes of the modes, and tell what others did meanwhile."""
        others_share = this_machine.here.others()
        before = self.device.state()
        self.report({}, *machine_load.notes(before))
        if self.settings.malloc == "keep" and not this_machine.FORKS:
            self.report({}, Note("malloc_as_it_is"))
        under_load: dict[str, Any] = {}
        for mode in modes:
            one_pass = self.first_pass(mode)
            for metric in wanted:
                if metric.time:
                    metric.time(self, mode, one_pass)
            under_load[mode] = self.device.state_under_load(one_pass.step)
            self.report({}, *machine_load.notes(under_load[mode]))
        for metric in wanted:
            if metric.finish:
                metric.finish(self)
        state = {
            "before": before,
            **({"under_load": under_load} if any(under_load.values()) else {}),
            "after": self.device.state(),
            "flags": {**self.device.flags(), "seed": self.settings.seed},
        }
        self.report({"machine_state": json.dumps(state), "others_share": others_share()})

    def report(self, values: Mapping[str, Any], *notes: Note) -> None:
        """Put values into columns of the record, and notes beside them."""
        self._reported |= values
        if values or notes:
            self.emit(Values(values, notes))

    def mark_missing(self, columns: Sequence[str], note: Note | None = None) -> None:
        """Say why this case has no number in these columns; without a note if another column tells it."""
        self.emit(MissingColumns(columns, note))

    @cached_property
    def execution(self) -> Execution:
        return execution(self.case.execution)

    @cached_property
    def built(self) -> Built:
        """Module that the passes of inference run; the weights are those of the first call."""
        if self.execution.exports:  # a runtime gives a list of tensors, whatever the module returns
            with torch.inference_mode():
                check_type(self.model.eval()(self.x), self.case)
        return self.execution.build(self.model, self.x, self.kept)

    @cached_property
    def device(self) -> devices.Device:
        return devices.device(self.case.device)

    @cached_property
    def control(self) -> Control:
        return Control(self.device, self.clock())

    def clock(self) -> Clock:
        return self.device.clock(self.settings.flush_l2)

    @cached_property
    def on_meta(self) -> tuple[nn.Module, Tensor]:
        """The module and its input as they are measured, without data."""
        return self.once("on_meta", self.case.on_meta)

    def once(self, name: str, make: Callable[[], Made]) -> Made:
        """Result or error of `make`, which is called once for all measurements that share what is `known`."""
        if name not in self._known:
            try:
                self._known[name] = make(), None
            except Exception as error:
                self._known[name] = None, error
        found, failed = self._known[name]
        if failed is not None:
            raise failed
        made: Made = found
        return made

    def load(self) -> None:
        """Make `model` and `x` on the case's device, once the case is known to fit; torch's flags are set."""
        self._set_flags()
        self._check_fit()
        torch.manual_seed(self.settings.seed)
        self.model = self.case.made(self.device.torch)
        x = self._input()
        if not self.case.is_known and after_first_pass(self.model, x.to("meta")) is not self.model:
            with torch.no_grad():  # weights that inference makes could not be trained
                self.model(x.clone())
        self.x = trained_input(self.model, x)
        self.report({}, *[Note("input_trained")] * self.x.requires_grad)
        self.execution.load(self.model)

    def _set_flags(self) -> None:
        """Set torch's flags and threads as the case has them."""
        self._side_effects.about_to_settle()
        self.device.set_flags(self.case.dtype, self.case.threads, self.settings.cudnn_benchmark)
        self._side_effects.settle(self.case.threads)

    def _input(self) -> Tensor:
        """The case's input; each call makes the same one."""
        generator = torch.Generator(self.device.torch).manual_seed(self.settings.seed + 1)
        x = torch.randn(self.case.shape, generator=generator, device=self.device.torch, dtype=self.case.parameter_dtype)
        return self.case.laid_out(x)

    def measure_matmul(self) -> None:
        """Report the rate of a large matrix product on the case's device, dtype and threads."""
        self._set_flags()
        # The dtype of the products: autocast's where that is on.
        dtype = self.case.autocast_dtype or self.case.parameter_dtype
        with self.autocast():
            rate = matmul_rate(self.clock(), self.device, dtype, self.settings.sample_s)
        self.report({"matmul_macs_per_s": rate})

    def first_pass(self, mode: Mode) -> TimedPass:
        """A pass of a mode, after the first has been run (it allocates, it compiles) and its output checked."""
        self.emit(Doing(f"first_{mode}"))
        outputs: list[Any] = []
        limit_s = self.settings.compile_timeout_s
        with compile_deadline(limit_s) if self.execution.has_limit else nullcontext():
            step = self._step(mode)
            seconds = self.clock().time_block(lambda: outputs.append(step()), 1)
        self.report({}, *check_output(outputs[0], self.x, self.case, mode, self.model, self.is_block))
        self._first = at_one_position(outputs[0])
        return TimedPass(step, seconds)

    def check_computed(self, step: Step, mode: Mode, ms: float) -> None:
        """Raise StaleOutput if a pass gives the first pass's output for an input that has changed in its place.

        Notes tell of passes, which take `ms`, that take less than their work.
        """
        outputs: list[Any] = []
        self.x.data.neg_()
        try:
            seconds = self.clock().time_block(lambda: outputs.append(step()), 1)
            self._check_input_is_read(outputs[0])
        finally:
            self.x.data.neg_()
        notes = [*computed.impossible(outputs.pop(), self.x, self.model, self.device, mode, ms)]
        if seconds * 1e3 > computed.MULTIPLE * ms:
            notes += computed.kept_by_content(step, self.x, self.clock(), mode, self.settings.seed + 2)
        self.report({}, *notes)

    def _check_input_is_read(self, y: Any) -> None:
        """Raise StaleOutput if the output for the negated input is that of the first pass.

        An even function gives that, too: a new module tells whether this is one.
        """
        if not torch.equal(at_one_position(y), self._first):
            return
        torch.manual_seed(self.settings.seed)
        model = self.case.made(self.device.torch).eval()
        with torch.inference_mode(), self.autocast():
            here, there = (at_one_position(model(each)) for each in (self.x.clone(), self.x.neg()))
        if not torch.equal(here, there):
            raise StaleOutput(
                "after the input has changed in its place, a pass gives the output of the input before; the passes "
                "were answered from memory and not computed"
            )

    def _check_fit(self) -> None:
        """Refuse a case whose predicted peak exceeds the memory free on its device."""
        if self.predicted_bytes is None or self.force:
            return
        free = self.device.free_bytes()
        if self.predicted_bytes > free:
            raise DoesNotFit(
                f"predicted peak {self.predicted_bytes / 2**30:.1f} GiB, {free / 2**30:.1f} GiB free on "
                f"{self.case.device}; measure it all the same with --force"
            )

    def _step(self, mode: Mode) -> Step:
        """One pass: a forward in inference mode, or forward, `y.sum().backward()` with gradients None before.

        Of several outputs, as a whole network may have, the sum is that of all.
        """
        if mode not in self.execution.modes:
            raise devices.Unsupported(self.execution.no_training)
        self.model.train(mode == "train")
        forward = self.built.forward if mode == "infer" else self.model
        return self.execution.step(self.step_of(mode, forward, self.x, [*self.model.parameters(), self.x]), self.device)

    def step_of(
        self, mode: Mode, forward: Callable[[Tensor], Tensor], x: Tensor, parameters: Sequence[Tensor]
    ) -> Callable[[], Tensor]:
        """A pass of any function of `x`; before a training step the gradients of `parameters` are dropped."""

        def infer() -> Tensor:
            with torch.inference_mode(), self.autocast():
                return forward(x)

        def train() -> Tensor:
            for parameter in parameters:
                parameter.grad = None
            with self.autocast():
                y = forward(x)
            loss_of(y).backward()
            return y

        return train if mode == "train" else infer

    def autocast(self) -> AbstractContextManager[Any]:
        """The context of the case's forward passes."""
        dtype = self.case.autocast_dtype
        return torch.autocast(self.device.kind, dtype=dtype) if dtype else nullcontext()
