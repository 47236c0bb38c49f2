"""What a person sees while a run goes on: a live line on a terminal, plain lines elsewhere."""

import sys
import time
from types import TracebackType
from typing import Self

from ctxbench.results import Record
from ctxbench.suite import Case


class Quiet:
    """Shows nothing; what Python callers get unless they ask."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def case(self, index: int, total: int, case: Case) -> None:
        pass

    def metric(self, name: str) -> None:
        pass

    def sample(self, name: str, count: int, ms: float) -> None:
        pass

    def done(self, record: Record) -> None:
        pass


class Plain(Quiet):
    """One line when a case begins, one for each metric, one when it is done."""

    def case(self, index: int, total: int, case: Case) -> None:
        self._prefix = f"[{index + 1}/{total}] {case.id}"
        print(f"{self._prefix}: started, {total - index - 1} cases left after it", file=sys.stderr, flush=True)

    def metric(self, name: str) -> None:
        print(f"{self._prefix}: {name}", file=sys.stderr, flush=True)

    def done(self, record: Record) -> None:
        print(f"{self._prefix}: {_outcome(record)}", file=sys.stderr, flush=True)


class Live(Quiet):
    """A bar that names the case, the metric, the samples so far and the cases left; finished cases stay above it.

    Drawn only when the engine says so: the child waits meanwhile.
    """

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TextColumn("{task.fields[detail]}"),
            console=Console(stderr=True),
            auto_refresh=False,
            transient=True,
        )
        self._task = self._progress.add_task("starting", total=None, detail="")
        self._start = time.monotonic()

    def __enter__(self) -> Self:
        self._progress.start()
        self._progress.refresh()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def case(self, index: int, total: int, case: Case) -> None:
        self._update(description=case.id, total=total, completed=index, detail="")

    def metric(self, name: str) -> None:
        self._update(detail=name)

    def sample(self, name: str, count: int, ms: float) -> None:
        self._update(detail=f"{name}: {count} samples, last {ms:.3g} ms")

    def done(self, record: Record) -> None:
        from rich.markup import escape

        style = "green" if record.status == "ok" else "bold red"
        self._progress.console.print(
            f"[{style}]{record.status:>7}[/] {escape(record.case)}  {escape(_outcome(record))}"
        )

    def _update(self, **changes: object) -> None:
        self._progress.update(self._task, **changes)  # type: ignore[arg-type]  # fields are passed through
        self._progress.refresh()


def _outcome(record: Record) -> str:
    """The case in a few words: its latencies, or why there are none."""
    if record.status != "ok":
        return f"{record.status}: {record.message}"
    parts = [
        f"{mode} {ms:.4g} ms ({samples} samples, {stop})"
        for mode, ms, samples, stop in (
            ("infer", record.latency_infer_ms, record.latency_infer_samples, record.latency_infer_stop),
            ("train", record.latency_train_ms, record.latency_train_samples, record.latency_train_stop),
        )
        if ms is not None
    ]
    return ", ".join([*parts, f"done in {record.elapsed_s:.1f} s"])
