"""The figure of memory over a pass."""

from pathlib import Path

import numpy as np
import pytest
from drawings import headings_of, names, panels
from report_data import FACTS, table3_run, with_timeline

from ctxbench.base.errors import UsageError
from ctxbench.plugins.memory import figure as figure_memory
from ctxbench.report.figures.kinds import choose
from ctxbench.report.figures.style import styled

pytestmark = pytest.mark.slow  # many small cases, which take seconds together


def test_memory_over_a_pass_has_a_course_a_module(tmp_path: Path) -> None:
    found = panels(with_timeline(table3_run(tmp_path / "run")))
    assert "memory" in names(found)
    with styled():
        drawing = figure_memory.memory_over_time(found)
    drawn = [axes for axes in drawing.figure.axes if axes.axison]
    assert [axes.get_title(loc="left") for axes in drawn] == [
        f"{module}\ntrain {facts[2]:,}, infer {facts[3]:,} MiB" for module, facts in FACTS.items()
    ]
    assert len({(axes.get_xlim(), axes.get_ylim()) for axes in drawn}) == 1
    train, peak, infer, _, boundary = drawn[0].lines
    # Four calls in either pass; the last value stands to the end of its phase.
    assert np.asarray(train.get_xdata()).tolist() == [0, 0.75, 1, 1, 1.75, 2]
    assert np.asarray(train.get_ydata()).tolist() == [1074, 2148, 2148, 5253, 2148, 2148]
    assert (np.asarray(peak.get_xdata())[0], np.asarray(peak.get_ydata())[0]) == (1, 5253)
    assert np.asarray(infer.get_xdata()).tolist() == [0, 0.75, 1]
    assert np.asarray(boundary.get_xdata()).tolist() == [1, 1]
    assert "sa: peak train 5,253 MiB" in drawing.details.values()


def test_a_prediction_that_two_runs_share_is_drawn_once(tmp_path: Path) -> None:
    one, two = (with_timeline(table3_run(tmp_path / name), ["sa", "da"]) for name in ("one", "two"))
    assert [course.row["module"] for course in figure_memory.courses_of(panels(one, two))] == ["sa", "da"]
    path = two / "timeline.csv"
    path.write_text(path.read_text().replace(str(5253 * 2**20), str(5000 * 2**20)))
    courses = [*figure_memory.courses_of(panels(one, two))]
    assert [(course.panel.run.name, course.row["module"]) for course in courses] == [
        ("one", "sa"), ("one", "da"), ("two", "sa"),
    ]  # fmt: skip
    with styled():
        drawing = figure_memory.memory_over_time(panels(one, two))
    assert drawing.figure.axes[2].get_title(loc="left") == "sa\ntrain 5,000, infer 2,148 MiB"
    assert headings_of(drawing) == [f"{run}, input [1, 512, 128, 128], float32, predicted" for run in ("one", "two")]


def test_without_a_timeline_the_memory_figure_is_refused(tmp_path: Path) -> None:
    found = panels(table3_run(tmp_path / "run"))
    with pytest.raises(UsageError, match=r"no data for the figure 'memory': it needs timeline\.csv"):
        choose(["memory"], found)
