"""Trainings that a stored run has, and what a module's measurement reports."""

import contextlib
import json
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import StatisticsError
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from test_recall_runs import found_on
from torch import Tensor, nn
from wrapped import Wrapped

from ctxbench import registry
from ctxbench.base.notes import Note
from ctxbench.model.suite_file import MeasureTable
from ctxbench.results.csv_file import fingerprint
from ctxbench_science.recall import RECIPE
from ctxbench_science.recall import stored as stored_file
from ctxbench_science.recall import training as training_file
from ctxbench_science.recall.metric import compute, full_rank

# A module that imports what modules share.
CODE = "from ctxbench.modules._base import SIDE\nWIDTH = 1\n"
pytestmark = pytest.mark.slow  # small trainings, which take seconds together


@pytest.fixture
def stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A clone with a stored run of `identity` and the code that it trained, committed."""
    (tmp_path / "modules").mkdir()
    (tmp_path / "results" / "recall-cpu").mkdir(parents=True)
    (file := tmp_path / "modules" / "mine.py").write_text(CODE)
    for name in ("_base.py", "_other.py"):
        (tmp_path / "modules" / name).write_text("SIDE = 1\n")
    git = ["git", "-C", str(tmp_path), "-c", "user.name=n", "-c", "user.email=e"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "All"]):
        subprocess.run([*git, *command], check=True)
    commit = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
    about = {"commit": commit, "packages": {"torch": "2.13.0"}}
    meta = {"state": "finished", "environment": about, "definition": {"measure": {"recall_tasks": ["global", "where"]}}}
    curve = json.dumps({"global": found_on(10, 11, 12), "where": found_on(90, 91, 92)}).replace('"', '""')
    columns = "reference,hparams,recall_curve,recall_gradient,recall_s,recall_recipe"
    records = f'{columns}\nmine:Mine,{{}},"{curve}",yes,2.5,{RECIPE}\n'
    (tmp_path / "results" / "recall-cpu" / "records.csv").write_bytes(records.encode())
    tables = {"records.csv": fingerprint(tmp_path / "results" / "recall-cpu" / "records.csv")}
    (tmp_path / "results" / "recall-cpu" / "run.json").write_text(json.dumps({**meta, "tables": tables}))
    monkeypatch.setattr(stored_file, "ROOT", tmp_path)
    for each in (stored_file.stored_runs, stored_file._is_same):
        each.cache_clear()
    yield file
    for each in (stored_file.stored_runs, stored_file._is_same):
        each.cache_clear()


@dataclass
class Asked:
    """A measurement of `mine:Mine`, and what was reported of it."""

    file: Path
    settings: MeasureTable
    values: dict[str, object] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.entry = SimpleNamespace(reference="mine:Mine", file=str(self.file), build=lambda *_: nn.Identity())
        self.case = SimpleNamespace(hparams={}, hparams_json="{}")

    def report(self, values: Mapping[str, object], *notes: Note) -> None:
        self.values |= values
        self.notes += [note.code for note in notes]

    def emit(self, message: object) -> None: ...


def read_or_trained(file: Path, monkeypatch: pytest.MonkeyPatch, **settings: object) -> Asked:
    """Report of `compute`; where it trains, its trainings find nothing."""
    monkeypatch.setattr(training_file, "trainings", lambda *_: {})
    asked = Asked(file, MeasureTable.model_validate({"recall_tasks": ["global"], **settings}))
    with contextlib.suppress(StatisticsError):  # of no trainings
        compute(asked)  # type: ignore[arg-type]  # a part of a measurement
    return asked


def test_what_the_stored_run_has_with_the_same_code_and_recipe_is_not_trained(
    stored: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = read_or_trained(stored, monkeypatch)
    assert asked.notes == ["recall_stored"]
    assert (asked.values["recall_global"], asked.values["recall_gradient"], asked.values["recall_s"]) == (
        11,
        "yes",
        2.5,
    )
    assert asked.values["recall_where_reason"] == "not asked for"
    assert list(json.loads(str(asked.values["recall_curve"]))) == ["global"]


@pytest.mark.parametrize("changed", [{"recall_steps": 7}, {"recall_seeds": 2}, {"recall_stored": False}])
def test_with_other_settings_it_is_trained(
    stored: Path, monkeypatch: pytest.MonkeyPatch, changed: dict[str, object]
) -> None:
    assert "recall_stored" not in read_or_trained(stored, monkeypatch, **changed).notes


def test_another_recipe_of_the_trainings_and_what_a_damaged_run_has_are_trained(
    stored: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(stored_file, "RECIPE", RECIPE + 1)
        assert "recall_stored" not in read_or_trained(stored, patch).notes
    stored_file.stored_runs.cache_clear()
    records = stored.parents[1] / "results" / "recall-cpu" / "records.csv"
    records.write_bytes(records.read_bytes()[:-20])
    assert "recall_stored" not in read_or_trained(stored, monkeypatch).notes


def test_what_goes_on_or_was_itself_read_is_no_stored_run(stored: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = stored.parents[1] / "results" / "recall-cpu"
    meta, text = json.loads((folder / "run.json").read_text()), (folder / "records.csv").read_text()
    (folder / "run.json").write_text(json.dumps({key: value for key, value in meta.items() if key != "tables"}))
    assert "recall_stored" not in read_or_trained(stored, monkeypatch).notes
    stored_file.stored_runs.cache_clear()
    read = text.replace("recall_recipe\n", "recall_recipe,notes\n").rstrip() + ',"[{""code"": ""recall_stored""}]"\n'
    (folder / "records.csv").write_text(read)
    meta["tables"]["records.csv"] = fingerprint(folder / "records.csv")
    (folder / "run.json").write_text(json.dumps(meta))
    assert "recall_stored" not in read_or_trained(stored, monkeypatch).notes


def test_other_code_is_trained(stored: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def is_read(path: Path, code: str) -> bool:
        path.write_text(code)
        stored_file._is_same.cache_clear()
        return "recall_stored" in read_or_trained(path if path.parent != stored.parent else stored, monkeypatch).notes

    assert is_read(stored.parent / "_new.py", "WIDTH = 2  # what no old code imports\n")
    assert is_read(stored.parent / "_other.py", "SIDE = 2  # what it does not import\n")
    subprocess.run(["git", "-C", str(tmp_path), "add", "."], check=True)
    assert is_read(stored, f'"""Other words."""\n# a comment\n{CODE}\n\ndef added() -> None: ...\n')
    assert not is_read(stored, CODE.replace("WIDTH = 1", "WIDTH = 3"))
    assert not is_read(stored, "WIDTH = (\n")
    assert is_read(stored, CODE)
    assert not is_read(stored.parent / "_base.py", "SIDE = 2\n")
    assert is_read(stored.parent / "_base.py", "SIDE = 1\n")
    assert not is_read(tmp_path.parent / "mine.py", CODE)


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        (lambda x: x[9], r"IndexError: index 9 is out of bounds .* \(test_recall_stored\.py, line \d+, in <lambda>\)"),
        (lambda x: x[:, :, :2], r"it returns shape \[1, 3, 2, 5\] for \[1, 3, 4, 5\]"),
        (lambda x: x.flatten(1), r"it returns shape \[1, 60\] for"),
        (lambda x: x.double(), "it returns torch.float64 for torch.float32"),
        (lambda x: (x, x), "it returns tuple; a context module returns one tensor"),
    ],
)
def test_a_module_of_another_output_is_told_so(output: Callable[[Tensor], Any], reason: str, tmp_path: Path) -> None:
    settings = {"recall_tasks": ["global"], "recall_shape": [3, 4, 5], "recall_stored": False}
    asked = Asked(tmp_path / "mine.py", MeasureTable.model_validate(settings))
    asked.entry.build = lambda *_: Wrapped(output)
    compute(asked)  # type: ignore[arg-type]  # a part of a measurement
    assert re.search(reason, str(asked.values["recall_global_reason"]))


@pytest.mark.parametrize(
    ("hparams", "cells", "full"),
    [
        ({"rank": 64}, 64, True),
        ({"rank": 63}, 64, False),
        ({"rank": 64}, 256, True),  # D = 64
        ({"rank": 32}, 256, False),
        ({"rank": 64, "d": 128}, 256, False),
        ({"rank": 32, "heads": 2}, 256, True),
        ({"rank": 16}, 16, True),
        ({"bases": 64}, 64, True),
        ({"bases": 8}, 64, False),
        ({}, 64, False),
        ({"rank": None}, 64, False),
    ],
)
def test_a_rank_that_leaves_nothing_out_is_told(hparams: dict[str, Any], cells: int, full: bool) -> None:
    assert bool(full_rank(hparams, 64, cells)) == full
    # a matrix of this rank can be any matrix of these sides
    if full and "heads" not in hparams:
        rank = hparams.get("rank") or hparams["bases"]
        whole = torch.randn(64, cells, generator=torch.Generator().manual_seed(0))
        assert int(torch.linalg.matrix_rank(whole)) <= rank


def test_a_row_of_full_rank_says_so(stored: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked(stored, MeasureTable.model_validate({"recall_tasks": ["global"]}))
    asked.case.hparams = {"rank": 64}
    monkeypatch.setattr(training_file, "trainings", lambda *_: {})
    compute(asked)  # type: ignore[arg-type]  # a part of a measurement
    assert asked.notes[0] == "recall_full_rank"


def is_known(commit: str) -> bool:
    command = ["git", "-C", str(stored_file.ROOT), "cat-file", "-e", commit]
    return not subprocess.run(command, capture_output=True, check=False).returncode


def test_most_rows_of_the_committed_runs_are_read() -> None:
    if not all(is_known(run.meta["environment"]["commit"]) for run in stored_file.stored_runs()):
        pytest.skip("a shallow clone has no commit of these runs")
    rows = [row for run in stored_file.stored_runs() for row in run.rows if row["recall_curve"]]
    files = {entry.reference: entry.file for entry in registry.entries()}
    own = [(row["reference"], row["hparams"], files.get(row["reference"], "")) for row in rows]
    read = [each for each in own if any(stored_file.stored_rows(*each))]
    assert len(read) > len(rows) / 2
