"""The run folder: what is written comes back, with the right types, whatever interrupted the writer."""

import errno
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from ctxbench.errors import UsageError
from ctxbench.messages import PredictedTime, Sample, TimelineStep
from ctxbench.results import run_folder as results
from ctxbench.results.record import Record, columns
from ctxbench.results.run_folder import SCHEMA, RunFolder


def record(case: str = "sa 1x8x4x4 float32 cpu", **values: Any) -> Record:
    facts: dict[str, Any] = {
        "module": "sa", "title": "SA, \"quoted\"", "family": "attention", "reference": "m:C", "hparams": '{"d": 4}',
        "batch": 1, "channels": 8, "height": 4, "width": 4, "dtype": "float32", "memory_format": "contiguous",
        "execution": "eager", "threads": None, "device": "cpu",
    }  # fmt: skip
    found = Record(case=case, **facts)
    found.take(values)
    return found


LATER = [name for name, column in columns().items() if column.since > 1]


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


def test_predicted_times_of_a_device_are_one_row(folder: RunFolder) -> None:
    times = [
        PredictedTime("t4", "Tesla T4", "infer", 1 / 3, 0.25, 0.5, ["from, data"]),
        PredictedTime("l4", "NVIDIA L4", "train", 2.0, 1.0, 4.0),
        PredictedTime("t4", "Tesla T4", "train", 12345.678, 1e4, 2e4),
    ]
    folder.append(0, record("sa"), {}, {}, times)
    frame = folder.predictions()
    assert frame["target"].tolist() == ["t4", "l4"]
    assert frame["latency_infer_predicted_ms"].tolist()[0] == 0.3333
    assert frame["latency_train_predicted_high_ms"].tolist() == [20000, 4.0]
    assert frame["latency_infer_predicted_ms"].isna().tolist() == [False, True]
    assert frame["latency_infer_predicted_notes"].tolist() == [["from, data"], []]


def test_recover_removes_what_a_killed_writer_left(folder: RunFolder) -> None:
    leave(folder, "first")
    whole = {name: (folder.path / name).read_bytes() for name in results.tables()}
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
    slow.warn("one; two", "three")
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
    with pytest.raises(UsageError, match="already holds a run"):
        RunFolder.create(folder.path, {})
    (tmp_path / "file").write_text("x")
    with pytest.raises(UsageError, match="is a file; --out takes a folder"):
        RunFolder.create(tmp_path / "file", {})
    with pytest.raises(UsageError, match="cannot write to"):
        RunFolder.create(tmp_path / "file" / "below", {})


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("{", "is damaged"),
        ('{"schema": 99}', f"it has schema 99, this one reads up to {SCHEMA}; install a newer ctxbench"),
        ('{"schema": 0}', f"run.json has schema 0; a run has one from 1 to {SCHEMA}"),
        ('{"schema": true}', f"run.json has schema True; a run has one from 1 to {SCHEMA}"),
        ('{"schema": "2"}', f"run.json has schema '2'; a run has one from 1 to {SCHEMA}"),
        ("{}", f"run.json has schema None; a run has one from 1 to {SCHEMA}"),
        ("[]", f"run.json has schema None; a run has one from 1 to {SCHEMA}"),
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


def of_schema_1(folder: RunFolder) -> Path:
    """What an older ctxbench would have written in this folder's place."""
    meta = json.loads((folder.path / "run.json").read_text())
    (folder.path / "run.json").write_text(json.dumps(meta | {"schema": 1}))
    frame = pd.read_csv(folder.path / "records.csv", dtype="string").drop(columns=[*LATER])
    frame.to_csv(folder.path / "records.csv", index=False)
    samples = pd.read_csv(folder.path / "samples.csv", dtype="string").drop(columns="process")
    samples.to_csv(folder.path / "samples.csv", index=False)
    for name in ("timeline.csv", "processes.csv", "predictions.csv"):
        (folder.path / name).unlink()
    return folder.path


def test_an_older_run_is_read_with_its_new_columns_empty(folder: RunFolder) -> None:
    folder.append(1, record(), {"infer": [Sample(0.1, 1, 1.0)]})
    folder.write_records([record(params=7, control_ms=1.5)])
    old = RunFolder.open(of_schema_1(folder))
    frame = old.frame()
    assert frame.columns.tolist() == [*columns()]
    assert frame["params"].tolist() == [7]
    assert (frame[[*LATER]].isna() | (frame[[*LATER]] == "")).all(axis=None)
    assert frame["control_ms"].dtype == "float64"
    assert len(old.samples()) == 1
    assert old.timeline().columns.tolist() == [*results.TIMELINE_COLUMNS]
    assert old.timeline().empty
    assert old.predictions().columns.tolist() == [*results.PREDICTION_COLUMNS]
    assert old.predictions().empty


def test_an_older_run_is_never_written_to(folder: RunFolder) -> None:
    leave(folder, "first")
    path = of_schema_1(folder)
    before = {file.name: file.read_bytes() for file in path.iterdir()}
    old = RunFolder.open(path)
    for write in (old.recover, lambda: old.append(1, record("second"), {}), lambda: old.save_meta(state="running")):
        with pytest.raises(UsageError, match=rf"\(schema 1, now {SCHEMA}\), so it cannot be resumed; start a new run"):
            write()
    assert {file.name: file.read_bytes() for file in path.iterdir()} == before


@pytest.mark.parametrize("column", LATER)
def test_a_run_of_today_must_have_its_columns(folder: RunFolder, column: str) -> None:
    path = folder.path / "records.csv"
    path.write_text(path.read_text().replace(f",{column}", "", 1))
    with pytest.raises(UsageError, match=f"lacks the column '{column}'"):
        folder.frame()


def test_a_hand_edited_cell_is_named_with_its_line(folder: RunFolder) -> None:
    folder.write_records([record("first", params=1), record("second", params=777)])
    path = folder.path / "records.csv"
    path.write_text(path.read_text().replace("777", "many"))
    with pytest.raises(UsageError, match=r"records\.csv, line 3: params is 'many', not an integer"):
        folder.frame()


def test_a_missing_column_is_named(folder: RunFolder) -> None:
    path = folder.path / "records.csv"
    path.write_text(path.read_text().replace("macs_matmul,", "", 1))
    with pytest.raises(UsageError, match="lacks the column 'macs_matmul'"):
        folder.frame()


def test_the_default_folder_is_new_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    first = results.default_path("tiny")
    first.mkdir(parents=True)
    second = results.default_path("tiny")
    assert first.parent == Path("results")
    assert first != second


def test_a_logged_path_is_one_from_the_working_folder(folder: RunFolder) -> None:
    folder.log("sa", f'File "{Path.cwd() / "modules" / "sa.py"}", line 3\n')
    assert (folder.path / "log.txt").read_text() == '== sa\nFile "modules/sa.py", line 3\n\n'
