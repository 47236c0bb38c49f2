"""Slots of a sweep that follow a script."""

import threading
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import nullcontext
from typing import Any

from fakes import LONGEST_S, FakeExecutor, counted, timed

from ctxbench.model.case import Case
from ctxbench.model.messages import Failure
from ctxbench.worker.protocol import MeasureCase, Reply
from ctxbench_science.cluster.sweep import SlotLost


class ScriptedSlot:
    """A slot whose every pass takes 1 ms; `dies(case, number)` says at which process it is lost.

    A case whose width is in `fails` has no number. `seconds(case, number)` is how long a process is to take.
    """

    def __init__(
        self,
        name: str,
        dies: Callable[[Case, int], bool] = lambda case, number: False,
        then: "ScriptedSlot | None" = None,
        begin: threading.Barrier | None = None,
        fails: Collection[int] = (),
        seconds: Callable[[Case, int], float] | None = None,
    ) -> None:
        self.name, self.dies, self.then, self.begin, self.fails = name, dies, then, begin, fails
        self.seconds = seconds
        self.environment: dict[str, Any] = {}
        self.launched = 0
        self.measured: list[tuple[str, int]] = []

    @property
    def executor(self) -> FakeExecutor:
        self.launched = 0  # the next cases' rounds begin anew
        return FakeExecutor(self._measure)

    def launch(self) -> "nullcontext[FakeExecutor]":
        self.launched += 1
        return nullcontext(FakeExecutor(self._measure))

    def replacement(self) -> "ScriptedSlot | None":
        return self.then

    def _measure(self, task: MeasureCase) -> Sequence[Reply]:
        if self.begin:
            self.begin.wait(LONGEST_S)
            self.begin = None
        if self.dies(task.case, self.launched):
            raise SlotLost(f"{self.name} is gone")
        self.measured.append((task.case.id, self.launched))
        if self.seconds:
            time.sleep(self.seconds(task.case, self.launched))
        if self.launched:
            return timed(1.0)
        return [Failure("nan", "no number", "Traceback")] if task.case.shape[3] in self.fails else counted()
