"""Stand-ins: an executor that answers as a test says, the engine's clock."""

import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

from ctxbench.base.clocks import Machine
from ctxbench.engine.exit import Exit
from ctxbench.model.case import Case
from ctxbench.model.messages import MissingColumns, Samples, Values
from ctxbench.model.messages import Sample as Block
from ctxbench.worker.protocol import MeasureCase, Reply, Task

ENDED_WELL = Exit(0, 0, False, "")
# Seconds. Only what hangs takes so long.
LONGEST_S = 600


def cases(count: int) -> list[Case]:
    return [Case("sa", "ctxbench.modules.sa:X", {}, (1, 8, 4, width + 1)) for width in range(count)]


def wait_until(true: Callable[[], bool]) -> None:
    """Until it is true; only what hangs takes ten minutes."""
    deadline = time.monotonic() + LONGEST_S
    while not true():
        assert time.monotonic() < deadline, "gave up after ten minutes"
        time.sleep(0.02)


def counted() -> list[Reply]:
    """Report of process 0 of a case."""
    return [Values({"params": 7})]


def timed(ms: float, control_ms: float = 2.0, others_share: float = 0.0, **more: Any) -> list[Reply]:
    """Report of a process of a round whose every inference takes `ms`."""
    values = {"ms": ms, "samples": 2, "stop": "interval", "outliers": 0, "drift": 0.0, **more}
    return [
        Samples("infer", [Block(0.1, 4, ms), Block(0.2, 4, ms)]),
        Values({f"latency_infer_{name}": value for name, value in values.items()}),
        MissingColumns(["latency_train_ms"]),
        Values({"control_ms": control_ms, "others_share": others_share}),
    ]


class FakeExecutor:
    """Performs tasks, and starts the interpreters of rounds: `measure` says what the child of a case reports.

    Other tasks, such as the rate of a large matrix product, end well; `ended` is how every child ends.
    """

    def __init__(self, measure: Callable[[MeasureCase], Sequence[Reply]], ended: Exit = ENDED_WELL) -> None:
        self.measure, self.ended = measure, ended
        self.launched = 0
        self.timeouts: list[float | None] = []

    def launch(self) -> "nullcontext[FakeExecutor]":
        self.launched += 1
        return nullcontext(self)

    def run(self, task: Task, on_message: Callable[[Reply], None], timeout_s: float | None = None) -> Exit:
        self.timeouts.append(timeout_s)
        for message in self.measure(task) if isinstance(task, MeasureCase) else [Values({"matmul_macs_per_s": 5.0})]:
            on_message(message)
        return self.ended


class EngineClock(Machine):
    """A machine whose wall time stands still but for 1,000 s, which pass when a child sends a message of `at`.

    So a time limit below 1,000 s is reached at a point of the child's work, however slow the machine is.
    """

    def __init__(self, *at: Reply) -> None:
        self.at, self.seconds = at, 0.0

    def wall_s(self) -> float:
        return self.seconds

    def __call__(self, message: Reply) -> None:
        if message in self.at:
            self.seconds += 1000
