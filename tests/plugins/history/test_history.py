"""Costs of modules at each commit of a repository, the commits where a cost changed, and times from runs."""

import os
import platform
import shutil
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from forked import Forked
from report_data import ENVIRONMENT, add, new_run, record, timed
from test_trees import OWN_GIT, commit, git, source

from ctxbench.base.errors import UsageError
from ctxbench.engine import cache
from ctxbench.engine.cache import Cache
from ctxbench.model.conditions import CONDITIONS
from ctxbench.model.read_suite import Overrides, load
from ctxbench.plugins.history import costs as made
from ctxbench.plugins.history import function
from ctxbench.plugins.history.costs import History, history
from ctxbench.plugins.history.table import history_tables, plot, sentences
from ctxbench.plugins.trees.trees import Commit, Tree
from ctxbench.table.result import Stopped

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
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


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """A repository with a commit for each text, and their names, the oldest first."""
    root = tmp_path_factory.mktemp("made") / "repository"
    root.mkdir()
    git(root, "init", "--quiet", "--initial-branch=main")
    found = []
    for subject, text in TEXTS.items():
        commit(root, {"module.py": text} if text else {"README": "nothing\n"})
        git(root, "commit", "--quiet", "--amend", "--message", subject)
        found.append(git(root, "rev-parse", "HEAD"))
    return root, found


@pytest.fixture
def names(repository: tuple[Path, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The commits' names, in a copy of the repository for one test."""
    for name, value in OWN_GIT.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(shutil.copytree(repository[0], tmp_path / "repository"))
    return repository[1]


@pytest.fixture
def ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ask:
    """The history of the module, with what is kept in a folder of the test's own."""
    monkeypatch.setattr(made, "ForkServer", Forked)
    monkeypatch.setattr(cache, "user_cache_path", lambda name: tmp_path / "cache")
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
    assert wider.endswith(", wider): Mine, over the commit before: Params +50 %")
    assert [line.partition(":")[0] for line in rest] == [names[0][:10], names[4][:10]]
    assert "no_such_package" in rest[1]
    (table,) = history_tables(found)
    assert [row.cells[-1].text for row in table.rows] == ["a module", "a comment", "wider", "mended"]
    assert [row.cells[2].best for row in table.rows] == [False, False, True, False]
    plot(found, tmp_path / "h.svg")
    assert f"<!-- {names[3][:10]} -->" in (tmp_path / "h.svg").read_text(encoding="utf-8")


def test_only_commits_that_change_what_the_module_imports_or_reads_stand_in_it(
    names: list[str], ask: Ask, tmp_path: Path
) -> None:
    reads = "from pathlib import Path\nfrom widths import K\nN = int(Path('more.txt').read_text())"
    steps: dict[str, dict[str, str | bytes]] = {
        "a helper": {"module.py": source("Mine", "K + N", reads), "widths.py": "K = 3\n", "more.txt": "1"},
        "a page": {"README": "more\n"},
        "the helper": {"widths.py": "K = 4\n"},
        "another page": {"README": "still more\n"},
        "the data": {"more.txt": "2"},
        "a last page": {"README": "all\n"},
    }
    for subject, files in steps.items():
        commit(Path.cwd(), files)
        git(Path.cwd(), "commit", "--quiet", "--amend", "--message", subject)
    found = ask("HEAD", 4)
    assert [each.subject for each in found.commits] == ["mended", "a helper", "the helper", "the data"]
    (params,) = [series for series in found.series if series.quantity == "params"]
    assert [point.number.value for point in params.points] == [3, 4, 5, 6]
    (last,) = ask("HEAD~1..HEAD").commits  # no commit of the range changed it
    assert last.subject == "a last page"
    at = run_at(tmp_path / "a", git(Path.cwd(), "rev-parse", "HEAD~2"), 1.0)  # "another page"
    (times,) = [series for series in ask("HEAD", 4, [at]).series if series.quantity == "latency_infer"]
    assert [found.commits[point.index].subject for point in times.points] == ["the helper"]


def test_what_a_person_can_set_right_ends_at_the_first_commit(
    names: list[str], ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    reason = "error: UsageError: Mine needs a value for width; this works: ctxbench show module.py:Mine --set width=3"
    asked: list[str] = []

    def costs(here: object, commit: object, *_: object) -> tuple[made.CommitCosts, list[str]]:
        asked.append(reason)
        return made.CommitCosts(), [reason]

    monkeypatch.setattr(made, "_costs", costs)
    with pytest.raises(UsageError, match=r"^Mine needs a value for width; this works: "):
        ask()
    assert len(asked) == 1


def test_a_wrapper_of_the_working_tree_is_in_each_commit(names: list[str], ask: Ask) -> None:
    Path("wrap.py").write_text("from module import Mine\n\ndef make(channels):\n    return Mine(channels)\n")
    suite = load("ci", Overrides(modules=["wrap.py:make"], conditions={"shape": [(1, 16, 8, 8)]}))
    with pytest.raises(UsageError, match=r"no file wrap\.py; --adapter FILE gives each commit a file of your working"):
        history(suite)
    found = history(suite, adapters=["wrap.py"])
    assert [each.subject for each in found.commits] == [*TEXTS]
    (params,) = [series for series in found.series if series.quantity == "params"]
    assert [point.number.value for point in params.points] == [2, 2, 3, 3]


def test_ctrl_c_leaves_what_is_counted(names: list[str], ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = [COUNTED]
    monkeypatch.setattr(made, "_costs", lambda *_: (counted.pop(), []) if counted else interrupt())
    with pytest.raises(Stopped, match="interrupted; 1 of at most 20 commits are counted, and are kept") as stop:
        function.history("module.py:Mine")
    (table,) = stop.value.result.tables
    assert [row.cells[-1].text for row in table.rows] == ["mended"]
    with pytest.raises(KeyboardInterrupt):
        history(SUITE)


def interrupt() -> Any:
    raise KeyboardInterrupt


def test_a_commit_is_counted_once(names: list[str], ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    first = ask("HEAD~4..HEAD~2")
    monkeypatch.setattr(made, "baseline_tree", None)  # would be called for a commit that is not kept
    assert repr(ask("HEAD~4..HEAD~2")) == repr(first)  # the bounds of a count are NaN, which no NaN equals
    with pytest.raises(TypeError):
        ask("HEAD")


@pytest.mark.plugin("predict")
def test_another_data_sheet_has_the_times_predicted_anew(names: list[str], ask: Ask, tmp_path: Path) -> None:
    sheet = tmp_path / "mine.toml"
    text = (ROOT / "ctxbench/plugins/predict/sheets.toml").read_text(encoding="utf-8").split("[p100-pcie]")[0]
    overrides = Overrides(modules=["module.py:Mine"], conditions={"shape": [(1, 16, 8, 8)], "device": [str(sheet)]})
    found = []
    for content in (text, text, text.replace("bandwidth_gb_s = ", "bandwidth_gb_s = 0.001 #")):
        sheet.write_text(content, encoding="utf-8")
        (series,) = [
            each for each in history(load("ci", overrides), "HEAD", 1).series if each.quantity == "latency_infer"
        ]
        found.append(series.points[0].number.value)
    assert found[0] == found[1] < found[2]


def test_remarks_on_the_last_numbers_are_told(names: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    costs = {name: made.CommitCosts({"Mine": {"params": [2]}}, [f"a remark on {name}"]) for name in names[:-1]}
    monkeypatch.setattr(made, "_costs", lambda here, commit, *_: (costs.get(commit.name, made.CommitCosts()), []))
    assert history(SUITE).notes == (f"a remark on {names[-2]}",)


READS = {
    "a module": "from widths_of_mine import K",
    "a file": "import pathlib\nK = int(pathlib.Path('{0}/widths_of_mine.py').read_text()[4])",
    "names of files": "import os\nK = len(os.listdir('{0}'))",
    "a program": "import subprocess\nK = int(subprocess.check_output(['head', '-c5', '{0}/widths_of_mine.py'])[4:])",
    "a variable": "import os\nK = int(os.getenv('WIDTH_OF_MINE'))",
}


@pytest.mark.parametrize("read", READS)
def test_a_commit_whose_module_reads_what_is_outside_of_it_is_counted_each_time(
    names: list[str], ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: str
) -> None:
    outside = tmp_path / "elsewhere" / "widths_of_mine.py"
    outside.parent.mkdir()
    monkeypatch.syspath_prepend(outside.parent)
    imports = READS[read].format(outside.parent)
    commit(Path.cwd(), {"module.py": source("Mine", width="K", imports=imports)})
    for width in (2, 5):
        for number in range(1, width):
            outside.with_name(f"{number}.txt").touch()
        monkeypatch.setenv("WIDTH_OF_MINE", str(width))
        outside.write_text(f"K = {width}\n" + "#" * width, encoding="utf-8")
        (params,) = [each for each in ask("HEAD", 1).series if each.quantity == "params"]
        assert params.points[0].number.value == width


COUNTED = made.CommitCosts({"Mine": {"params": [2]}})
SUITE = load("ci", Overrides(modules=["module.py:Mine"], conditions={"shape": [(1, 16, 8, 8)]}))


def keys_of_each_input(root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, bytes]]:
    """An input of what is counted, which is changed once, and the key and the folder that it then has."""
    known: list[bytes] = []
    monkeypatch.setattr(made, "_counted", lambda tree, suite: (made.CommitCosts(), [], True))
    monkeypatch.setattr(made, "baseline_tree", lambda here, name, adapters: nullcontext(here))
    monkeypatch.setattr(Cache, "read", lambda self, key: known.append(f"{self._path(key)}".encode()))
    monkeypatch.setattr(Cache, "write", lambda self, key, content: None)
    usual = SUITE.file.model_copy(update={"axes": SUITE.file.axes.model_copy(update={"device": ["s.toml"]})})

    def key(commit_name: str = "a", file: Any = usual, adapter: bytes = b"") -> bytes:
        commit = Commit(commit_name, "day", "subject")
        made._costs(Tree(root, "here"), commit, replace(SUITE, file=file), {"wrap.py": adapter}, Cache("history"))
        return known[-1]

    yield "nothing", key()
    yield "commit", key("b")
    yield "adapter", key(adapter=b"TIMES = 1")
    changes: dict[str, Any] = {
        "modules": ["module.py:Other"],
        "metrics": ["params"],
        "hparams": {"Mine": {"width": 2}},
        "cases": [{"module": "sa"}],
        "measure": usual.measure.model_copy(update={"memory_device": "t4"}),
    }
    for name, value in changes.items():
        yield name, key(file=usual.model_copy(update={name: value}))
    axes: dict[str, Any] = {
        "shape": [(1, 16, 8, 9)],
        "dtype": ["float64"],
        "device": ["t4"],
        "memory_format": ["channels_last"],
        "execution": ["compile"],
        "threads": [2],
        "network": ["resnet50"],
    }
    for name, value in axes.items():
        yield name, key(file=usual.model_copy(update={"axes": usual.axes.model_copy(update={name: value})}))
    sheet = Path("s.toml").read_text(encoding="utf-8")
    for name in ("bandwidth_gb_s", "power_w", "l2_mib"):
        Path("s.toml").write_text(sheet.replace(f"{name} = ", f"{name} = 1"), encoding="utf-8")
        yield f"the sheet's {name}", key()
    Path("s.toml").write_text(sheet, encoding="utf-8")
    others = {"code_digest": "0", "installed_key": b"0", "_installed": ["0", ""], "python_version": "0"}
    for name, other in others.items():
        place = {"installed_key": made, "python_version": platform}.get(name, cache)
        with monkeypatch.context() as patch:
            patch.setattr(place, name, lambda *arguments, other=other: other)
            yield name, key()


@pytest.mark.plugin("predict")
def test_each_input_of_a_count_changes_its_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "ctxbench/plugins/predict/sheets.toml").read_text(encoding="utf-8").split("[p100-pcie]")[0]
    Path("s.toml").write_text(text, encoding="utf-8")
    found = dict(keys_of_each_input(tmp_path, monkeypatch))
    assert {*CONDITIONS} <= {*found}
    twice = {name for name, key in found.items() if [*found.values()].count(key) > 1}
    assert (twice, len(found)) == (set(), 22)


DAMAGES = (b"{}", b"[]", b"null", b'{"Mine": {"params": [999]}}', b"[" * 200_000, b"", b"\xff", None)


def test_a_damaged_entry_is_counted_anew(
    names: list[str], ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count, counted = made._counted, list[Any]()

    def count_once(*arguments: Any) -> Any:
        counted.append(counted[0] if counted else count(*arguments))
        return counted[0]

    monkeypatch.setattr(made, "_counted", count_once)
    monkeypatch.setattr(made, "baseline_tree", lambda here, name, adapters: nullcontext(here))
    first = ask("HEAD", 1)
    (path,) = (tmp_path / "cache" / "history").glob("*/*")
    for number, damage in enumerate(DAMAGES, 2):
        path.unlink()
        if damage is None:
            os.mkfifo(path)
        else:
            path.write_bytes(damage)
        assert (repr(ask("HEAD", 1)), len(counted)) == (repr(first), number), damage


@pytest.mark.parametrize(
    ("span", "last", "indices"), [("HEAD", 2, [4, 5]), ("HEAD~3", 2, [1, 2]), ("HEAD~3..HEAD~2", 20, [3])]
)
def test_the_range(names: list[str], monkeypatch: pytest.MonkeyPatch, span: str, last: int, indices: list[int]) -> None:
    monkeypatch.setattr(made, "_costs", lambda *asked: (COUNTED, []))
    assert [names.index(each.name) for each in history(SUITE, span, last).commits] == indices


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


def test_times_of_runs_stand_at_their_commits(
    names: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(made, "_costs", lambda *asked: (COUNTED, []))
    runs = [
        run_at(tmp_path / "a", names[1], 1.0),
        run_at(tmp_path / "b", names[2], 1.001),
        run_at(tmp_path / "c", names[3], 2.0),
        run_at(tmp_path / "d", names[5], 4.0, cpu="another"),
        run_at(tmp_path / "e", f"{names[5]}+changes", 4.0),
    ]
    found = history(SUITE, runs=runs)
    (times,) = [series for series in found.series if series.quantity == "latency_infer"]
    assert [point.index for point in times.points] == [1, 2, 3, 5]
    (step,) = [step for step in found.steps() if step.series is times]
    assert (step.index, round(step.ratio.value, 3)) == (3, 1.998)
    assert found.notes[-1] == f"{runs[4]} has no time of these modules at one of these commits, without changes"


def test_a_folder_that_is_no_run_is_refused_before_a_commit_is_counted(
    names: list[str], ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(made, "_costs", lambda *asked: pytest.fail("counted"))
    with pytest.raises(UsageError, match="nothing is no run folder"):
        ask(runs=[run_at(tmp_path / "a", names[1], 1.0), tmp_path / "nothing"])


def test_the_command(names: list[str], command: Callable[..., Any], tmp_path: Path) -> None:
    wrong = command("history", "module.py:Mine", "--plot", tmp_path / "h.pdf")
    assert (wrong.returncode, "ends in .png or .svg" in wrong.stderr) == (2, True)
    assert command("history", "module.py:Mine", "nothing").returncode == 2


@pytest.mark.plugin("predict")
def test_a_data_sheet_is_found_from_the_working_folder(names: list[str], ask: Ask) -> None:
    text = (ROOT / "ctxbench/plugins/predict/sheets.toml").read_text(encoding="utf-8").split("[p100-pcie]")[0]
    Path("mine.toml").write_text(text, encoding="utf-8")
    overrides = Overrides(
        modules=["module.py:Mine"], conditions={"shape": [(1, 16, 8, 8)], "device": ["mine.toml", "../mine.toml"]}
    )
    Path("../mine.toml").write_text(text, encoding="utf-8")
    found = history(load("ci", overrides), "HEAD", 1)
    assert len([each for each in found.series if each.quantity == "latency_infer"]) == 2
    (note,) = found.notes
    assert note.startswith("Launch-bound: ")
