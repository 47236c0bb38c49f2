"""Layout of figures: headings, wrapped names, labels that do not collide, colours by family; thirty modules."""

import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text
from numpy.typing import NDArray
from report_data import FACTS, add, definition, new_run, record, scaling_run, stream, table3_run, timed, with_timeline

from ctxbench import registry
from ctxbench.base.errors import UsageError
from ctxbench.report.figures.kinds import known
from ctxbench.report.figures.labels import freeze_layout, place_labels
from ctxbench.report.figures.layout import PAGE, FigureSize, names_of, wrapped
from ctxbench.report.figures.style import Drawing, new_figure, styled
from ctxbench.report.figures.ticks import log_axis, tick_texts
from ctxbench.report.panels import panels_of
from ctxbench.report.run_data import open_run
from ctxbench.report.tables.compact import Choice
from ctxbench.report.write import write_report
from ctxbench.results.run_folder import RunFolder

pytestmark = pytest.mark.slow  # many small cases, which take seconds together

LONG = "my_module.py:MyVeryLongContextModule(reduction=8)"


COLUMN = FigureSize.of("column")


def drawing_of(name: str, *paths: Path, titles: bool = False, sheet: FigureSize = PAGE) -> Drawing:
    kind = known()[name]
    with styled():
        return kind.draw(panels_of([open_run(path, titles) for path in paths]), sheet)


def headings_of(figure: Figure) -> list[str]:
    return [part.get_suptitle() for part in figure.subfigs]


def legend_of(figure: Figure) -> list[str]:
    return [text.get_text() for legend in figure.legends for text in legend.get_texts()]


def built_in() -> dict[str, str]:
    entries = [entry for entry in registry.entries() if entry.reference.startswith(registry.BUILT_IN)]
    return {entry.key: entry.family for entry in entries}


def run_of(path: Path, modules: Sequence[str], title: str = "") -> Path:
    """A run of these modules with all that figures show; the first two nearly equal, the others spread."""
    folder = new_run(path, definition=definition(published=None))
    spread = np.random.default_rng(3).lognormal(0, 0.8, (len(modules), 3))
    spread[1] = 1.001 * spread[0]
    for module, (time, memory, macs) in zip(modules, spread, strict=True):
        mib = int(400 * memory) << 20
        row = record(module, macs=int(macs * 1e10))
        row.title = f"{title} ({module})" if title else ""
        row.take({f"memory_{mode}_predicted_bytes": mib * (2 if mode == "train" else 1) for mode in ("train", "infer")})
        add(folder, row, timed(row, {"infer": stream(50 * time), "train": stream(150 * time)}))
    return path


@pytest.mark.parametrize(
    ("text", "width", "expected"),
    [
        ("ham_nmf steps=3", 24, "ham_nmf steps=3"),
        (LONG, 24, "my_module.py:\nMyVeryLongContextModule\n(reduction=8)"),
        (LONG, 10, "my_\nmodule.py:\nMyVeryLong\nContextMod\nule\n(reduction\n=8)"),
        ("Aggregated co-occurrent features (ACF)", 24, "Aggregated co-occurrent\nfeatures (ACF)"),
        ("a-run: CPU, input [1, 512, 128, 128], float32", 24, "a-run: CPU, input\n[1, 512, 128, 128],\nfloat32"),
        ("", 24, ""),
    ],
)
def test_names_are_wrapped_where_they_may_be_broken(text: str, width: int, expected: str) -> None:
    assert wrapped(text, width) == expected
    assert max(map(len, expected.split("\n"))) <= width


def boxes_of(figure: Figure, monkeypatch: pytest.MonkeyPatch) -> dict[str, NDArray[np.float64]]:
    """The extent of each text that is drawn, in pixels."""
    drawn: list[Text] = []
    draw = Text.draw

    def recorded(text: Text, *arguments: object) -> None:
        drawn.append(text)
        draw(text, *arguments)  # type: ignore[arg-type]  # handed on as they came

    monkeypatch.setattr(Text, "draw", recorded)
    with styled():
        figure.draw_without_rendering()
    found = [text for text in drawn if text.get_visible() and text.get_text().strip()]
    # Without leader lines, which belong to an annotation's own extent.
    return {f"{i} {text.get_text()}": np.array(Text.get_window_extent(text).extents) for i, text in enumerate(found)}


def assert_readable(figure: Figure, monkeypatch: pytest.MonkeyPatch) -> None:
    """No text is cut by the edge of the figure, and no two overlap by more than a pixel."""
    boxes = boxes_of(figure, monkeypatch)
    assert len(boxes) > 10
    assert {text.get_fontsize() for text in figure.findobj(Text) if text.get_text().strip()} <= {7, 8, 9}
    width, height = figure.bbox.width, figure.bbox.height
    cut = [text for text, (x0, y0, x1, y1) in boxes.items() if x0 < -1 or y0 < -1 or x1 > width + 1 or y1 > height + 1]
    assert cut == []
    overlapping = [
        (one, other)
        for (one, a), (other, b) in itertools.combinations(boxes.items(), 2)
        if min(a[2], b[2]) - max(a[0], b[0]) > 1 and min(a[3], b[3]) - max(a[1], b[1]) > 1
    ]
    assert overlapping == []


@pytest.fixture(scope="module")
def two_runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two runs with long names, with modules of long names."""
    runs = []
    base = tmp_path_factory.mktemp("two")
    for number in (1, 2):
        path = with_timeline(table3_run(base / f"a-long-name-2026-11-2{number}T01-15-38-workstation", seed=number))
        folder = RunFolder.open(path)
        for scale, module in enumerate((LONG, "MyVeryLongContextModule"), number):
            row = record(module, hparams='{"reduction": 8, "heads": 16}')
            row.title = ""
            add(folder, row, timed(row, {"train": stream(900.0 * scale), "infer": stream(420.0 * scale)}))
        text = (path / "timeline.csv").read_text().replace(str(98 << 20), str((98 + number) << 20))
        (path / "timeline.csv").write_text(text)  # else the second run's would not be drawn
        runs.append(path)
    return runs


@pytest.mark.parametrize("sheet", [PAGE, COLUMN], ids=["page", "column"])
@pytest.mark.parametrize("name", ["cost", "pareto", "published", "split", "memory", "samples"])
def test_two_runs_with_long_names_are_readable(
    two_runs: list[Path], monkeypatch: pytest.MonkeyPatch, name: str, sheet: FigureSize
) -> None:
    figure = drawing_of(name, *two_runs, sheet=sheet).figure
    for heading, path in zip(headings_of(figure), two_runs, strict=True):
        assert "".join(heading.split()).startswith(path.name)
    assert_readable(figure, monkeypatch)


@pytest.fixture(scope="module")
def thirty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of thirty-two modules with titles."""
    others = ["mixes", "right_forms", "wrong_forms"]
    return run_of(tmp_path_factory.mktemp("thirty"), sorted([*built_in()][-29:] + others), "A title of some length")


@pytest.mark.parametrize(
    ("name", "titles", "sheet"),
    [
        *itertools.product(["cost", "split"], [True], [PAGE, COLUMN]),
        ("pareto", True, PAGE),
        ("pareto", False, COLUMN),
        ("samples", False, PAGE),
        ("samples", False, COLUMN),
    ],
)
def test_thirty_modules_are_readable(
    thirty: Path, monkeypatch: pytest.MonkeyPatch, name: str, titles: bool, sheet: FigureSize
) -> None:
    assert_readable(drawing_of(name, thirty, titles=titles, sheet=sheet).figure, monkeypatch)


def test_scaling_of_thirty_modules_is_readable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exponents = {f"module_{number}": 1 + number / 30 for number in range(29)} | {LONG: 2.0}
    figure = drawing_of("scaling", scaling_run(tmp_path / "run", exponents)).figure
    ((legend,),) = [part.legends for part in figure.subfigs]
    assert len(legend.get_texts()) == 30
    assert_readable(figure, monkeypatch)


@pytest.mark.parametrize("sizes", [(4, 6, 8, 12, 16, 24, 32, 48, 64, 96), (48, 64, 80), (16, 32, 64, 128)])
def test_sizes_on_the_axis_do_not_collide(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sizes: Sequence[int]
) -> None:
    path = scaling_run(tmp_path / "run", {"sa": 2.0}, sizes)
    for sheet in (PAGE, COLUMN):
        assert_readable(drawing_of("scaling", path, sheet=sheet).figure, monkeypatch)


@pytest.mark.parametrize(
    ("values", "texts"),
    [
        ((0.0001, 100, 1_000_000), ["0.0001", "100", "1,000,000"]),
        ((1e-9, 3e-5, 1), ["10⁻⁹", "3·10⁻⁵", "10⁰"]),
        ((90, 100, 110), ["90", "100", "110"]),
    ],
)
def test_the_numbers_of_an_axis_are_written_in_one_way(values: Sequence[float], texts: list[str]) -> None:
    assert tick_texts(values) == texts


@pytest.mark.parametrize(("low", "high"), [(85, 140), (98, 103), (1e-12, 10), (0.4, 3), (3, 2e6)])
def test_a_log_axis_has_at_least_two_numbers_and_no_two_touch(
    monkeypatch: pytest.MonkeyPatch, low: float, high: float
) -> None:
    with styled():
        figure = new_figure(2, 2)
        axes = figure.subplots()
        axes.set(xlim=(low, high), ylim=(low, high), title="ten letters")
        log_axis(axes, "x")
        log_axis(axes, "y")
        figure.draw_without_rendering()
        for axis in (axes.xaxis, axes.yaxis):
            boxes = [label.get_window_extent() for label in axis.get_ticklabels()]
            assert len(boxes) > 1
            assert not any(one.overlaps(other) for one, other in itertools.pairwise(boxes))


def test_more_series_than_are_shown_are_counted(tmp_path: Path) -> None:
    path = scaling_run(
        tmp_path / "run", {f"module_{number}": 1 + number / 40 for number in range(41)}, sizes=(8, 16, 32)
    )
    assert drawing_of("scaling", path).caption.endswith("Shown: 40 of 41 lines.")


@pytest.mark.parametrize("seed", range(2))
def test_thirty_labels_do_not_collide(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, y = 10 ** rng.normal(0, 0.3, 30), 10 ** rng.normal(0, 0.3, 30)
    x[1], y[1] = 1.001 * x[0], y[0]
    with styled():
        figure = new_figure(7.6, 5.0)
        axes = figure.subplots()
        axes.loglog(x, y, "o")
        axes.margins(0.16)
        freeze_layout(figure)
        place_labels(axes, x, y, [f"module_{i}" for i in range(30)], [3.0] * 30)
        figure.draw_without_rendering()
        boxes = [np.array(Text.get_window_extent(text).extents) for text in axes.texts]  # without the leader lines
    assert len(boxes) == 30
    for a, b in itertools.combinations(boxes, 2):
        assert a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1]


def test_each_image_names_its_input(tmp_path: Path) -> None:
    run = table3_run(tmp_path / "run")
    assert headings_of(drawing_of("cost", run).figure) == [
        "Test CPU (2 cores), 2 threads, input [1, 512, 128, 128], float32"
    ]
    scaling = drawing_of("scaling", scaling_run(tmp_path / "scaling", {"sa": 2.0}))
    assert headings_of(scaling.figure) == [
        "Test CPU (2 cores), 2 threads, input [1, 64, H, W], float32, pale: no interval"
    ]
    static = new_run(tmp_path / "static", definition=definition(published=None))
    for module in FACTS:
        add(static, record(module, "meta", dtype="bfloat16", memory_format="channels_last", execution="compile"))
    assert headings_of(drawing_of("cost", static.path).figure) == [
        "no device (static figures), input [1, 512, 128, 128], bfloat16, channels_last, compile"
    ]


def test_a_figure_has_the_width_that_it_is_printed_in_and_fonts_that_journals_take(tmp_path: Path) -> None:
    folder = new_run(tmp_path / "run", definition=definition(published=None))
    row = record("sa")
    add(folder, row, timed(row, {"infer": stream(9.0), "train": stream(20.0)}, others_share=0.5))
    write_report(
        [folder.path],
        tmp_path / "out",
        figures=["split"],
        formats=["pdf"],
        sheet=FigureSize.of("column", heading=False),
    )
    pdf = (tmp_path / "out" / "figures" / "split.pdf").read_bytes()
    assert b"/MediaBox [ 0 0 237.6 " in pdf  # points: 3.3 inches
    assert b"/CIDFontType2" in pdf  # TrueType
    assert b"/Type3" not in pdf
    svg = (tmp_path / "out" / "figures" / "split.svg").read_text()
    assert "Time of training" not in svg
    assert "input [" not in svg
    assert "timed while other work ran" in svg  # what a mark means stays
    assert "--width 3.3 --no-heading --figures split</code>" in (tmp_path / "out" / "index.html").read_text()


@pytest.mark.parametrize("width", ["wide", "2.9", "20.5", "nan", ""])
def test_another_width_is_refused(width: str) -> None:
    with pytest.raises(
        UsageError, match=r"takes column \(3\.3 in\), page \(6\.9 in\) or a number of inches from 3 to 20"
    ):
        FigureSize.of(width)


def two_inputs(path: Path) -> Path:
    folder = new_run(path, definition=definition(published=None))
    for module, size in itertools.product(("sa", "linear", "ham_nmf"), (32, 64)):
        add(folder, record(module, shape=(1, 64, size, size)))
    return path


def test_modules_and_inputs_can_be_chosen_for_figures(tmp_path: Path) -> None:
    run = two_inputs(tmp_path / "run")
    choice = Choice(modules=["linear", "sa"], shapes=["1x64x32x32"])
    report = write_report([run], tmp_path / "out", choice=choice, titles=True)
    svg = (tmp_path / "out" / "figures" / "cost.svg").read_text()
    assert "input [1, 64, 32, 32]" in svg
    assert "LINEAR block" in svg
    assert "HAM_NMF" not in svg
    page = report.page.read_text()
    assert "--modules linear,sa --shape 1,64,32,32 --titles --figures cost</code>" in page
    assert "HAM_NMF block" in page  # the table has all rows
    plain = write_report([run], tmp_path / "plain")
    assert "input [1, 64, 64, 64]" in (tmp_path / "plain" / "figures" / "cost.svg").read_text()
    assert "LINEAR block:" not in plain.page.read_text()


def test_modules_without_a_title_keep_their_key(tmp_path: Path) -> None:
    path = run_of(tmp_path / "run", ["sa", "mine"])
    assert open_run(path, titles=True).frame["name"].tolist() == ["sa", "mine"]


def test_names_that_would_be_higher_than_asked_have_one_line_each(tmp_path: Path) -> None:
    (panel,) = panels_of([open_run(table3_run(tmp_path / "run"))])
    rows = [{**panel.rows[0], "name": LONG}] * 30
    free, bound = names_of(rows), names_of(rows, most=3.0)
    assert free.height > 3.0
    assert "\n" in free.texts[0]
    assert bound.height == pytest.approx(3.0)
    assert bound.middles[1] - bound.middles[0] == pytest.approx(0.1)
    assert "\n" not in bound.texts[0]
    assert names_of(rows, most=free.height + 1) == free
