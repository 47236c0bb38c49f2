"""Differences between two runs, in the terminal: exact quantities first, ratios with intervals, other conditions."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from report_data import ENVIRONMENT, add, definition, new_run, record, timed

import ctxbench
from ctxbench.base.errors import UsageError
from ctxbench.plugin import plugins
from ctxbench.report.run_data import open_run
from ctxbench.report.tables.difference import difference_table
from ctxbench.results.run_folder import RunFolder
from ctxbench.table.table import Table

MACHINE = {**ENVIRONMENT, "driver": None}
TIMES = [1.0, 1.0, 1.0, 1.02, 1.02, 1.02, 1.01, 1.01, 1.01]


def difference(one: Path, two: Path) -> Table:
    found: Table = difference_table(open_run(one), open_run(two))
    return found


def texts(table: Table) -> list[list[str]]:
    return [[cell.text for cell in row.cells] for row in table.rows]


def with_times(path: Path, factor: float, module: str = "sa", **values: Any) -> Path:
    folder, row = new_run(path, environment=MACHINE), record(module, **values)
    add(folder, row, timed(row, {"infer": [factor * each for each in TIMES]}, processes=3))
    return path


def test_the_same_run_differs_in_nothing(tmp_path: Path) -> None:
    path = with_times(tmp_path / "one", 1.0)
    table = difference(path, path)
    assert (table.title, table.rows) == ("Nothing differs", ())
    assert any(line.startswith("The same in both: Params; MACs;") and "Time, infer" in line for line in table.caption)


def test_other_code_is_told_with_its_files_and_commits(tmp_path: Path) -> None:
    paths = []
    for name, helper in (("one", "a"), ("two", "b")):
        sources = {"sa": {"file": "net/sa.py", "sha256": "same", "commit": helper * 40}}
        imports = {"sa": {f"/{name}/net/layers.py": helper, f"/{name}/net/base.py": "same, too"}}
        folder = new_run(tmp_path / name, environment=MACHINE, sources=sources, imports=imports)
        add(folder, record("sa"))
        paths.append(folder.path)
    table = difference(*paths)
    assert table.title == "Nothing differs"
    assert "Other code: sa (layers.py; aaaaaaaaaa -> bbbbbbbbbb)." in table.caption
    assert not any("Other code" in line for line in difference(paths[0], paths[0]).caption)


def test_exact_quantities_come_first_and_times_have_intervals(tmp_path: Path) -> None:
    one, two = with_times(tmp_path / "one", 1.0), with_times(tmp_path / "two", 2.0, params=1_050_625)
    rows = texts(difference(one, two))
    assert [row[1] for row in rows] == ["Params (M)", "Time, infer (ms)"]
    assert rows[1][4] == "2.00 [1.93, 2.07]"
    assert rows[0][4] == "1.00 (+1)"


def test_a_time_whose_ratio_may_be_one_is_not_told_apart(tmp_path: Path) -> None:
    table = difference(with_times(tmp_path / "one", 1.0), with_times(tmp_path / "two", 1.001))
    assert table.rows == ()
    assert "Not known to differ: the interval of the ratio contains 1. This is about: Time, infer." in table.caption


def test_what_cannot_be_compared_is_told_once_with_its_cases(tmp_path: Path) -> None:
    one, two = (new_run(tmp_path / name, environment=MACHINE) for name in ("one", "two"))
    for folder, counter in ((one, "torchprofile"), (two, "ctxbench")):
        add(folder, record("sa", macs_counter=counter))
        add(folder, record("da"))
    add(one, record("linear"))
    add(two, record("ham_nmf"))
    table = difference(one.path, two.path)
    assert "Not compared: MACs counted by torchprofile and by ctxbench. This is about: MACs of sa." in table.caption
    assert "Only in run 1: linear." in table.caption
    assert "Only in run 2: ham_nmf." in table.caption


def test_other_conditions_are_named(tmp_path: Path) -> None:
    one = new_run(tmp_path / "one", environment=MACHINE)
    two = new_run(
        tmp_path / "two",
        environment={**MACHINE, "cpu": "Other CPU", "commit": "fedcba"},
        definition=definition(measure={"target": 0.02, "sample_s": 4.0}),
    )
    for folder in (one, two):
        add(folder, record("sa"))
    assert difference(one.path, two.path).caption[-1] == (
        "Other conditions: cpu: Test CPU in run 1, Other CPU in run 2; commit of ctxbench: 0123456789 in run 1, fedcba "
        "in run 2; sample_s: 8.0 in run 1, 4.0 in run 2."
    )


def test_runs_with_other_threads_share_their_counts(tmp_path: Path) -> None:
    one = with_times(tmp_path / "one", 1.0, threads=1)
    two = with_times(tmp_path / "two", 2.0, threads=None, params=1_050_625)
    table = difference(one, two)
    assert [row[1:] for row in texts(table)] == [["Params (M)", "1.051", "1.051", "1.00 (+1)"]]
    assert (
        "Of other conditions, so that counts alone are compared: threads: 1 in run 1, unset in run 2." in table.caption
    )
    told = "\n".join(table.caption)
    assert "The same in both: MACs; " in told
    assert "Time" not in told
    assert "Only in run" not in told


def test_runs_without_a_common_case(tmp_path: Path) -> None:
    one, two = (new_run(tmp_path / name, environment=MACHINE) for name in ("one", "two"))
    add(one, record("sa"))
    add(two, record("da"))
    with pytest.raises(UsageError, match="one and two share no case: there is nothing to compare"):
        difference(one.path, two.path)


def test_a_run_that_does_not_tell_its_machine_is_refused(tmp_path: Path) -> None:
    folder = new_run(tmp_path / "one")
    add(folder, record("sa"))
    with pytest.raises(UsageError, match=r"what it says of machine or settings is damaged \(KeyError\('driver'\)\)"):
        difference(folder.path, folder.path)


def test_the_command_prints_it(tmp_path: Path, command: Callable[..., Any]) -> None:
    done = command("diff", with_times(tmp_path / "one", 1.0), with_times(tmp_path / "two", 2.0))
    assert (done.returncode, "What differs" in done.stdout, "Time, infer (ms)" in done.stdout) == (0, True, True)
    assert command("diff", tmp_path / "one", tmp_path / "none").returncode == 2


def test_from_python(tmp_path: Path) -> None:
    found = ctxbench.diff(with_times(tmp_path / "one", 1.0), with_times(tmp_path / "two", 2.0))
    assert [run.name for run in found.value] == ["one", "two"]
    assert found.frame[["quantity", "2 / 1"]].to_numpy().tolist() == [["Time, infer (ms)", "2.00 [1.93, 2.07]"]]
    assert re.search(r"^case +quantity .*\n.*\nsa +Time, infer \(ms\) ", str(found), re.MULTILINE)
    assert "<td" in found._repr_html_()


def test_what_a_notebook_completes() -> None:
    own = ("Run", "UsageError", "diff", "load", "register", "run")
    of_plugins = {
        name: name for name in ("audit", "check", "choose", "compare", "history", "profile", "show", "verify")
    }
    of_plugins |= {"card": "audit", "predict_memory": "memory", "predict_time": "predict"}
    assert dir(ctxbench) == sorted([*own, *(name for name, plugin in of_plugins.items() if plugin in plugins())])
    assert all(callable(getattr(ctxbench, name)) for name in dir(ctxbench))
    with pytest.raises(AttributeError, match="has no attribute 'runs'"):
        ctxbench.runs  # type: ignore[attr-defined]  # noqa: B018  # that is the question


def test_a_run_that_is_not_finished_is_told(tmp_path: Path) -> None:
    one, two = with_times(tmp_path / "one", 1.0), with_times(tmp_path / "two", 1.0)
    RunFolder.open(two).save_meta(state="running")
    sentence = "Run 2 is not finished (state: running); rows are missing."
    assert sentence in difference(one, two).caption
    assert sentence not in difference(one, one).caption
