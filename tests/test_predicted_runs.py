"""Predicted times from the suite to the report: columns, notes, tables, crossovers, the figure, wrong suites."""

import math
from collections.abc import Callable, Sequence
from io import StringIO
from pathlib import Path

import pandas as pd
import pytest
import torch
from report_data import FACTS, add, definition, new_run, record
from typer.testing import CliRunner

import ctxbench
from ctxbench import cli, registry
from ctxbench.errors import UsageError
from ctxbench.messages import PredictedTime
from ctxbench.predict.passes import operators_of, time_of
from ctxbench.predict.sheets import sheet
from ctxbench.report import write_report
from ctxbench.report.formats.markdown import render_markdown
from ctxbench.report.run_data import RunData, open_run
from ctxbench.report.tables.predicted import agreement, predicted_crossover_table, predicted_table
from ctxbench.results.run_folder import RunFolder
from ctxbench.suite import read as suite

SuiteFile = Callable[..., Path]
ROOT = Path(__file__).resolve().parents[1]
TITAN = "NVIDIA TITAN Xp"


@pytest.mark.processes
@pytest.mark.usefixtures("shared_server")
def test_a_static_run_has_the_times_of_each_device(suite_file: SuiteFile, tmp_path: Path) -> None:
    path = suite_file(["sa", "a2"], metrics=("params",))
    run = ctxbench.run(str(path), static=True, measure={"predict_for": ["titan-xp", "h100-sxm"]}, out=tmp_path / "run")
    frame = run.predictions
    assert run.frame["status"].tolist() == ["ok", "ok"]
    assert frame["target"].tolist() == ["titan-xp", "h100-sxm"] * 2
    assert frame["title"].tolist()[:2] == [TITAN, "NVIDIA H100 80GB HBM3"]
    with torch.device("meta"):
        model, x = registry.get("sa").build(8, {}), torch.empty(1, 8, 6, 5)
    for mode in ("infer", "train"):
        found = time_of(operators_of(model, x, mode=mode), sheet("titan-xp"))
        assert frame[f"latency_{mode}_predicted_ms"][0] == pytest.approx(found.ms, rel=1e-3)
        assert frame[f"latency_{mode}_predicted_low_ms"][0] == pytest.approx(found.low_ms, rel=1e-3)
        assert frame[f"latency_{mode}_predicted_high_ms"][0] == pytest.approx(found.high_ms, rel=1e-3)
    assert frame["latency_infer_predicted_notes"][0][0].startswith("Launch-bound")
    assert run.frame["latency_infer_ms"].isna().all()


@pytest.mark.processes
@pytest.mark.usefixtures("shared_server")
def test_what_cannot_be_predicted_is_a_warning(suite_file: SuiteFile, tmp_path: Path) -> None:
    axes = "dtype = ['bfloat16', 'autocast-bfloat16']"
    path = suite_file(["sa"], ("predicted_time",), axes, measure="predict_for = 'titan-xp'")
    run = ctxbench.run(str(path), static=True, out=tmp_path / "run")
    assert run.predictions.empty
    assert run.frame["warnings"].tolist() == [
        ["no predicted time: NVIDIA TITAN Xp has no unit for bfloat16; its peaks are of float32, float64"],
        ["no predicted time: eager, autocast-bfloat16; only eager passes without autocast"],
    ]


def test_a_suite_that_predicts_names_the_metric_and_known_devices(suite_file: SuiteFile) -> None:
    with pytest.raises(UsageError, match=r"measure\.predict_for goes with 'predicted_time' in metrics"):
        suite.load(str(suite_file(["sa"], measure="predict_for = ['t4']")))
    with pytest.raises(UsageError, match=r"'measure\.predict_for\.1' is 'T4': unknown device 'T4'"):
        suite.load(str(suite_file(["sa"], ("predicted_time",), measure="predict_for = ['t4', 'T4']")))


@pytest.mark.slow
def test_a_pass_is_explained_by_operator() -> None:
    options = ["predict", "sa", "--for", "a100-40gb", "--shape", "1,512,64,64", "--mode", "train"]
    text = CliRunner().invoke(cli.app, options, catch_exceptions=False, env={"COLUMNS": "200"}).output
    assert "sa [1, 512, 64, 64] float32, train: predicted for NVIDIA A100-PCIE-40GB, not measured:" in text
    assert "large product" in text
    assert "measured on this device" in text
    assert "bandwidth" in text


PREDICTED = {"sa": 100.0, "da": 50.0, "ham_nmf": 7.0}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Predictions for two devices; DA's published time in training has a footnote."""
    folder = new_run(tmp_path / "run")
    doubt = {"module": "da", "column": "latency_train", "text": "Not a full pass."}
    folder.meta["definition"]["published"] = {**folder.meta["definition"]["published"], "footnotes": [doubt]}
    folder.save_meta()
    for module in FACTS:
        row = record(module, "meta")
        times = [
            PredictedTime(name, title, mode, scale * ms, scale * ms / 2, scale * ms * 2, ["A note."])
            for name, title, scale in (("titan-xp", TITAN, 1.0), ("t4", "Tesla T4", 2.0))
            for mode in ("infer", "train")
            if (ms := PREDICTED.get(module))
        ]
        folder.append(0, row, {}, {}, times)
        add(folder, row)
    return folder.path


def test_the_table_has_a_part_for_each_device_beside_the_papers_times(run: Path) -> None:
    table = predicted_table(RunData.read(RunFolder.open(run)))
    assert table is not None
    assert [row.module for row in table.rows] == ["sa", "da", "ham_nmf"]
    origins = [(column.group, column.header, column.origin) for column in table.columns[1:]]
    paper = [(f"{TITAN} (ms)", f"{mode}, paper", "published") for mode in ("train", "infer")]
    ours = [(f"{TITAN} (ms)", f"{mode}, predicted", "predicted") for mode in ("train", "infer")]
    other = [("Tesla T4 (ms)", f"{mode}, predicted", "predicted") for mode in ("train", "infer")]
    assert origins == [paper[0], ours[0], paper[1], ours[1], *other]
    assert [cell.text for cell in table.rows[0].cells][1:3] == ["242.0", "100 [50.0, 200]"]
    text = render_markdown(table)
    assert "*100 [50.0, 200]*<sup>" in text  # predictions are in italics
    assert "not measured; 80 % band" in text
    assert {"Not a full pass.", "A note."} <= set(table.notes)
    assert len(pd.read_csv(StringIO(table.csv))) == 6


def test_agreement_leaves_out_what_a_footnote_doubts(run: Path) -> None:
    found = agreement(RunData.read(RunFolder.open(run)))
    assert list(zip(found.rows["module"], found.rows["mode"], strict=True)) == [
        ("sa", "train"), ("sa", "infer"), ("da", "infer"), ("ham_nmf", "train"), ("ham_nmf", "infer"),
    ]  # fmt: skip
    assert found.ratio.tolist() == pytest.approx([100 / 242, 100 / 82.2, 50 / 64.4, 7 / 15.6, 7 / 7.7])
    assert found.median_error == pytest.approx(1 - 50 / 64.4)
    assert found.near == 3
    assert found.inside.tolist() == [False, True, True, False, True]
    assert found.rank_correlation == pytest.approx(0.9**0.5)


def test_the_report_has_the_table_and_the_figure(run: Path, tmp_path: Path) -> None:
    written = write_report([run], tmp_path / "out", ["predicted"])
    names = {path.name for path in written.files}
    assert {"table3-predicted.md", "table3-predicted.tex", "predicted.svg"} <= names
    svg = (tmp_path / "out" / "figures" / "predicted.svg").read_text()
    assert "published or measured, ms" in svg
    page = written.page.read_text()
    assert "Predicted time by device" in page
    assert "sa: published 242 ms, predicted 100 ms [50.0, 200], ratio 0.41" in page


def test_a_time_that_was_measured_on_the_device_is_in_the_figure(run: Path, tmp_path: Path) -> None:
    folder = RunFolder.open(run)
    folder.save_meta(environment={**folder.meta["environment"], "gpus": [{"name": "Tesla T4"}]})
    text = (run / "records.csv").read_text().replace(",meta,ok", ",cuda,ok")
    (run / "records.csv").write_text(text)
    frame = folder.frame()
    assert frame["device"].unique().tolist() == ["cuda"]
    measured = record("sa", "cuda", latency_infer_ms=150.0)
    measured.case = str(frame["case"][0])
    folder.write_records([measured])
    written = write_report([run], tmp_path / "out", ["predicted"])
    assert "sa: measured 150 ms, predicted 200 ms [100, 400], ratio 1.33" in written.page.read_text()


def test_a_run_without_predictions_has_neither(tmp_path: Path) -> None:
    folder = new_run(tmp_path / "run")
    add(folder, record("sa"))
    assert predicted_table(RunData.read(folder)) is None
    with pytest.raises(UsageError, match="there is no data for the figure 'predicted'"):
        write_report([folder.path], tmp_path / "out", ["predicted"])


NS = (64, 256, 1024, 4096)


def banded_run(path: Path, pairs: Sequence[str] = ("linear:sa",)) -> Path:
    """Predicted times of 512 n and n^2, in training of 2048 n: for one device twice as long at most, for another 20.

    Of the smallest two sizes, `linear` is launch-bound in inference; of DA one size is predicted, on one device.
    """
    folder = new_run(path, suite="mine", definition=definition(published={}, crossover=list(pairs)))
    laws: dict[str, Callable[[int], float]] = {"linear": lambda n: 512.0 * n, "sa": lambda n: n**2.0, "da": float}
    for module, n in ((module, n) for module in laws for n in NS):
        side = math.isqrt(n)
        row = record(module, "meta", (1, 64, side, side))
        times = []
        for name, title, factor in (("t4", "Tesla T4", 2), ("titan-xp", TITAN, 20)):
            for mode in ("infer", "train"):
                ms = laws[module](n) * (4 if (module, mode) == ("linear", "train") else 1)
                notes = ["Launch-bound: the host."] if (module, mode) == ("linear", "infer") and n < 1000 else []
                times.append(PredictedTime(name, title, mode, ms, ms / factor, ms * factor, notes))
        folder.append(0, row, {}, {}, times if module != "da" else times[:2] if n == 64 else [])
        add(folder, row)
    return folder.path


def test_the_crossover_of_predicted_times_has_the_bands_in_it(tmp_path: Path) -> None:
    table = predicted_crossover_table(open_run(banded_run(tmp_path / "run", ["linear:sa", "da:sa"])))
    assert table is not None
    assert [(column.header, column.origin) for column in table.columns] == [
        ("Predicted for", "label"), ("First", "label"), ("Second", "label"), ("Sizes n", "label"),
        ("Time, train, predicted", "predicted"), ("Time, infer, predicted", "predicted"),
    ]  # fmt: skip
    # In training 1024 n = 2 n^2 at n = 512, and 4096 n = n^2 / 2 at 8192; in inference at 128 and 2048.
    assert [[cell.text for cell in row.cells] for row in table.rows] == [
        ["Tesla T4", "linear", "sa", "64 to 4096 (4)", "2050 [512, > 4096]", "510 [130, 2050]"],
        [TITAN, "linear", "sa", "64 to 4096 (4)", *["not decided by the prediction"] * 2],
    ]
    first, second = table.data.to_dict("records")
    ends = [f"latency_{mode}_predicted_{end}" for mode in ("train", "infer") for end in ("low", "n", "high")]
    assert [first[end] for end in ends] == pytest.approx([512, 2048, math.inf, 128, 512, 2048], rel=1e-3)
    assert [second[end] for end in ends] == pytest.approx([0, math.nan, math.inf] * 2, nan_ok=True)
    assert [row.cells[5].notes for row in table.rows] == [(1,), (1,)]
    assert table.notes == ("linear is launch-bound at 2 of 4 sizes, the largest n = 256.",)
    assert "not measured; 80 % band" in table.caption[0]


def test_the_report_has_predicted_crossovers_beside_the_counted_ones(tmp_path: Path) -> None:
    written = write_report([banded_run(tmp_path / "run", [])], tmp_path / "out", [], crossover=["sa:linear"])
    assert {"mine-crossover.md", "mine-crossover-predicted.md"} <= {path.name for path in written.files}
    text = (tmp_path / "out" / "tables" / "mine-crossover-predicted.md").read_text(encoding="utf-8")
    assert "| Tesla T4 | sa | linear | 64 to 4096 (4) | *&gt; 4096 [&lt; 64, &gt; 4096]*<sup>1</sup>" in text
    assert "<sup>1</sup> The other way round: sa is cheaper at n = 64 to 256.<br>" in text


def test_predicted_crossovers_need_a_pair_with_two_predicted_sizes(run: Path, tmp_path: Path) -> None:
    assert predicted_crossover_table(open_run(run)) is None
    assert predicted_crossover_table(open_run(banded_run(tmp_path / "one", ["da:sa"]))) is None
    assert predicted_crossover_table(open_run(banded_run(tmp_path / "two", []))) is None
    folder = new_run(tmp_path / "three", definition=definition(crossover=["linear:sa"]))
    for module in ("linear", "sa"):
        add(folder, record(module))
    assert predicted_crossover_table(RunData.read(folder)) is None
