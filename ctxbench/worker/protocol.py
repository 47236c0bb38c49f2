"""Protocol between the process that waits and the one that measures: tasks and messages. `lines` has the form."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pydantic import SerializeAsAny

from ctxbench.model.case import Case, Measure
from ctxbench.model.messages import Doing, Failure, MissingColumns, Progress, Samples, Timeline, Values


@dataclass(frozen=True, slots=True)
class Ask:
    """Call the function that answers a question (see `ctxbench.worker.questions`); the arguments are JSON.

    Of the modules and networks that it is about, libraries are imported before the fork.
    """

    question: str
    arguments: Sequence[str]
    references: Sequence[str] = ()
    memory_limit_gib: float | None = None


@dataclass(frozen=True, slots=True)
class Payload:
    """Return value or message of a question's function, as JSON."""

    value: str


@dataclass(frozen=True, slots=True)
class MatmulRate:
    """Measure the rate of a large matrix product on a case's device, dtype and threads."""

    case: Case
    measure: Measure


@dataclass(frozen=True, slots=True)
class MeasureCase:
    """Measure these metrics of a case; with `force`, even if it is predicted not to fit into memory.

    What is compiled or exported for the case is kept in the folder `kept`, if one is given.
    """

    case: Case
    measure: SerializeAsAny[Measure]  # with the settings of metrics
    metrics: Sequence[str]
    counter: str = "ctxbench"
    force: bool = False
    kept: str = ""


@dataclass(frozen=True, slots=True)
class MeasureCases:
    """Measure cases one after the other in one process; Measured follows each, and the first failure ends it."""

    tasks: Sequence[MeasureCase]


@dataclass(frozen=True, slots=True)
class Measured:
    """A case of several has been measured without a failure. The process waits until that has been taken down."""


@dataclass(frozen=True, slots=True)
class Ready:
    """The measuring process has imported torch."""


@dataclass(frozen=True, slots=True)
class Started:
    """The child of a task runs."""

    pid: int


@dataclass(frozen=True, slots=True)
class Done:
    """The task is done: the last message of its child."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The child of a task is gone: exit code, or the signal that killed it (0: none).

    `left` are the processes that it started outside its own group and that ran on; they were ended, too.
    """

    code: int
    signal: int
    left: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class WrongInput:
    """The task cannot be done as asked; a sentence for the user."""

    message: str


@dataclass(frozen=True, slots=True)
class NoProcess:
    """The system starts no process for the task; why."""

    reason: str


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer of one side of a pair to a command, in milliseconds a pass; the side waits for the next command.

    `wall` are times of the wall or the GPU, `cpu` those that the thread was on a core; none where it is not what passes
    take.
    """

    wall: Sequence[float] = ()
    cpu: Sequence[float] = ()
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class Imported:
    """The files of a person's own that were imported for a case, by their whole paths, with their SHA-256."""

    files: Mapping[str, str]


Task = Ask | MatmulRate | MeasureCase | MeasureCases
Reply = (
    Ready | Started | Done | Ended | NoProcess | WrongInput | Payload | Answer | Imported |
    Values | MissingColumns | Doing | Progress | Samples | Timeline | Failure | Measured
)  # fmt: skip
