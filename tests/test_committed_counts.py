"""Params, MACs, predicted memory and predicted times of the committed runs are what today's code counts."""

import importlib
import os
import random
import shutil
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from conftest import SAMPLE
from forked import in_fork

from ctxbench.results.csv_file import csv_line, csv_rows
from ctxbench.results.run_folder import RunFolder
from ctxbench.results.tables import read_records

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "results"
pytestmark = [
    pytest.mark.plugin(name) for name in ("macs", "memory", "networks", "numerics", "predict", "recall", "runtimes")
]
# That of the day draws the rows of `make test`; a seed that is given draws the same again. `make long` has all, with a
# given seed a tenth.
SEED = os.environ.get(SAMPLE) or datetime.now(UTC).date().isoformat()
DRAWN = 8
MEND = "run `python research/recount.py` where all changes are committed, then `make report`"


@pytest.fixture(scope="module")
def recount() -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "research"))
        yield importlib.import_module("recount")


def committed(recount: Any, *, inside: bool = False) -> list[Any]:
    """The rows of modules alone, or of those inside networks, which need timm."""
    return [row for run in recount.runs() for row in recount.rows_of(run) if bool(row.case.network) is inside]


def assert_none_is_stale(recount: Any, rows: Sequence[Any]) -> None:
    assert in_fork(recount.stale, rows) == [], f"CTXBENCH_TEST_SAMPLE={SEED} repeats what was drawn; {MEND}"


def asked_for(rows: Sequence[Any]) -> Sequence[Any]:
    """All rows, or of a sample a tenth."""
    return random.Random(SEED).sample(rows, len(rows) // 10) if SAMPLE in os.environ else rows


@pytest.mark.slow
def test_rows_drawn_by_the_day_are_what_today_s_code_counts(recount: Any) -> None:
    assert_none_is_stale(recount, random.Random(SEED).sample(committed(recount), DRAWN))


@pytest.mark.long
def test_all_rows_are_what_today_s_code_counts(recount: Any) -> None:
    rows = committed(recount)
    assert len(rows) > 2000
    assert_none_is_stale(recount, asked_for(rows))


@pytest.mark.long
@pytest.mark.extra("networks")
def test_all_rows_of_networks_are_what_today_s_code_counts(recount: Any) -> None:
    rows = committed(recount, inside=True)
    assert len(rows) == 100
    assert_none_is_stale(recount, asked_for(rows))


def test_the_peak_of_each_committed_timeline_is_that_of_its_row() -> None:
    found = 0
    for run in {path.parent for path in RESULTS.glob("**/timeline.csv*")}:
        rows = {row["case"]: row for row in read_records(run / "records.csv")}
        peaks: dict[tuple[str, str], int] = {}
        for case, mode, *_, held in csv_rows(run / "timeline.csv")[1]:
            peaks[case, mode] = max(peaks.get((case, mode), 0), int(held))
        assert {key: rows[key[0]][f"memory_{key[1]}_predicted_bytes"] for key in peaks} == peaks
        found += len(peaks)
    assert found > 60


@pytest.fixture
def copies(tmp_path: Path) -> Path:
    """The rows of one module of a measured run, a static one and one with predicted times."""
    for name in ("table3-cpu", "table3-static", "prediction/table3"):
        (tmp_path / name).mkdir(parents=True)
        shutil.copy(RESULTS / name / "run.json", tmp_path / name)
        for table in ("records.csv", "processes.csv"):
            header, lines = csv_rows(RESULTS / name / table)
            write(tmp_path / name / table, header, [line for line in lines if line[header.index("module")] == "a2"])
    return tmp_path


def write(path: Path, header: Sequence[str], lines: Sequence[Sequence[str]]) -> None:
    path.write_text("".join(map(csv_line, [header, *lines])), encoding="utf-8")


def plant(path: Path, column: str) -> str:
    """Have the last row of a table hold another number; the sentence that tells of it."""
    header, lines = csv_rows(path)
    at = header.index(column)
    then = f"{float(lines[-1][at]) * 1.01:.4f}" if column.endswith("_ms") else f"{int(lines[-1][at]) + 1}"
    now, lines[-1][at] = lines[-1][at], then
    write(path, header, lines)
    return f"{path.parent.name}, {lines[-1][0]}: {column} {then} then, {now} now"


@pytest.mark.slow
def test_planted_rows_are_found_and_no_other(recount: Any, copies: Path) -> None:
    rows = [row for run in recount.runs(copies) for row in recount.rows_of(run)]
    assert (len(rows), recount.stale(rows)) == (7, [])
    planted = [
        plant(copies / "prediction/table3/records.csv", "latency_train_ms"),
        plant(copies / "table3-cpu/records.csv", "macs"),
        plant(copies / "table3-static/records.csv", "memory_train_predicted_bytes"),
    ]
    assert recount.stale(row for run in recount.runs(copies) for row in recount.rows_of(run)) == planted


@pytest.mark.slow
def test_a_measured_run_gets_its_counts_anew_and_keeps_all_else(recount: Any, copies: Path) -> None:
    run = copies / "table3-cpu"
    tables = [run / "records.csv", run / "processes.csv"]
    before = [table.read_bytes() for table in tables]
    plant(tables[0], "macs_train")
    header, lines = csv_rows(RESULTS / "table3-cpu" / "timeline.csv")
    own = [line for line in lines if line[0].startswith("a2 ")]
    write(run / "timeline.csv", header, [[*line[:-1], "1"] for line in own])
    recount.write_anew(run, {"commit": "0" * 40, "date": "2026-01-01"})
    assert [table.read_bytes() for table in tables] == before
    assert csv_rows(run / "timeline.csv") == (header, own)
    folder = RunFolder.open(run)
    assert folder.altered() == ""
    assert folder.meta["counted"] == {"commit": "0" * 40, "date": "2026-01-01"}
    assert folder.meta["environment"] == RunFolder.open(RESULTS / "table3-cpu").meta["environment"]


def test_a_row_that_cannot_be_counted_is_stale_and_its_run_stays_as_it_is(recount: Any, copies: Path) -> None:
    run = copies / "table3-cpu"
    path = run / "records.csv"
    header, ((case, _, *rest),) = csv_rows(path)
    write(path, header, [[case, "gone", *(cell.replace("modules.a2:", "modules.gone:") for cell in rest)]])
    before = path.read_bytes()
    (sentence,) = recount.stale(recount.rows_of(run))
    assert "there is no module 'ctxbench.modules.gone'" in sentence
    with pytest.raises(SystemExit, match="table3-cpu stays as it is, since gone"):
        recount.write_anew(run, {})
    assert path.read_bytes() == before
