"""The tables: numbers with justified digits, what stands beside what, and the same content in every format."""

import io
import math
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from report_data import add, definition, medians, new_run, record, scaling_run, stream, table3_run, timed
from rich.console import Console

from ctxbench.base.errors import UsageError
from ctxbench.base.notes import Note
from ctxbench.base.number import Number, ratio_of_runs, significant
from ctxbench.model.metrics import quantity
from ctxbench.report.published import scaled_unit
from ctxbench.report.run_data import open_run
from ctxbench.report.tables.suite import comparison_table, mark_best
from ctxbench.results.run_folder import SCHEMA, RunFolder
from ctxbench.table.html import render_html
from ctxbench.table.latex import NOTES, render_latex
from ctxbench.table.markdown import render_markdown
from ctxbench.table.table import Cell, Table
from ctxbench.table.terminal import render_terminal

pytestmark = pytest.mark.slow  # many small cases, which take seconds together


def table_of(*paths: Path) -> Table:
    found: Table = comparison_table([RunFolder.open(path) for path in paths])
    return found


def cell(table: Table, module: str, column: str) -> Cell:
    place = [c.key for c in table.columns].index(column)
    return next(row.cells[place] for row in table.rows if row.module == module)


def notes_of(table: Table, found: Cell) -> list[str]:
    return [table.notes[number - 1] for number in found.notes]


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
    assert "The module does not meet the contract" in latex
    assert "Params: all parameters" not in latex
    assert latex.count(r"\textsuperscript") >= 4  # two in cells, two before the sentences


def test_reused_rows_share_no_rounds_with_the_others(tmp_path: Path) -> None:
    drift = [10.0, 11.0, 12.0, 13.0]
    reused = {"folder": "earlier", "cases": [record("da").case]}
    folder = new_run(tmp_path / "run", reused=reused)
    add(folder, medians(record("sa"), drift))
    add(folder, medians(record("da"), [1.01 * ms for ms in drift]))
    assert best_of(folder) == {"sa": True, "da": True}


def test_a_disturbed_ratio_of_two_runs_has_no_interval(tmp_path: Path) -> None:
    one, two = new_run(tmp_path / "one"), new_run(tmp_path / "two")
    add(one, medians(record("sa"), [5.0, 5.1, 5.2]))
    add(two, medians(record("sa"), [10.0, 10.2, 10.4], others_share=1.3))
    table = table_of(one.path, two.path)
    found = cell(table, "sa", "latency_infer_ms_ratio_2")
    assert (found.text, found.best) == ("2.00", False)
    assert notes_of(table, found) == [
        "Background load above 10% of the cores during timing: no ratio, and an order only where times are far apart."
    ]  # fmt: skip


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


def test_runs_are_compared_in_every_quantity_that_they_have(tmp_path: Path) -> None:
    one, two = new_run(tmp_path / "one"), new_run(tmp_path / "two")
    for folder, factor in ((one, 1.0), (two, 3.0)):
        add(folder, record("sa", energy_infer_j=factor, attention_entropy=0.1 * factor))
    table = table_of(one.path, two.path)
    assert cell(table, "sa", "energy_infer_j_ratio_2").text == "3.00"
    assert cell(table, "sa", "attention_entropy_2").text == "0.3000"
    assert not any(column.key.startswith("attention_entropy_ratio") for column in table.columns)
    assert any(line.startswith("Energy: joules per pass") for line in table.caption)


def test_a_row_without_macs_in_either_run_has_no_ratio(tmp_path: Path) -> None:
    one, two = new_run(tmp_path / "one"), new_run(tmp_path / "two")
    for folder, macs in ((one, 7), (two, 8)):
        add(folder, record("sa", macs=macs))
        add(folder, record("da", macs=None, macs_counter=None))
    assert cell(table_of(one.path, two.path), "da", "macs_ratio_2") == Cell()


def test_the_largest_is_bold_where_larger_is_better(tmp_path: Path) -> None:
    rows = open_run(table3_run(tmp_path / "run")).rows
    for key in ("latency_infer", "macs"):
        larger = replace(quantity(key), better="larger")
        cells = [Cell(str(value), value) for value in (row[larger.column] for row in rows)]
        assert [found.best for found in mark_best(cells, rows, larger)] == [True, False, False, False]


@pytest.mark.parametrize("width", [80, 120])
def test_the_terminal_table_fits_its_width(tmp_path: Path, width: int) -> None:
    table = table_of(table3_run(tmp_path / "run", failed=["sa"]))
    console = Console(width=width, file=io.StringIO())
    console.print(render_terminal(table))
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]  # a StringIO
    assert max(map(len, lines)) <= width
    rows = [line for line in lines if line.startswith("ham_nmf ")]
    assert len(rows) == (5 if width == 80 else 3)
    assert not any(line.startswith(" ") and "ham" in line for line in lines)
    numbers = " ".join(rows)
    for column in ("params", "macs_published", "memory_train", "latency_infer"):
        assert cell(table, "ham_nmf", column).text in numbers


def test_every_format_holds_every_number(tmp_path: Path) -> None:
    table = table_of(table3_run(tmp_path / "run", failed=["sa"]))
    texts = {found.text for row in table.rows for found in row.cells if found.text}
    markdown, html = render_markdown(table).replace(r"\_", "_"), render_html(table)
    latex = render_latex(table).replace("{[}", "[").replace("{]}", "]").replace(r"\_", "_")
    for text in texts:
        assert text in markdown
        assert text in html
        assert text in latex
    assert html.count("<tr") == len(table.rows) + 2
    for number in range(1, len(table.notes) + 1):
        assert f"<sup>{number}</sup>" in markdown
        assert f'id="table-note-{number}"' in html


def test_csv_has_raw_numbers_for_every_row(tmp_path: Path) -> None:
    table = table_of(table3_run(tmp_path / "run", failed=["sa"]))
    data = pd.read_csv(io.StringIO(table.csv))
    row = data[data["module"] == "da"].iloc[0]
    assert row["macs"] == 245_920_432_128
    assert row["macs_ratio"] == pytest.approx(245.920432128 / 79.5)
    assert data["status"].tolist() == ["oom", "ok", "ok", "ok"]


HOSTILE = "<script>alert(1)</script>"
NASTY = r"a|b*c_d`e$f%g&h#i{j}k~l^m\n[x](y) é – 漢"  # noqa: RUF001  # a dash beyond ASCII is the point


@pytest.fixture
def hostile(tmp_path: Path) -> Table:
    folder = new_run(tmp_path / "run")
    add(folder, record(HOSTILE, title=HOSTILE, family=HOSTILE, status="error", message=f"{HOSTILE} {NASTY}"))
    add(folder, record("nasty", title=NASTY))
    return table_of(folder.path)


def test_text_from_outside_is_escaped(hostile: Table) -> None:
    assert "<script" not in render_html(hostile)
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in render_html(hostile)
    markdown = render_markdown(hostile)
    assert "<script" not in markdown
    assert r"a\|b\*c\_d\`e$f%g&amp;h#i{j}k\~l^m" in markdown
    assert r"\[x](y)" in markdown


def has_latex() -> bool:
    """Return whether pdflatex and the package threeparttable are there."""
    if shutil.which("pdflatex") is None or shutil.which("kpsewhich") is None:
        return False
    return subprocess.run(["kpsewhich", "threeparttable.sty"], capture_output=True, check=False).returncode == 0


@pytest.mark.skipif(not has_latex(), reason="no LaTeX: apt-get install texlive-latex-recommended texlive-latex-extra")
@pytest.mark.parametrize("notes", NOTES)
def test_latex_compiles(tmp_path: Path, hostile: Table, notes: str) -> None:
    plain = table_of(table3_run(tmp_path / "plain", failed=["sa"]))
    for table, fits in ((hostile, False), (plain, True)):
        text = render_latex(table, notes=notes)
        packages = re.findall(r"% needs (\\usepackage\{.*\})", text)
        body = packages[0] + r"\begin{document}" + text + r"\end{document}"
        (tmp_path / "t.tex").write_text(r"\documentclass{article}" + body, encoding="utf-8")
        command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "t.tex"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-2000:]
        assert not (fits and "Overfull" in done.stdout)


def test_notes_of_latex_stand_below_in_threeparttable_or_nowhere(tmp_path: Path) -> None:
    table = table_of(table3_run(tmp_path / "run", failed=["sa"]))
    count = len(table.notes)
    assert count > 1
    below, three, none = (render_latex(table, notes=notes) for notes in NOTES)
    assert [text.count(r"\begin{minipage}") for text in (below, three, none)] == [1, 0, 0]
    floats = len(table.blocks())
    assert [three.count(rf"\begin{{{name}}}") for name in ("threeparttable", "tablenotes")] == [floats, 1]
    assert re.findall(r"\\item\[(\d+)\]", three) == [str(number) for number in range(1, count + 1)]
    assert three.count(r"\item ") == len(table.caption)
    marks = sum(bool(cell.notes) for row in table.rows for cell in row.cells)
    marks += (len(table.blocks()) - 1) * sum(bool(row.cells[0].notes) for row in table.rows)  # a label in each part
    assert three.count(r"\tnote{") == marks
    assert below.count(r"\textsuperscript{") == marks + count
    assert "superscript" not in none + three
    assert r"\tnote" not in none


def test_runs_side_by_side_have_ratios_and_reasons(tmp_path: Path) -> None:
    one = table3_run(tmp_path / "one", failed=["sa"])
    two = table3_run(tmp_path / "two", scale=2.0)
    table = table_of(one, two)
    ratio = cell(table, "da", "latency_infer_ms_ratio_2")
    assert ratio.value == pytest.approx(2.0)
    assert ratio.best
    assert notes_of(table, cell(table, "sa", "latency_infer_ms_ratio_2")) == [
        "Not compared: in run 1 the row ended with oom."
    ]
    assert not any(column.key.startswith("params") for column in table.columns)
    assert any(line.startswith("The same in all runs: Params; MACs") for line in table.caption)


def test_rows_that_cannot_be_compared_say_why(tmp_path: Path) -> None:
    one, two = new_run(tmp_path / "one"), new_run(tmp_path / "two")
    add(one, record("sa", macs_counter="torchprofile"))
    add(two, record("sa", macs=1))
    add(two, record("da"))
    table = table_of(one.path, two.path)
    reasons = {m: notes_of(table, cell(table, m, "macs_ratio_2"))[0] for m in ("sa", "da")}
    assert reasons == {
        "sa": "Not compared: MACs counted by torchprofile and by ctxbench.",
        "da": "Not compared: run 1 has no such row.",
    }


def test_a_row_that_only_one_run_has_says_so_where_everything_else_is_the_same(tmp_path: Path) -> None:
    one, two = new_run(tmp_path / "one"), new_run(tmp_path / "two")
    for module in ("sa", "da"):
        add(one, record(module))
    add(two, record("sa"))
    table = table_of(one.path, two.path)
    assert [column.key for column in table.columns] == ["module"]
    assert notes_of(table, cell(table, "da", "module")) == ["Not compared: run 2 has no such row."]


def test_predictions_for_different_targets_are_not_compared(tmp_path: Path) -> None:
    one, two = new_run(tmp_path / "one"), new_run(tmp_path / "two")
    add(one, record("sa", memory_predicted_for="cuda-2020"))
    add(two, record("sa", memory_train_predicted_bytes=7))
    ratio = cell(table_of(one.path, two.path), "sa", "memory_train_predicted_bytes_ratio_2")
    assert ratio.detail == "Not compared: training memory predicted for cuda-2020 and for cuda."


def test_a_ratio_of_few_processes_is_never_bold(tmp_path: Path) -> None:
    one, two = new_run(tmp_path / "one"), new_run(tmp_path / "two")
    for folder, scale in ((one, 1.0), (two, 2.0)):
        row = record("sa")
        add(folder, row, timed(row, {"infer": [scale, 1.02 * scale], "train": stream(9 * scale)}))
    table = table_of(one.path, two.path)
    few, many = (cell(table, "sa", f"latency_{mode}_ms_ratio_2") for mode in ("infer", "train"))
    assert (few.value, few.best) == (2.0, False)
    assert notes_of(table, few) == ["Fewer than 3 processes: no interval of the ratio."]
    assert many.best
    assert not many.notes


def test_the_control_workload_says_how_two_runs_of_a_machine_differ(tmp_path: Path) -> None:
    one, two, old = (new_run(tmp_path / name) for name in ("one", "two", "old"))
    for module, ratio in (("sa", 1.5), ("da", 1.7), ("linear", 3.0)):
        add(one, record(module, control_ms=2.0))
        add(two, record(module, control_ms=2.0 * ratio))
        add(old, record(module))
    caption = table_of(one.path, old.path, two.path).caption
    assert [line for line in caption if line.startswith("The control workload")] == [
        "The control workload, the same work in every case, took 1.70 times as long in run 3 as in run 1 "
        "(median of 3 cases)."
    ]


def test_the_interval_of_a_ratio_of_runs_adds_both_on_a_log_scale() -> None:
    one, two = Number(10.0, 10 / 1.03, 10 * 1.03), Number(20.0, 20 / 1.04, 20 * 1.04)
    found = ratio_of_runs(two, one)
    assert found.value == 2
    assert found.ends == pytest.approx((2 / 1.0506, 2 * 1.0506), rel=1e-3)  # sqrt(ln 1.03^2 + ln 1.04^2) = ln 1.0506
    assert not ratio_of_runs(Number(20.0, 0.0, math.inf), one).has_interval


def test_of_runs_of_different_suites_the_rows_that_they_share_are_compared(tmp_path: Path) -> None:
    one, two = new_run(tmp_path / "one"), new_run(tmp_path / "two", suite="quick")
    add(one, record("sa"))
    add(one, record("da"))
    add(two, record("sa", params=7))
    table = table_of(one.path, two.path)
    assert (table.title, [row.module for row in table.rows]) == ("2 runs of table3 and quick", ["sa"])
    three = new_run(tmp_path / "three", suite="other")
    add(three, record("linear"))
    with pytest.raises(UsageError, match="the runs of table3 and other share no case"):
        table_of(one.path, three.path)


def edited(path: Path, old: str, new: str) -> Path:
    """The run folder with one edit in its records."""
    records = path / "records.csv"
    text = records.read_text(encoding="utf-8")
    assert text.count(old) > 0
    records.write_text(text.replace(old, new, 1), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
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
    path = edited(table3_run(tmp_path / "run", failed=["sa"]), old, new)
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


def test_another_schema_is_refused(tmp_path: Path) -> None:
    path = table3_run(tmp_path / "run")
    meta = path / "run.json"
    meta.write_text(meta.read_text().replace(f'"schema": {SCHEMA}', '"schema": 0'))
    with pytest.raises(UsageError, match="has schema 0"):
        table_of(path)


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
    caption = " ".join(comparison_table([folder]).caption)
    assert "predicted: for CUDA, without a device" in caption
