"""A GPU without a GPU, for the engine: its processes begin slowly and its passes are short, on a clock of its own."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from fakes import ENDED_WELL, timed

from ctxbench.base.clocks import Machine
from ctxbench.engine.exit import Exit
from ctxbench.model.case import Case
from ctxbench.model.messages import Failure, MissingColumns, Values
from ctxbench.model.metrics import metrics
from ctxbench.worker.lines import plain
from ctxbench.worker.protocol import Ask, MatmulRate, MeasureCase, MeasureCases, Measured, Payload, Reply, Task

# Seconds, from results/table3-h200: an interpreter that imports torch; a process until its first pass, which is what
# its `elapsed_s` is above the time between its samples; a case's counts and peaks, without a fifth for `memory_2020`; a
# case's times, without 0.4 s of warm-up.
START_S, CONTEXT_S, ONCE_S, TIMES_S = 4.5, 0.75, 2.4, 2.2

# Milliseconds of an inference and of a training step of a case, after these cases in its process.
Passes = Callable[[Case, Sequence[Case]], tuple[float, float]]


class SimulatedGpu(Machine):
    """The clock, the executors and their processes. `tasks` lists the cases of each process that timed something.

    `fails` says of a case, after those before it in its process, whether it fails there. After `ends_s` on the clock,
    the person, or the program that started the run, presses Ctrl-C.
    """

    def __init__(
        self,
        passes: Passes = lambda case, before: (5.0, 15.0),
        fails: Callable[[Case, Sequence[Case]], bool] = lambda case, before: False,
        environment: Mapping[str, Any] | None = None,
    ) -> None:
        self.seconds, self.passes, self.fails, self.environment = 0.0, passes, fails, environment
        self.ends_s = float("inf")
        self.tasks: list[list[str]] = []

    def wall_s(self) -> float:
        return self.seconds

    def now(self) -> float:
        return self.seconds

    def takes(self, seconds: float) -> None:
        self.seconds += seconds
        if self.seconds > self.ends_s:
            self.seconds, self.ends_s = self.ends_s, float("inf")
            raise KeyboardInterrupt

    @contextmanager
    def launch(self) -> Iterator["SimulatedGpu"]:
        self.takes(START_S)
        yield self

    def run(self, task: Task, on_message: Callable[[Reply], None], timeout_s: float | None = None) -> Exit:
        self.takes(CONTEXT_S)
        match task:
            case Ask():
                on_message(Payload(plain(self.environment)))
            case MatmulRate():
                on_message(Values({"matmul_macs_per_s": 2.5e13}))
            case MeasureCases():
                self._time(task.tasks, on_message)
            case MeasureCase() if "latency" in task.metrics:
                self._time([task], on_message)
            case MeasureCase():
                self.takes(ONCE_S if task.metrics else 0)
                on_message(Values({"params": 7}))
                promised = [each for name in task.metrics for each, _ in metrics()[name].promised(static=False)]
                on_message(MissingColumns(promised))
        return ENDED_WELL

    def _time(self, tasks: Sequence[MeasureCase], on_message: Callable[[Reply], None]) -> None:
        self.tasks.append([])
        for number, task in enumerate(tasks):
            before = [each.case for each in tasks[:number]]
            self.tasks[-1].append(task.case.module)
            self.takes(TIMES_S)
            if self.fails(task.case, before):
                on_message(Failure("crashed", "an illegal memory access", "Traceback"))
                return
            for message in _told(task.case, *self.passes(task.case, before)):
                on_message(message)
            if len(tasks) > 1:
                on_message(Measured())


def _told(case: Case, infer_ms: float, train_ms: float) -> list[Reply]:
    """Messages of a process about a case's times; a graph does not train."""
    infer = timed(infer_ms, host_ms=0.2)
    if case.execution == "graph":
        return infer
    names = {"ms": train_ms, "samples": 2, "stop": "interval", "outliers": 0, "drift": 0.0, "host_ms": 0.6}
    train = Values({f"latency_train_{name}": value for name, value in names.items()})
    return [*(each for each in infer if not isinstance(each, MissingColumns)), train]
