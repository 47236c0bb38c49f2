"""Costs of the calls of a pass, by place and operator: work, bytes and times, and the rates that a device reaches."""

from dataclasses import dataclass, field

from ctxbench.base.call_sites import CallSite
from ctxbench.plugins.memory.profile import Phase

# What was computed somewhere that the profiler's events do not tell.
UNKNOWN = CallSite(node="not attributed")


@dataclass(frozen=True, slots=True)
class Roof:
    """Roof of a device: FLOP/s, bytes/s, and the seconds of a call that computes nothing."""

    flops: float
    bandwidth: float
    call_s: float

    @property
    def ridge(self) -> float:
        """FLOPs for each byte from which arithmetic bounds."""
        return self.flops / self.bandwidth


@dataclass(slots=True)
class Cost:
    """Costs of the calls of one operator at one place in one pass.

    `macs` are by torchprofile's convention, `flops` those of products. `moved_bytes` are read and written,
    `saved_bytes` kept for the backward pass, `peak_bytes` in memory at the pass's peak. `ideal_ms` is the time at the
    roofline, without copies and calls. `is_wide`: in float64, where the pass is in a narrower dtype. `ms` has a time
    for each measured pass, one that was predicted, or none.
    """

    phase: Phase
    place: CallSite
    operator: str
    calls: int = 0
    macs: int = 0
    flops: float = 0.0
    moved_bytes: int = 0
    saved_bytes: int = 0
    peak_bytes: int = 0
    ideal_ms: float = 0.0
    is_wide: bool = False
    ms: list[float] = field(default_factory=list)


@dataclass(slots=True)
class Span:
    """A call of an operator in one pass: where it belongs, and when it ran, in nanoseconds.

    On a GPU `busy` is the time of its kernels, elsewhere its own.
    """

    phase: Phase
    place: CallSite
    operator: str
    start: int
    end: int
    busy: int = 0


class Costs:
    """The costs of a pass while they are collected."""

    def __init__(self) -> None:
        self._found: dict[tuple[Phase, CallSite, str], Cost] = {}

    def of(self, phase: Phase, place: CallSite, operator: str) -> Cost:
        """The cost of these calls, to be added to. `aten::mul_`, `aten.mul.Tensor` and `mul` are one operator."""
        key = (phase, place, _plain(operator) or "weights")
        return self._found.setdefault(key, Cost(*key))

    @property
    def all(self) -> list[Cost]:
        """Each of them once."""
        return list(self._found.values())


def _plain(operator: str) -> str:
    """`mul` of `aten::mul_` and of `aten.mul.Tensor`; of another library `library.operator`."""
    library, *rest = operator.removeprefix("inside ").replace("::", ".").split(".")
    name = library if not rest else rest[0] if library == "aten" else f"{library}.{rest[0]}"
    return name.removesuffix("_")
