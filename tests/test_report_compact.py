"""The compact table: a line a module, chosen quantities, inputs side by side, and its LaTeX."""

import json
from pathlib import Path

import pytest
from report_data import add, definition, new_run, published, record, table3_run, timed

from ctxbench import registry
from ctxbench.base.errors import UsageError
from ctxbench.base.notes import Note
from ctxbench.model.published import Published
from ctxbench.report.published import with_published
from ctxbench.report.run_data import open_run
from ctxbench.report.tables.compact import Choice, compact_table
from ctxbench.report.tables.suite import suite_table
from ctxbench.report.write import write_report
from ctxbench.table.latex import ROWS, escape, render_latex

pytestmark = pytest.mark.slow  # many small cases, which take seconds together


def two_inputs(path: Path) -> Path:
    folder = new_run(path, definition=definition(published=None))
    for module in ("sa", "linear"):
        for size in (32, 64):
            row = record(module, shape=(1, 64, size, size))
            add(folder, row, timed(row, {"infer": [float(size), size * 1.01, size * 0.99] * 5}))
    return path


def test_a_line_a_module_with_the_chosen_quantities(tmp_path: Path) -> None:
    run = open_run(table3_run(tmp_path / "run", failed=["da"]))
    table = compact_table(run, Choice(columns=["macs", "latency_infer"], modules=["ham_nmf", "sa", "da"]))
    assert [column.name for column in table.columns] == ["Module", "MACs (G)", "Time, infer (ms)"]
    assert [row.module for row in table.rows] == ["ham_nmf", "sa", "da"]
    assert [row.cells[1].text for row in table.rows[:2]] == ["17.6", "292"]
    assert table.rows[2].cells[2].text == "oom"
    assert table.rows[0].cells[2].best
    assert len(table.blocks()) == 1


def test_no_note_on_times_stands_under_a_table_without_times(tmp_path: Path) -> None:
    folder = new_run(tmp_path / "run", definition=definition(published=None))
    add(folder, record("sa", params=5))
    table = compact_table(open_run(folder.path), Choice(columns=["params", "latency_infer"]))
    assert "Params" in table.caption[1]
    assert "Time" not in "".join(table.caption[1:])


def test_notes_explain_what_the_table_has_and_hyphens_stay_as_they_are(tmp_path: Path) -> None:
    path = table3_run(tmp_path / "run")
    latex = {
        mode: render_latex(compact_table(open_run(path), Choice(columns=["macs", f"latency_{mode}"])))
        for mode in ("infer", "train")
    }
    assert "infer: eval, inference\\_mode" in latex["infer"]
    assert "train: forward" not in latex["infer"]
    assert "infer: eval" not in latex["train"]
    assert "train: forward and y.sum().backward()" in latex["train"]
    assert "{-}" not in latex["train"]
    assert escape("Multi-head --set") == "Multi-head -{}-set"


def test_what_weakens_a_time_is_a_footnote_in_the_compact_table_too(tmp_path: Path) -> None:
    folder = new_run(tmp_path / "run", definition=definition(published=None))
    for module, others in (("sa", 0.5), ("linear", 0.0)):
        row = record(module)
        add(folder, row, timed(row, {"infer": [1.0, 1.01, 0.99] * 5}, others_share=others))
    table = compact_table(open_run(folder.path), Choice(columns=["latency_infer"]))
    assert [row.cells[1].notes for row in table.rows] == [(1,), ()]
    assert table.notes == (
        "Background load above 10% of the cores during timing: "
        "ratios are not shown, and rows are ordered only where times differ clearly.",
    )
    assert r"\textsuperscript{1} Background load" in render_latex(table)


def test_several_inputs_stand_side_by_side(tmp_path: Path) -> None:
    table = compact_table(open_run(two_inputs(tmp_path / "run")), Choice(columns=["latency_infer"]))
    assert [column.header for column in table.columns] == ["Module", "1, 64, 32, 32", "1, 64, 64, 64"]
    assert {column.group for column in table.columns[1:]} == {"Time, infer (ms)"}
    assert len(table.rows) == 2
    assert table.rows[0].cells[2].value == pytest.approx(64, rel=0.02)
    wide = Choice(columns=["params", "macs", "memory_train", "latency_infer"])
    report = write_report([tmp_path / "run"], tmp_path / "report", choice=wide, figures=[])
    assert report.hints == ("table3-compact has 9 columns, as the run has several inputs; `--shape` takes one",)
    one = compact_table(open_run(tmp_path / "run"), Choice(shapes=["1x64x64x64"], title="Mine"))
    assert (len(one.columns), one.title) == (5, "Mine")


@pytest.mark.parametrize(
    ("choice", "sentence"),
    [
        (Choice(columns=["speed"]), r"unknown quantity 'speed' \(known: .*macs"),
        (Choice(columns=["energy_infer"]), "no row of this run has energy_infer; leave it out of --columns"),
        (Choice(modules=["sb"]), "unknown module of this run 'sb'; did you mean 'sa'"),
        (Choice(shapes=["1x1x1x1"]), "unknown shape of this run '1x1x1x1'"),
    ],
)
def test_a_choice_that_the_run_does_not_have_is_refused(tmp_path: Path, choice: Choice, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        compact_table(open_run(table3_run(tmp_path / "run")), choice)


def test_its_latex_has_a_label_and_notes_or_not(tmp_path: Path) -> None:
    choice = Choice(columns=["params"], title="Costs", label="tab:cost")
    written = write_report([table3_run(tmp_path / "run")], tmp_path / "out", [], choice, notes="none")
    (path,) = [path for path in written.files if path.name == "table3-compact.tex"]
    text = path.read_text(encoding="utf-8")
    assert text.count(r"\begin{table}") == 1  # one column of a page of two holds it
    assert r"\caption{Costs}" in text
    assert r"\label{tab:cost}" in text
    assert "minipage" not in text
    with pytest.raises(UsageError, match=r"place of notes 'foot' \(known: below, none, short, threeparttable\)"):
        write_report([tmp_path / "run"], tmp_path / "out", [], choice, notes="foot")


def test_long_tables_are_cut_into_floats_that_fit_a_page(tmp_path: Path) -> None:
    folder = new_run(tmp_path / "run", definition=definition(published=None))
    for size in range(1, ROWS + 2):
        add(folder, record("sa", shape=(1, 64, size, size)))
    table = suite_table(open_run(folder.path))
    text = render_latex(table)
    assert text.count(r"\begin{table") == 2 * len(table.blocks())
    assert text.count(r"\begin{minipage}") == 1
    assert "(1 of 4)" in text


def test_published_numbers_can_be_added_later(tmp_path: Path) -> None:
    run = two_inputs(tmp_path / "run")
    table = Published.model_validate(
        published({"sa": {"printed": {"macs": "151"}}}, shape=[1, 64, 32, 32], units={"macs": "M = 10^6"})
    )
    write_report([run], tmp_path / "out", [], published=table)
    text = (tmp_path / "out" / "tables" / "table3.csv").read_text(encoding="utf-8")
    assert ",151," in text


def test_a_published_row_can_name_settings_and_default_settings_are_the_module_s_own(tmp_path: Path) -> None:
    rows = {
        "ham_nmf": {"printed": {"params": "1.0"}},
        "three steps": {"block": "ham_nmf", "settings": {"steps": 3}, "printed": {"params": "3.0"}},
    }
    folder = new_run(tmp_path / "run", definition=definition(published=published(rows)))
    default = next(each.default for each in registry.get("ham_nmf").hyperparameters if each.name == "steps")
    for steps, expected in ((default, "1.0"), (3, "3.0"), (5, "")):
        row = record("ham_nmf", hparams=json.dumps({"steps": steps}))
        row.case, row.changed = f"{steps}", "steps" if steps != default else ""
        add(folder, row)
        *_, last = with_published(open_run(folder.path))
        assert (last["params_published"] or "") == expected


def test_the_mark_of_a_row_stands_behind_its_name(tmp_path: Path) -> None:
    folder = new_run(tmp_path / "run", definition=definition(published=None))
    add(folder, record("dwconv", notes=[Note("mark", {"text": "local: 7 x 7"})]))
    run = open_run(folder.path)
    assert [row["name"] for row in run.rows] == ["dwconv [local: 7 x 7]"]
    (row,) = compact_table(run, Choice(columns=["params"])).rows
    assert row.cells[0].text == "DWCONV block [local: 7 x 7]"


def test_what_a_row_takes_or_breaks_is_a_footnote_of_its_name(tmp_path: Path) -> None:
    folder = new_run(tmp_path / "run", definition=definition(published=None))
    takes = Note("wrapped", {"takes": "[B, N, C]"})
    add(folder, record("sa", notes=[takes]))
    add(folder, record("linear"))
    table = compact_table(open_run(folder.path), Choice(columns=["memory_train"]))
    assert [row.cells[0].notes for row in table.rows] == [(1,), ()]
    assert table.notes == (str(takes),)
    assert r"\textsuperscript{1} The block takes {[}B, N, C{]}: " in render_latex(table)
