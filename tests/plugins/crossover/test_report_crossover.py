"""The crossovers of a run: which rows are compared, what the table and the figure say, and what is refused."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from report_data import add, cells, definition, medians, new_run, notes_of, record, texts
from typer.testing import CliRunner

from ctxbench import cli, registry
from ctxbench.base.errors import UsageError
from ctxbench.model import read_suite as suite
from ctxbench.model.metrics import quantity
from ctxbench.model.record import Record
from ctxbench.plugins.crossover import figure as figure_crossover
from ctxbench.plugins.crossover.table import crossover_table, pairings
from ctxbench.report.figures.kinds import choose
from ctxbench.report.figures.style import styled
from ctxbench.report.panels import panels_of
from ctxbench.report.run_data import RunData, open_run
from ctxbench.report.write import write_report
from ctxbench.results.run_folder import RunFolder
from ctxbench.table.table import Table

pytestmark = pytest.mark.slow  # many small cases, which take seconds together

PAIR = ["linear:sa"]
SIZES = (8, 16, 32, 64)  # n = 64, 256, 1024, 4096
# Processes whose logarithms spread by 1 % around 0.
NOISE = (0.99, 1.0, 1.01)


def folder_of(path: Path, *found: Record, pairs: Sequence[str] = PAIR) -> RunFolder:
    folder = new_run(path, suite="mine", definition=definition(published=None, crossover=list(pairs)))
    for each in found:
        add(folder, each)
    return folder


def rows(module: str, cost: Callable[[int], float], sizes: Sequence[int] = SIZES, **values: Any) -> list[Record]:
    """A row for each size whose MACs are the cost at n; memory is the same at every size."""
    return [record(module, shape=(1, 64, s, s), macs=int(cost(s * s)), **values) for s in sizes]


def linear_against_square(path: Path, **values: Any) -> RunFolder:
    """Costs 512 n and n^2, which are equal at n = 512."""
    return folder_of(path, *rows("linear", lambda n: 512 * n, **values), *rows("sa", lambda n: n * n, **values))


def with_times(path: Path, processes: Sequence[float] = NOISE, busy: Mapping[int, float] | None = None) -> RunFolder:
    """The same costs, and as milliseconds in inference; `busy` has others' share of the cores by size of `sa`."""
    folder = folder_of(path)
    for each in [*rows("linear", lambda n: 512 * n), *rows("sa", lambda n: n * n)]:
        share = (busy or {}).get(each.height, 0.0) if each.module == "sa" else 0.0
        order = processes if each.module == "sa" else processes[::-1]
        add(folder, medians(each, [each.get("macs") / 1e3 * factor for factor in order], others_share=share))
    return folder


def table_of(folder: RunFolder) -> Table:
    table = crossover_table(RunData.read(RunFolder.open(folder.path)))
    assert table is not None
    return table


def test_the_table_has_a_row_a_pair_and_a_column_a_cost(tmp_path: Path) -> None:
    table = table_of(linear_against_square(tmp_path / "run"))
    assert [column.header for column in table.columns] == ["First", "Second", "Sizes n", "MACs"]
    (row,) = table.rows
    assert [cell.text for cell in row.cells] == ["linear", "sa", "64 to 4096 (4)", "512 [256, 1024]"]
    assert row.cells[3].value == pytest.approx(512)
    assert row.cells[3].detail == "linear is cheaper above n = 512, about 23 x 23"
    assert table.data.to_dict("records") == [
        {"first": "linear", "second": "sa", "sizes": "64 to 4096 (4)", "macs_n": pytest.approx(512), "macs_low": 256,
         "macs_high": 1024}
    ]  # fmt: skip
    assert (table.name, table.notes) == ("mine-crossover", ())


def test_costs_that_do_not_change_with_n_are_shown_where_no_other_is_known(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "run", *rows("linear", lambda n: 7), *rows("sa", lambda n: 7))
    table = table_of(folder)
    assert texts(table, "macs") == ["="]
    assert texts(table, "params") == ["< 64"]  # 800,000 and 1,050,624 at every size
    assert [c.key for c in table.columns][3:] == ["params", "macs", "memory_train", "memory_infer"]


def test_times_have_the_interval_over_rounds(tmp_path: Path) -> None:
    table = table_of(with_times(tmp_path / "run"))
    value, low, high = (float(table.data[f"latency_infer_{end}"].iloc[0]) for end in ("n", "low", "high"))
    # The logarithms of the ratios are log(1.01 / 0.99) times 1, 0 and -1 around the law n / 512.
    reach = 4.302653 * math.log(1.01 / 0.99) / math.sqrt(3)
    assert value == pytest.approx(512, rel=1e-3)
    assert [low, high] == pytest.approx([512 * math.exp(-reach), 512 * math.exp(reach)], rel=1e-3)
    assert texts(table, "latency_infer") == ["510 [490, 540]"]
    assert "of times where the 95 % interval of their ratio over rounds contains 1." in table.caption[1]


def test_one_process_has_no_interval_and_says_so(tmp_path: Path) -> None:
    table = table_of(with_times(tmp_path / "run", processes=(1.0,)))
    assert texts(table, "latency_infer") == ["512"]
    assert notes_of(table, *cells(table, "latency_infer")) == [
        "Fewer than 3 rounds in which both were timed: no interval."
    ]
    assert math.isnan(table.data["latency_infer_low"].iloc[0])


def test_a_time_that_others_disturbed_is_left_out(tmp_path: Path) -> None:
    table = table_of(with_times(tmp_path / "one", busy={16: 0.4}))
    assert texts(table, "macs") == ["512 [256, 1024]"]
    assert texts(table, "latency_infer") == ["510 [490, 540]"]  # between n = 64 and 1024
    assert notes_of(table, *cells(table, "latency_infer")) == ["Left out: n = 256 (sa: disturbed by other work)."]
    every = table_of(with_times(tmp_path / "all", busy=dict.fromkeys(SIZES, 0.4)))
    assert texts(every, "latency_infer") == ["–"]  # noqa: RUF001  # a dash for "none"
    assert notes_of(every, *cells(every, "latency_infer")) == [
        "Left out: n = 64, 256, 1024 and 1 more (sa: disturbed by other work)."
    ]
    with styled():
        drawing = figure_crossover.crossovers(panels_of([open_run(tmp_path / "all")]))
    assert [text.get_text() for text in drawing.figure.axes[-1].texts] == ["nothing to compare: see the table"]


def test_a_failed_row_is_left_out_and_its_counts_are_not(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "run")
    for each in rows("linear", lambda n: 512 * n):
        add(folder, medians(each, [each.get("macs") * factor for factor in NOISE]))
    for each in rows("sa", lambda n: n * n):
        if each.height == 64:
            each.status = "oom"
            add(folder, each)
        else:
            add(folder, medians(each, [each.get("macs") * factor for factor in NOISE]))
    table = table_of(folder)
    assert texts(table, "macs") == ["512 [256, 1024]"]
    assert texts(table, "latency_infer")[0].startswith("51")
    assert notes_of(table, *cells(table, "latency_infer")) == ["Left out: n = 4096 (sa: oom)."]


def test_beyond_the_sizes_the_table_says_so(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "run", pairs=["linear:sa", "sa:linear", "da:sa"])
    laws: dict[str, Callable[[int], float]] = {"linear": lambda n: 63 * n, "sa": lambda n: n * n, "da": lambda n: n**3}
    for module, law in laws.items():
        for each in rows(module, law):
            add(folder, each)
    table = table_of(folder)
    assert texts(table, "macs") == ["< 64", "> 4096", "> 4096"]
    assert [row.cells[3].value for row in table.rows] == [0, 4097, 4097]  # sorted as they are read
    assert [row.cells[3].detail for row in table.rows] == [
        "linear is cheaper at every size, n = 64 to 4096",
        "sa is not cheaper at the largest size, n = 64 to 4096",
        "da is not cheaper at the largest size, n = 64 to 4096",
    ]
    assert table.notes == ()


def test_other_crossings_are_told(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "run", pairs=["linear:sa", "linear:da"])
    ratios = {64: 50, 256: 200, 1024: 50, 4096: 200}
    for each in rows("linear", lambda n: 100):
        add(folder, each)
    for each in [*rows("sa", lambda n: ratios[n]), *rows("da", lambda n: 200 if n < 500 else 50)]:
        add(folder, each)
    table = table_of(folder)
    assert texts(table, "macs") == ["2050 [1024, 4096]", "> 4096"]
    assert notes_of(table, *cells(table, "macs")) == [
        "More than one crossing: sa is cheaper at n = 64, linear is cheaper at n = 256, sa is cheaper at n = 1024, "
        "linear is cheaper at n = 4096.",
        "The other way round: linear is cheaper at n = 64 to 256, da is cheaper at n = 1024 to 4096.",
    ]


def test_only_sizes_that_both_modules_have_are_compared(tmp_path: Path) -> None:
    folder = folder_of(
        tmp_path / "run", *rows("linear", lambda n: 512 * n, (8, 12, 64)), *rows("sa", lambda n: n * n, (8, 16, 32, 64))
    )
    assert [cell.text for cell in table_of(folder).rows[0].cells[2:]] == ["64 to 4096 (2)", "512 [64, 4096]"]


def test_a_pair_without_two_common_sizes_has_no_table(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "run", *rows("linear", float, (8, 16)), *rows("sa", float, (16, 32)))
    run = open_run(folder.path)
    assert crossover_table(run) is None
    assert "crossover" not in [kind.name for kind in choose(None, panels_of([run]))]
    assert "tables/mine-crossover.md" not in [
        str(path) for path in write_report([folder.path], tmp_path / "out", []).files
    ]


def test_rows_are_compared_that_differ_by_n_alone(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "run")
    for batch, channels, threads in ((1, 64, None), (2, 64, None), (1, 32, None), (1, 64, 2)):
        for size in (8, 16, 32):
            n = size * size
            for module, macs in (("linear", 512 * n * channels // 64), ("sa", n * n * batch)):
                add(folder, record(module, shape=(batch, channels, size, size), macs=macs, hparams="{}",
                                   threads=threads, case=f"{module} {batch} {channels} {threads} {size}"))  # fmt: skip
    add(folder, record("sa", shape=(1, 64, 64, 64), macs=1, dtype="bfloat16"))  # no partner
    table = table_of(folder)
    columns = [column.header for column in table.columns]
    assert columns == ["First", "Second", "Batch", "Channels", "Threads", "Sizes n", "MACs"]
    assert sorted(tuple(cell.text for cell in row.cells[2:]) for row in table.rows) == [
        ("1", "32", "", "64 to 1024 (3)", "256 [256, 1024]"),
        ("1", "64", "", "64 to 1024 (3)", "512 [256, 1024]"),
        ("1", "64", "2", "64 to 1024 (3)", "512 [256, 1024]"),
        ("2", "64", "", "64 to 1024 (3)", "256 [256, 1024]"),
    ]


def test_each_setting_is_a_row(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "run")
    for each in rows("sa", lambda n: n * n):
        add(folder, each)
    for steps in (128, 512):
        for each in rows("linear", lambda n, steps=steps: steps * n, hparams=f'{{"steps": {steps}}}'):  # type: ignore[misc]  # mypy knows no lambda's defaults
            add(folder, each)
    table = table_of(folder)
    assert texts(table, "first") == ["linear steps=128", "linear steps=512"]
    assert texts(table, "macs") == ["128 [64, 256]", "512 [256, 1024]"]


def test_of_inputs_with_the_same_n_the_squarest_stands(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "run")
    for shape in ((4, 64), (16, 16), (8, 8), (64, 4), (32, 32)):
        for module in ("linear", "sa"):
            macs = shape[0] * shape[1] * (100 if module == "sa" else 99) + shape[0]
            add(folder, record(module, shape=(1, 64, *shape), macs=macs))
    (found,) = pairings(open_run(folder.path).rows, [("linear", "sa")])
    assert [(n, first["height"], second["height"]) for n, first, second in found.rows] == [
        (64, 8, 8), (256, 16, 16), (1024, 32, 32),
    ]  # fmt: skip


def test_a_lower_bound_is_a_footnote(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "run")
    mib = 2**20
    for each in [*rows("linear", float), *rows("sa", float)]:
        n = each.height * each.width
        each.take({"memory_train_predicted_bytes": (512 * n if each.module == "linear" else n * n) * mib})
        if each.module == "sa":
            each.take({"memory_marks": '["my_operator"]'})
        add(folder, each)
    table = table_of(folder)
    assert texts(table, "memory_train") == ["512 [256, 1024]"]
    assert [note.partition(":")[0] for note in notes_of(table, *cells(table, "memory_train"))] == ["sa"]
    assert "my_operator" in notes_of(table, *cells(table, "memory_train"))[0]


def test_the_figure_marks_the_crossover_and_its_interval(tmp_path: Path) -> None:
    panels = panels_of([open_run(with_times(tmp_path / "run").path)])
    with styled():
        drawing = figure_crossover.crossovers(panels)
    macs, time = drawing.figure.axes
    assert (macs.get_title(), time.get_title()) == ("MACs", "Time, infer")
    (legend,) = drawing.figure.subfigs[0].legends if drawing.figure.subfigs else drawing.figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["linear / sa"]
    assert [text.get_text() for axes in (macs, time) for text in axes.texts] == ["512 [256, 1024]", "510 [490, 540]"]
    ratios, point, one, bar = macs.lines
    assert np.asarray(ratios.get_xdata()).tolist() == [64, 256, 1024, 4096]
    assert np.asarray(ratios.get_ydata()).tolist() == pytest.approx([8, 2, 0.5, 0.125])
    assert (np.asarray(point.get_xdata())[0], np.asarray(point.get_ydata())[0]) == (pytest.approx(512), 1)
    assert np.asarray(bar.get_xdata()).tolist() == [256, 1024]
    assert np.asarray(one.get_ydata()).tolist() == [1, 1]
    assert not macs.collections
    assert len(time.collections) == 3  # a band for each step
    low, high = np.asarray(time.lines[3].get_xdata())
    assert low < 512 < high


def test_a_pair_that_is_asked_for_takes_the_place_of_the_suites(tmp_path: Path) -> None:
    folder = linear_against_square(tmp_path / "run")
    report = write_report([folder.path], tmp_path / "out", keys={"crossover": ["sa:linear"]})
    text = (tmp_path / "out" / "tables" / "mine-crossover.md").read_text(encoding="utf-8")
    assert "| sa | linear | 64 to 4096 (4) | &gt; 4096<sup>1</sup> |" in text
    assert "--crossover sa:linear --figures crossover" in report.page.read_text(encoding="utf-8")
    assert "| linear | sa |" not in text


def test_several_runs_have_a_crossover_table_each(tmp_path: Path) -> None:
    one, two = (linear_against_square(tmp_path / name).path for name in ("one", "two"))
    write_report([one, two], tmp_path / "out")
    found = sorted(path.name for path in (tmp_path / "out" / "tables").glob("*.csv"))
    expected = ["mine-1.csv", "mine-2.csv", "mine-compared.csv", "mine-crossover-1.csv", "mine-crossover-2.csv"]
    assert found == [*expected, "mine-scaling-macs-1.csv", "mine-scaling-macs-2.csv"]
    with styled():
        drawing = figure_crossover.crossovers(panels_of([open_run(one), open_run(two)]))
    assert [part.get_suptitle().partition(":")[0] for part in drawing.figure.subfigs] == ["one", "two"]


@pytest.mark.parametrize(
    ("pair", "sentence"),
    [
        ("linear", "'linear' is not FIRST:SECOND, such as ham_nmf:mhsa"),
        ("my.py:Mine:sa", "'my.py:Mine:sa' is not FIRST:SECOND"),
        (":sa", "':sa' is not FIRST:SECOND"),
        ("sa:sa", "'sa:sa' names the same module twice"),
        ("linaer:sa", "unknown module of this run 'linaer'; did you mean 'linear'?"),
        ("linear:da", "linear and da have fewer than two sizes H x W in common"),
    ],
)
def test_a_pair_that_cannot_be_compared_is_refused(tmp_path: Path, pair: str, sentence: str) -> None:
    folder = linear_against_square(tmp_path / "run")
    add(folder, record("da", shape=(1, 64, 8, 8)))
    with pytest.raises(UsageError) as refused:
        CliRunner().invoke(
            cli.app,
            ["report", str(folder.path), "--out", str(tmp_path / "out"), "--crossover", pair],
            catch_exceptions=False,
        )
    assert sentence in str(refused.value)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("pairs", "sentence"),
    [
        ("['sa']", "key 'crossover.0': 'sa' is not FIRST:SECOND"),
        ("'ham_nmf:sa'", "'crossover' is 'ham_nmf:sa'"),
        ("['ham_nmf:sa', 'ham_nmf:saa']", "crossover: unknown module 'saa'; did you mean 'sa'?"),
    ],
)
def test_a_suite_with_a_malformed_pair_gets_one_sentence(
    suite_file: Callable[..., Path], pairs: str, sentence: str
) -> None:
    path = suite_file(["ham_nmf", "sa"])
    path.write_text(f"crossover = {pairs}\n{path.read_text(encoding='utf-8')}", encoding="utf-8")
    with pytest.raises(UsageError, match=re.escape(sentence)):
        suite.load(str(path)).cases()


def test_the_suite_crossover_names_its_pairs() -> None:
    found = suite.load("crossover")
    assert found.file.crossover == ["ham_nmf:mhsa", "focused_linear:mhsa", "criss_cross:non_local"]
    cases = found.cases()
    assert len(cases) == 5 * 10 - 2
    assert {case.shape[:2] for case in cases} == {(1, 128)}
    mine = suite.load("crossover", suite.Overrides(modules=["sa", "mhsa"]))
    assert {case.module for case in mine.cases()} == {"sa", "mhsa"}


@pytest.mark.processes
def test_a_static_run_finds_the_crossover_of_two_modules(
    shared_server: None, suite_file: Callable[..., Path], tmp_path: Path
) -> None:
    """The closed forms of the MACs cross where the table says."""
    path = suite_file(["ham_nmf", "sa"], metrics=("macs",))
    text = path.read_text(encoding="utf-8").replace("[1, 8, 6, 5]", "[1, 64, 8, 8]\nsize = [8, 16, 32, 64]")
    path.write_text(f'crossover = ["ham_nmf:sa"]\n{text}', encoding="utf-8")
    runner = CliRunner()
    done = runner.invoke(cli.app, ["run", "--suite", str(path), "--static", "--out", str(tmp_path / "run")])
    assert done.exit_code == 0
    assert "above which the first module is cheaper than the second" in " ".join(done.output.split())
    done = runner.invoke(cli.app, ["report", str(tmp_path / "run"), "--out", str(tmp_path / "out")])
    assert done.exit_code == 0
    table = crossover_table(open_run(tmp_path / "run"))
    assert table is not None
    n, low, high = (float(table.data[f"macs_{end}"].iloc[0]) for end in ("n", "low", "high"))
    macs = [registry.get(module).closed_form("macs", (1, 64, 1, round(at))) for module in ("ham_nmf", "sa")
            for at in (low, n * 0.9, n * 1.1, high)]  # fmt: skip
    assert [(a or 0) > (b or 0) for a, b in zip(macs[:4], macs[4:], strict=True)] == [True, True, False, False]
    page = (tmp_path / "out" / "index.html").read_text(encoding="utf-8")
    assert quantity("macs").title in page
    assert 'id="figure-crossover"' in page
    for ending in ("md", "tex", "html", "csv"):
        assert (tmp_path / "out" / "tables" / f"tiny-crossover.{ending}").stat().st_size > 100
