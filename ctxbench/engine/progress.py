"""Shows the progress of a run or a gate: a live line on a terminal, plain lines elsewhere."""

import time
from types import TracebackType
from typing import TYPE_CHECKING, Self

from ctxbench.mode import MODES
from ctxbench.results.record import Record
from ctxbench.suite.case import Case
from ctxbench.terminal import console, say

if TYPE_CHECKING:
    from rich.progress import TaskID


class _Context:
    """A context manager that does nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass


class Quiet(_Context):
    """Shows nothing; the default for Python callers."""

    def process(self, index: int, total: int, case: Case, number: int, slot: str = "") -> None:
        """Process `number` of a case begins, the `index`-th of `total`; number 0 measures what needs no clock.

        `slot` is where on a cluster.
        """

    def metric(self, name: str) -> None:
        pass

    def sample(self, name: str, count: int, ms: float) -> None:
        pass

    def done(self, record: Record) -> None:
        pass

    def note(self, text: str) -> None:
        """Say what a person should know before the run goes on."""


class Plain(Quiet):
    """One line when a process begins, one when a case is done."""

    def process(self, index: int, total: int, case: Case, number: int, slot: str = "") -> None:
        where = f"{slot}: " * bool(slot)
        say(f"[{index + 1}/{total}] {where}{_round(number)}: {case.id}", stderr=True)

    def done(self, record: Record) -> None:
        say(f"{record.case}: {_outcome(record)}", stderr=True)

    def note(self, text: str) -> None:
        say(f"note: {text}", stderr=True)


class Live(Quiet):
    """A bar with the case, the metric, the samples so far and the processes left; finished cases are listed above it.

    It is drawn only when the engine asks for it, while the measuring process waits.
    """

    def __init__(self) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TextColumn("{task.fields[detail]}", markup=False),
            console=console(stderr=True),
            auto_refresh=False,
            transient=True,
        )
        self._task = self._progress.add_task("starting", total=None, detail="")
        self._slots: dict[str, TaskID] = {}
        self._start = time.monotonic()

    def __enter__(self) -> Self:
        self._progress.start()
        self._progress.refresh()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def process(self, index: int, total: int, case: Case, number: int, slot: str = "") -> None:
        if slot:
            known = slot in self._slots
            if not known:
                self._slots[slot] = self._progress.add_task(slot, total=total, detail="")
            detail = f"{_round(number)}: {case.id}"
            self._progress.update(self._slots[slot], total=total, advance=int(known), detail=detail)
            self._update(description=f"slots: {len(self._slots)}", total=total, completed=index)
            return
        self._update(description=f"{_round(number)}: {case.id}", total=total, completed=index, detail="")

    def metric(self, name: str) -> None:
        self._update(detail=name)

    def sample(self, name: str, count: int, ms: float) -> None:
        self._update(detail=f"{name}: {count} samples, last {ms:.3g} ms")

    def done(self, record: Record) -> None:
        from rich.text import Text

        style = "green" if record.status == "ok" else "bold red"
        self._progress.console.print(
            Text.assemble((f"{record.status:>7}", style), f" {record.case}  {_outcome(record)}")
        )

    def note(self, text: str) -> None:
        self._progress.console.print(f"note: {text}")

    def _update(self, **changes: object) -> None:
        self._progress.update(self._task, **changes)  # type: ignore[arg-type]  # fields are passed through
        self._progress.refresh()


class QuietGate(_Context):
    """Shows nothing of a gate's progress."""

    def stage(self, text: str) -> None:
        """A step before or between the rounds of processes begins."""

    def row(self, round_: int, index: int, total: int, name: str) -> None:
        """Row `index` of `total` undecided rows begins; rounds (one fresh process or a pair) count from 0."""


class PlainGate(QuietGate):
    """A line for each stage and each round."""

    def __enter__(self) -> Self:
        self._start = time.monotonic()
        return self

    def stage(self, text: str) -> None:
        say(f"{time.monotonic() - self._start:4.0f} s  {text}", stderr=True)

    def row(self, round_: int, index: int, total: int, name: str) -> None:
        if index == 0:
            self.stage(f"round {round_ + 1} of fresh processes, {total} rows undecided")


class LiveGate(QuietGate):
    """One line with the round and the row, drawn only while no process measures: rich's own thread stays off."""

    def __init__(self) -> None:
        from rich.live import Live as RichLive

        self._live = RichLive(console=console(stderr=True), auto_refresh=False, transient=True)

    def __enter__(self) -> Self:
        self._start = time.monotonic()
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def stage(self, text: str) -> None:
        from rich.text import Text

        line = Text(f"{time.monotonic() - self._start:4.0f} s  {text}", no_wrap=True, overflow="ellipsis")
        self._live.update(line, refresh=True)

    def row(self, round_: int, index: int, total: int, name: str) -> None:
        self.stage(f"round {round_ + 1} of fresh processes, row {index + 1} of {total} undecided: {name}")


def _outcome(record: Record) -> str:
    """The case in a few words: its latencies, or why there are none."""
    if record.status != "ok":
        return f"{record.status}: {' '.join(record.message.splitlines())}"
    parts = [f"{mode} {ms:.4g} ms" for mode in MODES if (ms := record.get(f"latency_{mode}_ms")) is not None]
    count = [f"{record.processes} process{'es' * (record.processes > 1)}"] if record.processes else []
    return ", ".join([*parts, *count, f"done in {record.elapsed_s:.1f} s"])


def _round(number: int) -> str:
    return f"round {number}" if number else "costs"
