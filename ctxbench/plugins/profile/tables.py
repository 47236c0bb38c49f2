"""Tables of a profile for the terminal and its page: by source line, by submodule, by operator."""

import math
from collections.abc import Sequence

from ctxbench.base.mode import Mode
from ctxbench.base.number import Number, significant
from ctxbench.plugins.profile.profile import By, Lines, Part, Pass, Profile
from ctxbench.table.table import Cell, Origin, Table, plain_table

# Rows beyond these are summed up in one line, and names and code longer than that are cut.
LISTED, NAME_WIDTH, CODE_WIDTH = 12, 18, 16
HEADINGS: dict[By, str] = {"line": "line", "submodule": "submodule", "operator": "operator"}


def table(profile: Profile, mode: Mode, by: By, lines: Lines, listed: int = LISTED) -> Table:
    """The table of a pass by line, submodule or operator, what would be saved at most first."""
    taken = profile.passes[mode]
    parts = [part for part in taken.parts(by, lines) if part.ms.value or part.saved_bytes]
    first = parts if by != "submodule" else sorted(parts, key=lambda part: -part.ms.value)  # a parent before its parts
    rest = first[listed:]
    shown = [part for part in parts if part not in rest]
    rows = [_row(taken, by, part, profile.code(part.line) if part.line else "") for part in shown]
    if rest and by != "submodule":
        others = taken.part(f"{len(rest)} others", [cost for part in rest for cost in part.costs])
        rows.append(_row(taken, by, others, ""))
    elif rest:
        rows.append([Cell(f"{len(rest)} others, shorter"), *[Cell()] * (len(_columns(taken, by)) - 1)])
    if taken.is_measured and by == "line":
        rows.append(_between(taken, len(_columns(taken, by))))
    return plain_table(_columns(taken, by), rows)


def _columns(taken: Pass, by: By) -> dict[str, Origin]:
    time: Origin = "measured" if taken.is_measured else "predicted"
    first: dict[str, Origin] = {HEADINGS[by]: "label", **({"code": "label"} if by == "line" else {})}
    times: dict[str, Origin] = {"ms": time, "of pass": time, "saves": time}
    if by == "operator":
        work: dict[str, Origin] = {"calls": "counted", "GFLOP/s": time, "GB/s": time, "FLOP/B": "counted"}
        return first | times | work | {"bound by": "text"}
    costs: dict[str, Origin] = {"MACs": "counted", kept_or_moved(taken): "predicted"}
    return first | times | costs | ({"bound by": "text"} if by == "line" else {"at peak": "predicted"})


def _row(taken: Pass, by: By, part: Part, code: str) -> list[Cell]:
    share = "~0 %" if part.ms.ends[1] < taken.noise_ms else f"{part.share.value:.1%}"
    times = [Cell(_ms(part.ms), part.ms.value), Cell(share, part.share.value), Cell(_short(part.saved_ms))]
    if by == "operator":
        # what the host takes to start a call is no rate of a device that is not here
        ms = part.ms if taken.is_measured or part.bound != "calls" else Number(0.0)
        rates = [_rate(part.flops, ms), _rate(part.moved_bytes, ms)]
        work = [str(part.calls or ""), *rates, _short(part.intensity)]
        return [Cell(_cut(part.name, NAME_WIDTH)), *times, *map(Cell, work), Cell(part.bound)]
    held = part.saved_bytes if taken.mode == "train" else part.moved_bytes
    costs = [Cell(si(part.macs)), Cell(size(held))]
    if by == "submodule":
        return [Cell(_indented(part.name)), *times, *costs, Cell(size(part.peak_bytes))]
    return [Cell(_cut(part.name, NAME_WIDTH)), Cell(_cut_end(code)), *times, *costs, Cell(part.bound)]


def _between(taken: Pass, columns: int) -> list[Cell]:
    """Time outside operators: of a GPU its gaps, elsewhere Python and PyTorch's calls."""
    apart = taken.between_ms
    share = apart.value / taken.time.value
    text = "~0 %" if not apart.has_interval or apart.low <= 0 else f"{share:.1%}"
    cells = [Cell("(between operators)"), Cell(), Cell(_ms(apart)), Cell(text)]
    return [*cells, *[Cell()] * (columns - len(cells))]


def _ms(number: Number) -> str:
    """A time, and half of its interval as a share of it."""
    if not math.isfinite(number.value) or not number.value:
        return ""
    share = (number.high - number.low) / 2 / abs(number.value)
    half = f" ±{share:.0%}" if share <= 1 else " ±>100%"
    return f"{significant(number.value)}{half if number.has_interval else ''}"


def _short(value: float) -> str:
    return significant(value, 2) if value else ""


def _rate(amount: float, ms: Number) -> str:
    """10^9 a second."""
    return _short(amount / ms.value / 1e6) if ms.value > 0 else ""


def kept_or_moved(taken: Pass) -> str:
    """The column of bytes: a training step keeps them for its backward pass, inference reads and writes them."""
    return "kept" if taken.mode == "train" else "moved"


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
