"""Shows the progress of a run or a gate: a live line on a terminal, plain lines elsewhere."""

import time
from typing import Self

from ctxbench.base.mode import MODES
from ctxbench.base.number import NOT_KNOWN, significant
from ctxbench.base.terminal import console, say
from ctxbench.model.case import Case
from ctxbench.model.metrics import quantities, read_number
from ctxbench.model.record import Record


class Quiet:
    """Shows nothing; the default for Python callers."""

    is_watched = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def process(self, index: int, total: int, case: Case, number: int) -> None:
        """Process `number` of a case begins, the `index`-th of `total`; number 0 measures what needs no clock."""

    def known(self, record: Record, left_s: float | None) -> None:
        """Report the record of a case so far, and about how many seconds the run goes on (None: not known)."""

    def metric(self, name: str) -> None:
        pass

    def sample(self, name: str, count: int, ms: float) -> None:
        pass

    def done(self, record: Record) -> None:
        pass

    def note(self, text: str) -> None:
        """Say what a person should know before the run goes on."""

    def stage(self, text: str) -> None:
        """A step of a gate begins, or of another command, before or between the rounds of processes."""

    def row(self, round_: int, index: int, total: int, name: str) -> None:
        """Row `index` of `total` undecided rows begins; rounds (one fresh process or a pair) count from 0."""


class Plain(Quiet):
    """One line with what is counted of a case, one when a round or a stage begins, one when a case is done."""

    is_watched = True

    def __init__(self) -> None:
        self._start = time.monotonic()
        self._counted: set[str] = set()
        self._round = 0
        self._left_s: float | None = None

    def process(self, index: int, total: int, case: Case, number: int) -> None:
        if number != self._round:
            self._round = number
            self._print(f"round {number} of fresh processes{_left(self._left_s)}")

    def known(self, record: Record, left_s: float | None) -> None:
        self._left_s = left_s
        if record.case not in self._counted:
            self._counted.add(record.case)
            cells = [f"{title} {number}".strip() for title, number in _cells(record).items()]
            self._print(f"{record.case}: {', '.join(cells)}")

    def done(self, record: Record) -> None:
        self._print(f"{record.case}: {_outcome(record)}")

    def note(self, text: str) -> None:
        self._print(f"note: {text}")

    def stage(self, text: str) -> None:
        self._print(_stage(self._start, text))

    def row(self, round_: int, index: int, total: int, name: str) -> None:
        if index == 0:
            self.stage(f"round {round_ + 1} of fresh processes, {total} rows undecided")

    def _print(self, text: str) -> None:
        say(text, stderr=True)


class Live(Quiet):
    """A table of what is known of each case, which fills as rounds finish, and a line with what is measured now.

    It is drawn only when the engine asks for it, while the measuring process waits. Rows that a low terminal has no
    room for are those known longest.
    """

    is_watched = True

    def __init__(self) -> None:
        from rich.live import Live as RichLive

        self._start = time.monotonic()
        self._console = console(stderr=True)
        self._live = RichLive(console=self._console, auto_refresh=False, transient=True)
        self._rows: dict[str, Record] = {}
        self._recent: dict[str, None] = {}
        self._doing, self._detail = "starting", ""
        self._left_s: float | None = None

    def __enter__(self) -> Self:
        self._live.start()
        self._draw()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def process(self, index: int, total: int, case: Case, number: int) -> None:
        self._doing, self._detail = f"[{index + 1}/{total}] {named(number)}: {case.id}", ""
        self._draw()

    def known(self, record: Record, left_s: float | None) -> None:
        self._left_s = left_s
        self._rows[record.case] = record
        self._recent.pop(record.case, None)
        self._recent[record.case] = None
        self._draw()

    def metric(self, name: str) -> None:
        self._detail = name
        self._draw()

    def sample(self, name: str, count: int, ms: float) -> None:
        self._detail = f"{name}: {count} samples, last {significant(ms)} ms"
        self._draw()

    def done(self, record: Record) -> None:
        if record.status != "ok":
            self.note(f"{record.case}: {_outcome(record)}")
        self.known(record, self._left_s)

    def note(self, text: str) -> None:
        self._console.print(f"note: {text}")

    def stage(self, text: str) -> None:
        self._doing, self._detail = _stage(self._start, text), ""
        self._draw()

    def row(self, round_: int, index: int, total: int, name: str) -> None:
        self.stage(f"round {round_ + 1} of fresh processes, row {index + 1} of {total} undecided: {name}")

    def _draw(self) -> None:
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        cells = {name: _cells(record) for name, record in self._rows.items()}
        columns = list(dict.fromkeys(title for row in cells.values() for title in row))
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        for title in ("", *columns):
            table.add_column(title, justify="right" if title else "left", no_wrap=True)
        room = max(self._console.height - 4, 1)
        shown = [*self._recent][-room:]
        for name in (name for name in cells if name in shown):
            table.add_row(Text(name), *(Text(cells[name].get(title, "")) for title in columns))
        now = " ".join(part for part in (self._doing, self._detail) if part) + _left(self._left_s)
        text = Text(now, no_wrap=True, overflow="ellipsis")
        self._live.update(Group(table, text) if cells else text, refresh=True)


def _stage(start: float, text: str) -> str:
    return f"{time.monotonic() - start:4.0f} s  {text}"


def _cells(record: Record) -> dict[str, str]:
    """Known values of a case, by the titles of the compared quantities; a time with its processes."""
    if record.status != "ok":
        return {"": record.status}
    found = {}
    for quantity in quantities().values():
        if (quantity.exact or quantity.has_interval) and (value := record.get(quantity.column)) is not None:
            if quantity.has_interval:
                found[quantity.title] = _time(record, quantity.key)
            elif quantity.part == "counts":
                power = next((power for power in (3, 2, 1) if value >= 1000**power), 0)
                found[quantity.title] = (
                    f"{significant(value / 1000**power)} {'KMG'[power - 1]}" if power else str(value)
                )
            else:
                found[quantity.title] = f"{significant(value / quantity.unit.factor)} {quantity.unit.symbol}"
    return found


def _time(record: Record, key: str) -> str:
    """A known time, to the digits that its interval justifies; `not known` of one that is too badly predicted."""
    found = read_number(record, quantities()[key])
    if found is None or found.unknown:
        return NOT_KNOWN
    return f"{found.texts(digits=2)[0]} ms"


def _left(seconds: float | None) -> str:
    if seconds is None:
        return ""
    return f"; about {seconds:.0f} s left" if seconds < 90 else f"; about {seconds / 60:.0f} min left"


def _outcome(record: Record) -> str:
    """The case in a few words: its latencies, or why there are none."""
    if record.status != "ok":
        return f"{record.status}: {' '.join(record.message.splitlines())}"
    parts = [
        f"{mode} {_time(record, f'latency_{mode}')}" for mode in MODES if record.get(f"latency_{mode}_ms") is not None
    ]
    count = [f"{record.processes} process{'es' * (record.processes > 1)}"] if record.processes else []
    return ", ".join([*parts, *count, f"done in {record.elapsed_s:.1f} s"])


def named(number: int) -> str:
    """A few words for process `number` of a case."""
    return f"round {number}" if number else "costs"
