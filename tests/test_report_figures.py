"""The figures: the data they draw, which appear, and that the same data gives the same bytes."""

import itertools
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from drawings import headings_of, legend_of, names, panels
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from report_data import FACTS, add, definition, new_run, record, scaling_run, stream, table3_run, timed

from ctxbench.base.errors import UsageError
from ctxbench.report.curves import SCALING, figures_of
from ctxbench.report.figures import cost as figure_cost
from ctxbench.report.figures import curve as figure_curve
from ctxbench.report.figures import points as figure_points
from ctxbench.report.figures import samples as figure_samples
from ctxbench.report.figures.kinds import WRITERS, choose, known, write_figure
from ctxbench.report.figures.layout import FigureSize
from ctxbench.report.figures.style import PALE, Drawing, new_figure, styled
from ctxbench.report.panels import Panel
from ctxbench.report.published import with_published
from ctxbench.report.write import write_report

pytestmark = pytest.mark.slow  # many small cases, which take seconds together


def test_figures_appear_when_their_data_is_there(tmp_path: Path) -> None:
    full = panels(table3_run(tmp_path / "full"))
    assert names(full) == ["cost", "pareto", "published", "split"]
    assert [kind.name for kind in choose(["samples"], full)] == ["samples"]
    static = new_run(tmp_path / "static", definition=definition(published=None))
    for module in FACTS:
        add(static, record(module, "meta"))
    assert names(panels(static.path)) == ["cost"]
    assert names(panels(scaling_run(tmp_path / "scaling", {"linear": 1.0}))) == ["scaling"]
    alone = new_run(tmp_path / "alone", definition=definition(published=None))
    add(alone, record("linear", "meta"))
    assert names(panels(alone.path)) == []


def test_a_panel_shows_the_conditions_with_most_rows_then_the_largest_input(tmp_path: Path) -> None:
    folder = new_run(tmp_path / "run")
    for module in ("sa", "da"):
        for dtype in ("float32", "bfloat16"):
            for size in (32, 64):
                add(folder, record(module, shape=(1, 64, size, size), dtype=dtype, hparams=f'{{"d": "{dtype}"}}'))
    main = panels(folder.path)[0].main
    assert {(row["height"], row["dtype"]) for row in main} == {(64, "float32")}
    add(folder, record("linear", shape=(1, 64, 32, 32), dtype="bfloat16"))
    main = panels(folder.path)[0].main
    assert [row["module"] for row in main] == ["sa", "da", "linear"]
    assert {(row["height"], row["dtype"]) for row in main} == {(32, "bfloat16")}


def test_a_figure_that_is_asked_for_is_drawn_or_refused(tmp_path: Path) -> None:
    found = panels(table3_run(tmp_path / "run"))
    assert [kind.name for kind in choose(["split", "cost", "split"], found)] == ["split", "cost"]
    with pytest.raises(UsageError, match="unknown figure 'paretto'; did you mean 'pareto'"):
        choose(["paretto"], found)
    with pytest.raises(UsageError, match="no data for the figure 'scaling': it needs three or more input sizes"):
        choose(["scaling"], found)
    with pytest.raises(UsageError, match=r"unknown format of figures 'gif' \(known: pdf, png\)"):
        write_report([tmp_path / "run"], tmp_path / "out", formats=["gif"])
    assert not (tmp_path / "out").exists()


def test_costs_are_shares_of_self_attention_s_by_the_time_of_an_inference(tmp_path: Path) -> None:
    found = panels(table3_run(tmp_path / "run"))
    with styled():
        drawing = figure_cost.relative_costs(found)
    by_title = {axes.get_title(): axes for axes in drawing.figure.axes}
    assert list(by_title) == ["MACs", "Memory, train\n(predicted,\ncuda)", "Time, train", "Time, infer"]
    rows = sorted(found[0].main, key=lambda row: row["latency_infer_ms"])
    assert [text.get_text() for text in by_title["MACs"].get_yticklabels()] == [row["module"] for row in rows]
    points = [float(line.get_xdata()[0]) for line in by_title["MACs"].lines if line.get_marker() != "None"]
    assert points == pytest.approx(
        [100 * FACTS[module][1] / FACTS["sa"][1] for module in (row["module"] for row in rows)]
    )
    shown = {text.get_text() for text in by_title["MACs"].texts}
    assert shown == {"100", "84", "4.5", "6.0"}
    intervals = [line for line in by_title["Time, infer"].lines if line.get_linewidth() == 0.8]
    assert len(intervals) == len(rows)


def test_relative_costs_show_no_empty_axes_and_a_cost_of_nothing_as_0(tmp_path: Path) -> None:
    folder = new_run(tmp_path / "run", definition=definition(published=None))
    for module in ("sa", "identity"):
        add(folder, record(module, "meta", macs=0 if module == "identity" else 10, memory_train_predicted_bytes=None))
    with styled():
        drawing = figure_cost.relative_costs(panels(folder.path))
    (axes,) = [axes for axes in drawing.figure.axes if axes.axison]
    assert (axes.get_title(), [text.get_text() for text in axes.texts]) == ("MACs", ["0", "100"])


def test_a_point_without_an_interval_is_pale(tmp_path: Path) -> None:
    folder = new_run(tmp_path / "run", definition=definition(published=None))
    row = record("sa")
    add(folder, row, timed(row, {"infer": stream(9.0), "train": stream(20.0)}))
    add(folder, record("linear", latency_infer_ms=5.0, latency_train_ms=9.0))
    with styled():
        drawing = figure_cost.train_infer_split(panels(folder.path))
    alphas = {
        drawing.details[gid].partition(",")[0]: line.get_alpha()
        for line in drawing.figure.axes[0].lines
        if (gid := line.get_gid())
    }
    assert alphas == {"sa": None, "linear": PALE}
    assert headings_of(drawing)[0].endswith("pale: no interval")


def test_relative_costs_name_a_failed_row(tmp_path: Path) -> None:
    with styled():
        drawing = figure_cost.relative_costs(panels(table3_run(tmp_path / "run", failed=["da"])))
    last = drawing.figure.axes[-1]
    assert "oom" in [text.get_text() for text in last.texts]


def test_the_front_is_what_nothing_beats() -> None:
    assert figure_points.front_of([(1.0, 5.0), (2.0, 3.0), (3.0, 4.0), (2.0, 6.0), (4.0, 1.0)]) == [0, 1, 4]
    assert figure_points.front_of([(1.0, 2.0), (1.0, 2.0)]) == [0]


def test_pareto_draws_memory_latency_and_macs(tmp_path: Path) -> None:
    with styled():
        drawing = figure_points.pareto(panels(table3_run(tmp_path / "run", failed=["sa"])))
    train = drawing.figure.axes[0]
    points = [item for item in train.collections if isinstance(item, PathCollection)]
    assert len(points) == 3
    memory = [float(np.asarray(point.get_offsets())[0, 0]) for point in points]
    assert memory == [5355, 300, 202]  # predicted for CUDA: the run's device is the CPU
    areas = [float(point.get_sizes()[0]) for point in points]
    assert areas[0] == 140
    assert areas[1] == max(12.0, 140 * FACTS["linear"][1] / FACTS["da"][1])
    assert "not shown: sa (oom)" in train.get_xlabel()
    assert "predicted, cuda" in train.get_xlabel()


def test_pareto_takes_measured_memory_on_cuda(tmp_path: Path) -> None:
    found = panels(table3_run(tmp_path / "run", device="cuda"))
    assert figure_points.memory_column(found[0], "train") == "memory_train_bytes"
    assert found[0].title == "Test GPU"


def test_one_mode_alone_is_drawn_alone(tmp_path: Path) -> None:
    folder = new_run(tmp_path / "run")
    for module, median in (("sa", 9.0), ("da", 7.0)):
        row = record(module)
        add(folder, row, timed(row, {"infer": stream(median)}))
    with styled():
        drawing = figure_points.pareto(panels(folder.path))
    assert [axes.get_title() for axes in drawing.figure.axes] == ["infer"]


def test_a_time_has_its_interval_and_a_mark_where_other_work_disturbed_it(tmp_path: Path) -> None:
    folder = new_run(tmp_path / "run")
    for module, others in (("sa", 0.0), ("da", 0.5)):
        for size in (32, 64):
            row = record(module, shape=(1, 64, size, size))
            add(folder, row, timed(row, {"infer": stream(9.0), "train": stream(20.0)}, others_share=others))
    found = panels(folder.path)
    with styled():
        drawing = figure_points.pareto(found)
    axes = drawing.figure.axes[0]
    assert {"sa", "da \N{DAGGER}"} <= {text.get_text() for text in axes.texts}
    low, high = (found[0].main[0][f"latency_train_{end}_ms"] for end in ("low", "high"))
    (interval, *_) = [each for each in axes.collections if isinstance(each, LineCollection)]
    assert interval.get_segments()[0][:, 1].tolist() == [low, high]
    (heading,) = headings_of(drawing)
    assert heading.endswith("1 of the run's 2 inputs, \N{DAGGER}: timed while other work ran")
    with styled():
        heading = headings_of(figure_cost.train_infer_split(found))[0]
    assert heading.endswith("\N{DAGGER}: timed while other work ran")


def test_a_point_of_a_curve_that_was_disturbed_is_marked_and_lines_that_coincide_are_seen(tmp_path: Path) -> None:
    folder = new_run(tmp_path / "run", definition=definition(published=None))
    for module in ("sa", "da"):
        for size in (16, 32, 64):
            row = record(module, shape=(1, 64, size, size), macs=size**2)
            times = {"infer": stream(float(size))}
            add(folder, row, timed(row, times, others_share=0.5 if (module, size) == ("da", 32) else 0.0))
    with styled():
        drawing = figure_curve.curve(panels(folder.path), SCALING[0])
    by_title = {axes.get_title(): axes for axes in drawing.figure.axes}
    time = by_title["Time, infer (ms)"]
    assert [(text.get_text(), text.xy[0]) for text in time.texts] == [
        ("\N{DAGGER}", 1024), ("sa, da", 4096),
    ]  # fmt: skip
    points = [line for line in by_title["MACs (G)"].lines if line.get_gid()]
    assert [list(line.get_xdata()) for line in points] == [[256, 4096], [1024]]  # each marks some, none hides the other
    assert len({line.get_markersize() for line in by_title["MACs (G)"].lines}) == 1


def test_a_report_joins_the_published_numbers_once_for_all_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    joined, points = Mock(wraps=with_published), Mock(wraps=figure_points._published_points)
    monkeypatch.setattr("ctxbench.report.panels.with_published", joined)
    monkeypatch.setattr(figure_points, "_published_points", points)
    write_report([table3_run(tmp_path / "run")], tmp_path / "out", figures=["cost", "published"])
    assert joined.call_count == 1
    # Whether a quantity has any; those of the six printed ones; and once more those of the four that have axes.
    assert points.call_count == 1 + 6 + 4


def test_published_against_ours_has_the_line_of_equality(tmp_path: Path) -> None:
    with styled():
        drawing = figure_points.published_against_ours(panels(table3_run(tmp_path / "run")))
    params = drawing.figure.axes[0]
    assert params.get_xlim() == params.get_ylim()
    assert any("da: published 79.5, ours 246, ratio 3.09" in text for text in drawing.details.values())


@pytest.mark.parametrize(("module", "exponent"), [("sa", 2.0), ("ham_nmf", 1.0)])
def test_scaling_finds_the_exponent(tmp_path: Path, module: str, exponent: float) -> None:
    path = scaling_run(tmp_path / "run", {module: exponent})
    with styled():
        drawing = figure_curve.curve(panels(path), SCALING[0])
    assert legend_of(drawing.figure) == [module]
    assert f"{module}: {exponent:.2f} [{exponent:.2f}, {exponent:.2f}]" in drawing.details.values()


@pytest.mark.parametrize(
    ("sizes", "most", "told"),
    [((8, 16, 32, 64), 32, "sa, oom at 4096"), (range(1, 11), 4, "sa, oom at 25, 36, 49 and 3 more")],
)
def test_scaling_names_failed_sizes_and_counts_many(tmp_path: Path, sizes: Sequence[int], most: int, told: str) -> None:
    folder = new_run(tmp_path / "run")
    for size in sizes:
        cost, status = size**4, "ok" if size <= most else "oom"
        row = record("sa", shape=(1, 64, size, size), macs=cost, status=status)
        row.take({"latency_infer_ms": float(cost) if status == "ok" else None})
        add(folder, row)
    with styled():
        drawing = figure_curve.curve(panels(folder.path), SCALING[0])
    assert legend_of(drawing.figure) == [told]


def test_a_long_series_is_fitted_whole_and_drawn_thinned(tmp_path: Path) -> None:
    path = scaling_run(tmp_path / "run", {"linear": 1.0}, sizes=range(10, 310))
    with styled():
        drawing = figure_curve.curve(panels(path), SCALING[0])
    (points,) = [line for line in drawing.figure.axes[0].lines if line.get_gid()]
    drawn = np.asarray(points.get_xdata())
    assert (len(drawn), drawn[0], drawn[-1]) == (200, 100, 309**2)


@pytest.mark.parametrize(("zero", "shown"), [("eager", "s"), ("compile", "times eager")])
def test_modules_in_a_list_have_a_ratio_or_where_there_is_none_the_number(
    tmp_path: Path, zero: str, shown: str
) -> None:
    """`zero`: the execution at which no module has a number, beside eager, compile and graph."""
    panel = listed(tmp_path / "run", lambda execution: None if execution == zero else 2.0)
    with styled():
        found = figure_curve.curve([panel], figures_of(panel)[0]).figure.axes
    assert [axes.get_title() for axes in found] == (
        ["Export\ncompile", "Export\ngraph"] if zero == "eager" else ["Export"]
    )
    for axes in found:
        assert axes.get_xlabel() == shown
        points = [float(line.get_xdata()[0]) for line in axes.lines if line.get_gid()]
        assert points == [2.0 if zero == "eager" else 1.0] * 13


def test_words_of_a_list_have_axes_each_with_one_order_where_they_fit(tmp_path: Path) -> None:
    panel = listed(tmp_path / "run", lambda execution: {"eager": 1.0, "compile": 2.0, "graph": 4.0}[execution])
    with styled():
        wide, narrow = (
            figure_curve.curve([panel], figures_of(panel)[0], FigureSize(width)).figure.axes for width in (6.9, 3.3)
        )
    assert [axes.get_title() for axes in wide] == ["Export\ncompile", "Export\ngraph"]
    for axes, ratio in zip(wide, (2.0, 4.0), strict=True):
        points = [line for line in axes.lines if line.get_gid()]
        assert [float(line.get_xdata()[0]) for line in points] == [ratio] * 13
        assert [float(line.get_ydata()[0]) for line in points] == [*range(13)]
    assert wide[0].get_xlim() == wide[1].get_xlim()
    (both,) = narrow
    assert sorted({float(line.get_xdata()[0]) for line in both.lines if line.get_gid()}) == [2.0, 4.0]


def test_a_figure_with_nothing_in_it_is_refused(tmp_path: Path) -> None:
    panel = listed(tmp_path / "run", lambda execution: 0.0)
    (kind,) = choose(None, [panel])
    with pytest.raises(
        UsageError,
        match=r"the figure 'export' \(Export\) is empty: nothing can be drawn of what it needs, export at two",
    ):
        write_figure([panel], kind, tmp_path)


def test_a_list_has_every_module(tmp_path: Path) -> None:
    panel = listed(tmp_path / "run", lambda execution: 2.0, modules=45)
    with styled():
        drawing = figure_curve.curve([panel], figures_of(panel)[0])
    assert len(drawing.figure.axes[0].get_yticks()) == 45
    assert "Shown" not in drawing.caption


def listed(path: Path, seconds: Callable[[str], float | None], modules: int = 13) -> Panel:
    """Modules, more than twelve, in three executions, each with the seconds of its export."""
    figure = {"name": "export", "title": "Export", "x": "execution", "y": ["export"], "scale": "log-y"}
    folder = new_run(path, suite="mine", definition=definition(published=None, figures=[figure]))
    for number, execution in itertools.product(range(modules), ("eager", "compile", "graph")):
        row = record(f"module_{number}", execution=execution, export_s=seconds(execution))
        row.case = f"{number} {execution}"
        add(folder, row)
    return panels(folder.path)[0]


def test_coordinates_are_written_to_a_hundredth_of_a_point(tmp_path: Path) -> None:
    found = panels(table3_run(tmp_path / "run"))
    written = write_figure(found, choose(["pareto"], found)[0], tmp_path)
    numbers = [number for path in re.findall(r' (?:d|x|y)="([^"]*)"', written.svg) for number in path.split()]
    assert len(numbers) > 100
    assert not [number for number in numbers if re.fullmatch(r"-?\d+\.\d{3,}", number)]
    assert "rotate(-0" not in written.svg


def test_batch_and_channels_scale_by_themselves(tmp_path: Path) -> None:
    folder = new_run(tmp_path / "run", definition=definition(published=None))
    for batch in (1, 2, 4):
        add(folder, record("linear", shape=(batch, 64, 16, 16)))
    for channels in (32, 128):
        add(folder, record("linear", shape=(1, channels, 16, 16)))
    assert names(panels(folder.path)) == ["scaling-batch", "scaling-channels"]


def test_streams_show_every_sample_and_mark_drift(tmp_path: Path) -> None:
    folder = new_run(tmp_path / "run")
    steady, drifting = record("sa"), record("da")
    add(folder, steady, timed(steady, {"infer": stream(10.0)}))
    add(folder, drifting, timed(drifting, {"infer": ([1.0] * 4 + [1.2] * 4) * 5}))
    with styled():
        drawing = figure_samples.sample_streams(panels(folder.path))
    first, second = drawing.figure.axes[:2]
    assert len(first.lines[0].get_xdata()) == 31
    assert first.get_title() == "sa, infer"
    assert second.get_title() == "da, infer  drift +20%"
    # The samples, the median, five process medians, four lines between processes; then two halves of each process.
    assert len(first.lines) == 1 + 1 + 5 + 4
    assert len(second.lines) == len(first.lines) + 10
    at, ends = np.asarray(second.lines[0].get_xdata()), np.cumsum([1.0] * 4 + [1.2] * 4) / 1e3
    assert at.tolist() == pytest.approx([8.8e-3 * number + end for number in range(5) for end in ends])
    assert np.asarray(second.lines[2].get_ydata()).tolist() == pytest.approx([1.1, 1.1])


def test_several_devices_are_side_by_side(tmp_path: Path) -> None:
    failed = ["da", "linear"]
    found = panels(
        table3_run(tmp_path / "cpu", failed=failed),
        table3_run(tmp_path / "gpu", device="cuda", scale=0.01, failed=failed),
    )
    assert [panel.title for panel in found] == ["cpu: Test CPU (2 cores)", "gpu: Test GPU"]
    with styled():
        drawing = figure_points.pareto(found)
    axes = drawing.figure.axes
    assert len(axes) == 4
    assert axes[0].get_xlim() == axes[2].get_xlim()
    assert axes[0].get_ylim() == axes[2].get_ylim()


def test_a_figure_is_laid_out_for_all_its_formats_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    laid_out: list[Figure] = []
    execute = ConstrainedLayoutEngine.execute

    def count(engine: ConstrainedLayoutEngine, figure: Figure) -> None:
        laid_out.append(figure)
        execute(engine, figure)

    monkeypatch.setattr(ConstrainedLayoutEngine, "execute", count)
    found = panels(table3_run(tmp_path / "run"))
    (kind,) = choose(["pareto"], found)
    assert [*write_figure(found, kind, tmp_path, list(WRITERS)).paths] == ["svg", "png", "pdf"]
    assert len(laid_out) == 2


def test_names_from_outside_are_drawn_as_they_are(tmp_path: Path) -> None:
    folder = new_run(tmp_path / "run", definition=definition(published=None))
    for module in ("sa", "<script>alert(1)</script>", "$x^2$", "_hidden"):
        add(folder, record(module))
    report = write_report([folder.path], tmp_path / "out")
    svg = (tmp_path / "out" / "figures" / "cost.svg").read_text()
    assert "<script" not in svg
    assert "&lt;script&gt;" in svg
    assert "$x^2$" in svg
    assert report.page.exists()


def test_every_kind_says_what_it_needs() -> None:
    assert all(kind.needs and kind.title for kind in known().values())
    assert isinstance(Drawing(new_figure(1, 1), "caption").details, dict)
