"""Costs of modules at each commit of a repository, the commits where a cost changed, and times from runs."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from report_data import ENVIRONMENT, add, new_run, record, timed
from test_gate_check import Forked, source
from test_gate_trees import OWN_GIT, commit, git

from ctxbench.base.errors import UsageError
from ctxbench.model.read_suite import Overrides, load
from ctxbench.plugins.history import costs as made
from ctxbench.plugins.history.costs import History, history
from ctxbench.plugins.history.table import history_tables, plot, sentences
from ctxbench.worker import tasks

pytestmark = pytest.mark.slow

MACHINE = {**ENVIRONMENT, "driver": None}
Ask = Callable[..., History]
# The text of the module's file at each commit, and the commit's message.
TEXTS = {
    "nothing yet": None,
    "a module": source("Mine"),
    "a comment": source("Mine") + "# a comment\n",
    "wider": source("Mine", width=3),
    "broken": source("Mine", imports="import no_such_package"),
    "mended": source("Mine", width=3) + "# mended\n",
}


@pytest.fixture
def names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A repository with a commit for each text; their names, the oldest first."""
    for name, value in OWN_GIT.items():
        monkeypatch.setenv(name, value)
    root = tmp_path / "repository"
    root.mkdir()
    git(root, "init", "--quiet", "--initial-branch=main")
    found = []
    for subject, text in TEXTS.items():
        commit(root, {"module.py": text} if text else {"README": "nothing\n"})
        git(root, "commit", "--quiet", "--amend", "--message", subject)
        found.append(git(root, "rev-parse", "HEAD"))
    monkeypatch.chdir(root)
    return found


@pytest.fixture
def ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ask:
    """The history of the module, with what is kept in a folder of the test's own."""
    tasks.preload(static=True)
    monkeypatch.setattr(made, "ForkServer", Forked)
    monkeypatch.setattr(made, "user_cache_path", lambda name: tmp_path / "cache")
    monkeypatch.delenv("CTXBENCH_NO_CACHE")
    overrides = Overrides(modules=["module.py:Mine"], conditions={"shape": [(1, 16, 8, 8)]})
    return lambda *arguments, **options: history(load("ci", overrides), *arguments, **options)


def test_each_commit_is_counted_in_its_own_tree(names: list[str], ask: Ask, tmp_path: Path) -> None:
    found = ask()
    assert [each.name for each in found.commits] == names
    (params,) = [series for series in found.series if series.quantity == "params"]
    assert [(point.index, point.number.value) for point in params.points] == [(1, 2), (2, 2), (3, 3), (5, 3)]
    assert [(step.index, step.series.quantity, step.ratio.value) for step in found.steps()] == [(3, "params", 1.5)]
    wider, *rest = sentences(found)
    assert wider.startswith(f"{names[3][:10]} (")
    assert wider.endswith(", wider): Mine, times before: Params 1.50")
    assert [line.partition(":")[0] for line in rest] == [names[0][:10], names[4][:10]]
    assert "no_such_package" in rest[1]
    (table,) = history_tables(found)
    assert [row.cells[-1].text for row in table.rows] == ["a module", "a comment", "wider", "mended"]
    assert [row.cells[2].best for row in table.rows] == [False, False, True, False]
    plot(found, tmp_path / "h.svg")
    assert f"<!-- {names[3][:10]} -->" in (tmp_path / "h.svg").read_text(encoding="utf-8")


def test_a_commit_is_counted_once(names: list[str], ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    first = ask("HEAD~4..HEAD~2")
    monkeypatch.setattr(made, "baseline_tree", None)  # would be called for a commit that is not kept
    assert repr(ask("HEAD~4..HEAD~2")) == repr(first)  # the bounds of a count are NaN, which no NaN equals
    with pytest.raises(TypeError):
        ask("HEAD")


@pytest.mark.parametrize(
    ("span", "last", "indices"), [("HEAD", 2, [4, 5]), ("HEAD~3", 2, [1, 2]), ("HEAD~3..HEAD~2", 20, [3])]
)
def test_the_range(names: list[str], ask: Ask, span: str, last: int, indices: list[int]) -> None:
    assert [names.index(each.name) for each in ask(span, last).commits] == indices


@pytest.mark.parametrize(
    ("span", "sentence"),
    [
        ("nothing", "unknown git reference 'nothing'"),
        ("main..nothing", "unknown git reference 'nothing'"),
        ("main..HEAD", "the range 'main..HEAD' holds no commit"),
        ("--all", "'--all' is no git reference"),
        ("HEAD~5", "no commit of HEAD~5 has a cost of these modules: there is no file module.py"),
    ],
)
def test_a_range_without_commits_or_costs(names: list[str], ask: Ask, span: str, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        ask(span)


def run_at(path: Path, name: str, factor: float, **machine: Any) -> Path:
    """A run of the module at a commit, in three processes that differ by a hundredth."""
    file = {"file": "module.py", "sha256": "0" * 64, "commit": name}
    folder = new_run(path, environment={**MACHINE, **machine}, sources={"Mine": file})
    row = record("Mine")
    add(folder, row, timed(row, {"infer": [factor * each for each in (1.0, 1.0, 1.01, 1.01, 0.99, 0.99)]}, processes=3))
    return path


def test_times_of_runs_stand_at_their_commits(names: list[str], ask: Ask, tmp_path: Path) -> None:
    runs = [
        run_at(tmp_path / "a", names[1], 1.0),
        run_at(tmp_path / "b", names[2], 1.001),
        run_at(tmp_path / "c", names[3], 2.0),
        run_at(tmp_path / "d", names[5], 4.0, cpu="another"),
        run_at(tmp_path / "e", f"{names[5]}+changes", 4.0),
    ]
    found = ask(runs=runs)
    (times,) = [series for series in found.series if series.quantity == "latency_infer"]
    assert [point.index for point in times.points] == [1, 2, 3, 5]
    (step,) = [step for step in found.steps() if step.series is times]
    assert (step.index, round(step.ratio.value, 3)) == (3, 1.998)
    assert found.notes[-1] == f"{runs[4]} has no time of these modules at one of these commits, without changes"


def test_the_command(names: list[str], command: Callable[..., Any], tmp_path: Path) -> None:
    wrong = command("history", "module.py:Mine", "--plot", tmp_path / "h.pdf")
    assert (wrong.returncode, "ends in .png or .svg" in wrong.stderr) == (2, True)
    assert command("history", "module.py:Mine", "nothing").returncode == 2
