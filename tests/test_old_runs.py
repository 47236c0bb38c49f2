"""Committed runs stay readable when a condition is added: its default, whatever it is, is what an older row means."""

import shutil
from collections.abc import Iterator
from dataclasses import fields, make_dataclass
from pathlib import Path
from typing import Any

import pytest

from ctxbench.api import Run
from ctxbench.model import record
from ctxbench.model.conditions import COLUMNS, CONDITIONS, Condition, from_columns
from ctxbench.model.record import Record
from ctxbench.results import run_folder
from ctxbench.results.run_folder import RunFolder
from ctxbench.results.tables import STREAMS, read_records

RESULTS = Path(__file__).parents[1] / "results"
RUNS = sorted(path.parent for path in RESULTS.glob("**/run.json"))


@pytest.fixture(params=["0", "", 2, None], ids=repr)
def added(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Condition]:
    """A new condition `sparsity`, as its field in `Conditions` and in `Record` would make it."""
    default = request.param
    kind = str if isinstance(default, str) else int
    condition = Condition("sparsity", default, "Sparsity", kind=kind, axis=(default,), columns=("sparsity",))
    monkeypatch.setitem(CONDITIONS, "sparsity", condition)
    wider = make_dataclass("Record", [("sparsity", Any, default)], bases=(Record,))
    for each in (record, run_folder):
        monkeypatch.setattr(each, "Record", wider)
    record.columns.cache_clear()
    yield condition
    monkeypatch.undo()
    record.columns.cache_clear()


def test_a_new_condition_has_its_default_in_every_committed_run(added: Condition) -> None:
    assert "sparsity" in record.columns()
    assert len(RUNS) > 20
    for path in RUNS:
        for row in read_records(path / "records.csv"):
            assert row["sparsity"] == added.default
            assert from_columns(row)["sparsity"] == added.default


@pytest.mark.slow
def test_the_table_of_a_committed_run_is_the_same_beside_a_new_condition(
    added: Condition, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(RunFolder.open(RESULTS / "table3-static"))
    shown = run.table()
    monkeypatch.undo()
    record.columns.cache_clear()
    assert shown == run.table()


def test_a_row_that_is_rewritten_keeps_the_default_of_a_new_condition(added: Condition, tmp_path: Path) -> None:
    shutil.copytree(RESULTS / "field-cpu", tmp_path, dirs_exist_ok=True)
    folder = RunFolder.open(tmp_path)
    folder.recover()
    assert "sparsity" in (tmp_path / "processes.csv").read_text().partition("\n")[0].split(",")
    assert {row["sparsity"] for row in folder.rows()} == {added.default}


def test_raw_and_large_tables_are_compressed() -> None:
    raw = [path for run in RUNS for name in ("processes.csv", *STREAMS) if (path := run / name).exists()]
    large = [path for path in RESULTS.glob("**/*.csv") if path.stat().st_size > 2**15]
    assert [*raw, *large] == [], "gzip -9n compresses these; results/README.md"


def test_the_columns_that_tables_have_had_from_the_first_on_are_required() -> None:
    """A run without them is damaged; a condition of these that is dropped from the list would hide it."""
    required = {name for name, column in record.columns().items() if column.required and name in COLUMNS}
    assert required == {*COLUMNS} - {"network", "threads"}
    assert {each.name for each in fields(Record)} >= {*COLUMNS}
