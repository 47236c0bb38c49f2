"""A GPU without a GPU, for the engine: its processes begin slowly and its passes are short, on a clock of its own."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from fakes import ENDED_WELL, timed

from ctxbench.base.clocks import Machine
from ctxbench.engine.exit import Exit
from ctxbench.model.case import Case
from ctxbench.model.messages import Failure, Missing, Values
from ctxbench.worker.protocol import MatmulRate, MeasureCase, MeasureCases, Measured, Reply, Task

# Seconds, from results/table3-h200: an interpreter that imports torch; a process until its first pass, which is what
# its `elapsed_s` is above the time between its samples; a case's counts and peaks; a case's times.
START_S, CONTEXT_S, ONCE_S, TIMES_S = 4.5, 0.75, 3.2, 2.5
PASS_MS = 5.0

# The milliseconds of a pass of a case, after these cases in its process.
Passes = Callable[[Case, Sequence[Case]], float]


class SimulatedGpu(Machine):
    """The clock, the executors and their processes. `tasks` lists the cases of each process that timed something.

    `fails` says of a case, after those before it in its process, whether it fails there.
    """

    def __init__(
        self,
        passes: Passes = lambda case, before: PASS_MS,
        fails: Callable[[Case, Sequence[Case]], bool] = lambda case, before: False,
    ) -> None:
        self.seconds, self.passes, self.fails = 0.0, passes, fails
        self.tasks: list[list[str]] = []

    def wall_s(self) -> float:
        return self.seconds

    def now(self) -> float:
        return self.seconds

    @contextmanager
    def launch(self) -> Iterator["SimulatedGpu"]:
        self.seconds += START_S
        yield self

    def run(self, task: Task, on_message: Callable[[Reply], None], timeout_s: float | None = None) -> Exit:
        self.seconds += CONTEXT_S
        match task:
            case MatmulRate():
                on_message(Values({"matmul_macs_per_s": 2.5e13}))
            case MeasureCase() | MeasureCases():
                self._measure(task.tasks if isinstance(task, MeasureCases) else [task], on_message)
        return ENDED_WELL

    def _measure(self, tasks: Sequence[MeasureCase], on_message: Callable[[Reply], None]) -> None:
        if "latency" in tasks[0].metrics:
            self.tasks.append([])
        for number, task in enumerate(tasks):
            before = [each.case for each in tasks[:number]]
            if "latency" not in task.metrics:
                self.seconds += ONCE_S
                on_message(Values({"params": 7}))
                continue
            self.tasks[-1].append(task.case.module)
            self.seconds += TIMES_S
            if self.fails(task.case, before):
                on_message(Failure("crashed", "an illegal memory access", "Traceback"))
                return
            for message in _times(self.passes(task.case, before)):
                on_message(message)
            if len(tasks) > 1:
                on_message(Measured())


def _times(ms: float) -> list[Reply]:
    train = {f"latency_train_{name}": value for name, value in {"ms": 3 * ms, "samples": 2, "stop": "interval"}.items()}
    return [*(each for each in timed(ms) if not isinstance(each, Missing)), Values(train)]
