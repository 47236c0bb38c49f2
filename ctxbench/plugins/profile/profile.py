"""The result of profiling a module: the sums of its costs by line, submodule and operator, and its times."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from ctxbench.base.call_sites import CallSite, Line
from ctxbench.base.mode import Mode
from ctxbench.base.number import CONFIDENCE, Number
from ctxbench.plugins.profile.costs import Cost, Roof

if TYPE_CHECKING:
    import pandas as pd

By = Literal["line", "submodule", "operator"]
BYS: tuple[By, ...] = ("line", "submodule", "operator")
# Which line an operator is booked to: the innermost of a person's own code, or of any code outside PyTorch.
Lines = Literal["own", "inner"]
LINES: tuple[Lines, ...] = ("own", "inner")
Bound = Literal["arithmetic", "bandwidth", "calls", "copies", ""]
# What of the costs is added up.
SUMS = ("calls", "macs", "flops", "moved_bytes", "saved_bytes", "peak_bytes", "ideal_ms")


@dataclass(frozen=True, slots=True)
class Part:
    """The sum of some costs: of a line, of a submodule with all inside it, or of an operator.

    Times are milliseconds; `share` is of the pass, `saved_ms` what is saved at most, if it ran at the roofline. The
    others are sums of what `Cost` describes.
    """

    name: str
    line: Line | None
    costs: tuple[Cost, ...]
    ms: Number
    forward_ms: float
    backward_ms: float
    share: Number
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
        return max(0.0, self.ms.value - self.ideal_ms) if math.isfinite(self.ms.value) else 0.0

    @property
    def intensity(self) -> float:
        """FLOPs of products for each byte."""
        return self.flops / self.moved_bytes if self.moved_bytes else 0.0

    @property
    def bound(self) -> Bound:
        """Bound of its time; "" where its work is unknown."""
        if not self.calls:
            return ""
        if self.calls * self.roof.call_s * 1e3 > self.ms.value / 2:
            return "calls"
        if not self.ideal_ms:
            return "copies" if self.moved_bytes else "calls"
        return "arithmetic" if self.intensity > self.roof.ridge else "bandwidth"


@dataclass(frozen=True, slots=True)
class Source:
    """A function's lines, from line `first` of `file`."""

    file: str
    first: int
    lines: Sequence[str]


@dataclass(frozen=True)
class Pass:
    """One pass of inference or one training step, taken apart.

    `pass_ms` are its times without the profiler, `profiled_ms` those with it, pass by pass; of a predicted one
    `pass_ms` is its value and the ends of its band. `advice` are sentences, `notes` what is not known, and why.
    """

    mode: Mode
    costs: Sequence[Cost]
    roof: Roof
    pass_ms: Sequence[float]
    profiled_ms: Sequence[float] = ()
    advice: Sequence[str] = ()
    notes: Sequence[str] = ()

    @property
    def is_measured(self) -> bool:
        return bool(self.profiled_ms)

    @property
    def time(self) -> Number:
        """The time of the pass, in milliseconds; `confidence` says how sure its interval is."""
        if self.is_measured:
            return measured(self.pass_ms)
        value, low, high = self.pass_ms
        return Number(value, low, high, origin="predicted")

    @property
    def confidence(self) -> float:
        """The probability of the interval of `time`: less than 0.95 where neighbouring passes are alike."""
        from ctxbench.base.statistics import median_interval  # imports numpy

        return median_interval(self.pass_ms).confidence if self.is_measured else CONFIDENCE

    @property
    def overhead(self) -> Number:
        """Ratio of a pass's time with the profiler to that without."""
        return measured([long / plain for long, plain in zip(self.profiled_ms, self.pass_ms, strict=True)])

    @property
    def accounted(self) -> Number:
        """The operators' sum over the pass without the profiler."""
        return self._share(self._samples(self.costs))

    @property
    def between_ms(self) -> Number:
        """The part of a profiled pass that is in no operator: Python and PyTorch's calls; of a GPU its gaps."""
        sums = self._samples(self.costs)
        apart = [whole - part for whole, part in zip(self.profiled_ms, sums, strict=True)]
        return measured(apart) if self.is_measured else Number(math.nan, origin="predicted")

    @property
    def noise_ms(self) -> float:
        """Half the interval of the pass: a measured time below it is within the noise of zero."""
        return (self.time.high - self.time.low) / 2 if self.is_measured else 0.0

    def parts(self, by: By, lines: Lines = "own") -> list[Part]:
        """The costs by line or operator, what would be saved at most first; by submodule as a tree from the module."""
        if by == "submodule":
            return self._tree()
        groups: dict[Line | str, list[Cost]] = defaultdict(list)
        for cost in self.costs:
            groups[cost.operator if by == "operator" else line_of(cost.place, lines)].append(cost)
        found = [self.part(name, costs) for name, costs in groups.items()]
        return sorted(found, key=lambda part: (-part.saved_ms, -part.macs, -part.peak_bytes))

    def part(self, name: Line | str, costs: Sequence[Cost]) -> Part:
        """The sum of some of its costs."""
        samples = self._samples(costs)
        of_phase = {phase: self._samples(c for c in costs if c.phase == phase) for phase in ("forward", "backward")}
        forward, backward = (self._time(each).value for each in of_phase.values())
        line = name if isinstance(name, Line) else None
        sums = {each: sum(getattr(cost, each) for cost in costs) for each in SUMS}
        times = (self._time(samples), forward, backward, self._share(samples))
        return Part(str(name), line, tuple(costs), *times, self.roof, **sums)

    def frame(self, by: By, lines: Lines = "own") -> "pd.DataFrame":
        """The same as a frame, a row a part; times in ms, sizes in bytes."""
        import pandas as pd

        return pd.DataFrame([self._row(by, part) for part in self.parts(by, lines)])

    def _row(self, by: By, part: Part) -> dict[str, object]:
        times = {"ms": part.ms.value, "ms_low": part.ms.low, "ms_high": part.ms.high}
        phases = {"forward_ms": part.forward_ms, "backward_ms": part.backward_ms}
        rest = {name: getattr(part, name) for name in (*SUMS, "saved_ms", "bound")}
        return {"mode": self.mode, by: part.name, **times, **phases, "share": part.share.value, **rest}

    def _tree(self) -> list[Part]:
        paths = {cost.place.module for cost in self.costs}
        paths |= {path[:end] for path in paths for end, letter in enumerate(path) if letter == "."} | {""}
        return [
            self.part(path, [cost for cost in self.costs if not path or f"{cost.place.module}.".startswith(f"{path}.")])
            for path in sorted(paths, key=lambda path: path.split("."))
        ]

    def _samples(self, costs: Iterable[Cost]) -> list[float]:
        """The sum of these costs in each pass."""
        sums = [0.0] * (len(self.profiled_ms) or 1)
        for cost in costs:
            for number, ms in enumerate(cost.ms):
                sums[number] += ms
        return sums

    def _time(self, samples: Sequence[float]) -> Number:
        return measured(samples) if self.is_measured else Number(samples[0], origin="predicted")

    def _share(self, samples: Sequence[float]) -> Number:
        if not self.is_measured:
            return Number(samples[0] / self.pass_ms[0], origin="predicted")
        return measured([ms / whole for ms, whole in zip(samples, self.pass_ms, strict=True)])


@dataclass(frozen=True)
class Profile:
    """A module's passes, taken apart on one device. `device` says which, `about` names module, input and conditions."""

    about: str
    device: str
    passes: Mapping[Mode, Pass]
    sources: Sequence[Source] = ()

    def code(self, line: Line) -> str:
        """The text of a line, without its indentation; empty where its source is not to be had."""
        for source in self.sources:
            if source.file == line.file and 0 <= line.number - source.first < len(source.lines):
                return source.lines[line.number - source.first].strip()
        return ""

    def frame(self, by: By = "line", lines: Lines = "own") -> "pd.DataFrame":
        """The costs of all passes by `line`, `submodule` or `operator`; times in ms, sizes in bytes."""
        import pandas as pd

        return pd.concat([each.frame(by, lines) for each in self.passes.values()], ignore_index=True)


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
