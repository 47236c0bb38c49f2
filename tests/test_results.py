"""The run folder: what is written comes back, with the right types, whatever interrupted the writer."""

import errno
import gzip
import json
import math
import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from ctxbench.base import disk
from ctxbench.base.errors import UsageError
from ctxbench.base.notes import Note
from ctxbench.model.messages import Sample, TimelineStep
from ctxbench.model.record import Record
from ctxbench.results.environment import command_line
from ctxbench.results.run_folder import RunFolder, default_path
from ctxbench.results.tables import tables


def record(case: str = "sa 1x8x4x4 float32 cpu", **values: Any) -> Record:
    facts: dict[str, Any] = {
        "module": "sa", "title": "SA, \"quoted\"", "family": "attention", "reference": "m:C",
        "hparams": '{"d": 4}', "changed": "d",
        "batch": 1, "channels": 8, "height": 4, "width": 4, "dtype": "float32", "memory_format": "contiguous",
        "execution": "eager", "threads": None, "device": "cpu",
    }  # fmt: skip
    found = Record(case=case, **facts)
    found.take(values)
    return found


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path / "run", {"suite": "tiny"})


def test_a_record_comes_back_with_its_types(folder: RunFolder) -> None:
    folder.write_records([record(params=2**60 + 1, latency_infer_ms=0.1 + 0.2, message="two\nlines"), record("other")])
    frame = folder.frame()
    assert frame["params"].dtype == "Int64"
    assert frame["params"].tolist()[0] == 2**60 + 1
    assert frame["params"].isna().tolist() == [False, True]
    assert frame["threads"].isna().all()
    assert frame["latency_infer_ms"].dtype == "float64"
    assert frame["latency_infer_ms"][0] == 0.1 + 0.2
    assert frame["message"].tolist() == ["two lines", ""]
    assert frame["title"][0] == 'SA, "quoted"'
    assert json.loads(frame["hparams"][0]) == {"d": 4}


def test_plain_pandas_reads_the_columns_that_the_issue_names(folder: RunFolder) -> None:
    folder.write_records([record(params=7)])
    frame = pd.read_csv(folder.path / "records.csv")
    wanted = (
        "module,family,hparams,batch,channels,height,width,dtype,device,status,message,params,macs,macs_matmul,"
        "macs_formula,latency_infer_ms,latency_infer_low_ms,latency_infer_high_ms,latency_infer_samples,latency_train_ms"
    )
    assert set(wanted.split(",")) <= set(frame.columns)
    assert frame["params"].tolist() == [7]


def test_samples_keep_their_order_and_digits(folder: RunFolder) -> None:
    stream = [Sample(0.1 * i, 3, 1 / (i + 1)) for i in range(5)]
    folder.append(1, record(), {"infer": stream, "train": stream[:2]})
    frame = folder.samples()
    assert frame["mode"].tolist() == ["infer"] * 5 + ["train"] * 2
    assert frame["ms"].tolist()[:5] == [1 / (i + 1) for i in range(5)]


def leave(folder: RunFolder, case: str) -> None:
    """Write a case with a row in every table."""
    timelines = {"infer": [TimelineStep(0, "forward", "aten.bmm.default", 2**40)]}
    folder.append(0, record(case), {"infer": [Sample(0.1, 1, 1.0)]}, timelines)


def test_a_timeline_keeps_its_order_and_its_bytes(folder: RunFolder) -> None:
    train = [
        TimelineStep(0, "forward", "aten.bmm.default", 2**60 + 1),
        TimelineStep(7, "backward", "aten.bmm.default", 3),
    ]
    folder.append(0, record("sa"), {}, {"infer": train[:1], "train": train})
    frame = folder.timeline()
    assert frame["mode"].tolist() == ["infer", "train", "train"]
    assert frame["step"].tolist() == [0, 0, 7]
    assert frame["phase"].tolist() == ["forward", "forward", "backward"]
    assert frame["bytes"].tolist() == [2**60 + 1, 2**60 + 1, 3]


def test_recover_removes_what_a_killed_writer_left(folder: RunFolder) -> None:
    leave(folder, "first")
    whole = {name: (folder.path / name).read_bytes() for name in tables()}
    with (folder.path / "timeline.csv").open("a") as file:
        file.write("second,infer,0,forward,aten.bmm.default,7\nsecond,infer,1,forw")
    with (folder.path / "samples.csv").open("a") as file:
        file.write("first,2,infer,0,0.1,1,2.0\nfirst,2,infer,1,0.")
    with (folder.path / "processes.csv").open("a") as file:
        file.write("first,sa,SA")
    folder.recover()
    assert {name: (folder.path / name).read_bytes() for name in whole} == whole


def test_drop_removes_a_case_from_every_table(folder: RunFolder) -> None:
    for case in ("first", "second"):
        leave(folder, case)
    folder.drop({"first"})
    assert [*folder.finished()] == ["second"]
    assert folder.samples()["case"].tolist() == ["second"]
    assert folder.timeline()["case"].tolist() == ["second"]


def test_a_process_comes_back_as_it_was_written(folder: RunFolder) -> None:
    slow = record("first", latency_infer_ms=1 / 3)
    slow.note(Note("remark", {"text": "one; two"}, "macs"), Note("no_memory_autocast"))
    for number, each in ((2, slow), (0, record("first", params=7)), (1, record("second"))):
        folder.append(number, each, {"infer": [Sample(0.1, 1, 1.0)]})
    found = folder.finished()
    assert {case: [*processes] for case, processes in found.items()} == {"first": [2, 0], "second": [1]}
    assert found["first"][2] == replace(slow, machine_state="")
    assert folder.samples()["process"].tolist() == [2, 0, 1]


def test_a_full_disk_is_a_sentence_and_no_half_row(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.append(1, record("first"), {})
    before = (folder.path / "processes.csv").read_bytes()

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UsageError, match=r"cannot write to .*: No space left on device"):
        folder.append(1, record("second"), {})
    assert (folder.path / "processes.csv").read_bytes() == before


def test_create_refuses_what_is_in_the_way(folder: RunFolder, tmp_path: Path) -> None:
    for name in ("run.json", "records.csv"):
        with pytest.raises(UsageError, match=rf"already holds a run \({name}\)"):
            RunFolder.create(folder.path, {})
        (folder.path / name).unlink()
    (tmp_path / "file").write_text("x")
    with pytest.raises(UsageError, match="file: it is a file, not a folder"):
        RunFolder.create(tmp_path / "file", {})
    with pytest.raises(UsageError, match="cannot write to"):
        RunFolder.create(tmp_path / "file" / "below", {})


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("{", "run.json is not JSON"),
        ('{"schema": 99}', "run.json has schema 99, and this ctxbench reads schema 10: read the run with the"),
        ('{"schema": 8}', "run.json has schema 8, and this ctxbench reads schema 10"),
        ('{"schema": true}', "run.json has schema True, and"),
        ('{"schema": "9"}', "run.json has schema '9', and"),
        ("{}", "run.json has schema None, and"),
        ("[]", "run.json has schema None, and"),
    ],
)
def test_open_refuses_a_folder_that_it_cannot_read(tmp_path: Path, content: str, sentence: str) -> None:
    (tmp_path / "run.json").write_text(content)
    with pytest.raises(UsageError) as caught:
        RunFolder.open(tmp_path)
    assert sentence in str(caught.value)


def test_open_refuses_a_folder_without_a_run(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no run folder: it has no run\.json"):
        RunFolder.open(tmp_path)


def without(path: Path, *names: str, **more: str) -> None:
    """Rewrite a table without some columns and with others behind the last."""
    frame = pd.read_csv(path, dtype="string", keep_default_na=False).drop(columns=[*names])
    frame.assign(**more).to_csv(path, index=False)


def test_a_column_that_a_folder_lacks_is_empty_and_an_unknown_one_is_ignored(folder: RunFolder) -> None:
    leave(folder, "first")
    folder.write_records([record("first", params=7, control_ms=1.5)])
    without(folder.path / "records.csv", "control_ms", "rounds", novel="x")
    frame = RunFolder.open(folder.path).frame()
    assert frame["params"].tolist() == [7]
    assert frame["control_ms"].isna().all()
    assert frame["control_ms"].dtype == "float64"
    assert frame["latency_infer_processes"].tolist() == [{}]
    assert "novel" not in frame


def test_a_run_goes_on_after_an_upgrade_that_adds_a_column(folder: RunFolder) -> None:
    leave(folder, "first")
    without(folder.path / "processes.csv", "control_ms", "params", novel="x")
    again = RunFolder.open(folder.path)
    again.recover()
    again.append(1, record("first", params=7, control_ms=1.5), {})
    assert {n: each.get("params") for n, each in again.finished()["first"].items()} == {0: None, 1: 7}
    table = pd.read_csv(folder.path / "processes.csv")
    assert table["novel"].fillna("").tolist() == ["x", ""]
    assert table["control_ms"].fillna(0).tolist() == [0, 1.5]


def test_tables_that_were_not_kept_are_empty(folder: RunFolder) -> None:
    folder.write_records([replace(record("first", latency_infer_ms=1.5), rounds="1 2 3")])
    for name in ("samples.csv", "timeline.csv", "processes.csv"):
        (folder.path / name).unlink()
    assert folder.samples().columns.tolist() == ["case", "process", "mode", "index", "at_s", "passes", "ms"]
    assert folder.samples().empty
    assert folder.timeline().empty
    assert folder.frame()["latency_infer_processes"].tolist() == [{}]


def compress(folder: Path, *names: str) -> None:
    """Compress tables of a run folder as gzip does, which removes what it has compressed."""
    for name in names:
        (folder / f"{name}.gz").write_bytes(gzip.compress((folder / name).read_bytes(), mtime=0))
        (folder / name).unlink()


def test_a_compressed_table_is_read_as_it_was_and_unpacked_where_the_run_goes_on(folder: RunFolder) -> None:
    leave(folder, "first")
    folder.write_records([replace(record("first", latency_infer_ms=1.5), rounds="0")])
    folder.finish("finished")
    plain = {name: (folder.path / name).read_bytes() for name in tables()}
    before = folder.rows(), folder.finished(), folder.samples(), folder.timeline()
    compress(folder.path, *tables())
    again = RunFolder.open(folder.path)
    assert again.altered() == ""
    assert (again.rows(), again.finished()) == before[:2]
    for now, then in zip((again.samples(), again.timeline()), before[2:], strict=True):
        pd.testing.assert_frame_equal(now, then)
    assert pd.read_csv(folder.path / "records.csv.gz")["latency_infer_ms"].tolist() == [1.5]
    with pytest.raises(UsageError, match="already holds a run"):
        RunFolder.create(folder.path, {})
    assert again.recover() == []
    assert {path.name: path.read_bytes() for path in folder.path.glob("*.csv*")} == plain


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda whole: b"case,module", "Not a gzipped file"),
        (lambda whole: whole[:-9], "end-of-stream marker"),
        (lambda whole: whole[:12] + b"?" + whole[13:], "invalid"),
        (lambda whole: whole[:-8] + bytes(4) + whole[-4:], "CRC check failed"),
        (lambda whole: gzip.compress(bytes(20_001)), "it has more than 20,000 bytes"),
    ],
)
def test_a_compressed_table_that_cannot_be_read_is_a_sentence(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch, damage: Callable[[bytes], bytes], reason: str
) -> None:
    compress(folder.path, "records.csv")
    path = folder.path / "records.csv.gz"
    path.write_bytes(damage(path.read_bytes()))
    monkeypatch.setattr(disk.read_bytes, "__defaults__", (20_000,))
    with pytest.raises(UsageError, match=f"cannot read {re.escape(str(path))}: .*{reason}"):
        folder.rows()


def test_medians_are_those_of_the_rounds_that_a_time_comes_from(folder: RunFolder) -> None:
    for number, ms in enumerate((4.0, 9.0, 6.0), 1):
        folder.append(number, record("first", latency_infer_ms=ms, control_ms=2 * ms), {})
    folder.append(1, record("second", latency_infer_ms=1.0), {})
    both = [replace(record("first"), rounds="1 3"), replace(record("second"), rounds="1")]
    folder.write_records(both)
    frame = folder.frame()
    assert frame["latency_infer_processes"].tolist() == [{1: 4.0, 3: 6.0}, {1: 1.0}]
    assert frame["control_processes"].tolist() == [{1: 8.0, 3: 12.0}, {}]
    folder.save_meta(reused={"folder": "x", "cases": ["first"]})
    assert folder.frame()["latency_infer_processes"].tolist() == [{}, {1: 1.0}]


@pytest.mark.parametrize("ms", [0.0, -1.0, math.inf])
def test_a_median_that_is_none_is_named_with_its_line(folder: RunFolder, ms: float) -> None:
    for number, each in ((0, 1.0), (1, ms)):
        folder.append(number, record("first", latency_infer_ms=each), {})
    with pytest.raises(
        UsageError, match=rf"processes\.csv, line 3: latency_infer_ms is '{ms}', not a finite number above 0"
    ):
        folder.frame()


def test_quantities_derive_from_a_time_where_all_that_they_need_is_known(folder: RunFolder) -> None:
    timed = {"latency_infer_ms": 4.0, "macs": 8_000_000}
    folder.write_records([
        record("a", **timed, matmul_macs_per_s=4e9), record("b", **timed), record("c", macs=5),
    ])  # fmt: skip
    frame = folder.frame()
    batch, height, width = (int(frame[name][0]) for name in ("batch", "height", "width"))
    assert frame["throughput_infer"].tolist() == pytest.approx([250 * batch, 250 * batch, math.nan], nan_ok=True)
    assert frame["macs_per_s"].tolist() == pytest.approx([2e9, 2e9, math.nan], nan_ok=True)
    assert frame["matmul_share"].tolist() == pytest.approx([50, math.nan, math.nan], nan_ok=True)
    per_megapixel = 4e6 / (batch * height * width)
    assert frame["time_per_megapixel_infer"].tolist() == pytest.approx([per_megapixel] * 2 + [math.nan], nan_ok=True)
    assert frame["throughput_train"].isna().all()


@pytest.mark.parametrize("text", ["x", "[1]", '[{"code": "a"}]', '{"a": 1}'])
def test_notes_that_are_none_are_named_with_their_line(folder: RunFolder, text: str) -> None:
    folder.write_records([record("first"), record("second", message="here")])
    without(folder.path / "records.csv", "notes", notes=text)
    with pytest.raises(UsageError, match=r"records\.csv, line 2: notes is .*; it must be a list of notes in JSON"):
        folder.frame()


def test_a_missing_column_of_what_names_a_case_is_named(folder: RunFolder) -> None:
    path = folder.path / "records.csv"
    path.write_text(path.read_text().replace("hparams,", "", 1))
    with pytest.raises(UsageError, match="lacks the column 'hparams'"):
        folder.frame()


def test_the_default_folder_is_new_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    first = default_path("tiny")
    first.mkdir(parents=True)
    second = default_path("tiny")
    assert first.parent == Path("runs")
    assert first != second


def test_a_logged_path_is_one_from_the_working_folder(folder: RunFolder) -> None:
    folder.log("sa", f'File "{Path.cwd() / "modules" / "sa.py"}", line 3\n')
    assert (folder.path / "log.txt").read_text() == '== sa\nFile "modules/sa.py", line 3\n\n'


@pytest.mark.parametrize(
    ("started", "told"), [("/bin/ctxbench", "ctxbench"), ("/site/ctxbench/__main__.py", "python -m ctxbench")]
)
def test_the_command_of_a_run_is_one_that_can_be_given_again(
    monkeypatch: pytest.MonkeyPatch, started: str, told: str
) -> None:
    monkeypatch.setattr("sys.argv", [started, "run", "--suite", "deploy"])
    assert command_line() == f"{told} run --suite deploy"
