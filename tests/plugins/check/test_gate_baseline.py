"""Stored baselines: what is read from runs, and what is compared exactly."""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ctxbench.base.errors import AlteredRun, UsageError
from ctxbench.model.case import Case
from ctxbench.model.record import Record, columns
from ctxbench.plugins.check.baseline import Baseline, compare_exact, exact_of, load_baseline, process_logs, same_machine
from ctxbench.plugins.check.evidence import ProcessLogs
from ctxbench.plugins.check.result import ExactChange
from ctxbench.results.csv_file import csv_line
from ctxbench.results.run_folder import RunFolder

CASE = Case(
    "ham_nmf", "ctxbench.modules.ham_nmf:HamNMF", {"steps": 3}, (1, 64, 32, 16), threads=1, defaults={"rank": 8}
)
ENVIRONMENT = {
    "time": "2026-11-02T10:00:00+00:00",
    "cpu": "a CPU",
    "cpu_usable": 2,
    "gpus": [],
    "driver": None,
    "packages": {"torch": "2.13.0+cpu"},
    "torch_threads": 2,
}
RECORD = Record(
    case=CASE.id,
    module=CASE.module,
    title="",
    family="",
    reference=CASE.reference,
    hparams=CASE.hparams_json,
    changed=CASE.changed,
    batch=1,
    channels=64,
    height=32,
    width=16,
    dtype="float32",
    memory_format="contiguous",
    execution="eager",
    threads=1,
    device="cpu",
    values={
        "params": 2**53 + 1,
        "macs": 1000,
        "macs_counter": "ctxbench",
        "memory_infer_predicted_bytes": 512,
        "memory_train_predicted_bytes": 1024,
        "memory_predicted_for": "cuda",
        "latency_infer_ms": 6.0,
        "control_ms": 3.0,
    },
    processes=3,
    rounds="1 2 4",
    others_share=0.1,
)
# The medians of its processes, by number: of the row and of the control workload.
MEDIANS = {1: (6.0, 3.0), 2: (8.0, 2.0), 4: (5.0, 5.0), 5: (90.0, 9.0)}
LOGS = ProcessLogs((math.log(2), math.log(4), 0.0), (math.log(3), math.log(2), math.log(5)), False)


def with_values(**changes: Any) -> Record:
    """RECORD with other values in these columns."""
    return replace(RECORD, values={**RECORD.values, **changes})


def run_folder(path: Path, *records: Record, medians: Mapping[int, tuple[float, float]] = MEDIANS, **meta: Any) -> Path:
    folder = RunFolder.create(path, {"suite": "x", "environment": ENVIRONMENT, **meta})
    for record in records:
        for number, (row, control) in medians.items():
            folder.append(number, replace(record, values={"latency_infer_ms": row, "control_ms": control}), {})
    folder.write_records(records)
    return path


def test_a_run_folder_and_its_records_say_the_same(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run", RECORD)
    baseline = load_baseline(folder)
    assert baseline.name == f"{folder} (2026-11-02, torch 2.13.0+cpu)"
    assert baseline.torch == "2.13.0+cpu"
    assert (baseline.cases, baseline.rows[CASE.id]["status"]) == ({CASE.id: CASE}, "ok")
    assert exact_of(baseline.rows[CASE.id]) == {
        "params": 2**53 + 1,
        "macs": 1000,
        "memory_infer_predicted_bytes": 512,
        "memory_train_predicted_bytes": 1024,
    }
    by_file = load_baseline(folder / "records.csv")
    assert by_file.name == f"{folder / 'records.csv'} (2026-11-02, torch 2.13.0+cpu)"
    assert (by_file.cases, by_file.rows) == (baseline.cases, baseline.rows)


def test_latencies_in_units_of_the_control_workload(tmp_path: Path) -> None:
    baseline = load_baseline(run_folder(tmp_path / "run", RECORD))
    assert baseline.latencies(CASE.id) == {"infer": LOGS}
    assert (LOGS.enough, baseline.timed(CASE.id)) == (True, True)


def test_processes_without_both_times_are_left_out(tmp_path: Path) -> None:
    values = {
        "latency_infer_processes": {1: 6.0, 2: 8.0},
        "latency_train_processes": {},
        "control_processes": {2: 2.0, 3: 2.0},
        "others_share": None,
    }
    assert process_logs(values, "infer") == ProcessLogs((math.log(4),), (math.log(2),))
    assert process_logs(values, "train") == ProcessLogs()


@pytest.mark.parametrize(("others_share", "disturbed"), [(None, False), (0.1, False), (0.11, True)])
def test_a_record_tells_whether_its_processes_were_disturbed(
    tmp_path: Path, others_share: float | None, disturbed: bool
) -> None:
    baseline = load_baseline(run_folder(tmp_path / "run", replace(RECORD, others_share=others_share)))
    assert baseline.latencies(CASE.id)["infer"].disturbed == disturbed


@pytest.mark.parametrize("rounds", ["", "1", "1 2"])
def test_a_latency_of_too_few_processes_is_known_but_not_enough(tmp_path: Path, rounds: str) -> None:
    baseline = load_baseline(run_folder(tmp_path / "run", replace(RECORD, rounds=rounds)))
    ((mode, logs),) = baseline.latencies(CASE.id).items()
    assert (mode, logs.enough, baseline.timed(CASE.id)) == ("infer", False, False)


def test_a_case_that_failed_was_timed(tmp_path: Path) -> None:
    failed = replace(with_values(latency_infer_ms=None), status="oom", message="out of memory")
    baseline = load_baseline(run_folder(tmp_path / "run", failed))
    assert (baseline.latencies(CASE.id), baseline.timed(CASE.id)) == ({}, True)
    assert not replace(baseline, cases={CASE.id: replace(CASE, device="meta")}).timed(CASE.id)


def test_a_bare_records_csv_with_the_columns_that_name_a_case(tmp_path: Path) -> None:
    names = ["case", "module", "reference", "hparams", "changed", "batch", "channels", "height", "width"]
    names += ["dtype", "memory_format", "execution", "threads", "device", "status", "params"]
    cells = ["" if RECORD.get(name) is None else RECORD.get(name) for name in names]
    path = tmp_path / "records.csv"
    path.write_text(csv_line(names) + csv_line(cells), encoding="utf-8")
    baseline = load_baseline(path)
    assert (baseline.name, baseline.environment, baseline.torch) == (str(path), None, None)
    assert baseline.cases == {CASE.id: CASE}
    assert exact_of(baseline.rows[CASE.id]) == {"params": 2**53 + 1}


def newer(path: Path) -> None:
    run_folder(path, RECORD)
    (path / "run.json").write_text('{"schema": 99}', encoding="utf-8")


BAD_FILES: dict[str, tuple[str, Callable[[Path], object]]] = {
    "there is no .*; --baseline takes a run folder": ("nothing", lambda path: None),
    "there is no .*records.csv": ("folder", lambda path: path.mkdir()),
    "is no run folder and no records.csv": ("notes.txt", lambda path: path.write_text("x")),
    "what it says of its machine is damaged": ("e", lambda path: run_folder(path, RECORD, environment={"cpu": "x"})),
    "lacks the column 'batch'": ("short.csv", lambda path: path.write_text("case,module,reference,hparams,params\n")),
    "has no record": ("empty.csv", lambda path: path.write_text(csv_line(columns()))),
    "line 2: status is 'well', not one of ok, oom": ("f", lambda p: run_folder(p, replace(RECORD, status="well"))),
    "line 2: hparams is '{', not an object in JSON": ("g", lambda path: run_folder(path, replace(RECORD, hparams="{"))),
    "processes.csv, line 2: control_ms is '0.0', not a finite number above 0": (
        "h",
        lambda path: run_folder(path, RECORD, medians={1: (6.0, 0.0)}),
    ),
    "run.json is damaged: environment.gpus": ("run", lambda path: run_folder(path, RECORD, environment={"gpus": 3})),
    "has schema 99, and this ctxbench reads schema 10": ("new", newer),
}


@pytest.mark.parametrize("sentence", BAD_FILES)
def test_anything_else_is_refused_with_a_sentence(tmp_path: Path, sentence: str) -> None:
    name, make = BAD_FILES[sentence]
    make(tmp_path / name)
    with pytest.raises(UsageError, match=sentence):
        load_baseline(tmp_path / name)


def stored(exact: dict[str, int], torch: str | None = "2.13.0", **changes: Any) -> Baseline:
    environment = None if torch is None else {**ENVIRONMENT, "packages": {"torch": torch}}
    row = {**dict.fromkeys(columns()), "macs_counter": "ctxbench", "memory_predicted_for": "cuda", **exact, **changes}
    return Baseline("b", environment, {CASE.id: CASE}, {CASE.id: row})


EXACT = {"params": 30, "macs": 1000, "memory_infer_predicted_bytes": 512}
CANDIDATE = {**EXACT, "macs_counter": "ctxbench", "memory_predicted_for": "cuda", "memory_train_predicted_bytes": 9}


def test_exact_quantities_that_the_baseline_knows_are_compared() -> None:
    same = compare_exact(stored(EXACT), CASE.id, CANDIDATE, "2.13.1+cpu")
    assert (same.changes, same.compared, same.notes) == ((), 3, ())
    changed = compare_exact(stored(EXACT), CASE.id, {**CANDIDATE, "params": 31, "macs": None}, "2.13.0")
    assert changed.changes == (ExactChange(CASE.id, "params", 30, 31), ExactChange(CASE.id, "macs", 1000, None))
    assert all(change.worse for change in changed.changes)


@pytest.mark.parametrize(
    ("baseline", "note"),
    [
        (stored(EXACT, memory_predicted_for="cuda-2020"), "the baseline's is for cuda-2020, this one for cuda."),
        (stored(EXACT, torch="2.11.0"), "the baseline's is for torch 2.11.0, this one for 2.13.0."),
        (stored(EXACT, torch=None), "the baseline's is for torch of unknown version, this one for 2.13.0."),
    ],
)
def test_memory_that_was_predicted_for_something_else_is_not_compared(baseline: Baseline, note: str) -> None:
    compared = compare_exact(baseline, CASE.id, {**CANDIDATE, "memory_infer_predicted_bytes": 1}, "2.13.0")
    assert (compared.changes, compared.compared) == ((), 2)
    assert compared.notes == (f"Predicted memory is not compared: {note}",)


def test_macs_of_a_training_step_under_another_torch_are_not_compared() -> None:
    exact, candidate = {"params": 30, "macs_train": 3000}, {**CANDIDATE, "macs_train": 3001}
    (change,) = compare_exact(stored(exact), CASE.id, candidate, "2.13.1").changes
    assert change == ExactChange(CASE.id, "macs_train", 3000, 3001)
    compared = compare_exact(stored(exact, torch="2.11.0"), CASE.id, candidate, "2.13.0")
    assert (compared.changes, compared.compared) == ((), 1)
    assert compared.notes == (
        "MACs of a training step are not compared: the baseline's count is for torch 2.11.0, this one for 2.13.0.",
    )


def test_macs_of_another_counter_are_not_compared() -> None:
    compared = compare_exact(stored(EXACT, macs_counter="torchprofile"), CASE.id, {**CANDIDATE, "macs": 1}, "2.13.0")
    assert (compared.changes, compared.compared) == ((), 2)
    assert compared.notes == ("MACs are not compared: the baseline's were counted by torchprofile.",)


def test_the_same_machine_is_told_from_another() -> None:
    assert same_machine(stored(EXACT, "2.13.0+cpu"), ENVIRONMENT) == (True, "")
    same, why = same_machine(stored(EXACT, "2.13.0+cpu"), {**ENVIRONMENT, "cpu": "another", "cpu_usable": 4})
    assert not same
    assert why == (
        "The baseline was measured elsewhere (cpu: a CPU then, another now; usable cores: 2 then, 4 now): "
        "latencies are advisory."
    )
    same, why = same_machine(stored(EXACT, None), ENVIRONMENT)
    assert not same
    assert why.startswith("The baseline does not say on which machine")


def test_a_baseline_that_is_another_table_is_told(tmp_path: Path) -> None:
    run = run_folder(tmp_path / "run", RECORD)
    RunFolder.open(run).finish("finished")
    with (run / "samples.csv").open("a", encoding="utf-8") as file:
        file.write("\n")
    with pytest.warns(AlteredRun, match="is not as its run wrote it: "):
        load_baseline(run)
