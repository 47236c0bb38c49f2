"""Stored baselines: a run folder, its records or a JSON of pytest-benchmark, read and compared exactly."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from scipy import special

from ctxbench.environment import differences
from ctxbench.errors import UsageError
from ctxbench.gate.result import EXACT_COLUMNS, ExactChange
from ctxbench.gate.rows import RowKey
from ctxbench.mode import MODES
from ctxbench.results import STATUSES, RunFolder, columns, read_records
from ctxbench.statistics import median_interval
from ctxbench.suite import Case, Measure, parse_shape

CASE_COLUMNS = ("module", "reference", "hparams", "dtype", "memory_format", "execution", "device", "threads")
SIZE_COLUMNS = ("batch", "channels", "height", "width")
# A record's control interval is of 95 %.
CONTROL_CONFIDENCE = 0.95
# The probability within one standard error.
ONE_SIGMA = 0.6827


Readable = TypeVar("Readable")


@dataclass(frozen=True)
class RelativeLatency:
    """What one process says of a row: log of its latency in units of the control workload, log of the control's ms.

    `error` is the standard error of `row` inside that process; infinite if it is not known.
    """

    row: float
    control: float
    error: float = 0.0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.row) and math.isfinite(self.control)):
            raise ValueError(f"A relative latency must be finite, not {self}.")


@dataclass(frozen=True)
class StoredRow:
    """A row of the baseline: its latency, or why there is none; `worked`: a pass of it was timed then."""

    latency: RelativeLatency | None
    reason: str
    worked: bool


@dataclass(frozen=True)
class StoredCase:
    """A case of the baseline. `exact` has the known ones of EXACT_COLUMNS, `rows` a row for each mode.

    `elapsed_s` is how long all of it took; 0 if that is not known.
    """

    case: Case
    status: str
    exact: Mapping[str, int]
    macs_counter: str | None
    memory_predicted_for: str | None
    rows: Mapping[str, StoredRow]
    elapsed_s: float = 0.0

    @property
    def timed(self) -> bool:
        """Whether its latency was measured, or a pass failed before it was."""
        return any(row.worked for row in self.rows.values()) or (self.status != "ok" and self.case.device != "meta")


@dataclass(frozen=True)
class Baseline:
    """What was measured earlier. `name` is for a person, `environment` as in `run.json` (None: not known).

    `measure` are the settings of the run, `metrics` what it measured; None and empty where that is not known. `by_run`
    is False for pytest-benchmark's.
    """

    name: str
    environment: Mapping[str, Any] | None
    cases: Mapping[str, StoredCase]
    measure: Measure | None = None
    metrics: Sequence[str] = ()
    by_run: bool = True

    @property
    def torch(self) -> str | None:
        return None if self.environment is None else self.environment["packages"]["torch"]

    def row(self, row: RowKey) -> StoredRow:
        absent = StoredRow(None, "It is not in the baseline.", False)
        return self.cases[row.case].rows.get(row.mode, absent) if row.case in self.cases else absent


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
    known = list(stored.exact)
    notes = []
    if "macs" in known and stored.macs_counter != candidate.get("macs_counter"):
        known.remove("macs")
        notes.append(
            f"MACs are not compared: the baseline's were counted by {stored.macs_counter or 'an unknown counter'}."
        )
    targets = stored.memory_predicted_for, candidate.get("memory_predicted_for")
    memory = EXACT_COLUMNS["memory"]
    if any(name in known for name in memory):
        reason = ""
        if targets[0] != targets[1]:
            reason = f"the baseline's is for {targets[0] or 'an unknown device'}, this one for {targets[1]}"
        elif _minor(baseline.torch) is None or _minor(baseline.torch) != _minor(torch):
            reason = f"the baseline's is for torch {baseline.torch or 'of unknown version'}, this one for {torch}"
        if reason:
            known = [name for name in known if name not in memory]
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
    frame = read_records(records, 1, optional=columns().keys() - set(wanted))
    meta: Mapping[str, Any] = {}
    if (records.parent / "run.json").is_file():
        meta = RunFolder.open(records.parent).meta
    cases = {}
    for number, values in enumerate(frame.astype(object).where(frame.notna(), None).to_dict("records"), start=1):
        stored = _readable(f"{records}, record {number}", _from_record, values)
        cases[stored.case.id] = stored
    if not cases:
        raise UsageError(f"{records} has no record")
    measure = _readable(str(records.parent / "run.json"), _measure, meta) if "definition" in meta else None
    named = _named(path, meta.get("environment"), None, cases)
    return replace(named, measure=measure, metrics=meta.get("metrics", ()))


def _measure(meta: Mapping[str, Any]) -> Measure:
    return Measure.model_validate(meta["definition"]["measure"])


def _from_record(values: Mapping[str, Any]) -> StoredCase:
    if values["status"] not in STATUSES:
        raise ValueError(f"status {values['status']!r} is none of {', '.join(STATUSES)}")
    case = Case(
        **{name: values[name] for name in CASE_COLUMNS}
        | {"hparams": json.loads(values["hparams"]), "shape": parse_shape([values[name] for name in SIZE_COLUMNS])}
    )
    return _stored(case, values, values["status"], {mode: _row(values, mode) for mode in MODES})


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
        stored = _readable(f"{path}, benchmark {benchmark.get('name')!r}", _from_benchmark, benchmark)
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
    return replace(_named(path, environment, content.get("datetime"), cases), by_run=False)


def _from_benchmark(benchmark: Mapping[str, Any]) -> StoredCase:
    """One mode of a case; times are in seconds there."""
    info, stats = benchmark["extra_info"], benchmark["stats"]
    if info["mode"] not in MODES:
        raise ValueError(f"mode {info['mode']!r} is none of {', '.join(MODES)}")
    case = Case(**{name: info[name] for name in CASE_COLUMNS}, shape=parse_shape(info["shape"]))
    latency = dict(zip(("ms", "low_ms", "high_ms", "confidence"), _interval(stats), strict=False))
    columns = {f"latency_{info['mode']}_{name}": value for name, value in latency.items()}
    return _stored(case, info, "ok", {info["mode"]: _row({**info, **columns, "status": "ok"}, info["mode"])})


def _interval(stats: Mapping[str, Any]) -> list[float]:
    """Median, low, high (ms) and confidence of a benchmark's rounds; the median alone for a single round.

    Without the rounds' times, which --benchmark-save leaves out, normal ones are assumed: the standard error of their
    median is sqrt(pi / 2) sigma / sqrt(n), and their quartiles lie 1.349 sigma apart.
    """
    median, rounds = stats["median"] * 1e3, stats["rounds"]
    if rounds < 2:
        return [median]
    if stats.get("data"):
        interval = median_interval(stats["data"])
        return [median, interval.low * 1e3, interval.high * 1e3, interval.confidence]
    error = math.sqrt(math.pi / 2) / 1.349 * stats["iqr"] / stats["median"] / math.sqrt(rounds)
    return [median, median * math.exp(-error), median * math.exp(error), ONE_SIGMA]


def _row(values: Mapping[str, Any], mode: str) -> StoredRow:
    if values.get(f"latency_{mode}_ms") is None:
        failed = "" if values["status"] == "ok" else f": {values['status']}: {values['message']}"
        return StoredRow(None, f"The baseline has no latency of this row{failed}.", False)
    latency = relative_latency(values, mode)
    if latency is None or latency.error == math.inf:
        reason = "The baseline has no confidence interval of this row's latency relative to the control workload."
        return StoredRow(None, reason, True)
    return StoredRow(latency, "", True)


def relative_latency(values: Mapping[str, Any], mode: str) -> RelativeLatency | None:
    """The latency of a mode from the columns of a record; None if it or the control workload was not measured.

    ValueError for times that are none.
    """
    latency = [values.get(f"latency_{mode}_{name}") for name in ("ms", "low_ms", "high_ms", "confidence")]
    control = [*(values.get(f"control_{name}") for name in ("ms", "low_ms", "high_ms")), CONTROL_CONFIDENCE]
    if latency[0] is None or control[0] is None:
        return None
    row, row_error = _log_median(latency)
    unit, unit_error = _log_median(control)
    return RelativeLatency(row - unit, unit, math.hypot(row_error, unit_error))


def _log_median(values: Sequence[Any]) -> tuple[float, float]:
    """Log of a median and its standard error, from the half width of its interval; infinite without one."""
    median, low, high, confidence = values
    if not 0 < median < math.inf:
        raise ValueError(f"{median} ms is no time")
    if low is None or high is None or not confidence:
        return math.log(median), math.inf
    if not (0 < low <= median <= high < math.inf and 0 < confidence < 1):
        raise ValueError(f"{low} to {high} ms with confidence {confidence} is no interval of a median of {median} ms")
    return math.log(median), math.log(high / low) / 2 / float(special.ndtri((1 + confidence) / 2))


def _stored(case: Case, values: Mapping[str, Any], status: str, rows: Mapping[str, StoredRow]) -> StoredCase:
    names = [name for group in EXACT_COLUMNS.values() for name in group]
    exact = {name: int(values[name]) for name in names if values.get(name) is not None}
    counter, target = (values.get(name) or None for name in ("macs_counter", "memory_predicted_for"))
    return StoredCase(case, status, exact, counter, target, rows, values.get("elapsed_s") or 0.0)


def _readable(where: str, read: Callable[[Mapping[str, Any]], Readable], values: Mapping[str, Any]) -> Readable:
    """What `read` makes of the values; UsageError where they are damaged."""
    try:
        return read(values)
    except KeyError as error:
        raise UsageError(f"{where}: {error.args[0]!r} is missing") from None
    except (TypeError, ValueError) as error:
        raise UsageError(f"{where}: {error}") from None


def _named(path: Path, environment: Any, date: Any, cases: Mapping[str, StoredCase]) -> Baseline:
    """The baseline with its name; UsageError for an environment that lacks what identifies a machine."""
    if environment is None:
        return Baseline(str(path), None, cases)
    try:
        differences(environment, environment)
        name = f"{path} ({str(date or environment['time'])[:10]}, torch {environment['packages']['torch']})"
    except (KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"{path}: what it says of its machine is damaged ({error!r})") from None
    return Baseline(name, environment, cases)
