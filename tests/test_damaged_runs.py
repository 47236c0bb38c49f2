"""Run folders that are damaged, and disks that are full: what is wrong is said, what is torn is mended."""

import csv
import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from attacks import small
from drawings import panels
from report_data import ENVIRONMENT, add, new_run, published, record, table3_run, with_timeline, without_key

import ctxbench
from ctxbench.base import disk
from ctxbench.base.errors import AlteredRun, UsageError
from ctxbench.engine.run import resume
from ctxbench.model.metric import POSITIVE, Column
from ctxbench.report.figures.kinds import choose
from ctxbench.report.run_data import open_run
from ctxbench.report.write import write_report
from ctxbench.results import csv_file
from ctxbench.results.run_folder import SCHEMA, RunFolder

pytestmark = pytest.mark.slow  # many small cases, which take seconds together


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run that has ended, with two samples in `samples.csv`."""
    path = table3_run(tmp_path / "run")
    folder = RunFolder.open(path)
    folder.save_meta(environment={**ENVIRONMENT, "driver": None})
    folder.finish("finished")
    return path


def replace(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


def test_a_run_that_is_as_it_was_written_warns_of_nothing(run: Path, recwarn: pytest.WarningsRecorder) -> None:
    assert not ctxbench.load(run).frame.empty
    assert RunFolder.open(run).altered() == ""
    assert not [each for each in recwarn if issubclass(each.category, AlteredRun)]


def test_every_reader_says_that_a_table_is_another_one(run: Path, tmp_path: Path) -> None:
    replace(run / "records.csv", "1050624", "1050625")
    lines = (run / "samples.csv").read_text(encoding="utf-8").splitlines(keepends=True)
    (run / "samples.csv").write_text("".join(lines[:-10]), encoding="utf-8")
    sentence = (
        f"is not as its run wrote it: records.csv has other content; samples.csv has {len(lines) - 11:,} rows, not"
    )
    for read in (lambda: ctxbench.load(run), lambda: write_report([run], tmp_path / "out", [])):
        with pytest.warns(AlteredRun, match=sentence):
            read()
    assert sentence in (tmp_path / "out" / "index.html").read_text(encoding="utf-8")


def test_a_table_that_is_gone_is_another_one_but_for_streams_that_may_be_left_out(run: Path) -> None:
    rows = RunFolder.open(run).meta["tables"]["processes.csv"]["rows"]
    assert rows > 0
    for name in ("samples.csv", "timeline.csv"):
        (run / name).unlink()
    assert RunFolder.open(run).altered() == ""
    (run / "processes.csv").unlink()
    assert f"processes.csv has 0 rows, not {rows:,}" in RunFolder.open(run).altered()


# What Python's int and float take for a number.
ODD = ("7_2", "٧٢", "\u20037", "inf")


@pytest.mark.parametrize(
    ("column", "good", "bad", "holds"),
    [
        (Column("params", int), ["0", "7", ""], ["-1", "1.5", "inf", str(2**63), "9" * 400, *ODD], "at least 0"),
        (Column("x_ms", float, least=POSITIVE), ["1e-9", ""], ["0", "-1", "nan", "1e999", "zz", *ODD], "above 0"),
        (Column("share", float, most=1.0), ["0", "1.0"], ["1.01", "-0.1"], "from 0 to 1"),
        (Column("drift", float, least=-float("inf")), ["-0.5"], ["-inf", "nan"], "a finite number"),
        (Column("curve", str, json=dict), ["{}", '{"a": 1}', ""], ["[]", "zz", "[" * 5000], "an object in JSON"),
        (Column("marks", str, json=list), ["[]"], ["{}", "7"], "a list in JSON"),
        (Column("mode", str, choices=("infer", "train"), required=True), ["train"], ["", "zz"], "infer, train"),
    ],
)
def test_a_column_holds_what_it_says(column: Column, good: list[str], bad: list[str], holds: str) -> None:
    for text in good:
        assert str(column.read(text)) == str(column.type(text) if text or column.type is str else None)
    for text in bad:
        with pytest.raises(ValueError):  # noqa: PT011  # Python's own for what is no number
            column.read(text)
    assert holds in column.holds


@pytest.mark.parametrize("bad", ["-5", "inf", "nan", "zz"])
def test_load_tells_a_cell_by_file_line_and_column(run: Path, bad: str) -> None:
    replace(run / "samples.csv", ",1,", f",{bad},")
    with pytest.warns(AlteredRun), pytest.raises(UsageError, match=rf"samples\.csv, line 2: \w+ is '{bad}', not "):
        _ = ctxbench.load(run).samples


@pytest.mark.parametrize(
    ("line", "column", "value", "sentence"),
    [
        (3, "rounds", "step_condition", "rounds is 'step_condition', not the numbers of processes"),
        (2, "changed", "steps", "changed has 'steps', which is none of its hparams"),
        (2, "hparams", "[]", r"hparams is '\[\]', not an object"),
    ],
)
def test_a_cell_that_no_run_writes_is_told_by_its_line(
    run: Path, line: int, column: str, value: str, sentence: str
) -> None:
    path = run / "records.csv"
    head, *rows = [*csv.reader(path.read_text(encoding="utf-8").splitlines())]
    rows[line - 2][head.index(column)] = value
    path.write_text("".join(map(csv_file.csv_line, (head, *rows))), encoding="utf-8")
    with pytest.warns(AlteredRun), pytest.raises(UsageError, match=rf"records\.csv, line {line}: {sentence}"):
        _ = ctxbench.load(run).frame


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"environment": 3}, "environment is 3"),
        ({"environment": {"gpus": [1]}}, "environment.gpus.0 is 1"),
        ({"environment": {"packages": "torch"}}, "environment.packages is 'torch'"),
        ({"definition": [1]}, "definition is"),
        ({"metrics": "params"}, "metrics is 'params'"),
        ({"sources": {"sa": {"file": 1, "sha256": ""}}}, "sources.sa.file is 1"),
        ({"tables": {"records.csv": 7}}, "tables.records.csv is 7"),
        ({"counted": {"commit": 1}}, "counted.commit is 1"),
        ({"reused": {"cases": 1}}, "reused.cases is 1"),
        ({"sheets": {"t4": []}}, r"sheets.t4 is \[\]"),
        ({"definition": {"published": published({"sa": 1})}}, "definition.published.rows.sa is 1"),
        ({"definition": {"published": {"rows": {}}}}, "definition.published.title is missing"),
    ],
)
def test_a_key_of_another_type_is_named(run: Path, change: dict[str, Any], sentence: str) -> None:
    meta = json.loads((run / "run.json").read_text(encoding="utf-8"))
    (run / "run.json").write_text(json.dumps({**meta, **change}), encoding="utf-8")
    with pytest.raises(UsageError, match=rf"run\.json is damaged: {sentence}"):
        RunFolder.open(run)


@pytest.mark.parametrize("key", ["environment", "environment.gpus", "environment.packages.torch", "definition.measure"])
def test_resume_names_a_key_that_is_missing(run: Path, key: str) -> None:
    without_key(run, key)
    with pytest.raises(UsageError, match=rf"run\.json is damaged: {key}.* is missing"):
        resume(run)


def test_what_a_full_disk_has_taken_of_a_text_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "table.csv"
    disk.append(path, b"a,b\n")
    opened = os.fdopen

    def almost_full(*arguments: Any, **options: Any) -> Any:
        file = opened(*arguments, **options)

        class Full:
            room = 100_000

            def __enter__(self) -> "Full":
                return self

            def __exit__(self, *error: object) -> None:
                file.close()

            def tell(self) -> Any:
                return file.tell()

            def truncate(self, size: int) -> Any:
                return file.truncate(size)

            def fileno(self) -> Any:
                return file.fileno()

            def write(self, content: memoryview) -> Any:
                if not self.room:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                written = file.write(content[: self.room])
                self.room -= written
                return written

        return Full()

    monkeypatch.setattr(os, "fdopen", almost_full)
    with pytest.raises(OSError, match="No space left"):
        disk.append(path, b"1,2\n" * 50_000)
    monkeypatch.undo()
    assert path.read_text(encoding="utf-8") == "a,b\n"


def test_ctrl_c_leaves_a_row_that_is_written_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "table.csv"
    disk.append(path, b"a,b\n")

    def interrupted(descriptor: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        disk.append(path, b"1,2\n")
    assert path.read_bytes() == b"a,b\n1,2\n"


@pytest.mark.parametrize(
    ("content", "left", "torn"),
    [
        ("", "a,b\n", 0),
        ("a,", "a,b\n", 0),
        ("a,b\n1,2\n3", "a,b\n1,2\n", 0),
        ("a,b\n1,23,4\n5,6\n", "a,b\n1,23,4\n5,6\n", 1),
    ],
)
def test_a_torn_table_is_one_without_the_torn_part(tmp_path: Path, content: str, left: str, torn: int) -> None:
    path = tmp_path / "table.csv"
    path.write_text(content, encoding="utf-8")
    expected = left if not torn else "a,b\n5,6\n"
    assert csv_file.mend(path, ["a", "b"]) == torn
    assert path.read_text(encoding="utf-8") == expected


def test_a_long_message_and_a_lone_surrogate_are_one_rows_fault(
    tmp_path: Path, in_process: Callable[..., RunFolder]
) -> None:
    module = tmp_path / "mine.py"
    module.write_text(
        "from torch import nn\n"
        "class Long(nn.Module):\n"
        "    def __init__(self, channels):\n        super().__init__()\n"
        "    def forward(self, x):\n        raise RuntimeError('x' * 130_000)\n"
        "class Lone(Long):\n"
        "    def forward(self, x):\n        raise RuntimeError('\\udcff')\n"
    )
    folder = in_process(f"{module}:Long", f"{module}:Lone", "linear")
    frame = folder.frame()
    assert frame["status"].tolist() == ["error", "error", "ok"]
    assert len(frame["message"][0]) < 500
    assert "all of it is in log.txt" in frame["message"][0]
    assert "\\udcff" in frame["message"][1]
    log = (folder.path / "log.txt").read_text(encoding="utf-8")
    assert "x" * 130_000 in log
    assert "\\udcff" in log


@pytest.fixture
def in_process(tmp_path: Path) -> Callable[..., RunFolder]:
    def measure(*modules: str) -> RunFolder:
        return ctxbench.run(
            "quick",
            modules=modules,
            shape=(1, 8, 6, 5),
            metrics=["params", "latency"],
            measure={"sample_s": 0.01, "warmup_s": 0},
            out=tmp_path / "run",
            in_process=True,
        ).folder

    return measure


def test_a_run_that_was_altered_is_not_resumed(small_run: RunFolder) -> None:
    table = small_run.path / "processes.csv"
    lines = table.read_text(encoding="utf-8").splitlines(keepends=True)
    table.write_text("".join(lines[:-1]), encoding="utf-8")
    with pytest.raises(UsageError, match=r"processes\.csv has \d+ rows, not \d+; it cannot be resumed"):
        resume(small_run.path, in_process=True)


def test_a_process_whose_row_is_torn_is_measured_again(small_run: RunFolder) -> None:
    counted = small.counted(small_run)
    small_run.save_meta(state="running", tables={})
    table = small_run.path / "processes.csv"
    table.write_bytes(table.read_bytes()[:-5])
    again = resume(small_run.path, in_process=True)
    assert small.counted(again) == counted
    assert again.meta["state"] == "finished"
    assert again.altered() == ""


def test_a_run_whose_disk_is_full_says_how_to_continue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, content: bytes, *mode: Any) -> None:
        if path.name == "processes.csv" and path.exists():
            raise OSError(errno.ENOSPC, "No space left on device")
        append(path, content, *mode)

    append = disk.append
    monkeypatch.setattr(disk, "append", full)
    out = tmp_path / "run"
    with pytest.raises(UsageError, match=rf"No space left on device; continue with: ctxbench resume {out}$"):
        small.begin(tmp_path, out)
    monkeypatch.undo()
    assert RunFolder.open(out).meta["state"] == "interrupted"
    assert resume(out, in_process=True).failed == 0


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        (f'"schema": {SCHEMA}', '"schema": 0', "has schema 0"),
        (",oom,", ",OOM,", r"records\.csv, line 2: status is 'OOM', not one of ok, oom"),
        ("1,512,128,128", "1,512,0,128", r"records\.csv, line 2: height is '0', not a 64-bit integer, at least 1"),
        ("1050624", "-5", r"records\.csv, line 2: params is '-5'"),
        ("5048962", "many", r"records\.csv, line 3: params is 'many', not a 64-bit integer"),
        (
            "da 1x512x128x128 cpu ",
            "sa 1x512x128x128 cpu ",
            r"records\.csv, line 3: case is 'sa .*'; it stands in an earlier line too",
        ),
    ],
)
def test_a_hand_edited_cell_gets_a_sentence_with_its_line(tmp_path: Path, old: str, new: str, sentence: str) -> None:
    path = table3_run(tmp_path / "run", failed=["sa"])
    replace(path / ("run.json" if "schema" in old else "records.csv"), old, new)
    with pytest.raises(UsageError, match=sentence):
        open_run(path)


def test_an_interval_that_excludes_its_median_is_refused(tmp_path: Path) -> None:
    folder = new_run(tmp_path / "run")
    values: dict[str, Any] = {"latency_infer_ms": 5.0, "latency_infer_low_ms": 6.0, "latency_infer_high_ms": 7.0}
    add(folder, record("sa", **values))
    with pytest.raises(UsageError, match=r"line 2: latency_infer_low_ms is '6.0'; it must be at most the median"):
        open_run(folder.path)


def test_a_torn_line_missing_cells_and_other_encodings_get_sentences(tmp_path: Path) -> None:
    path = table3_run(tmp_path / "run")
    records = path / "records.csv"
    whole = records.read_bytes()
    header, first, rest = whole.split(b"\n", 2)
    for content, sentence in (
        (whole[:-20], r"records\.csv, line 5: the line is torn"),
        (header + b"\n" + first + b"\n" + rest.replace(b",", b"", 1), r"records\.csv, line 3: \d+ cells"),
        (whole.replace(b"SA block", b"S\xff block"), r"records\.csv, line 2: the text is not UTF-8"),
        (whole.decode().encode("utf-16"), r"records\.csv, line 1: the text is not UTF-8"),
        (whole.replace(b",batch,", b",other,", 1), "lacks the column 'batch'"),
    ):
        records.write_bytes(content)
        with pytest.raises(UsageError, match=sentence):
            open_run(path)


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("forward", "sideways", "line 2: phase is 'sideways', not one of forward, backward"),
        (",infer,", ",inferno,", "line 2: mode is 'inferno', not one of infer, train"),
        (f",{1074 * 2**20}", ",-1", "line 2: bytes is '-1', not a 64-bit integer, at least 0"),
        (f",{1074 * 2**20}", ",", "line 2: bytes is '', not a 64-bit integer"),
        (f",{1074 * 2**20}", ",much", "line 2: bytes is 'much', not a 64-bit integer"),
    ],
)
def test_a_damaged_timeline_is_told_by_its_line(tmp_path: Path, old: str, new: str, sentence: str) -> None:
    folder = new_run(tmp_path / "run")
    add(folder, record("sa"))
    path = with_timeline(folder.path, ["sa"]) / "timeline.csv"
    replace(path, old, new)
    with pytest.raises(UsageError, match=rf"timeline\.csv, {sentence}"):
        choose(["memory"], panels(folder.path))
