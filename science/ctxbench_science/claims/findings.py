"""Findings of a run on a suite's claims: each has one of four verdicts, its criterion, and the numbers found.

The `CLAIMS` of a file NAME.py are those of the suite NAME: in `of_ctxbench` for the suites of ctxbench itself, else
beside the suite's file. Where a run lacks something, its claim is undecided, with the reason.
"""

import json
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple

from ctxbench.base import disk
from ctxbench.base.number import Number, rough_ratio
from ctxbench.model.metric import RecordRow
from ctxbench.model.metrics import quantity, read_number
from ctxbench.model.read_suite import package_of

if TYPE_CHECKING:
    import pandas as pd

# Where the claims of the suites of ctxbench itself are.
OF_CTXBENCH = f"{__package__}.of_ctxbench"
# The error of an execution is rounding up to this many times the eager one's, or below RELATIVE: its sums are in
# another order.
ROUNDING = 10
RELATIVE = 1e-3
KEPT = f"its relative error against float64 is at most {ROUNDING} times the eager one's, or below {RELATIVE:g}"


class ClaimVerdict(StrEnum):
    SUPPORTED = "supported"
    NOT_SUPPORTED = "not supported"
    UNDECIDED = "undecided"
    MEASURED = "measured (no claim)"


class Finding(NamedTuple):
    """A verdict, and the numbers or the reason behind it."""

    verdict: ClaimVerdict
    text: str


class Missing(Exception):
    """Missing data for a claim, as a phrase."""


# Whether a claim holds (None: undecided) for one thing, such as a module, and the number behind it.
Outcome = tuple[bool | None, str]


@dataclass(frozen=True)
class Claim:
    """A claim and how a run decides it. `decide` may raise Missing.

    `proxy`: the claim is about a trained network's accuracy, the criterion about a reconstruction.
    """

    text: str
    criterion: str
    decide: Callable[["Rows"], Finding]
    proxy: bool = False

    def judge(self, rows: "Rows") -> Finding:
        """The finding; undecided where the rows do not suffice."""
        try:
            return self.decide(rows)
        except Missing as reason:
            return Finding(ClaimVerdict.UNDECIDED, str(reason))


class Rows:
    """Rows of a run. Columns and hyper-parameters are asked for by name: `number("macs", module="ham_cd", steps=6)`.

    A row has its hyper-parameters as `hparams.NAME`, too.
    """

    def __init__(self, rows: Sequence[RecordRow]) -> None:
        self.rows = rows
        self._by: dict[str, dict[Any, list[RecordRow]]] = {}

    @classmethod
    def of_run(cls, rows: Sequence[RecordRow]) -> "Rows":
        """All rows of a run, with the columns of `records.csv`."""
        return cls([{**row, **_settings(row["hparams"])} for row in rows])

    def of(self, **wanted: Any) -> "Rows":
        """The rows with these values. Missing if there is none."""
        found = self.rows
        for name, value in wanted.items():
            found = self._with(name, value) if found is self.rows else [r for r in found if _value(r, name) == value]
        if not found:
            raise Missing(f"no row with {_listed(wanted)}")
        return Rows(found)

    def _with(self, name: str, value: Any) -> list[RecordRow]:
        """The rows with this value, which are searched once for each name: some claims ask a thousand times."""
        if name not in self._by:
            found = self._by[name] = {}
            for row in self.rows:
                found.setdefault(_value(row, name), []).append(row)
        return self._by[name].get(value, [])

    def split(self, name: str) -> dict[Any, "Rows"]:
        """The rows by the known values of a column or hyper-parameter, in order."""
        found: dict[Any, list[RecordRow]] = {}
        for row in self.rows:
            if (value := _value(row, name)) is not None:
                found.setdefault(value, []).append(row)
        return {value: Rows(found[value]) for value in sorted(found, key=lambda each: (isinstance(each, str), each))}

    def modules(self) -> list[str]:
        return list(self.split("module"))

    def failed(self) -> list[RecordRow]:
        """The rows that failed, but for those stopped at a time limit, which other work can cause.

        Missing if only such rows did not end ok.
        """
        stopped = [row for row in self.rows if row["status"] == "timeout"]
        failed = [row for row in self.rows if row["status"] not in ("ok", "timeout")]
        if stopped and not failed:
            raise Missing(f"a row of {stopped[0]['module']} ended with timeout")
        return failed

    def extreme(self, name: str, largest: bool = True) -> "Rows":
        """The rows with the largest or the smallest value of a column or hyper-parameter."""
        parts = list(self.split(name).values())
        if not parts:
            raise Missing(f"no row with {name}")
        return parts[-1 if largest else 0]

    def number(self, column: str, **wanted: Any) -> float:
        """A number of the one row with these values. Missing if there is no such row, or it failed or lacks it."""
        return float(self.row(column, **wanted)[column])

    def row(self, column: str, **wanted: Any) -> RecordRow:
        """The one row with these values, which ended ok and has this column. Missing otherwise."""
        found = self.of(**wanted).rows
        which = f" with {_listed(wanted)}" if wanted else ""
        if len(found) > 1:
            raise Missing(f"{len(found)} rows{which}, where a verdict is about one")
        (row,) = found
        if row["status"] != "ok":
            raise Missing(f"the row{which} ended with {row['status']}")
        if row[column] is None:
            raise Missing(f"no {column}{which}")
        return row

    def time(self, mode: str, **wanted: Any) -> Number:
        """A latency with its interval over processes. Missing if it has none, or other work disturbed it."""
        time = quantity(f"latency_{mode}")
        value = read_number(self.row(time.column, **wanted), time)
        if value is None or value.reason_not_comparable:
            raise Missing(value.reason_not_comparable if value else f"no {time.column}")
        if value.origin != "measured":
            raise Missing(f"{time.column} is {value.origin}, not measured")
        return value

    def column(self, name: str) -> "pd.Series[float]":
        """A column or hyper-parameter of all rows. Missing if a row failed or lacks it."""
        import pandas as pd  # slow to import, and few claims need it

        for row in self.rows:
            if row["status"] != "ok":
                raise Missing(f"a row of {row['module']} ended with {row['status']}")
            if _value(row, name) is None:
                raise Missing(f"a row of {row['module']} has no {name}")
        return pd.Series([_value(row, name) for row in self.rows], dtype="float64")

    def numbers(self, column: str, over: str, least: int = 2) -> "pd.Series[float]":
        """A column over another or a hyper-parameter, in order: one row for each of `least` or more values."""
        return self._over(over, least, lambda rows: rows.number(column))

    def times(self, mode: str, over: str, least: int = 3) -> "pd.Series[float]":
        """The latencies in ms over another column or a hyper-parameter; see `time`."""
        return self._over(over, least, lambda rows: rows.time(mode).value)

    def _over(self, name: str, least: int, read: Callable[["Rows"], float]) -> "pd.Series[float]":
        import pandas as pd  # as above

        parts = self.split(name)
        if len(parts) < least:
            raise Missing(f"fewer than {least} values of {name}")
        return pd.Series({value: read(rows) for value, rows in parts.items()}, dtype="float64")


def measured(text: str) -> Finding:
    return Finding(ClaimVerdict.MEASURED, text)


def decided(holds: bool | None, text: str) -> Finding:
    """Supported, not supported or, for None, undecided."""
    words = {True: ClaimVerdict.SUPPORTED, False: ClaimVerdict.NOT_SUPPORTED, None: ClaimVerdict.UNDECIDED}
    return Finding(words[holds], text)


def for_each(names: Iterable[str], judge: Callable[[str], Outcome]) -> Finding:
    """A claim about each of a few things, with the numbers of all; `judge` may raise Missing."""
    outcomes = _outcomes(names, judge)
    text = "; ".join(f"{name}: {text}" for name, (_, text) in outcomes.items())
    holding = [name for name, (holds, _) in outcomes.items() if holds]
    if holding and len(holding) < len(outcomes):
        only = "" if None in dict(outcomes.values()) else " only"
        text += f". Holds for {', '.join(holding)}{only}"
    return decided(_all(outcomes), text)


def each_of(names: Iterable[str]) -> Callable[[Callable[[Rows, str], Outcome]], Callable[[Rows], Finding]]:
    """Decorator of an outcome for one thing: a finding on a claim about each of these; see `for_each`."""
    return lambda judge: lambda rows: for_each(names, partial(judge, rows))


def tally(
    names: Iterable[str], judge: Callable[[str], Outcome], words: tuple[str, str] = ("holds", "does not hold")
) -> Finding:
    """A claim about each of many things: how many it holds for, how many not, and how many are undecided.

    Those with a text are named, the undecided ones by reason. `judge` may raise Missing.
    """
    outcomes = _outcomes(names, judge)
    texts = []
    for holds, word in zip((True, False, None), (*words, "undecided"), strict=True):
        members = {name: text for name, (outcome, text) in outcomes.items() if outcome is holds}
        if members or holds:
            named = _by_reason(members, len(outcomes)) if holds is None else _named(members)
            texts.append(f"{word}: {len(members)} of {len(outcomes)}" + (f" ({named})" if named else ""))
    return decided(_all(outcomes), "; ".join(texts))


def faster(first: Number, second: Number) -> Outcome:
    """Outcome if the first time is shorter than the second, by intervals that do not overlap; with the ratio."""
    if first.high < second.low or second.high < first.low:
        return first.high < second.low, rough_ratio(second.value / first.value).text()
    return None, "the intervals overlap"


def keeps(rows: Rows, mode: str, execution: str, **wanted: Any) -> Outcome:
    """Outcome of an execution that adds no more error than another order of sums does."""
    eager, other = (rows.number(f"error_{mode}", **wanted, execution=each) for each in ("eager", execution))
    kept = other <= max(ROUNDING * eager, RELATIVE)
    return kept, "" if kept else f"{other:.1e} against {eager:.1e}"


def claims_of(suite: str, title: str) -> Sequence[Claim]:
    """The claims of an installed suite; none of one without claims, or of a user's own, which has another title."""
    name, package = suite.replace("-", "_"), package_of(suite)
    if not package or not name.isidentifier():
        return ()
    places = [each for each in (package, OF_CTXBENCH) if find_spec(f"{each}.{name}")]
    if not places or tomllib.loads(disk.package_text(package, f"{suite}.toml"))["title"] != title:
        return ()
    claims: Sequence[Claim] = import_module(f"{places[0]}.{name}").CLAIMS
    return claims


def _outcomes(names: Iterable[str], judge: Callable[[str], Outcome]) -> dict[str, Outcome]:
    found: dict[str, Outcome] = {}
    for name in names:
        try:
            holds, text = judge(name)
            found[name] = None if holds is None else bool(holds), text
        except Missing as reason:
            found[name] = None, str(reason)
    if not found:
        raise Missing("no row of this run is about it")
    return found


def _named(texts: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {text}" for name, text in texts.items() if text)


def _by_reason(reasons: Mapping[str, str], total: int) -> str:
    """Names with the same reason together; without names if it is the reason of all."""
    groups: dict[str, list[str]] = {}
    for name, reason in reasons.items():
        groups.setdefault(reason, []).append(name)
    texts = [
        f"{members[0]} {reason}" if len(members) == 1 < total
        else reason if len(members) == total
        else f"{reason}: {', '.join(members)}"
        for reason, members in groups.items()
    ]  # fmt: skip
    return "; ".join(texts)


def _all(outcomes: Mapping[Any, Outcome]) -> bool | None:
    """False if one fails, else None if one is undecided, else True."""
    holds = [outcome for outcome, _ in outcomes.values()]
    return False if False in holds else None if None in holds else True


def _value(row: RecordRow, name: str) -> Any:
    found = row.get(name)
    return row.get(f"hparams.{name}") if found is None else found


def _settings(text: Any) -> dict[str, Any]:
    """The hyper-parameters of a cell that are one value; none if it holds something else."""
    try:
        found = json.loads(text)
    except (json.JSONDecodeError, TypeError):
        return {}
    named = found.items() if isinstance(found, dict) else ()
    return {f"hparams.{name}": value for name, value in named if not isinstance(value, (list, dict))}


def _listed(wanted: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in wanted.items())
