"""The result of profiling a module: the sums of its costs by line, submodule and operator, and its times."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import median
from typing import TYPE_CHECKING, Literal

from ctxbench.base.call_sites import AGAIN, CallSite, Line
from ctxbench.base.mode import Mode
from ctxbench.base.number import CONFIDENCE, Number
from ctxbench.plugins.memory.profile import Phase
from ctxbench.plugins.profile.costs import Cost, Roof
from ctxbench.table.numbers import Numbers

if TYPE_CHECKING:
    import pandas as pd

By = Literal["line", "submodule", "operator"]
BYS: tuple[By, ...] = ("line", "submodule", "operator")
# Which line an operator is booked to: the innermost of a person's own code, or of any code outside PyTorch.
Lines = Literal["own", "inner"]
LINES: tuple[Lines, ...] = ("own", "inner")
PartBound = Literal["arithmetic", "bandwidth", "calls", "copies", ""]
# All rows are of the same passes: so many at least.
QUIET = 3
# What of the costs is added up.
SUMS = ("calls", "macs", "flops", "moved_bytes", "saved_bytes", "peak_bytes", "ideal_ms")


@dataclass(frozen=True, slots=True)
class Part:
    """The sum of some costs: of a line, of a submodule with all inside it, or of an operator.

    Times are milliseconds, of a measured one in the quiet passes; the interval is half of what the middle half of them
    differ by, up and down. `share` is of all rows, `saved_ms` what is saved at most, if it ran at the roofline. The
    others are sums of what `Cost` describes.
    """

    name: str
    line: Line | None
    costs: tuple[Cost, ...]
    ms: Number
    forward_ms: float
    backward_ms: float
    share: float
    roof: Roof
    calls: int
    macs: int
    flops: float
    moved_bytes: int
    saved_bytes: int
    peak_bytes: int
    ideal_ms: float

    @property
    def saved_ms(self) -> float:
        return max(0.0, self.ms.value - self.ideal_ms)

    @property
    def is_known(self) -> bool:
        """Return whether its time differs by less than itself, up or down."""
        low, high = self.ms.ends
        return (high - low) / 2 <= self.ms.value

    @property
    def intensity(self) -> float:
        """FLOPs of products for each byte."""
        return self.flops / self.moved_bytes if self.moved_bytes else 0.0

    @property
    def bound(self) -> PartBound:
        """Bound of its time; "" where its work is unknown."""
        if not self.calls:
            return ""
        if self.calls * self.roof.call_s * 1e3 > self.ms.value / 2:
            return "calls"
        if not self.ideal_ms:
            return "copies" if self.moved_bytes else "calls"
        return "arithmetic" if self.intensity > self.roof.ridge else "bandwidth"


@dataclass(frozen=True, slots=True)
class SourceLines:
    """A function's lines, from line `first` of `file`."""

    file: str
    first: int
    lines: Sequence[str]


@dataclass(frozen=True, slots=True)
class PythonLine:
    """A line in the function `function` and its milliseconds: in the forward pass those outside of operators.

    A gradient's operators are booked to the forward pass, so a line that the backward pass runs has them.
    """

    line: Line
    function: str
    ms: float
    phase: Phase = "forward"


@dataclass(frozen=True)
class Pass:
    """One pass of inference or one training step, taken apart.

    `pass_ms` are its times without the profiler, `profiled_ms` those with it, pass by pass; of a predicted one
    `pass_ms` is its value and the ends of its band. `python` is the time of lines outside of operators, where that is
    much. `advice` are sentences, `notes` what is not known, and why. `on_data` is the reason why MACs and bytes were
    counted on numbers and not on meta. `others_share` is the share of the cores that other work kept busy meanwhile.
    `unknown` says why a predicted time is known too badly to be told, and `kernels` what those of the pass take alone,
    as text: all rows then share that.
    """

    mode: Mode
    costs: Sequence[Cost]
    roof: Roof
    pass_ms: Sequence[float]
    profiled_ms: Sequence[float] = ()
    python: Sequence[PythonLine] = ()
    advice: Sequence[str] = ()
    notes: Sequence[str] = ()
    on_data: str = ""
    others_share: float | None = None
    unknown: str = ""
    kernels: str = ""

    @property
    def is_measured(self) -> bool:
        return bool(self.profiled_ms)

    @property
    def time(self) -> Number:
        """The time of the pass, in milliseconds; `confidence` says how sure its interval is."""
        if self.is_measured:
            return replace(measured(self.pass_ms), others_share=self.others_share)
        value, low, high = self.pass_ms
        return Number(value, low, high, origin="predicted", unknown=self.unknown, kernels=self.kernels)

    @property
    def has_times(self) -> bool:
        """Return whether its rows have milliseconds, or shares alone."""
        return not self.unknown or bool(self.kernels)

    @property
    def confidence(self) -> float:
        """The probability of the interval of `time`: less than 0.95 where neighbouring passes are alike."""
        from ctxbench.base.statistics import median_interval  # imports numpy

        return median_interval(self.pass_ms).confidence if self.is_measured else CONFIDENCE

    @property
    def overhead(self) -> Number:
        """Ratio of a pass's time with the profiler to that without."""
        return measured([long / plain for long, plain in zip(self.profiled_ms, self.pass_ms, strict=True)])

    @cached_property
    def quiet(self) -> list[int]:
        """The passes that all times in rows are of: the quicker half of those with the profiler, QUIET at least."""
        if not self.is_measured:
            return [0]
        order = sorted(range(len(self.profiled_ms)), key=self.profiled_ms.__getitem__)
        return order[: max(QUIET, len(order) // 2)]

    @cached_property
    def sum_ms(self) -> Number:
        """The sum of all rows."""
        return self._time(self.costs)

    @cached_property
    def between_ms(self) -> Number:
        """The part of a quiet pass that is in no operator: Python and PyTorch's calls; of a GPU its gaps."""
        if not self.is_measured:
            return Number(math.nan, origin="predicted")
        sums = self._samples(self.costs)
        apart = [self.profiled_ms[at] - each for at, each in zip(self.quiet, sums, strict=True)]
        return self._around(median(apart), apart)

    @property
    def whole_ms(self) -> float:
        """A quiet pass with the profiler: the sum of all rows and what is between them."""
        return self.sum_ms.value + self.between_ms.value

    @property
    def between_share(self) -> float:
        """The share of the quiet passes that is in no operator; 0 of a predicted pass."""
        return self.between_ms.value / self.whole_ms if self.is_measured else 0.0

    def parts(self, by: By, lines: Lines = "own") -> list[Part]:
        """The costs by line or operator, the longest first; by submodule as a tree from the module.

        What a line computes again in the backward pass has a part of its own.
        """
        if by == "submodule":
            return self._tree()
        groups: dict[tuple[Line | str, bool], list[Cost]] = defaultdict(list)
        for cost in self.costs:
            again = by == "line" and cost.place.node == AGAIN
            groups[cost.operator if by == "operator" else line_of(cost.place, lines), again].append(cost)
        found = [self.part(name, costs, " again" * again) for (name, again), costs in groups.items()]
        return sorted(found, key=lambda part: (-part.ms.value, -part.ideal_ms, -part.macs, -part.peak_bytes))

    def part(self, name: Line | str, costs: Sequence[Cost], mark: str = "") -> Part:
        """The sum of some of its costs."""
        by_phase = {phase: self._time([c for c in costs if c.phase == phase]) for phase in ("forward", "backward")}
        forward, backward = (each.value for each in by_phase.values())
        line = name if isinstance(name, Line) else None
        sums = {each: sum(getattr(cost, each) for cost in costs) for each in SUMS}
        ms = self._time(costs)
        share = ms.value / self.sum_ms.value if self.sum_ms.value else 0.0
        return Part(f"{name}{mark}", line, tuple(costs), ms, forward, backward, share, self.roof, **sums)

    def rows(self, by: By, lines: Lines = "own") -> list[dict[str, object]]:
        """The same as plain numbers, a row a part; times in ms, sizes in bytes."""
        return [self._row(by, part) for part in self.parts(by, lines)]

    def _row(self, by: By, part: Part) -> dict[str, object]:
        times = {"ms": part.ms.value, "ms_low": part.ms.low, "ms_high": part.ms.high}
        phases = {"forward_ms": part.forward_ms, "backward_ms": part.backward_ms}
        rest = {name: getattr(part, name) for name in (*SUMS, "saved_ms", "bound")}
        row = {"mode": self.mode, by: part.name, **times, **phases, "share": part.share, **rest}
        untold = () if self.has_times else (*times, *phases, "saved_ms")
        return row | dict.fromkeys(untold, math.nan)

    def _tree(self) -> list[Part]:
        paths = {cost.place.module for cost in self.costs}
        paths |= {path[:end] for path in paths for end, letter in enumerate(path) if letter == "."} | {""}
        return [
            self.part(path, [cost for cost in self.costs if not path or f"{cost.place.module}.".startswith(f"{path}.")])
            for path in sorted(paths, key=lambda path: path.split("."))
        ]

    @cached_property
    def _medians(self) -> dict[int, float]:
        """By its id the median of a cost in the quiet passes: an interruption hits few of them. They add up."""
        return {id(cost): median(cost.ms[at] for at in self.quiet) for cost in self.costs if cost.ms}

    def _time(self, costs: Sequence[Cost]) -> Number:
        """The sum of the medians of some costs, or of what is predicted of them."""
        return self._around(math.fsum(self._medians.get(id(cost), 0.0) for cost in costs), self._samples(costs))

    def _samples(self, costs: Iterable[Cost]) -> list[float]:
        """The sum of some costs in each quiet pass."""
        known = [cost.ms for cost in costs if cost.ms]
        return [math.fsum(ms[at] for ms in known) for at in self.quiet]

    def _around(self, value: float, samples: Sequence[float]) -> Number:
        """A time, and half of what the middle half of the passes differ by, up and down."""
        if not self.is_measured:
            return Number(value, origin="predicted")
        ordered = sorted(samples)
        half = (ordered[3 * (len(ordered) - 1) // 4 + (len(ordered) > 1)] - ordered[(len(ordered) - 1) // 4]) / 2
        return Number(value, value - half, value + half, origin="measured")


@dataclass(frozen=True, repr=False)
class Profile:
    """A module's passes, taken apart on one device. `device` says which, `about` names module, input and conditions."""

    about: str
    device: str
    passes: Mapping[Mode, Pass]
    sources: Sequence[SourceLines] = ()

    def code(self, line: Line) -> str:
        """The text of a line, without its indentation; empty where its source is not available."""
        for source in self.sources:
            if source.file == line.file and 0 <= line.number - source.first < len(source.lines):
                return source.lines[line.number - source.first].strip()
        return ""

    def frame(self, by: By = "line", lines: Lines = "own") -> "pd.DataFrame":
        """The costs of all passes by `line`, `submodule` or `operator`; times in ms, sizes in bytes."""
        return Numbers.of_rows(self.rows(by, lines)).frame

    def rows(self, by: By = "line", lines: Lines = "own") -> list[dict[str, object]]:
        return [row for each in self.passes.values() for row in each.rows(by, lines)]


def measured(samples: Sequence[float]) -> Number:
    """The median of samples in time order, with the interval that they justify; one alone has none."""
    from ctxbench.base.statistics import median_interval  # imports numpy

    values = sorted(samples)
    middle = (values[(len(values) - 1) // 2] + values[len(values) // 2]) / 2
    found = median_interval(samples)
    return Number(middle, found.low, found.high, origin="measured")


def line_of(place: CallSite, lines: Lines) -> Line | str:
    """The line that a place is booked to; of one without a line, what it is called."""
    found = place.own if lines == "own" else place.inner
    return found or (f"({place.node})" if place.node else "(no source line)")
