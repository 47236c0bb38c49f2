"""What crosses between the process that waits and the one that measures: tasks and messages. `lines` has the form."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import SerializeAsAny

from ctxbench.base.mode import Mode
from ctxbench.base.number import Number, Origin
from ctxbench.model.case import Case, Measure
from ctxbench.model.conditions import Shape
from ctxbench.model.messages import Agreement, Doing, Failure, Missing, Progress, Samples, Timeline, Values
from ctxbench.plugins.predict.sheet import Sheet
from ctxbench.plugins.profile.profile import Profile
from ctxbench.plugins.verify.contract import CheckResult

# What a column holds that a person is to see: words, or numbers and how they were obtained.
Held = Origin | Literal["label", "text"]
# Commands to one side of a pair, a byte each: prepare the next row; time a block of it.
NEXT, BLOCK = b"n", b"b"


@dataclass(frozen=True, slots=True)
class DescribeEnvironment:
    """Tell what machine, software and settings these are."""


@dataclass(frozen=True, slots=True)
class Verify:
    """Check the contract of a module; without `compilers`, torch.compile and torch.export are left out.

    A check that takes more than `timeout_s` of processor time ends the process with SIGPROF. The checks in `done` are
    left out.
    """

    reference: str
    channels: int
    hparams: Mapping[str, Any]
    size: tuple[int, int]
    compilers: bool
    memory_limit_gib: float
    timeout_s: float
    done: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class ListCases:
    """List the cases that a suite has in this source tree; `other` is a tree whose files should not be used."""

    suite: str
    path: str
    definition: Mapping[str, Any]
    auto_device: str
    other: str | None


@dataclass(frozen=True, slots=True)
class PairRow:
    """A row of a pair; by the share `inject` more passes are run than are counted."""

    case: Case
    mode: Mode
    inject: float = 0.0


@dataclass(frozen=True, slots=True)
class ReadModule:
    """Tell what is known of the class that a reference to a user's file or package names."""

    reference: str


@dataclass(frozen=True, slots=True)
class ReadNetwork:
    """Tell which input a network declares."""

    name: str


@dataclass(frozen=True, slots=True)
class TellCosts:
    """Tell params and MACs of a case; `by_operator` also those of each operator."""

    case: Case
    by_operator: bool


@dataclass(frozen=True, slots=True)
class CountCase:
    """Count these of a case; the names are `ctxbench.model.published.COUNTS`."""

    case: Case
    names: Sequence[str]


@dataclass(frozen=True, slots=True)
class TellMemory:
    """Tell what is in memory at a case's predicted peak on `target`, and draw the pass into the file `plot`."""

    case: Case
    mode: Mode
    target: str
    plot: str | None


@dataclass(frozen=True, slots=True)
class TellTime:
    """Tell the predicted time of a case on the device of a data sheet, by operator.

    Of a training step with this `loss`, and with the step of an `optimizer` if one is named.
    """

    case: Case
    mode: Mode
    sheet: Sheet
    loss: str = "sum"
    optimizer: str = ""


@dataclass(frozen=True, slots=True)
class ProfileCase:
    """Take passes of a case apart: measured, or predicted for the device of a data sheet.

    Their timelines are written into the folder `trace`.
    """

    case: Case
    modes: Sequence[Mode]
    sheet: Sheet | None
    trace: str | None


@dataclass(frozen=True, slots=True)
class TakeSide:
    """Be one side of a pair: prepare and time the rows, in their order, one command at a time."""

    measure: Measure
    rows: Sequence[PairRow]


@dataclass(frozen=True, slots=True)
class TakeOutputs:
    """Write what a case computes from drawn weights and input into a file; or `compare` it with what is there."""

    case: Case
    measure: Measure
    path: str
    compare: bool


@dataclass(frozen=True, slots=True)
class MatmulRate:
    """Measure the rate of a large matrix product on a case's device, dtype and threads."""

    case: Case
    measure: Measure


@dataclass(frozen=True, slots=True)
class TimeKernels:
    """Time these kernels (see `ctxbench.plugins.predict.probes`) in float32, and a control workload before and after."""

    device: str
    threads: int | None
    kernels: Sequence[str]


@dataclass(frozen=True, slots=True)
class MeasureCase:
    """Measure these metrics of a case; with `force`, even if it is predicted not to fit into memory."""

    case: Case
    measure: SerializeAsAny[Measure]  # with the settings of metrics
    metrics: Sequence[str]
    counter: str = "ctxbench"
    force: bool = False


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
class Environment:
    """The answer to DescribeEnvironment, as in `run.json`."""

    environment: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class CheckStarted:
    """A check of the contract begins; if it is `vital`, those after it need it."""

    name: str
    required: bool
    vital: bool


@dataclass(frozen=True, slots=True)
class CheckDone:
    """What a check of the contract found."""

    result: CheckResult


@dataclass(frozen=True, slots=True)
class WrongInput:
    """The task cannot be done as asked; a sentence for the user."""

    message: str


@dataclass(frozen=True, slots=True)
class NoProcess:
    """The system starts no process for the task; why."""

    reason: str


@dataclass(frozen=True, slots=True)
class ReadEntry:
    """The answer to ReadModule: an entry of the registry as JSON."""

    plain: str


@dataclass(frozen=True, slots=True)
class NetworkShape:
    """The answer to ReadNetwork: [B, C, H, W], if it declares one."""

    shape: Shape | None


@dataclass(frozen=True, slots=True)
class CaseCounts:
    """The answer to CountCase: numbers of parameters, MACs and bytes by name; `missing` says why one is not known."""

    values: Mapping[str, int]
    missing: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Told:
    """What a person is to see next: a text, or rows below their headings, each with what its column holds.

    `value` is the number that the text says.
    """

    text: str = ""
    columns: Mapping[str, Held] = field(default_factory=dict)
    rows: Sequence[Sequence[str]] = ()
    value: Number | None = None


@dataclass(frozen=True, slots=True)
class Profiled:
    """The answer to ProfileCase."""

    profile: Profile


@dataclass(frozen=True, slots=True)
class ListedCase:
    """A case and the file that its module comes from."""

    case: Case
    file: str


@dataclass(frozen=True, slots=True)
class Cases:
    """The answer to ListCases; `missing` says why a module has none, `foreign` are files of the other tree.

    Of `without_class`, the file is there and the class is not.
    """

    cases: Sequence[ListedCase]
    missing: Mapping[str, str]
    foreign: Sequence[str]
    without_class: Sequence[str] = ()


# The name of the control workload among kernels.
CONTROL = "control"


@dataclass(frozen=True, slots=True)
class KernelTime:
    """The time of a kernel or of the control workload, in milliseconds.

    Meanwhile others used `others_share` of the cores, and the thread that computed had one for `on_core` of the time.
    """

    name: str
    ms: float
    others_share: float = 0.0
    on_core: float = 1.0


@dataclass(frozen=True, slots=True)
class GpuProperties:
    """What the driver tells of a GPU: processors, clocks in kHz, the memory's width in bits, L2 in bytes.

    `other_processes` compute on it too; none where that is not known.
    """

    values: Mapping[str, int]
    other_processes: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class Answer:
    """What a command to one side of a pair gave, in milliseconds a pass; the side waits for the next command."""

    control: Sequence[float] = ()
    row: Sequence[float] = ()
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class Imported:
    """The files of a person's own that were imported for a case, by their whole paths, with their SHA-256."""

    files: Mapping[str, str]


Task = (
    DescribeEnvironment | Verify | ListCases | ReadModule | ReadNetwork | CountCase | TellCosts | TellMemory |
    TellTime | ProfileCase | TakeSide | TakeOutputs | MatmulRate | TimeKernels | MeasureCase
)  # fmt: skip
Reply = (
    Ready | Started | Done | Ended | NoProcess | Environment | CheckStarted | CheckDone | WrongInput | Cases |
    ReadEntry | NetworkShape | CaseCounts | Told | Profiled | KernelTime | GpuProperties | Answer | Imported |
    Agreement | Values | Missing | Doing | Progress | Samples | Timeline | Failure
)  # fmt: skip
