"""Figures that a suite names: their lines and fits, their tables, and cells that do not apply."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from report_data import add, definition, new_run, published, record

from ctxbench.base.errors import UsageError
from ctxbench.model import metrics
from ctxbench.model import read_suite as suite
from ctxbench.model.metrics import quantity
from ctxbench.model.suite_file import Figure
from ctxbench.report.curves import SCALING, Fit, figures_of, fit_of, series_of
from ctxbench.report.figures.curve import curve
from ctxbench.report.figures.kinds import choose
from ctxbench.report.figures.style import FAINT, styled
from ctxbench.report.panels import Panel, panels_of
from ctxbench.report.run_data import open_run
from ctxbench.report.tables.curve import curve_tables
from ctxbench.report.tables.suite import suite_table
from ctxbench.report.write import write_report
from ctxbench.table.markdown import render_markdown

pytestmark = pytest.mark.slow  # many small cases, which take seconds together

MIB = 2**20
MEMORY = {"name": "memory", "title": "Memory over the steps", "x": "steps", "y": ["memory_train"], "fit": True}


def steps_run(path: Path, *figures: dict[str, Any], rows: Mapping[str, Any] | None = None) -> Panel:
    """A run in which memory grows by 3 MiB a step with bptt and is constant with one step, at two input sizes."""
    table = published(rows) if rows else None
    folder = new_run(path, suite="mine", definition=definition(figures=list(figures), published=table))
    for size in (16, 8):
        for gradient, slope in (("one_step", 0), ("bptt", 3)):
            for steps in (1, 2, 4):
                hparams = json.dumps({"gradient": gradient, "steps": steps})
                row = record("ham_nmf", shape=(1, 64, size, size), hparams=hparams)
                row.take({"memory_train_predicted_bytes": (10 + slope * steps) * MIB})
                add(folder, row)
    add(folder, record("sa", shape=(1, 64, 16, 16)))
    (panel,) = panels_of([open_run(path)])
    return panel


def test_a_line_is_a_module_and_its_other_settings(tmp_path: Path) -> None:
    panel = steps_run(tmp_path / "run", MEMORY)
    (figure,) = figures_of(panel)
    one, bptt = series_of(panel, figure, quantity("memory_train"))
    assert [(line.title, line.settings) for line in (one, bptt)] == [
        ("ham_nmf", "gradient=one_step"),
        ("ham_nmf", "gradient=bptt"),
    ]
    assert bptt.x == [1, 2, 4]
    assert [row["height"] for row in bptt.rows] == [16, 16, 16]
    assert bptt.y.tolist() == [13, 16, 22]


@pytest.mark.parametrize(
    ("scale", "y", "text"),
    [
        ("linear", [13, 16, 22], "3.000 [3.000, 3.000]"),
        ("linear", [5, 5, 5], "0 [0, 0]"),
        ("log", [2, 8, 32], "2.00 [2.00, 2.00]"),
        ("log-y", [8, 4, 1], "0.5000 [0.5000, 0.5000]"),
        ("log-y", [1, 0, 2], "not above 0"),
        ("linear", [None, 16, 22], "too few points"),
    ],
)
def test_what_is_fitted_depends_on_the_scale(tmp_path: Path, scale: str, y: list[Any], text: str) -> None:
    panel = steps_run(tmp_path / "run")
    figure = Figure.model_validate({**MEMORY, "scale": scale})
    line = series_of(panel, figure, quantity("memory_train"))[0]
    values = [None if value is None else value * MIB for value in y]
    rows = [{**row, "memory_train_predicted_bytes": each} for row, each in zip(line.rows, values, strict=True)]
    fit = fit_of(replace(line, rows=rows), figure)
    assert (fit.text if isinstance(fit, Fit) else fit) == text


def test_the_table_of_a_figure_has_a_column_for_each_x_and_what_was_fitted(tmp_path: Path) -> None:
    panel = steps_run(tmp_path / "run", MEMORY)
    (table,) = curve_tables([panel], figures_of(panel)[0])
    text = render_markdown(table)
    assert (
        "| Module | Settings | Input | steps<br>1 | steps<br>2 | steps<br>4 | slope over steps [95 % interval] |"
        in text
    )
    assert "| ham\\_nmf | gradient=bptt | 1x64x16x16 | *13.0* | *16.0* | *22.0* | 3.000 [3.000, 3.000] |" in text
    assert "| ham\\_nmf | gradient=one\\_step | 1x64x16x16 | *10.0* | *10.0* | *10.0* | 0 [0, 0] |" in text
    assert table.data["memory_train"].tolist() == [value * MIB for value in (10, 10, 10, 13, 16, 22)]


def test_two_numbers_are_a_line_and_one_is_none(tmp_path: Path) -> None:
    folder = new_run(tmp_path / "run", suite="mine", definition=definition(figures=[MEMORY]))
    for steps in (1, 2):
        add(
            folder,
            record("ham_nmf", hparams=json.dumps({"steps": steps}), latency_infer_ms=1.0 if steps == 1 else None),
        )
    (panel,) = panels_of([open_run(folder.path)])
    (figure,) = figures_of(panel)
    assert [line.x for line in series_of(panel, figure, quantity("memory_train"))] == [[1, 2]]
    assert series_of(panel, figure, quantity("latency_infer")) == []


def test_a_report_draws_the_figures_that_the_suite_names(tmp_path: Path) -> None:
    panel = steps_run(tmp_path / "run", MEMORY, {**MEMORY, "name": "other", "y": ["latency_train"]})
    assert [kind.name for kind in choose(None, [panel])] == ["memory"]
    with pytest.raises(
        UsageError, match=r"no data for the figure 'other': it needs latency_train at two or more values of steps"
    ):
        choose(["other"], [panel])
    report = write_report([tmp_path / "run"], tmp_path / "report")
    assert (tmp_path / "report" / "tables" / "mine-memory-memory_train.md").is_file()
    assert (tmp_path / "report" / "figures" / "memory.svg").is_file()
    assert "Memory over the steps: Memory, train (MiB), predicted, cuda" in report.page.read_text(encoding="utf-8")


def points_of(axes: Axes) -> list[Line2D]:
    """The drawn points of each line, without the entries of the legend."""
    return [line for line in axes.lines if line.get_linestyle() == "None" and np.size(line.get_xdata())]


def test_lines_of_one_module_have_colours_and_names_at_their_ends_and_no_legend(tmp_path: Path) -> None:
    folder = new_run(
        tmp_path / "run", definition=definition(figures=[{**MEMORY, "y": ["params", "macs"], "fit": False}])
    )
    for heads, alike in ((1, 20), (2, 20), (4, 21)):
        for steps in (1, 2):
            hparams = json.dumps({"heads": heads, "steps": steps})
            add(folder, record("ham_nmf", hparams=hparams, params=100, macs=steps * alike * 10**9))
    (panel,) = panels_of([open_run(folder.path)])
    with styled():
        drawing = curve([panel], figures_of(panel)[0])
    params, macs = drawing.figure.axes
    assert [text.get_text() for text in params.texts] == ["heads=1, heads=2,\nheads=4"]
    assert [text.get_text() for text in macs.texts] == ["heads=1, heads=2", "heads=4"]
    colours = {line.get_color() for line in points_of(macs)}
    assert len(colours) == 3
    assert macs.texts[1].get_color() in colours
    assert drawing.figure.subfigs[0].legends == []
    drawing.figure.canvas.draw()
    below, above = (text.get_window_extent() for text in macs.texts)
    assert above.y0 >= below.y1 - 0.5


def test_of_many_modules_those_that_grow_otherwise_are_named_and_the_others_alike(tmp_path: Path) -> None:
    figure = {"name": "positions", "title": "Scaling", "x": "positions", "y": ["macs"], "scale": "log", "fit": True}
    folder = new_run(tmp_path / "run", definition=definition(figures=[figure]))
    modules = ["sa", "mhsa", "da", "a2", "gc", "se", "ema", "ham_nmf", "ham_cd", "ham_vq", "linear", "apc", "dm", "xca"]
    for place, module in enumerate(modules, 1):
        for size in (8, 16, 32):
            macs = 10**9 * size ** (4 if module in ("sa", "mhsa") else 2) * place
            add(folder, record(module, shape=(1, 64, size, size), macs=macs))
    (panel,) = panels_of([open_run(folder.path)])
    with styled():
        drawing = curve([panel], figures_of(panel)[0])
    (axes,) = drawing.figure.axes
    assert [text.get_text() for text in axes.texts] == ["12 others", "sa", "mhsa"]
    colours = [line.get_color() for line in points_of(axes)]
    assert len(colours) == 14
    assert colours.count(FAINT) == 12
    assert drawing.figure.subfigs[0].legends == []
    assert drawing.figure.legends == []
    assert "named: an exponent more than 0.25 from the median" in drawing.caption


def test_settings_of_one_module_over_words_have_colours_and_a_legend(tmp_path: Path) -> None:
    figure = {"name": "settings", "title": "Costs", "x": "gradient", "y": ["params"]}
    folder = new_run(tmp_path / "run", definition=definition(figures=[figure]))
    for rank in (2, 4):
        for gradient in ("one_step", "bptt"):
            hparams = json.dumps({"rank": rank, "gradient": gradient})
            add(folder, record("ham_nmf", hparams=hparams, params=100 * rank))
    (panel,) = panels_of([open_run(folder.path)])
    with styled():
        drawing = curve([panel], figures_of(panel)[0])
    (axes,) = drawing.figure.axes
    assert len({line.get_color() for line in points_of(axes)}) == 2
    (legend,) = drawing.figure.subfigs[0].legends
    assert [text.get_text() for text in legend.texts] == ["ham_nmf rank=2", "ham_nmf rank=4"]


def test_no_fit_is_drawn_through_points_that_it_misses(tmp_path: Path) -> None:
    folder = new_run(tmp_path / "run", definition=definition(published=None))
    for size, straight, bent in ((8, 64, 1000), (16, 256, 1010), (32, 1024, 1100), (64, 4096, 4000)):
        add(folder, record("sa", shape=(1, 64, size, size), macs=straight))
        add(folder, record("da", shape=(1, 64, size, size), macs=bent))
    with styled():
        axes = curve(panels_of([open_run(folder.path)]), SCALING[0]).figure.axes[0]
    lines = [line for line in axes.lines if line.get_marker() == "None"]
    assert [len(line.get_xdata()) for line in lines] == [2, 4]  # the ends of a fit; the points joined


def test_a_curve_is_drawn_with_its_fit_and_its_input(tmp_path: Path) -> None:
    panel = steps_run(tmp_path / "run", MEMORY)
    with styled():
        drawing = curve([panel], figures_of(panel)[0])
    (axes,) = drawing.figure.axes
    assert axes.get_title() == "Memory, train (MiB)\n(predicted, cuda)"
    assert "input [1, 64, 16, 16]" in drawing.figure.subfigs[0].get_suptitle()
    constant, points, fitted = axes.lines[0], points_of(axes)[1], axes.lines[3]
    assert np.asarray(constant.get_ydata()).tolist() == [10, 10, 10]  # a slope that may be 0 is no fit
    assert np.asarray(points.get_ydata()).tolist() == [13, 16, 22]
    assert np.asarray(fitted.get_ydata()).tolist() == pytest.approx([13, 22])
    assert "ham_nmf gradient=bptt: 3.000 [3.000, 3.000]" in drawing.details.values()


def test_words_are_categories_and_published_numbers_are_drawn(tmp_path: Path) -> None:
    rows = {
        g: {"block": "ham_nmf", "settings": {"gradient": g, "steps": 4}, "printed": {"miou": v}}
        for g, v in (("one_step", "78.3"), ("bptt", "77.4"))
    }
    figure = {"name": "accuracy", "title": "Accuracy", "x": "gradient", "y": ["miou"]}
    panel = steps_run(tmp_path / "run", figure, rows=rows)
    (table,) = curve_tables([panel], figures_of(panel)[0])
    text = render_markdown(table)
    assert "| Module | Settings | Input | gradient<br>one\\_step | gradient<br>bptt |" in text
    assert "| ham\\_nmf | steps=4 | 1x64x16x16 | 78.3 | 77.4 |" in text
    assert "not measured here" in text
    with styled():
        (axes,) = curve([panel], figures_of(panel)[0]).figure.axes
    assert [label.get_text() for label in axes.get_xticklabels()] == ["one_step", "bptt"]
    assert [np.asarray(line.get_ydata()).tolist() for line in points_of(axes)] == [[78.3, 77.4]]
    shown = render_markdown(suite_table(open_run(tmp_path / "run")))
    assert "mIoU, best run (%)<br>paper" in shown
    assert "mIoU, best run (%)<br>here" not in shown


def test_lines_at_words_stand_side_by_side_and_long_words_are_broken(tmp_path: Path) -> None:
    figure = {"name": "dtype", "title": "Memory by dtype", "x": "dtype", "y": ["memory_train"]}
    folder = new_run(tmp_path / "run", suite="mine", definition=definition(figures=[figure]))
    for module in ("sa", "linear", "da"):
        for dtype in ("float32", "autocast-bfloat16"):
            row = record(module, dtype=dtype)
            row.case = f"{module} {dtype}"
            row.take({"memory_train_predicted_bytes": MIB})
            add(folder, row)
    panels = panels_of([open_run(tmp_path / "run")])
    with styled():
        (axes,) = curve(panels, figures_of(panels[0])[0]).figure.axes
    assert [label.get_text() for label in axes.get_xticklabels()] == ["float32", "autocast-\nbfloat16"]
    places = [np.asarray(line.get_xdata()).tolist() for line in points_of(axes)]
    assert places == [pytest.approx([x, 1 + x]) for x in (-0.16, 0, 0.16)]


def test_four_settings_of_a_module_have_four_markers(tmp_path: Path) -> None:
    figure = {"name": "memory", "title": "Memory", "x": "steps", "y": ["memory_train"]}
    folder = new_run(tmp_path / "run", suite="mine", definition=definition(figures=[figure]))
    for rank in (2, 4, 8, 16):
        for steps in (1, 2):
            row = record("ham_nmf", hparams=json.dumps({"rank": rank, "steps": steps}))
            row.take({"memory_train_predicted_bytes": rank * MIB})
            add(folder, row)
    panels = panels_of([open_run(tmp_path / "run")])
    with styled():
        (axes,) = curve(panels, figures_of(panels[0])[0]).figure.axes
    markers = {(line.get_fillstyle(), line.get_markerfacecolor()) for line in axes.lines}
    assert len(markers) == 4


def test_a_quantity_that_does_not_apply_is_a_cell_with_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    panel = steps_run(tmp_path / "run")
    energy = replace(quantity("energy_train"), reason_column="macs_uncounted")
    monkeypatch.setitem(metrics.quantities(), "energy_train", energy)
    uncounted = ["no steps"] + [""] * 12
    rows = [{**row, "macs_uncounted": each} for row, each in zip(panel.run.rows, uncounted, strict=True)]
    run = replace(panel.run, rows=rows)
    text = render_markdown(suite_table(run))
    assert "-<sup>1</sup>" in text
    assert "<sup>1</sup> Not applicable: no steps." in text
    assert "energy" in suite_table(run).data.columns.str.cat()


HEAD = 'title = "t"\nmodules = ["ham_nmf"]\n[axes]\nshape = [1, 8, 4, 4]\n'
FIGURE = '[[figures]]\nname = "a"\ntitle = "A"\nx = "steps"\ny = ["macs"]\n'


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            FIGURE.replace('"steps"', '"stepz"'),
            "key 'figures.x': unknown hyper-parameter 'stepz'; did you mean 'steps'?",
        ),
        (FIGURE.replace('["macs"]', '["mac"]'), "unknown quantity 'mac'; did you mean 'macs' or"),
        (FIGURE.replace('["macs"]', "[]"), "'figures.0.y' is []"),
        (FIGURE.replace('"a"', '"A b"'), "'figures.0.name' is 'A b'"),
        (FIGURE + 'scale = "log-x"\nfit = true\n', "key 'figures.0': nothing is fitted on the scale 'log-x'"),
        (FIGURE + 'scale = "cubic"\n', "'figures.0.scale' is 'cubic'"),
        (FIGURE + FIGURE, "two figures are called 'a'"),
        (FIGURE + "colour = 3\n", "unknown key 'colour'"),
    ],
)
def test_a_wrong_figure_gets_one_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(HEAD + text, encoding="utf-8")
    with pytest.raises(UsageError) as caught:
        suite.load(str(path)).cases()
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_run_that_tells_of_an_impossible_figure_is_refused(tmp_path: Path) -> None:
    panel = steps_run(tmp_path / "run", {**MEMORY, "scale": "cubic"})
    with pytest.raises(UsageError, match=r"run\.json: definition\.figures: "):
        choose(None, [panel])
