"""Messages of a running measurement. The process that measures sends these; the one that waits takes them down."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ctxbench.base.mode import Mode
from ctxbench.base.notes import Note


@dataclass(frozen=True, slots=True)
class Sample:
    """One timed block: `ms` milliseconds a pass over `passes` passes, finished `at_s` seconds after the first began."""

    at_s: float
    passes: int
    ms: float


@dataclass(frozen=True, slots=True)
class TimelineStep:
    """The bytes that a pass is predicted to hold at its `step`-th operator call, in the `phase` forward or backward."""

    step: int
    phase: str
    op: str
    bytes: int


@dataclass(frozen=True, slots=True)
class Values:
    """Values for columns of the record, and notes for a reader of it."""

    values: Mapping[str, Any]
    notes: Sequence[Note] = ()


@dataclass(frozen=True, slots=True)
class MissingColumns:
    """Columns of numbers that this case does not have, and why; no note where another column tells it."""

    columns: Sequence[str]
    note: Note | None = None


@dataclass(frozen=True, slots=True)
class Doing:
    """Phase that begins now, such as `latency_infer`."""

    what: str


@dataclass(frozen=True, slots=True)
class Progress:
    """Number of samples, and the last one's milliseconds. The sender waits until this has been shown."""

    what: str
    count: int
    ms: float


@dataclass(frozen=True, slots=True)
class Samples:
    """All samples so far of a stream: a mode, or the control workload."""

    stream: str
    samples: Sequence[Sample]


@dataclass(frozen=True, slots=True)
class Timeline:
    """The predicted memory over a pass of one mode."""

    mode: Mode
    steps: Sequence[TimelineStep]


@dataclass(frozen=True, slots=True)
class Failure:
    """Failure of a case: the record's status, a sentence and the traceback.

    `no_gpu_room`: the GPU was out of memory, or another process used it exclusively, perhaps
    through no fault of the case.
    """

    status: str
    message: str
    traceback: str = ""
    no_gpu_room: bool = False

    def __str__(self) -> str:
        return f"{self.status}: {self.message}"


Message = Values | MissingColumns | Doing | Progress | Samples | Timeline | Failure
