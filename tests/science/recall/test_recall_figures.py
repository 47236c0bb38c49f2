"""The figures of recall: the front of what is cheaper and better, and accuracies by task."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from drawings import headings_of, names, panels
from report_data import add, definition, new_run, record

from ctxbench.report.figures.style import styled
from ctxbench.results.run_folder import RunFolder
from ctxbench_science.recall import figure as figure_recall

pytestmark = pytest.mark.slow  # many small cases, which take seconds together


def with_recall(path: Path, accuracies: dict[str, tuple[float, float]]) -> Path:
    """A run of modules whose accuracy is the same on each task, with the inference time that is given in ms."""
    folder = new_run(path, definition=definition(published=None))
    for module, (accuracy, ms) in accuracies.items():
        found = {"accuracy": accuracy, "accuracies": [accuracy - 5, accuracy, accuracy + 5], "learned": 0}
        tasks = ("segment", "global", "lookup-8")
        values: dict[str, Any] = {f"recall_{kind}": accuracy for kind in ("segment", "global", "lookup")}
        add(folder, record(module, latency_infer_ms=ms, recall_curve=json.dumps(dict.fromkeys(tasks, found)), **values))
    return path


def test_ability_against_cost_has_the_front_of_what_is_cheaper_and_better(tmp_path: Path) -> None:
    path = with_recall(
        tmp_path / "run", {"sa": (95, 40.0), "da": (90, 50.0), "linear": (60, 4.0), "ham_nmf": (10, 1.0)}
    )
    with styled():
        drawing = figure_recall.ability(panels(path))
    time = drawing.figure.axes[0]
    (front,) = [line for line in time.lines if line.get_linestyle() == "--"]
    assert np.asarray(front.get_xdata()).tolist() == [4, 40]  # linear and sa
    assert {text.get_text() for text in time.texts} == {"linear", "sa"}
    assert drawing.figure.subfigs[0].legends == []
    assert "sa, lookup: 95 %, 40.0 ms" in drawing.details.values()
    assert time.get_xlabel() == "inference latency, ms\n(measured)"
    (heading,) = headings_of(drawing)
    assert (
        "input [1, 512, 128, 128], float32, accuracy on scenes [64, 8, 8], 5 to 8 seeds, 800 steps (segment 300)"
        in heading
    )
    with styled():
        assert headings_of(figure_recall.recall_by_task(panels(path))) == [
            heading[heading.index("acc") : heading.index(", pale")]
        ]


def test_a_task_without_an_accuracy_is_named(tmp_path: Path) -> None:
    folder = RunFolder.open(with_recall(tmp_path / "run", {"sa": (95, 40.0), "da": (90, 50.0)}))
    add(
        folder,
        record(
            "linear",
            latency_infer_ms=1.0,
            recall_global=94.0,
            recall_curve='{"global": {"accuracy": 94.0, "accuracies": [94.0], "learned": 1}}',
        ),
    )
    found = panels(folder.path)
    with styled():
        by_task, ability = figure_recall.recall_by_task(found), figure_recall.ability(found)
    assert [[text.get_text() for text in axes.texts] for axes in by_task.figure.axes] == [["none"], [], ["none"]]
    drawn = [[line for line in axes.lines if line.get_gid()] for axes in ability.figure.axes[:2]]
    assert [len(points) for points in drawn] == [2, 3]


def test_each_seed_has_a_point_and_only_segment_has_an_interval(tmp_path: Path) -> None:
    found = panels(with_recall(tmp_path / "run", {"sa": (90, 40.0), "linear": (60, 4.0)}))
    with styled():
        by_task, ability = figure_recall.recall_by_task(found), figure_recall.ability(found)
    for axes in by_task.figure.axes:
        assert [list(line.get_xdata()) for line in axes.lines if len(line.get_xdata()) == 3] == [
            [85, 90, 95],
            [55, 60, 65],
        ]
    assert [len(axes.collections) for axes in ability.figure.axes[:3]] == [2, 0, 0]
    assert names(found) == ["cost", "pareto", "recall", "ability"]
