"""The tables: numbers with justified digits, what stands beside what, and the same content in every format."""

import io
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from report_data import (
    add,
    cell,
    definition,
    medians,
    new_run,
    notes_of,
    record,
    scaling_run,
    stream,
    table3_run,
    timed,
)

from ctxbench.base.notes import BROKEN, LACKS, Note
from ctxbench.base.number import Number, significant
from ctxbench.model.metric import Derivation
from ctxbench.model.metrics import quantities, quantity
from ctxbench.report.published import scaled_unit
from ctxbench.report.run_data import open_run
from ctxbench.report.tables.runs import compare_runs
from ctxbench.report.tables.suite import mark_best, suite_table
from ctxbench.results.run_folder import RunFolder
from ctxbench.table.latex import render_latex
from ctxbench.table.table import Cell, Table

pytestmark = pytest.mark.slow  # many small cases, which take seconds together


def table_of(*paths: Path) -> Table:
    runs = [open_run(path) for path in paths]
    found: Table = suite_table(runs[0]) if len(runs) == 1 else compare_runs(runs)
    return found


@pytest.mark.parametrize(
    ("value", "low", "high", "text"),
    [
        (123.4, 121.4, 125.4, "123 [121, 125]"),
        (12.3456, 12.29, 12.39, "12.35 [12.29, 12.39]"),  # half width 0.05
        (123.4, 122.44, 124.36, "123 [122, 124]"),  # 0.96 rounds to 1: whole numbers
        (1234.0, 1214.0, 1254.0, "1230 [1210, 1250]"),
        (0.01234, 0.0121, 0.0125, "0.0123 [0.0121, 0.0125]"),
        (5.0, 5.0, 5.0, "5.000 [5.000, 5.000]"),
        (123.456789, 123.4567, 123.4568, "123.5 [123.5, 123.5]"),  # four digits at most
        (5.0, 1.0, 40.0, "5.0 [1.0, 40.0]"),  # a value keeps two digits
        (-0.001, -2.0, 2.0, "0.0 [-2.0, 2.0]"),  # unless the interval holds 0
        (0.0, -0.42, 0.42, "0.00 [-0.42, 0.42]"),
        (0.0, 0.0, 0.0, "0 [0, 0]"),
        (200.0, -90.0, 1e14, "200 [-90, 1e+14]"),
    ],
)
def test_digits_are_those_that_the_interval_justifies(value: float, low: float, high: float, text: str) -> None:
    assert Number(value, low, high).text() == text


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (Number(2.0, 1.5, 2.5), "+2.0 [+1.5, +2.5]"),
        (Number(0.0, -0.42, 0.42), "+0.00 [-0.42, +0.42]"),
        (Number(12.34), "+12.3"),
        (Number(-12.34), "-12.3"),
        (Number(8.3e-17), "+8.3e-17"),
    ],
)
def test_a_signed_number_has_its_sign_on_value_and_interval(number: Number, text: str) -> None:
    assert number.text(sign="+") == text


def test_a_number_is_written_with_the_decimals_that_it_is_given() -> None:
    assert Number(94.2, 92.4, 96.0).text(decimals=0) == "94 [92, 96]"
    assert Number(94.2, 0.0, math.inf).text(decimals=0) == "94"


def test_numbers_without_an_interval_are_equal_where_their_values_are() -> None:
    without = Number(2.0, float("nan"), float("nan"))
    assert without == Number(2.0) != Number(3.0)
    assert without != Number(2.0, lacks="an FFT")
    assert without != Number(2.0, 1.0, 3.0)


def test_a_function_that_falls_turns_the_interval_and_leaves_an_unknown_one() -> None:
    time = Number(4.0, 2.0, 5.0, processes={1: 4.0}, origin="measured").map_monotonic(lambda ms: 10 / ms)
    assert (time.value, time.low, time.high, time.processes, time.origin) == (2.5, 2.0, 5.0, {1: 2.5}, "measured")
    unknown = Number(4.0, 0.0, math.inf).map_monotonic(lambda ms: 10 / ms)
    assert (unknown.value, unknown.low, unknown.high) == (2.5, 0.0, math.inf)


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [(0.0712, 3, "0.0712"), (17.64, 3, "17.6"), (292.06, 3, "292"), (5253.4, 3, "5253"), (0, 3, "0"), (7.7, 2, "7.7")],
)
def test_significant_digits_never_cut_whole_numbers(value: float, digits: int, text: str) -> None:
    assert significant(value, digits) == text


def test_a_unit_is_scaled() -> None:
    assert str(scaled_unit([16_000.0])) == "K = 10^3"
    assert str(scaled_unit([2e12])) == "T = 10^12"


def test_published_and_ours_stand_side_by_side(tmp_path: Path) -> None:
    table = table_of(table3_run(tmp_path / "run"))
    texts = {key: cell(table, "da", key).text for key in ("params_published", "params", "params_ratio")}
    assert texts == {"params_published": "4.82", "params": "4.82", "params_ratio": "1.00"}
    assert cell(table, "da", "macs").text == "245.9"
    assert cell(table, "da", "macs_ratio").text == "3.09"
    assert cell(table, "sa", "macs").text == "292"
    assert cell(table, "sa", "memory_train").text == cell(table, "sa", "memory_train_published").text == "5253"
    assert cell(table, "linear", "macs_published").text == ""
    assert cell(table, "linear", "macs").text == "13.0"
    assert notes_of(table, cell(table, "da", "macs_published")) == ["79.5G cannot be."]
    assert "latency_train_ratio" not in [column.key for column in table.columns]
    assert any("NVIDIA TITAN Xp; times on different devices are not compared" in line for line in table.caption)


def test_the_caption_says_conditions_and_conventions(tmp_path: Path) -> None:
    caption = "\n".join(table_of(table3_run(tmp_path / "run")).caption)
    for part in (
        "Test CPU (2 cores)", "torch 2.13.0", "2 threads", "float32", "[1, 512, 128, 128]", "2026-11-21",
        "commit 0123456789+changes", "M = 2^20", "G = 10^9", "torchprofile's convention", "predicted: for CUDA",
        "median of the process medians [95 % interval over processes]",
        "weights (parameters and buffers) counted, input not counted, output kept alive; "
        "train: forward, y.sum().backward(), first step, no earlier gradients; infer: forward under no_grad",
    ):  # fmt: skip
        assert part in caption


def test_the_caption_names_what_a_plugin_that_is_gone_has_measured(tmp_path: Path) -> None:
    def caption(*metrics: str) -> str:
        folder = new_run(tmp_path / "-".join(metrics), definition=definition(metrics=list(metrics)))
        add(folder, record("sa"))
        return "\n".join(table_of(folder.path).caption)

    assert "The run measured taste, which is left out: no installed plugin knows it." in caption("params", "taste")
    assert "left out" not in caption("params", "macs")


def test_the_caption_names_the_code_that_counted_where_another_one_measured(tmp_path: Path) -> None:
    path = table3_run(tmp_path / "run")
    RunFolder.open(path).save_meta(counted={"commit": "fedcba9876543210", "date": "2026-11-25"})
    caption = "\n".join(table_of(path).caption)
    assert "commit 0123456789+changes, counts and predictions of commit fedcba9876" in caption


def test_published_numbers_stay_with_their_own_input_settings_and_dtype(tmp_path: Path) -> None:
    folder = new_run(tmp_path / "run")
    add(folder, record("sa", shape=(1, 512, 64, 64)))
    add(folder, record("ham_nmf", hparams='{"steps": 3}'))
    add(folder, record("da", dtype="bfloat16"))
    table = table_of(folder.path)
    assert not any(column.origin == "published" for column in table.columns)
    assert any(line.startswith("No published number is shown") for line in table.caption)
    headings = [column.header for column in table.columns if column.origin == "label"]
    assert headings == ["Module", "Settings", "Input", "Dtype"]
    assert cell(table, "ham_nmf", "settings").text == "steps=3"


def test_failed_rows_show_status_and_message(tmp_path: Path) -> None:
    table = table_of(table3_run(tmp_path / "run", failed=["sa"]))
    for column in ("latency_train", "latency_infer", "memory_train_measured"):
        assert (cell(table, "sa", column).text, cell(table, "sa", column).failed) == ("oom", True)
    assert cell(table, "sa", "macs").text == "292"
    status = cell(table, "sa", "status")
    assert notes_of(table, status) == ["oom: out of memory: 1 GiB (sa.py, line 30, in forward)"]
    assert "1 of 4 rows failed; their status and message are shown." in table.caption
    assert not any(found.best for row in table.rows if row.module == "sa" for found in row.cells)


def test_a_static_run_has_no_time_columns(tmp_path: Path) -> None:
    folder = new_run(tmp_path / "run", metrics=["params", "macs", "memory"])
    add(folder, record("sa", "meta"))
    keys = [column.key for column in table_of(folder.path).columns]
    assert "macs" in keys
    assert not any(key.startswith("latency") for key in keys)


def test_a_suite_without_published_numbers_chooses_its_own_units(tmp_path: Path) -> None:
    folder = new_run(tmp_path / "run", definition=definition(published=None))
    add(folder, record("sa", params=16_640, macs=150_994_944))
    table = table_of(folder.path)
    groups = [column.group for column in table.columns]
    assert "Params (K)" in groups
    assert "MACs (M)" in groups
    assert (cell(table, "sa", "params").text, cell(table, "sa", "macs").text) == ("16.6", "151")


def test_a_count_in_units_of_one_is_a_whole_number(tmp_path: Path) -> None:
    folder = new_run(tmp_path / "run", definition=definition(published=None))
    add(folder, record("sa", params=14, export_operators=5))
    table = table_of(folder.path)
    assert (cell(table, "sa", "params").text, cell(table, "sa", "export_operators").text) == ("14", "5")


def test_the_best_is_bold_with_what_cannot_be_told_apart(tmp_path: Path) -> None:
    folder = new_run(tmp_path / "run")
    times = {"sa": 10.0, "da": 10.02, "linear": 20.0}
    for seed, (module, median) in enumerate(times.items()):
        row = record(module)
        add(folder, row, timed(row, {"infer": stream(median, seed=seed)}))
    other = record("ham_nmf", dtype="bfloat16")
    add(folder, other, timed(other, {"infer": stream(30.0)}))
    table = table_of(folder.path)
    best = {row.module: cell(table, row.module, "latency_infer").best for row in table.rows}
    assert best == {"sa": True, "da": True, "linear": False, "ham_nmf": False}
    assert cell(table, "linear", "macs").best
    assert not cell(table, "sa", "macs").best


@pytest.mark.parametrize(("macs", "is_known"), [(5, False), (50, True)])
def test_no_count_is_bold_where_one_that_lacks_work_may_be_less(tmp_path: Path, macs: int, is_known: bool) -> None:
    folder = new_run(tmp_path / "run")
    part = record("sa", macs=macs)
    part.note(Note(LACKS, {"work": "2 FFTs"}, about="macs"))
    for row in (part, record("da", macs=10), record("linear", macs=20)):
        add(folder, row)
    table = table_of(folder.path)
    assert [cell(table, name, "macs").best for name in ("sa", "da", "linear")] == [False, is_known, False]
    assert notes_of(table, cell(table, "sa", "macs")) == ["It does not include 2 FFTs."]


def best_of(folder: RunFolder) -> dict[str, bool]:
    table = table_of(folder.path)
    return {row.module: cell(table, row.module, "latency_infer").best for row in table.rows}


def test_bold_times_are_told_apart_round_by_round(tmp_path: Path) -> None:
    folder = new_run(tmp_path / "run")
    drift = [10.0, 11.0, 12.0, 13.0]  # both slow down, and the intervals overlap
    add(folder, medians(record("sa"), drift))
    add(folder, medians(record("da"), [1.01 * ms for ms in drift]))
    assert best_of(folder) == {"sa": True, "da": False}
    add(folder, medians(record("linear"), [10.1, 10.9, 12.1, 12.9]))
    assert best_of(folder) == {"sa": True, "da": False, "linear": True}


def test_a_time_without_a_verdict_is_never_bold(tmp_path: Path) -> None:
    folder = new_run(tmp_path / "run")
    add(folder, medians(record("sa"), [5.0, 5.1, 5.2], others_share=0.11))
    add(folder, medians(record("da"), [6.0, 6.1]))
    add(folder, medians(record("linear"), [7.0, 7.1, 7.2], others_share=0.1))
    assert best_of(folder) == dict.fromkeys(("sa", "da", "linear"), False)
    add(folder, medians(record("ham_nmf"), [8.0, 8.1, 8.2]))
    assert best_of(folder) == {"sa": False, "da": False, "linear": True, "ham_nmf": False}


def test_what_qualifies_a_row_is_in_its_notes_and_no_option_takes_it_away(tmp_path: Path) -> None:
    rows = [
        medians(record("sa"), [5.0, 5.1, 5.2]),
        medians(record("da"), [6.0, 6.1, 6.2], others_share=0.78),
        medians(record("linear"), [7.0, 7.1, 7.2]),
    ]
    folder = new_run(tmp_path / "run", broken=["sa"])
    for row in rows:
        add(folder, row)
    folder.write_records(rows)
    told = {row["module"]: [note.code for note in row["notes"]] for row in folder.frame().to_dict("records")}
    assert told == {"sa": ["broken_contract"], "da": ["disturbed"], "linear": []}
    assert best_of(folder) == {"sa": False, "da": False, "linear": False}  # one row is left
    table = table_of(folder.path)
    latex = render_latex(table, notes="none")
    assert "Background load above 10\\% of the cores during timing" in latex
    assert str(Note(BROKEN))[:30].replace("_", r"\_") in latex  # its words are of the plugin verify
    assert "Params: all parameters" not in latex
    assert latex.count(r"\textsuperscript") >= 4  # two in cells, two before the sentences


def test_reused_rows_share_no_rounds_with_the_others(tmp_path: Path) -> None:
    drift = [10.0, 11.0, 12.0, 13.0]
    reused = {"folder": "earlier", "cases": [record("da").case]}
    folder = new_run(tmp_path / "run", reused=reused)
    add(folder, medians(record("sa"), drift))
    add(folder, medians(record("da"), [1.01 * ms for ms in drift]))
    assert best_of(folder) == {"sa": True, "da": True}


def test_csv_and_details_hold_the_spread_of_processes(tmp_path: Path) -> None:
    folder = new_run(tmp_path / "run")
    row = record("sa")
    add(folder, row, timed(row, {"infer": [1.0, 1.1, 1.2, 1.0, 1.1, 1.2, 2.0, 2.2, 2.4]}, processes=3))
    table = table_of(folder.path)
    data = pd.read_csv(io.StringIO(table.csv)).iloc[0]
    assert data["processes"] == 3
    assert data["latency_infer_spread_between"] == pytest.approx(math.log(2) / math.sqrt(3))
    assert data["latency_infer_spread_within"] == pytest.approx(1.4826 / 11)
    detail = cell(table, "sa", "latency_infer").detail
    assert detail.startswith("1.1 ms, 3 processes, 9 samples, 0 outliers kept")
    assert "spread between processes 40.0%, within 13.5%" in detail


def test_what_weakens_a_time_is_a_footnote_at_its_cell(tmp_path: Path) -> None:
    folder = new_run(tmp_path / "run")
    streams: dict[str, tuple[list[float], float]] = {
        "sa": ([7.0], 0.0),
        "da": ([5.0, 5.1], 0.0),
        "linear": (stream(9.0), 0.87),
        "ham_nmf": (([1.0] * 4 + [1.2] * 4) * 5, 0.1),
    }
    for module, (ms, others) in streams.items():
        row = record(module)
        add(folder, row, timed(row, {"infer": ms}, others_share=others))
    table = table_of(folder.path)
    found = {module: " ".join(notes_of(table, cell(table, module, "latency_infer"))) for module in streams}
    assert found["sa"] == found["da"] == "Fewer than 3 processes: no interval."
    assert found["linear"] == str(Note("disturbed", {"limit": 0.1}))
    assert "other work on up to 87% of the cores" in cell(table, "linear", "latency_infer").detail
    assert found["ham_nmf"] == "Drift: the medians of the measurement's halves differ by more than 5%."
    assert cell(table, "sa", "latency_infer").text == "7.0"


def test_marks_and_notes_reach_their_cells(tmp_path: Path) -> None:
    folder = new_run(tmp_path / "run")
    macs = Note("macs_differ", {"counted": 2, "declared": 3}, about="macs")
    former = Note("remark", {"text": "of a number that is called otherwise now"}, about="memory_infer_predicted")
    notes = [macs, Note("remark", {"text": "seeds differ; the second one was taken"}), former]
    add(folder, record("sa", notes=notes, memory_marks='["aten::odd"]'))
    table = table_of(folder.path)
    assert notes_of(table, cell(table, "sa", "macs")) == ["MAC counters disagree: counted 2, closed form 3"]
    own = ["seeds differ; the second one was taken", "of a number that is called otherwise now"]
    assert notes_of(table, cell(table, "sa", "module")) == own
    assert "aten::odd" in notes_of(table, cell(table, "sa", "memory_infer"))[0]


def test_every_quantity_that_a_run_has_numbers_of_is_shown(tmp_path: Path) -> None:
    folder = new_run(tmp_path / "run")
    energy: dict[str, Any] = {"energy_infer_j": 0.01234, "energy_train_j": 2.5}
    for module, factor in (("sa", 2.0), ("da", 1.0)):
        values = {name: value * factor for name, value in energy.items()}
        row = record(module, compile_infer_s=12.3 * factor, attention_entropy=-0.000004, **values)
        add(folder, row, timed(row, {"infer": stream(10.0)}))
    table = table_of(folder.path)
    parts = {c.key: (c.part, c.group, c.header, c.origin) for c in table.columns if c.part}
    assert parts["energy_train"] == ("energy", "Energy, train (J)", "here", "measured")
    assert parts["compile_infer"] == ("compile", "Compile, infer (s)", "here", "measured")
    assert parts["attention_entropy"] == ("attention", "Entropy of the attention's rows", "here", "measured")
    assert "compile_train" not in parts
    assert [cell(table, "sa", key).text for key in ("energy_infer", "energy_train")] == ["0.0247", "5.00"]
    assert cell(table, "sa", "attention_entropy").text == "0.0000"
    assert [cell(table, "da", key).best for key in ("energy_infer", "compile_infer")] == [True, True]
    assert not any(cell(table, module, "attention_entropy").best for module in ("sa", "da"))
    caption = "\n".join(table.caption)
    assert "Energy: joules per pass from the board's own counter" in caption
    assert "Compile: seconds of the first pass" in caption
    data = pd.read_csv(io.StringIO(table.csv)).set_index("module")
    assert data.loc["da", "compile_infer_s"] == 12.3
    assert {"energy_infer_j", "attention_entropy"} <= set(data.columns)


def test_the_largest_is_bold_where_larger_is_better(tmp_path: Path) -> None:
    rows = open_run(table3_run(tmp_path / "run")).rows
    for key in ("latency_infer", "macs"):
        larger = replace(quantity(key), better="larger")
        cells = [Cell(str(value), value) for value in (row[larger.column] for row in rows)]
        assert [found.best for found in mark_best(cells, rows, larger)] == [True, False, False, False]


def test_the_macs_of_a_training_step_stand_beside_those_of_the_forward(tmp_path: Path) -> None:
    folder = new_run(tmp_path / "run")
    add(folder, record("sa", macs_train=863_288_098_816, macs_train_uncounted="{}"))
    table = table_of(folder.path)
    assert cell(table, "sa", "macs_train").text == "863"
    assert pd.read_csv(io.StringIO(table.csv))["macs_train"].tolist() == [863_288_098_816]
    (line,) = [line for line in table.caption if line.startswith("MACs: ")]
    assert "train: forward and y.sum().backward(), the input without gradient" in line


def test_many_rows_are_cut_in_the_table_but_not_in_the_csv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ctxbench.report.tables.suite.ROW_LIMIT", 10)
    table = table_of(scaling_run(tmp_path / "run", {"sa": 2.0}, sizes=range(1, 13)))
    assert len(table.rows) == 10
    assert "2 more rows are in the CSV table." in table.caption
    assert table.csv.count("\n") == 13


def test_a_convention_names_only_what_rows_have(tmp_path: Path) -> None:
    folder = new_run(tmp_path / "run")
    add(folder, record("sa"))
    compiled = record("da", memory_predicted_for=None)
    add(folder, compiled)
    caption = " ".join(table_of(folder.path).caption)
    assert "predicted: for CUDA, without a device" in caption


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (lambda row, params: row["macs"] / params, "ZeroDivisionError: division by zero"),
        (lambda row, params: math.inf * (params + 1), "ValueError: the result is inf"),
        (lambda row, params: row["parms"], "KeyError: 'parms'"),
    ],
)
def test_a_derivation_that_fails_is_a_note_of_its_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: Callable[[Any, float], float], reason: str
) -> None:
    failing = replace(quantity("macs_per_s"), key="each", column="each", title="MACs a parameter")
    derive = Derivation("params", ("macs",), value)
    monkeypatch.setitem(quantities(), "each", replace(failing, derive=derive))
    folder = new_run(tmp_path / "run")
    add(folder, record("simam", params=0, macs=8, latency_infer_ms=2.0))
    add(folder, record("sa", params=4, macs=None, latency_infer_ms=2.0))
    rows = folder.rows()
    assert [(row["each"], row["throughput_infer"], len(row["notes"])) for row in rows] == [
        (None, 500, 1),
        (None, 500, 0),
    ]
    table = table_of(folder.path)
    sentence = f"MACs a parameter cannot be derived from this row's numbers: {reason}"
    assert [notes_of(table, row.cells[0]) for row in table.rows] == [[sentence], []]
