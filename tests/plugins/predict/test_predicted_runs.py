"""Devices that are known by their data sheets, from the suite to the report: times, notes, tables, wrong names."""

import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from report_data import add, cells, definition, medians, new_run, record, texts
from typer.testing import CliRunner

import ctxbench
from ctxbench import cli, registry
from ctxbench.base.errors import UsageError
from ctxbench.base.notes import Note
from ctxbench.base.number import HOST_OWN_SD, Number, order, ratio, reason_not_comparable, reason_unknown
from ctxbench.engine.run import resume
from ctxbench.model import read_suite as suite
from ctxbench.model.read_suite import Overrides
from ctxbench.plugins.predict.operators import operators_of
from ctxbench.plugins.predict.passes import time_of
from ctxbench.plugins.predict.sheet import sheet
from ctxbench.report.run_data import open_run
from ctxbench.report.tables.compact import Choice, compact_table
from ctxbench.report.tables.runs import compare_runs
from ctxbench.report.tables.suite import suite_table
from ctxbench.report.write import write_report
from ctxbench.results.run_folder import RunFolder

pytestmark = pytest.mark.slow  # many small cases, which take seconds together

SuiteFile = Callable[..., Path]
ROOT = Path(__file__).resolve().parents[3]
TITAN = "NVIDIA TITAN Xp"


@pytest.mark.processes
@pytest.mark.usefixtures("shared_server")
def test_a_device_that_is_not_here_has_counts_and_predicted_times(suite_file: SuiteFile, tmp_path: Path) -> None:
    mine = tmp_path / "my_gpu.toml"
    mine.write_text((ROOT / "ctxbench/plugins/predict/sheets.toml").read_text().split("[p100-pcie]")[0])
    path = suite_file(["sa"], metrics=("params", "latency"))
    run = ctxbench.run(str(path), device=["titan-xp", str(mine)], out=tmp_path / "run")
    frame = run.frame
    assert frame["status"].tolist() == ["ok", "ok"]
    assert frame["device"].tolist() == ["titan-xp", str(mine)]
    assert frame["latency_origin"].tolist() == ["predicted"] * 2
    assert (frame["params"] > 0).all()
    with torch.device("meta"):
        model, x = registry.get("sa").build(8, {}), torch.empty(1, 8, 6, 5)
    for mode in ("infer", "train"):
        found = time_of(operators_of(model, x, mode=mode), sheet("titan-xp"))
        times = [frame[f"latency_{mode}_{end}"][0] for end in ("ms", "low_ms", "high_ms")]
        time = found.time
        assert times == pytest.approx([time.value, time.low, time.high])
        assert json.loads(frame[f"latency_{mode}_errors"][0]) == pytest.approx(time.errors, rel=0.01)
        assert frame[f"throughput_{mode}"][0] == pytest.approx(1e3 / time.value)
    assert [(note.code, note.about) for note in frame["notes"][0]] == [
        ("time_launches", "latency_infer"), ("time_launches", "latency_train"),
    ]  # fmt: skip
    assert run.folder.meta["sheets"]["titan-xp"]["bandwidth_gb_s"] == sheet("titan-xp").bandwidth_gb_s
    assert [*run.folder.finished()[frame["case"][0]]] == [0]  # nothing was timed

    mine.write_text(mine.read_text().replace("bandwidth_gb_s = 192", "bandwidth_gb_s = 200"))
    with pytest.raises(UsageError, match=r"cannot be resumed: .*my_gpu\.toml changed since it began"):
        resume(run.path)
    mine.unlink()
    assert "Tesla P4 (times predicted)" in suite_table(open_run(run.path)).caption[0]


@pytest.mark.processes
@pytest.mark.usefixtures("shared_server")
def test_also_on_another_device_stands_beside_no_device(suite_file: SuiteFile, tmp_path: Path) -> None:
    path = suite_file(["sa"], ("params",), "dtype = ['float32', 'bfloat16', 'autocast-bfloat16']\nthreads = [1, 2]")
    options = ["run", "--suite", str(path), "--static", "--for", "titan-xp", "--out", str(tmp_path / "run")]
    result = CliRunner().invoke(cli.app, options, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    frame = RunFolder.open(tmp_path / "run").frame()
    assert sorted(frame["device"]) == ["meta"] * 6 + ["titan-xp"] * 3
    assert frame.loc[frame["device"] == "meta", "latency_infer_ms"].isna().all()
    on_titan = frame[frame["device"] == "titan-xp"].set_index("dtype")
    assert on_titan["threads"].isna().all()
    assert on_titan["latency_infer_ms"].notna().tolist() == [True, False, False]
    no_unit = "NVIDIA TITAN Xp has no unit for bfloat16; its peaks are of float32, float64"
    for dtype in ("bfloat16", "autocast-bfloat16"):
        assert [str(note) for note in on_titan.loc[dtype, "notes"]] == [
            f"no predicted time ({mode}): {no_unit}" for mode in ("infer", "train")
        ]


def test_a_data_sheet_with_an_unknown_key_is_refused(suite_file: SuiteFile, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('[mine]\ntitle = "Mine"\nbandwith_gb_s = 3\n')
    with pytest.raises(UsageError, match=r"\[mine\]"):
        suite.load(str(suite_file(["sa"])), Overrides(conditions={"device": [str(path)]}))


def test_a_pass_is_explained_by_operator() -> None:
    options = ["predict", "sa", "--for", "a100-40gb", "--shape", "1,512,64,64", "--mode", "train", "--dtype", "float32"]
    text = CliRunner().invoke(cli.app, options, catch_exceptions=False, env={"COLUMNS": "200"}).output
    assert "sa [1, 512, 64, 64] float32, train: predicted for NVIDIA A100-PCIE-40GB, not measured:" in text
    assert "large product" in text
    assert "The order of two passes on this device is safe from a ratio of 1." in text
    assert "bandwidth" in text


def test_a_training_step_may_have_a_loss_and_an_optimizer() -> None:
    def told(*more: str) -> str:
        options = ["predict", "sa", "--for", "t4", "--shape", "1,64,16,16", "--mode", "train", *more]
        return CliRunner().invoke(cli.app, options, catch_exceptions=False, env={"COLUMNS": "200"}).output

    def launched(text: str) -> int:
        return int(text.partition("The host launches ")[2].partition(" operators")[0])

    plain, step = told(), told("--loss", "cross-entropy", "--optimizer", "adamw")
    assert "float32, train with cross-entropy and adamw: predicted for Tesla T4, not measured:" in step
    assert launched(step) - launched(plain) > 8  # eight lists of the optimizer, and the loss


PREDICTED = {"sa": 100.0, "da": 50.0, "ham_nmf": 7.0}
SHEETS = {"titan-xp": {"title": TITAN}, "t4": {"title": "Tesla T4"}}


def predicted(module: str, device: str, ms: float, factor: float = 1.5, **values: Any) -> dict[str, Any]:
    """The columns of a predicted time in both modes."""
    ends = {"ms": ms, "low_ms": ms / factor, "high_ms": ms * factor, "confidence": 0.8}
    times = {f"latency_{mode}_{end}": value for mode in ("infer", "train") for end, value in ends.items()}
    return {**times, "latency_origin": "predicted", **values}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """SA, DA and Ham measured on the CPU and predicted for two devices."""
    folder = new_run(tmp_path / "run", sheets=SHEETS, candidates=["ham_nmf"])
    note = Note("time_assumed", {"share": 0.5, "classes": ["solver"]}, "latency_infer")
    for module, ms in PREDICTED.items():
        add(folder, medians(record(module), [1000 * ms] * 3))
        for device, scale in (("titan-xp", 1.0), ("t4", 2.0)):
            add(folder, record(module, device, **predicted(module, device, scale * ms), notes=[note]))
    return folder.path


@pytest.mark.slow
def test_three_commands_write_a_predicted_time_alike(command: Callable[..., Any], tmp_path: Path) -> None:
    time, options = "0.74 [0.64, 0.86]", ("--shape", "1,512,128,128", "--dtype", "float32")
    told = command("predict", "gc", "--for", "t4", "--mode", "infer", *options).stdout
    assert f"not measured: {time} ms [80 % band]" in " ".join(told.split())
    chosen = command("choose", "--memory", "1GiB", "--mode", "infer", "--device", "t4", "--modules", "gc,se", *options)
    assert time in chosen.stdout
    run = command("run", "--static", "--modules", "gc", "--device", "t4", *options, "--out", tmp_path / "run")
    assert time in run.stdout
    assert "infer 0.74 ms" in run.stderr.splitlines()[-1]


@pytest.mark.slow
def test_three_commands_tell_no_time_of_which_too_little_is_known(command: Callable[..., Any], tmp_path: Path) -> None:
    options = ("--shape", "1,64,32,32", "--dtype", "float32")
    why = "the host's time to launch the kernels decides, whose band is a factor of 8 wide"
    told = command("predict", "se", "--for", "h200", "--mode", "infer", *options).stdout
    assert f"not measured: not known: {why}" in " ".join(told.split())
    assert "The host launches 6 operators." in told
    assert not re.search(r"\d ms", told)
    chosen = command("choose", "--mode", "infer", "--device", "h200", "--modules", "se,gc", *options).stdout
    assert (chosen.count(why), chosen.count("not known =")) == (2, 2)
    assert "precise enough to order 0 of the 1 pairs" in chosen
    run = command("run", "--static", "--modules", "se", "--device", "h200", *options, "--out", tmp_path / "run")
    assert (f"Not known: {why}." in " ".join(run.stdout.split()), "infer not known" in run.stderr) == (True, True)


def test_measured_and_predicted_times_share_a_column_and_not_a_verdict(run: Path) -> None:
    table = suite_table(open_run(run))
    found = cells(table, "latency_infer")
    assert texts(table, "latency_infer")[:3] == ["100000 [100000, 100000]", "100 [70, 150]", "200 [130, 300]"]
    assert [cell.origin for cell in found] == ["measured", "predicted", "predicted"] * 3
    # Bold is the best of each device: DA's and Ham's bands do not overlap, SA's and DA's do.
    assert [cell.best for cell in found] == [False] * 6 + [True] * 3
    assert "A part of the time is in classes without measurements: solver." in table.notes
    assert texts(table, "latency_infer_published") == ["82.2", "82.2", "", "64.4", "64.4", "", "7.7", "7.7", ""]
    assert any("80 % band" in line and "not measured" in line for line in table.caption)


def test_predicted_times_are_italic_in_every_format(run: Path, tmp_path: Path) -> None:
    choice = Choice(["params", "latency_infer", "throughput_infer"])
    written = write_report([run], tmp_path / "out", ["pareto", "cost"], choice)
    tables = tmp_path / "out" / "tables"
    assert "*100 [70, 150]*<sup>" in (tables / "table3-compact.md").read_text()
    assert r"\textit{100 {[}70, 150{]}}" in (tables / "table3-compact.tex").read_text()
    assert '<td class="predicted"' in (tables / "table3-compact.html").read_text()
    page = written.page.read_text()
    assert f"{TITAN} (times predicted)" in page
    assert "sa: infer 100 [70, 150] ms, predicted," in page


@pytest.mark.parametrize(
    ("low", "high", "errors", "share", "why"),
    [
        (1.0, 2.9, {"device": 0.4}, 0.5, ""),
        (1.0, 3.1, {"device": 0.6}, 0.5, "its band is a factor of 3.1 wide"),
        (
            1.0,
            3.1,
            {"device": 0.2},  # a band from 1.16 to 1.94 by itself
            0.5,
            "the host's time to launch the kernels may decide, so that its band is a factor of 3.1 wide; "
            "the kernels alone take 1.5 [1.2, 1.9] ms",
        ),
        (1.0, 2.0, {"device": 0.2}, 0.72, "72% of the time is in FFT, solver, which nothing measured"),
        (1.0, 2.0, {"host": 0.2}, 0.72, ""),  # the host decides, and was measured
        (
            1.0,
            8.0,
            {"host": 0.8},
            0.0,
            "the host's time to launch the kernels decides, whose band is a factor of 8 wide; "
            "the kernels alone take 0.5 [0.4, 0.6] ms",
        ),
    ],
)
def test_a_predicted_time_is_told_where_enough_is_known(
    tmp_path: Path, low: float, high: float, errors: dict[str, float], share: float, why: str
) -> None:
    """A stored row is told as a fresh prediction is, in the table, its footnote and its detail."""
    notes = [Note("time_assumed", {"share": share, "classes": ["FFT", "solver"]}, "latency_infer")]
    notes += [Note("time_launches", {"kernels": "0.5 [0.4, 0.6]"}, "latency_infer")] * ("host" in errors)
    ends: dict[str, Any] = {"ms": 1.5, "low_ms": low, "high_ms": high, "confidence": 0.8, "errors": json.dumps(errors)}
    times = {f"latency_{mode}_{end}": value for mode in ("infer", "train") for end, value in ends.items()}
    folder = new_run(tmp_path / "run", sheets=SHEETS)
    add(folder, record("sa", "t4", **times, latency_origin="predicted", notes=notes))
    table = suite_table(open_run(folder.path))
    (cell,) = cells(table, "latency_infer")
    assert (cell.text == "not known", cell.detail == f"not known: {why}") == (bool(why), bool(why))
    plain = reason_unknown(low, high, errors, share, ["FFT", "solver"])
    assert [text for text in table.notes if text.startswith("Not known")] == [f"Not known: {plain}."] * bool(why)
    assert why.partition("; ")[0] == plain
    told = Number(1.5, low, high, origin="predicted", errors=errors, unknown=plain)
    assert (told.text() == told.over(2).text() == "not known") == bool(why)
    assert order(told, Number(150.0, 100 * low, 100 * high, origin="predicted", errors=errors)) == -1  # nevertheless


def test_two_times_that_the_host_decides_differ_by_what_blocks_do() -> None:
    first, second = (Number(ms, ms / 3, ms * 3, origin="predicted", errors={"host": 0.8}) for ms in (1.6, 1.0))
    assert ratio(first, second).high == pytest.approx(1.6 * math.exp(1.2816 * math.sqrt(2) * HOST_OWN_SD), 1e-4)
    assert (order(first, second), order(replace(first, value=1.7), second)) == (0, 1)


def test_columns_may_derive_from_predicted_times(run: Path) -> None:
    table = compact_table(open_run(run), Choice(["throughput_infer", "matmul_share"], ["sa"]))
    assert texts(table, "throughput_infer") == ["0.0100", "10.0", "5.00"]
    assert texts(table, "matmul_share") == ["-"] * 3
    assert "Needs matmul_macs_per_s, which is missing here." in table.notes


@pytest.mark.plugin("compare")
def test_a_ranking_has_predicted_times(run: Path) -> None:
    from ctxbench.plugins.compare import comparison
    from ctxbench.plugins.compare.table import ranking_table

    rankings = {each.condition.split(", ")[-1]: each for each in comparison.rankings(RunFolder.open(run))}
    assert [*rankings] == ["cpu", "titan-xp", "t4"]
    table = ranking_table(rankings["titan-xp"], "throughput_infer")
    assert [row.module for row in table.rows] == ["ham_nmf", "da", "sa"]
    assert texts(table, "latency_infer") == ["7.0 [4.7, 10.5]", "50 [33, 75]", "100 [70, 150]"]
    assert texts(table, "latency_infer_ratio") == ["", "7.1 [3.2, 16.1]", "14 [6, 32]"]
    assert any("80 % band" in line for line in table.caption)
    plain = ranking_table(rankings["titan-xp"], "latency_infer")
    assert not [column.key for column in plain.columns if "throughput" in column.key or "macs_per_s" in column.key]


def test_the_ratio_of_two_predicted_times_has_the_errors_in_which_they_differ() -> None:
    def value(ms: float, **errors: float) -> Number:
        return Number(ms, ms / 2, ms * 2, origin="predicted", errors=errors)

    first = value(2.0, device=0.3, norm=0.1, kernels=0.03)
    second = value(1.0, device=0.2, elementwise=0.2, kernels=0.04)
    sd = math.sqrt((0.3 - 0.2) ** 2 + 0.1**2 + 0.2**2 + 0.03**2 + 0.04**2)
    found = ratio(first, second)
    factor = math.exp(1.2816 * sd)
    assert (found.value, found.low, found.high) == pytest.approx((2, 2 / factor, 2 * factor), 1e-4)
    assert order(first, second) == 1  # their bands overlap
    trained = ratio(value(2.0, training=0.3), value(1.0, training=0.4))
    assert trained.high == pytest.approx(2 * math.exp(1.2816 * 0.5), 1e-4)
    alike = ratio(value(2.0, device=0.5), value(1.9, device=0.5))
    assert alike.low == alike.high == pytest.approx(2 / 1.9)
    # what a former version stored has no parts: as far as both bands allow
    plain = ratio(Number(2.0, 1.0, 4.0, origin="predicted"), Number(1.0, 0.5, 2.0, origin="predicted"))
    assert (plain.low, plain.high) == (0.5, 8.0)


@pytest.mark.processes
@pytest.mark.usefixtures("shared_server")
def test_a_wide_convolution_has_its_workspace_as_a_note_on_its_memory(tmp_path: Path) -> None:
    run = ctxbench.run(modules=["ppm"], shape=(1, 2048, 32, 32), static=True, out=tmp_path / "run")
    table = suite_table(open_run(tmp_path / "run"))
    assert [note.about for note in run.frame["notes"][0] if note.code == "memory_workspace"] == [
        "memory_infer",
        "memory_train",
    ]
    told = [text for text in table.notes if "if cuDNN takes a workspace for wide 3x3 convolutions" in text]
    assert len(told) == 2


def test_a_measured_and_a_predicted_time_have_no_order() -> None:
    bands = [Number(ms, ms / 2, ms * 2, origin="predicted") for ms in (1.0, 3.0, 5.0)]
    measured = Number(100.0, 99.0, 101.0, origin="measured")
    assert [order(bands[0], each) for each in (*bands, measured)] == [0, 0, -1, 0]
    assert reason_not_comparable(bands[0], measured) == "one is predicted, the other measured"


def test_two_runs_of_one_device_name_are_not_compared_across_origins(run: Path, tmp_path: Path) -> None:
    folder = new_run(tmp_path / "other")
    add(folder, medians(record("sa", "cuda"), [1.0, 1.0, 1.1]))
    other = new_run(tmp_path / "sheet", sheets=SHEETS)
    add(other, record("sa", "titan-xp", **predicted("sa", "titan-xp", 5.0)))
    table = compare_runs([open_run(folder.path), open_run(other.path)])
    assert texts(table, "latency_infer_ms_ratio_2") == ["–"]  # noqa: RUF001  # a dash for "none"
    assert "Not compared: inference latency measured in run 1 and predicted in run 2." in table.notes


def test_runs_under_other_defaults_are_not_compared(tmp_path: Path) -> None:
    runs = []
    for number, steps in enumerate((6, 8)):
        folder = new_run(tmp_path / str(number))
        row = record("ham_nmf", macs=100 * steps)
        row.hparams = json.dumps({"steps": steps})
        add(folder, row)
        runs.append(open_run(folder.path))
    table = compare_runs(runs)
    assert "Not compared: steps is 6 in run 1 and 8 in run 2." in table.notes


NS = (64, 256, 1024, 4096)


def banded_run(path: Path, pairs: Sequence[str] = ("linear:sa",)) -> Path:
    """Predicted times of 512 n and n^2: for one device twice as long at most, for another 20 times.

    At the smallest two sizes `linear` is launch-bound.
    """
    folder = new_run(path, suite="mine", sheets=SHEETS, definition=definition(published=None, crossover=list(pairs)))
    laws: dict[str, Callable[[int], float]] = {"linear": lambda n: 512.0 * n, "sa": lambda n: n**2.0}
    for module, law in laws.items():
        for n in NS:
            side = math.isqrt(n)
            values = {"host_ms": 1.0, "device_ms": 0.5, "us": 18.0, "origin": "assumed"}
            bound = Note("time_launches", values, "latency_infer")
            notes = [bound] if module == "linear" and n < 1000 else []
            for device, factor in (("t4", 2), ("titan-xp", 20)):
                values = predicted(module, device, law(n), factor, notes=notes)
                add(folder, record(module, device, (1, 64, side, side), **values))
    return folder.path


@pytest.mark.plugin("crossover")
def test_the_crossover_of_predicted_times_has_the_bands_in_it(tmp_path: Path) -> None:
    from ctxbench.plugins.crossover.table import crossover_table

    table = crossover_table(open_run(banded_run(tmp_path / "run")))
    assert table is not None
    assert texts(table, "device") == ["t4", "titan-xp"]
    # 256 n = 2 n^2 at n = 128, and 1024 n = n^2 / 2 at n = 2048.
    assert texts(table, "latency_infer") == ["510 [130, 2050]", "="]
    first, second = table.data.to_dict("records")
    ends = [f"latency_infer_{end}" for end in ("low", "n", "high")]
    assert [first[end] for end in ends] == pytest.approx([128, 512, 2048], rel=1e-3)
    assert [second[end] for end in ends] == pytest.approx([0, math.nan, math.inf], nan_ok=True)
    (note,) = [text for text in table.notes if text.startswith("linear: Launch-bound")]
    assert note.endswith("(At 2 of 4 sizes, the largest 256.)")
    assert [cell.origin for cell in cells(table, "latency_infer")] == ["predicted"] * 2
