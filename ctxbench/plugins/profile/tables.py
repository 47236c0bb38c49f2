"""Tables of a profile for the terminal and its page: by source line, by submodule, by operator."""

import math
from collections.abc import Iterator, Sequence

from ctxbench.base.mode import Mode
from ctxbench.base.number import Number, significant
from ctxbench.plugins.profile.profile import BYS, By, Lines, Part, Pass, Profile
from ctxbench.plugins.profile.texts import headline, roofline, sentences
from ctxbench.table.table import Cell, Origin, Table, plain_table

# Rows beyond these are summed up in one line, and names and code longer than that are cut.
LISTED, NAME_WIDTH, CODE_WIDTH = 12, 18, 16
# Columns of milliseconds, and of rates.
TIMES = ("ms", "saves", "GFLOP/s", "GB/s")
# Significant digits of the pass, which set the decimals of all its rows.
DIGITS = 5


def parts(profile: Profile, lines: Lines) -> Iterator[Table | str]:
    """All that the command prints: the time, the tables and the sentences of each pass, then the device's roof."""
    for mode, taken in profile.passes.items():
        yield headline(profile, mode)
        for by in BYS:
            yield from ("", table(profile, mode, by, lines))
        yield from ("", *(f"- {sentence}" for sentence in sentences(taken)), "")
    yield roofline(profile)


def table(profile: Profile, mode: Mode, by: By, lines: Lines, listed: int = LISTED) -> Table:
    """The table of a pass by line, submodule or operator, the longest first; its rows add up to its last lines."""
    taken = profile.passes[mode]
    columns = _columns(taken, by)
    parts = [part for part in taken.parts(by, lines) if part.ms.value or part.saved_bytes]
    if by == "submodule":
        rest = sorted(parts, key=lambda part: -part.ms.value)[listed:]  # a parent before its parts
        shown = [part for part in parts if part not in rest]
        rows = [_row(taken, by, part, _ms_of(taken, round(part.ms.value / _unit(taken)))) for part in shown]
        rows += [_filled([f"{len(rest)} others, shorter"], columns)] * bool(rest)
        return _told(taken, columns, rows)
    shown, rest = parts[:listed], parts[listed:]
    if rest:
        shown.append(taken.part(f"{len(rest)} others", [cost for part in rest for cost in part.costs]))
    counts = _adding_up(taken, [part.ms.value for part in shown])
    texts, sums = [_ms_of(taken, count) for count in counts], sum(counts)
    codes = [profile.code(part.line) if part.line else "" for part in shown]
    rows = [_row(taken, by, part, ms, code) for part, ms, code in zip(shown, texts, codes, strict=True)]
    gap = [""] * (by == "line")  # the column of the code
    rows.append(_filled(["sum of rows", *gap, _ms_of(taken, sums), "100%"], columns))
    if taken.is_measured:
        between = round(taken.between_ms.value / _unit(taken))
        rows.append(_filled(["between operators", *gap, _ms_of(taken, between)], columns))
        rows.append(_filled(["pass, profiled", *gap, _ms_of(taken, sums + between)], columns))
    return _told(taken, columns, rows)


def _told(taken: Pass, columns: dict[str, Origin], rows: Sequence[Sequence[Cell]]) -> Table:
    """A table without its times, where too little of them is known."""
    kept = [at for at, name in enumerate(columns) if taken.has_times or name not in TIMES]
    names = [*columns]
    return plain_table({names[at]: columns[names[at]] for at in kept}, [[row[at] for at in kept] for row in rows])


def _columns(taken: Pass, by: By) -> dict[str, Origin]:
    time: Origin = "measured" if taken.is_measured else "predicted"
    first: dict[str, Origin] = {by: "label", **({"code": "label"} if by == "line" else {})}
    times: dict[str, Origin] = {"ms": time, "of sum": time, "saves": time}
    if by == "operator":
        work: dict[str, Origin] = {"calls": "counted", "GFLOP/s": time, "GB/s": time, "FLOP/B": "counted"}
        return first | times | work | {"bound by": "text"}
    costs: dict[str, Origin] = {"MACs": "counted", kept_or_moved(taken): "predicted"}
    return first | times | costs | ({"bound by": "text"} if by == "line" else {"at peak": "predicted"})


def _row(taken: Pass, by: By, part: Part, ms: str, code: str = "") -> list[Cell]:
    share = f"{part.share:.1%}" if part.is_known else "?"
    times = [Cell(f"{ms}{_half(part.ms)}", part.ms.value), Cell(share, part.share), Cell(_short(part.saved_ms))]
    mark = "*" * bool(taken.on_data)
    if by == "operator":
        # what the host takes to start a call is no rate of a device that is not here
        time = part.ms if taken.is_measured or part.bound != "calls" else Number(0.0)
        rates = [_rate(part.flops, time), _rate(part.moved_bytes, time)]
        work = [f"{part.calls}{mark}" if part.calls else "", *rates, _short(part.intensity)]
        return [Cell(_cut(part.name, NAME_WIDTH)), *times, *map(Cell, work), Cell(part.bound)]
    costs = [Cell(text and f"{text}{mark}") for text in (si(part.macs), size(held(taken, part)))]
    if by == "submodule":
        return [Cell(_indented(part.name)), *times, *costs, Cell(size(part.peak_bytes))]
    return [Cell(_cut(part.name, NAME_WIDTH)), Cell(_cut_end(code)), *times, *costs, Cell(part.bound)]


def _filled(texts: Sequence[str], columns: dict[str, Origin]) -> list[Cell]:
    """A row of which only the first columns have a text."""
    return [*map(Cell, texts), *[Cell()] * (len(columns) - len(texts))]


def _adding_up(taken: Pass, values: Sequence[float]) -> list[int]:
    """Times in units of the last decimal, rounded up or down so that they add up to their rounded sum."""
    exact = [value / _unit(taken) for value in values]
    floors = [math.floor(each) for each in exact]
    nearest = sorted(range(len(exact)), key=lambda at: floors[at] - exact[at])
    ups = {*nearest[: round(math.fsum(exact)) - sum(floors)]}
    return [floor + (at in ups) for at, floor in enumerate(floors)]


def _unit(taken: Pass) -> float:
    """Milliseconds of the last decimal of all times of a pass."""
    whole = max(taken.sum_ms.value, taken.whole_ms) if taken.is_measured else taken.sum_ms.value
    return 10.0 ** min(0, math.floor(math.log10(whole)) + 1 - DIGITS) if whole > 0 else 1.0


def _ms_of(taken: Pass, count: int) -> str:
    unit = _unit(taken)
    return f"{count * unit:.{-round(math.log10(unit))}f}"


def _half(number: Number) -> str:
    """Half of what a time differs by between the passes, as a share of it."""
    if not number.has_interval or not number.value:
        return ""
    share = (number.high - number.low) / 2 / abs(number.value)
    return f" ±{share:.0%}" if share <= 1 else " ±>100%"


def _short(value: float) -> str:
    return significant(value, 2) if value else ""


def _rate(amount: float, ms: Number) -> str:
    """10^9 a second."""
    return _short(amount / ms.value / 1e6) if ms.value > 0 else ""


def kept_or_moved(taken: Pass) -> str:
    """The column of bytes: a training step keeps them for its backward pass, inference reads and writes them."""
    return "kept" if taken.mode == "train" else "moved"


def held(taken: Pass, part: Part) -> int:
    """The bytes of that column."""
    return part.saved_bytes if taken.mode == "train" else part.moved_bytes


def si(value: float) -> str:
    """`1.99G`; empty for 0."""
    return _in_units(value, 1000, ("", "k", "M", "G", "T"))


def size(value: float) -> str:
    """`4.00 MiB`; empty for 0."""
    return _in_units(value, 1024, (" B", " KiB", " MiB", " GiB"))


def _in_units(value: float, factor: int, units: Sequence[str]) -> str:
    if not value:
        return ""
    power = min(int(math.log(value, factor)), len(units) - 1)
    return f"{significant(value / factor**power) if power else round(value)}{units[power]}"


def _indented(path: str) -> str:
    """A submodule's own name below that of its parent."""
    depth = path.count(".") + 1 if path else 0
    return f"{'  ' * depth}{path.rpartition('.')[2] or '(module)'}"


def _cut(text: str, width: int) -> str:
    """The end of a text that is too long: a line's number, an operator's kind."""
    return text if len(text) <= width else f"…{text[1 - width :]}"


def _cut_end(text: str) -> str:
    return text if len(text) <= CODE_WIDTH else f"{text[: CODE_WIDTH - 1]}…"
