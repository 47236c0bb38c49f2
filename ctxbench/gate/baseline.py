"""Stored baselines: a run or a JSON of pytest-benchmark, read, compared exactly, and judged against new processes."""

import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from scipy import special

from ctxbench.csv_file import read_table
from ctxbench.environment import differences
from ctxbench.errors import UsageError
from ctxbench.gate.finding import ExactChange
from ctxbench.gate.rules import GateRule, Reading, RowVerdict, Status, Verdict
from ctxbench.results import COLUMNS, MODES, STATUSES, RunFolder
from ctxbench.statistics import holm, median_interval
from ctxbench.suite import Case, parse_shape

MEMORY = tuple(f"memory_{mode}_predicted_bytes" for mode in MODES)
EXACT = ("params", "macs", *MEMORY)
CASE_COLUMNS = ("module", "reference", "hparams", "dtype", "memory_format", "execution", "device", "threads")
SIZE_COLUMNS = ("batch", "channels", "height", "width")
# A record's control interval is of 95 %.
CONTROL_CONFIDENCE = 0.95
# What the control workload's change may differ from a row's when the whole machine changes, as a share of the change:
# on a machine whose control moved by 28 % (standard deviation), half of 22 rows kept to 0.14 of it and most to 0.25.
CONTROL_SHARE = 0.25


@dataclass(frozen=True)
class Level:
    """What one process says of a row: log of its latency in units of the control workload, log of the control's ms.

    `error` is the standard error of `row` inside that process.
    """

    row: float
    control: float
    error: float = 0.0

    def __post_init__(self) -> None:
        if not all(map(math.isfinite, (self.row, self.control, self.error))):
            raise ValueError(f"A level must be finite, not {self}.")


@dataclass(frozen=True)
class ProcessFailure:
    """Why a row could not be measured in a process, or is missing there."""

    message: str


ProcessResult = Level | ProcessFailure
MeasureProcess = Callable[[Sequence[str]], Mapping[str, ProcessResult]]


@dataclass(frozen=True)
class StoredRow:
    """A row of the baseline: its level, or why there is none; `worked`: a pass of it was timed then."""

    level: Level | None
    reason: str
    worked: bool


@dataclass(frozen=True)
class StoredCase:
    """A case of the baseline. `exact` holds the known ones of EXACT, `rows` a row for each mode."""

    case: Case
    status: str
    exact: Mapping[str, int]
    macs_counter: str | None
    memory_predicted_for: str | None
    rows: Mapping[str, StoredRow]


@dataclass(frozen=True)
class Baseline:
    """What was measured earlier. `name` is for a person, `environment` as in `run.json` (None: not known)."""

    name: str
    environment: Mapping[str, Any] | None
    cases: Mapping[str, StoredCase]

    @property
    def torch(self) -> str | None:
        return None if self.environment is None else self.environment["packages"]["torch"]

    def row(self, case: str, mode: str) -> StoredRow:
        """The row of a case's id and a mode."""
        absent = StoredRow(None, "It is not in the baseline.", False)
        return self.cases[case].rows.get(mode, absent) if case in self.cases else absent


@dataclass(frozen=True)
class Comparison:
    """The exact quantities that differ, how many were compared, and a sentence for those that were not."""

    changes: tuple[ExactChange, ...]
    compared: int
    notes: tuple[str, ...]


def load_baseline(path: Path) -> Baseline:
    """The baseline in a run folder, a `records.csv` or a JSON of pytest-benchmark. UsageError for anything else."""
    if path.is_dir():
        return _from_records(path / "records.csv", path)
    if not path.is_file():
        raise UsageError(f"there is no {path}; --baseline takes a run folder, a records.csv or pytest-benchmark's JSON")
    if path.suffix == ".csv":
        return _from_records(path, path)
    if path.suffix == ".json":
        return _from_pytest_benchmark(path)
    raise UsageError(f"{path} is no run folder, no records.csv and no JSON of pytest-benchmark")


def compare_exact(baseline: Baseline, case: str, candidate: Mapping[str, Any], torch: str | None) -> Comparison:
    """Compare a case of the baseline with a candidate's values, which are columns of a record, under this `torch`.

    What the baseline does not know is not compared. MACs need the same counter; predicted memory needs the same target
    and the same minor version of torch, whose kernels it is about.
    """
    stored = baseline.cases[case]
    known = [name for name in EXACT if name in stored.exact]
    notes = []
    if "macs" in known and stored.macs_counter != candidate.get("macs_counter"):
        known.remove("macs")
        notes.append(f"MACs are not compared: the baseline's were counted by {stored.macs_counter}.")
    targets = stored.memory_predicted_for, candidate.get("memory_predicted_for")
    if any(name in known for name in MEMORY):
        reason = ""
        if targets[0] != targets[1]:
            reason = f"the baseline's is for {targets[0]}, this one for {targets[1]}"
        elif _minor(baseline.torch) is None or _minor(baseline.torch) != _minor(torch):
            reason = f"the baseline's is for torch {baseline.torch or 'of unknown version'}, this one for {torch}"
        if reason:
            known = [name for name in known if name not in MEMORY]
            notes.append(f"Predicted memory is not compared: {reason}.")
    pairs = [(name, stored.exact[name], candidate.get(name)) for name in known]
    changes = tuple(ExactChange(case, name, then, now) for name, then, now in pairs if then != now)
    return Comparison(changes, len(known), tuple(notes))


def same_machine(baseline: Baseline, environment: Mapping[str, Any]) -> tuple[bool, str]:
    """Whether latencies may be judged against the baseline here, and a sentence that says why not."""
    if baseline.environment is None:
        return False, "The baseline does not say on which machine it was measured: latencies are advisory."
    found = differences(baseline.environment, environment)
    if found:
        return False, f"The baseline was measured elsewhere ({'; '.join(found)}): latencies are advisory."
    return True, ""


def _minor(version: str | None) -> tuple[str, ...] | None:
    """Major and minor version."""
    return None if version is None else tuple(version.split(".")[:2])


def _from_records(records: Path, path: Path) -> Baseline:
    wanted = ("case", *CASE_COLUMNS, *SIZE_COLUMNS, "status")
    columns = {name: kind for name, kind in COLUMNS.items() if name != "conditions"}
    frame = read_table(records, columns, later=columns.keys() - set(wanted))
    environment = None
    if (records.parent / "run.json").is_file():
        environment = RunFolder.open(records.parent).meta.get("environment")
    cases = {}
    for number, values in enumerate(frame.astype(object).where(frame.notna(), None).to_dict("records"), start=2):
        stored = _readable(f"{records}, record {number - 1}", lambda values=values: _from_record(values))
        cases[stored.case.id] = stored
    if not cases:
        raise UsageError(f"{records} holds no record")
    return _baseline(path, environment, (environment or {}).get("time"), cases)


def _from_record(values: Mapping[str, Any]) -> StoredCase:
    if values["status"] not in STATUSES:
        raise ValueError(f"status {values['status']!r} is none of {', '.join(STATUSES)}")
    case = Case(
        **{name: values[name] for name in CASE_COLUMNS}
        | {"hparams": json.loads(values["hparams"]), "shape": parse_shape([values[name] for name in SIZE_COLUMNS])}
    )
    rows = {}
    for mode in MODES:
        latency = [values[f"latency_{mode}_{name}"] for name in ("ms", "low_ms", "high_ms", "confidence")]
        failed = "" if values["status"] == "ok" else f": {values['status']}: {values['message']}"
        rows[mode] = _row(latency, _control(values), failed)
    return _stored(case, values, values["status"], rows)


def _from_pytest_benchmark(path: Path) -> Baseline:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot read {path}: {error}") from None
    if not isinstance(content, dict) or not isinstance(content.get("benchmarks"), list):
        raise UsageError(f"{path} is no JSON of pytest-benchmark: it has no list of benchmarks")
    cases: dict[str, StoredCase] = {}
    for benchmark in content["benchmarks"]:
        info = benchmark.get("extra_info") if isinstance(benchmark, dict) else None
        if not (isinstance(info, dict) and {"case", "mode"} <= info.keys()):
            continue  # a benchmark of something else
        where = f"{path}, benchmark {benchmark.get('name')!r}"
        stored = _readable(where, lambda benchmark=benchmark: _from_benchmark(benchmark))
        other = cases.get(stored.case.id)
        if other is not None:
            exact, rows = {**other.exact, **stored.exact}, {**other.rows, **stored.rows}
            stored = StoredCase(stored.case, "ok", exact, stored.macs_counter, stored.memory_predicted_for, rows)
        cases[stored.case.id] = stored
    if not cases:
        raise UsageError(
            f"{path} has no benchmark of ctxbench's: put `case.extra_info` of the fixture ctxbench_case into "
            "`benchmark.extra_info`"
        )
    machine = content.get("machine_info")
    environment = machine.get("ctxbench") if isinstance(machine, dict) else None
    return _baseline(path, environment, content.get("datetime"), cases)


def _from_benchmark(benchmark: Mapping[str, Any]) -> StoredCase:
    """One mode of a case; times are in seconds there."""
    info, stats = benchmark["extra_info"], benchmark["stats"]
    if info["mode"] not in MODES:
        raise ValueError(f"mode {info['mode']!r} is none of {', '.join(MODES)}")
    case = Case(**{name: info[name] for name in CASE_COLUMNS}, shape=parse_shape(info["shape"]))
    interval = median_interval(stats["data"]) if stats.get("data") else None
    latency: list[float | None] = [stats["median"] * 1e3, None, None, None]
    if interval is not None and interval.confidence > 0:
        latency[1:] = interval.low * 1e3, interval.high * 1e3, interval.confidence
    return _stored(case, info, "ok", {info["mode"]: _row(latency, _control(info), "")})


def _control(values: Mapping[str, Any]) -> list[float | None]:
    return [*(values.get(f"control_{name}") for name in ("ms", "low_ms", "high_ms")), CONTROL_CONFIDENCE]


def _row(latency: Sequence[float | None], control: Sequence[float | None], failed: str) -> StoredRow:
    """The row of a latency and a control, each a median, low, high (ms) and confidence."""
    if latency[0] is None:
        return StoredRow(None, f"The baseline holds no latency of it{failed}.", False)
    if None in latency or None in control:
        return StoredRow(None, "The baseline holds no interval of it in units of the control workload.", True)
    row, row_error = _log_median(latency)
    unit, unit_error = _log_median(control)
    return StoredRow(Level(row - unit, unit, math.hypot(row_error, unit_error)), "", True)


def _log_median(values: Sequence[Any]) -> tuple[float, float]:
    """Log of a median and its standard error, from the half width of its interval."""
    median, low, high, confidence = values
    if not (0 < low <= median <= high < math.inf and 0 < confidence < 1):
        raise ValueError(f"{median} ms from {low} to {high} with confidence {confidence} is no interval of a time")
    return math.log(median), math.log(high / low) / 2 / float(special.ndtri((1 + confidence) / 2))


def _stored(case: Case, values: Mapping[str, Any], status: str, rows: Mapping[str, StoredRow]) -> StoredCase:
    exact = {name: int(values[name]) for name in EXACT if values.get(name) is not None}
    return StoredCase(case, status, exact, values.get("macs_counter"), values.get("memory_predicted_for"), rows)


def _readable(where: str, read: Callable[[], StoredCase]) -> StoredCase:
    try:
        return read()
    except KeyError as error:
        raise UsageError(f"{where}: {error.args[0]!r} is missing") from None
    except (TypeError, ValueError) as error:
        raise UsageError(f"{where}: {error}") from None


def _baseline(path: Path, environment: Any, date: Any, cases: Mapping[str, StoredCase]) -> Baseline:
    """The baseline with its name; UsageError for an environment that lacks what machines are told apart by."""
    if environment is None:
        return Baseline(str(path), None, cases)
    try:
        differences(environment, environment)
        name = f"{path} ({str(date)[:10]}, torch {environment['packages']['torch']})"
    except (KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"{path}: what it says of its machine is damaged ({error!r})") from None
    return Baseline(name, environment, cases)


def read_processes(levels: Sequence[Level], baseline: Level, confidence: float) -> Reading:
    """The mean change of fresh processes against the baseline's single one, with its prediction interval.

    Processes differ from each other (address layout, what the allocator did), the baseline's from the candidate's too:
    with the spread s between N candidate processes, the error of the difference is s sqrt(1 + 1/N), and the baseline's
    own inside its process. The interval is wider by CONTROL_SHARE of what the control workload moved.
    """
    if not levels:
        return Reading(math.nan, -math.inf, math.inf, math.nan)
    change = float(np.mean([level.row for level in levels])) - baseline.row
    control = float(np.mean([level.control for level in levels])) - baseline.control
    if len(levels) == 1:
        return Reading(change, -math.inf, math.inf, control)
    quantile = float(special.stdtrit(len(levels) - 1, (1 + confidence) / 2))
    reach = quantile * _error(levels, baseline) + CONTROL_SHARE * abs(control)
    return Reading(change, change - reach, change + reach, control)


def p_above(levels: Sequence[Level], baseline: Level, bound: float) -> float:
    """The one-sided p value that belongs to `read_processes`: that the change lies above `bound`."""
    reading = read_processes(levels, baseline, 0.5)
    error = _error(levels, baseline)
    distance = reading.change - bound - CONTROL_SHARE * abs(reading.control)
    if error == 0:
        return 0.0 if distance > 0 else 1.0
    return float(special.stdtr(len(levels) - 1, -distance / error))


def _error(levels: Sequence[Level], baseline: Level) -> float:
    spread = float(np.std([level.row for level in levels], ddof=1))
    return math.hypot(spread * math.sqrt(1 + 1 / len(levels)), baseline.error)


def run_stored(
    rows: Sequence[str],
    baseline: Mapping[str, StoredRow],
    measure_process: MeasureProcess,
    rule: GateRule,
    has_time: Callable[[], bool],
) -> tuple[RowVerdict, ...]:
    """Measure fresh candidate processes until every row has a verdict or the time is up; verdicts in the rows' order.

    `measure_process` measures the rows it is given in one fresh process. `rule.looks` count processes; they share
    alpha as they do in `run_gate`. New processes of the candidate tell nothing of the baseline's single one, so there
    is no confirmation: Holm's correction is over all rows that have a level. A row that fails is broken if the baseline
    had timed it, else it is not compared.
    """
    if len(set(rows)) != len(rows):
        raise ValueError("A gate was given the same row twice.")
    gate = _StoredGate({row: baseline[row] for row in rows}, measure_process, rule, has_time)
    gate.judge(list(rows))
    return tuple(gate.settled[row] for row in rows)


@dataclass
class _StoredGate:
    """The state of one gate: the processes' levels so far and the rows that are settled."""

    baseline: Mapping[str, StoredRow]
    measure_process: MeasureProcess
    rule: GateRule
    has_time: Callable[[], bool]
    settled: dict[str, RowVerdict] = field(default_factory=dict)
    levels: dict[str, list[Level]] = field(default_factory=lambda: defaultdict(list))

    def judge(self, rows: list[str]) -> None:
        """Settle every row."""
        for look in self.rule.looks:
            rows = self._measure_until(look, rows)
            self._decide(look, rows)
            rows = self._open(rows)
        for row in rows:
            self._settle(row, "inconclusive", "The interval holds the margin.")

    def _measure_until(self, look: int, rows: list[str]) -> list[str]:
        """Measure processes until each row has `look` of them; settle those that fail or lack the time."""
        while rows and len(self.levels[rows[0]]) < look:
            if not self.has_time():
                for row in rows:
                    self._settle(row, "inconclusive", "The time was up before the next look.")
                return []
            results = self.measure_process(rows)
            for row in rows:
                self._take(row, results)
            rows = self._open(rows)
        return rows

    def _take(self, row: str, results: Mapping[str, ProcessResult]) -> None:
        if row not in results:
            raise ValueError(f"The process returned nothing for the row {row!r}.")
        result, stored = results[row], self.baseline[row]
        if isinstance(result, ProcessFailure):
            if stored.worked:
                self._settle(row, None, result.message, "broken")
            else:
                self._settle(row, None, f"{stored.reason} It fails now: {result.message}", "not compared")
        elif stored.level is None:
            self._settle(row, None, stored.reason, "not compared")
        else:
            self.levels[row].append(result)

    def _decide(self, look: int, rows: list[str]) -> None:
        judged = sum(stored.level is not None for stored in self.baseline.values())
        tests = [p_above(self.levels[row], self._level(row), self.rule.log_margin(row)) for row in rows]
        adjusted = holm([*tests, *[1.0] * (judged - len(rows))])
        for row, p_value in zip(rows, adjusted, strict=False):
            if p_value <= self.rule.look_alpha(look) / 2:
                self._settle(row, "regressed", "The whole interval lies above the margin.")
            elif self._read(row, look).high < self.rule.log_margin(row):
                self._settle(row, "ok", "The whole interval lies below the margin.")

    def _level(self, row: str) -> Level:
        level = self.baseline[row].level
        assert level is not None
        return level

    def _read(self, row: str, look: int) -> Reading:
        if self.baseline[row].level is None:
            return Reading(math.nan, -math.inf, math.inf, math.nan)
        return read_processes(self.levels[row], self._level(row), 1 - self.rule.look_alpha(look))

    def _open(self, rows: Iterable[str]) -> list[str]:
        return [row for row in rows if row not in self.settled]

    def _settle(self, row: str, verdict: Verdict | None, reason: str, status: Status = "measured") -> None:
        used = len(self.levels[row])
        reading = self._read(row, next(look for look in self.rule.looks if look >= used))
        numbers = (reading.change, reading.low, reading.high, reading.control)
        self.settled[row] = RowVerdict(row, status, verdict, *map(_relative, numbers), pairs=used, reason=reason)


def _relative(log_ratio: float) -> float:
    """A log ratio as a relative change; infinite where it is beyond all numbers."""
    with np.errstate(over="ignore"):
        return float(np.expm1(log_ratio))
