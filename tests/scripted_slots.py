"""Slots of a sweep that follow a script, and cases for them."""

import threading
import time
from collections.abc import Callable, Collection
from contextlib import nullcontext
from typing import Any

from ctxbench.engine.client import Exit
from ctxbench.engine.sweep import SlotLost
from ctxbench.messages import Failure, Missing, Samples, Values
from ctxbench.messages import Sample as Block
from ctxbench.suite.case import Case
from ctxbench.worker.protocol import MeasureCase, Reply, Task


def cases(count: int) -> list[Case]:
    return [Case("sa", "ctxbench.modules.sa:X", {}, (1, 8, 4, width + 1)) for width in range(count)]


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
    def executor(self) -> "_Scripted":
        self.launched = 0  # the next cases' rounds begin anew
        return _Scripted(self, 0)

    def launch(self) -> "nullcontext[_Scripted]":
        self.launched += 1
        return nullcontext(_Scripted(self, self.launched))

    def replacement(self) -> "ScriptedSlot | None":
        return self.then


class _Scripted:
    def __init__(self, slot: ScriptedSlot, number: int) -> None:
        self.slot, self.number = slot, number

    def run(self, task: Task, on_message: Callable[[Reply], None], timeout_s: float | None = None) -> Exit:
        if not isinstance(task, MeasureCase):
            on_message(Values({"matmul_macs_per_s": 5.0}))
            return Exit(0, 0, False, "")
        if self.slot.begin:
            self.slot.begin.wait(20)
            self.slot.begin = None
        if self.slot.dies(task.case, self.number):
            raise SlotLost(f"{self.slot.name} is gone")
        self.slot.measured.append((task.case.id, self.number))
        if self.slot.seconds:
            time.sleep(self.slot.seconds(task.case, self.number))
        if self.number:
            values = {"ms": 1.0, "samples": 2, "stop": "interval", "outliers": 0, "drift": 0.0}
            on_message(Samples("infer", [Block(0.1, 4, 1.0), Block(0.2, 4, 1.0)]))
            on_message(Values({f"latency_infer_{name}": value for name, value in values.items()}))
            on_message(Missing(["latency_train_ms"]))
            on_message(Values({"control_ms": 2.0, "others_share": 0.0}))
        elif task.case.shape[3] in self.slot.fails:
            on_message(Failure("nan", "no number", "Traceback"))
        else:
            on_message(Values({"params": 7}))
        return Exit(0, 0, False, "")
