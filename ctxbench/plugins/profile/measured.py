"""Measured times by place: the events of PyTorch's profiler, matched with a pass whose calls told where they come from.

A forward call is found in the order of the calls, a gradient by the number that autograd gave to the call it is of.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any, Protocol

import torch

from ctxbench.base.call_sites import AGAIN, CallSite, made_by
from ctxbench.base.errors import UsageError
from ctxbench.devices.clock import Clock, Step
from ctxbench.devices.cpu import quiet_kineto
from ctxbench.meta.calls import RecordedCall
from ctxbench.plugins.memory.profile import Phase
from ctxbench.plugins.profile.costs import UNKNOWN, Costs, Span

# What autograd's engine calls the evaluation of a node.
_NODE = "autograd::engine::evaluate_function: "
# So many calls further on a call is looked for that is not the next: some run within others, or without an event.
AHEAD = 8
# Passes with and without the profiler, in turns: at least, of which the extremes are a 95 % interval, and at most.
FEWEST, MOST = 6, 40
# Kernels of a compiled module.
_COMPILED = ("triton_", "graph_")


# The calls of a pass that are matched, each with its place, and what is between those that are computed again.
PlacedCalls = Sequence[tuple[str, CallSite]]
END = ("", UNKNOWN)


@dataclass(frozen=True, slots=True)
class Event:
    """Profiler event of a thread, in nanoseconds; `number` is autograd's, -1 for none, `id` the profiler's."""

    name: str
    start: int
    end: int
    thread: int = 0
    number: int = -1
    id: int = 0


@dataclass(frozen=True, slots=True)
class TimedKernel:
    """GPU kernel of the event with the id `by`, in nanoseconds."""

    name: str
    start: int
    end: int
    by: int


def placed(calls: Iterable[RecordedCall]) -> PlacedCalls:
    """The calls of a forward pass; then those computed again for its backward pass, of each autograd node after END."""
    found: list[tuple[str, CallSite]] = []
    node: tuple[str, int] | None = None  # the one that computes again
    for each in calls:
        if each.node is None or each.place.node == AGAIN:
            found += [END] * (each.node is not None and each.node != node)
            found.append((_plain(each.name), each.place))
            node = each.node or node
    return found


def _plain(name: str) -> str:
    """The name without its overload; in its place or not is the same."""
    plain = name.partition(".")[0].removesuffix("_")
    return "aten::view" if plain == "aten::_reshape_alias" else plain  # which a dispatch mode sees in its place


@dataclass(slots=True)
class _Open:
    """An event that goes on: a node of autograd, an operator whose span is known, or what may have operators inside."""

    event: Event
    place: CallSite | None = None
    span: Span | None = None
    is_empty: bool = True


@dataclass
class _Matching:
    """Books the events of one pass. Without `calls`, of a compiled module, each kernel is booked to no place."""

    calls: PlacedCalls | None
    spans: list[Span] = field(default_factory=list)
    by_id: dict[int, Span] = field(default_factory=dict)
    _at: int = 0
    _places: dict[int, CallSite] = field(default_factory=dict)  # of the calls that have a gradient
    _around: list[_Open] = field(default_factory=list)
    _again: Event | None = None  # the node whose calls are computed again now

    def take(self, events: Iterable[Event]) -> None:
        """Events of one thread, by their start; what is inside another comes after it."""
        for event in events:
            while self._around and self._around[-1].event.end <= event.start:
                self._close()
            self._around.append(self._opened(event, self._around[-1] if self._around else None))
            if span := self._around[-1].span:
                self.by_id[event.id] = span
        while self._around:
            self._close()

    def _opened(self, event: Event, outer: _Open | None) -> _Open:
        if outer and outer.span:
            return _Open(event, span=outer.span)
        if event.name.startswith(_NODE):
            name = event.name.removeprefix(_NODE).rpartition("::")[2]
            return _Open(event, made_by(self._places, event.number).gradient(name))
        if outer and outer.place:
            return self._in_node(event, outer.place)
        place = self._matched(event, self._at)
        return _Open(event, span=self._span("forward", place, event)) if place else _Open(event)

    def _in_node(self, event: Event, gradient: CallSite) -> _Open:
        """An operator that a node of autograd runs: of its gradient, or a call that is computed again for it."""
        if not _is_operator(event.name):
            return _Open(event, gradient)
        node = next(each.event for each in reversed(self._around) if each.event.name.startswith(_NODE))
        # outside of a recomputation, no gradient is recorded in a backward pass
        calls = self.calls or ()
        begins = event.number >= 0 and node is not self._again and END in calls[self._at :]
        if begins or node is self._again:
            place = self._matched(event, calls.index(END, self._at) + 1 if begins else self._at)
            self._again = node if place else self._again
            if place:
                return _Open(event, span=self._span("backward", place, event))
            if event.number >= 0:
                return _Open(event, gradient)  # which may have such calls inside
        return _Open(event, span=self._span("backward", gradient, event))

    def _matched(self, event: Event, first: int) -> CallSite | None:
        """The place of a call from `calls[first]` on, if this event is one."""
        if self.calls is None:
            return CallSite(node="compiled") if _is_operator(event.name) else None
        ahead = takewhile(lambda call: call[1] != END, enumerate(self.calls[first : first + AHEAD], first))
        name = _plain(event.name)
        found = next((each for each in ahead if each[1][0] == name), None)
        if found is None:
            return None
        self._at, place = found[0] + 1, found[1][1]
        around = takewhile(lambda outer: not outer.event.name.startswith(_NODE), reversed(self._around))
        for each in (event, *(outer.event for outer in around)):
            if each.number >= 0:
                self._places.setdefault(each.number, place.forward if place.node == AGAIN else place)
        return place

    def _span(self, phase: Phase, place: CallSite, event: Event) -> Span:
        self.spans.append(Span(phase, place, event.name, event.start, event.end, event.end - event.start))
        for outer in self._around:
            outer.is_empty = False
        return self.spans[-1]

    def _close(self) -> None:
        closed = self._around.pop()
        if closed.is_empty and not closed.span and _is_operator(closed.event.name):
            self._span("backward" if closed.place else "forward", closed.place or UNKNOWN, closed.event)


def _is_operator(name: str) -> bool:
    """Return whether an event is an operator or a kernel, not what autograd or the compiler has around them."""
    return name.startswith(_COMPILED) or ("::" in name and not name.startswith(("autograd::", "torch::autograd::")))


def spans_of(events: Sequence[Event], kernels: Sequence[TimedKernel], calls: PlacedCalls | None) -> list[Span]:
    """The operator calls of a pass, by their start, from the profiler's events, a GPU's kernels, and `placed` calls.

    An operator of PyTorch that is no known call is UNKNOWN's, so that its time is not lost.
    """
    matching = _Matching(calls)
    threads: dict[int, list[Event]] = {}
    for event in sorted(events, key=lambda event: (event.start, -event.end)):
        threads.setdefault(event.thread, []).append(event)
    for own in threads.values():  # the thread of the forward pass begins first
        matching.take(own)
    if kernels:
        for span in matching.spans:
            span.busy = 0
        for kernel in kernels:
            if by := matching.by_id.get(kernel.by):
                by.busy += kernel.end - kernel.start
    return sorted(matching.spans, key=lambda span: span.start)


class Profiler(Protocol):
    """Runs a step under PyTorch's profiler."""

    def __call__(self, step: Callable[[], object]) -> tuple[Sequence[Event], Sequence[TimedKernel]]: ...


@dataclass
class Times:
    """The times of a pass in milliseconds, without the profiler and with it, and the calls of its last one."""

    plain: list[float] = field(default_factory=list)
    profiled: list[float] = field(default_factory=list)
    last: list[Span] = field(default_factory=list)


def measure(
    step: Step,
    clock: Clock,
    profiler: Profiler,
    calls: PlacedCalls | None,
    costs: Costs,
    seconds: float,
) -> Times:
    """Passes with and without the profiler in turns, for so many seconds; each operator's time is added to `costs`."""
    found = Times()
    profiler(lambda: clock.time_block(step, 1))  # the first passes start the profiler, and fill caches
    end = clock.now() + seconds
    while len(found.plain) < FEWEST or (clock.now() < end and len(found.plain) < MOST):
        found.plain.append(1e3 * clock.time_block(step, 1))
        events, kernels = profiler(lambda: found.profiled.append(1e3 * clock.time_block(step, 1)))
        found.last = spans_of(events, kernels, calls)
        for span in found.last:
            cost = costs.of(span.phase, span.place, span.operator)
            cost.ms += [0.0] * (len(found.plain) - len(cost.ms))
            cost.ms[-1] += span.busy / 1e6
    for cost in costs.all:
        cost.ms += [0.0] * (len(found.plain) - len(cost.ms) if cost.ms else 0)
    return found


def torch_profiler(kind: str) -> Profiler:
    """PyTorch's own profiler, on a device of this kind; of a GPU whose kernels it does not see, UsageError.

    Without `use_kineto` it takes the times of operators by events of CUDA's streams, and has no kernels.
    """

    def run(step: Callable[[], object]) -> tuple[Sequence[Event], Sequence[TimedKernel]]:
        with (
            quiet_kineto(),
            torch.autograd.profiler.profile(use_device=None if kind == "cpu" else kind, use_kineto=True) as profiler,
        ):
            step()
        events, kernels = _read(profiler.kineto_results.events())
        if kind != "cpu" and not kernels:
            raise UsageError("PyTorch's profiler saw no kernel of the GPU, so where its time goes is not known")
        return events, kernels

    return run


def _read(found: Iterable[Any]) -> tuple[list[Event], list[TimedKernel]]:
    """Kineto's events: those of threads, and those of the device with the event that each was started by."""
    events, kernels = [], []
    for each in found:
        start, end = each.start_ns(), each.end_ns()
        if each.device_type() != torch._C._autograd.DeviceType.CPU:
            kernels.append(TimedKernel(each.name(), start, end, each.linked_correlation_id()))
        elif not each.is_user_annotation():
            number, thread = each.sequence_nr(), each.start_thread_id()
            events.append(Event(each.name(), start, end, thread, number, each.correlation_id()))
    return events, kernels
