"""`ctxbench check --against` in real git repositories: who is compared with whom, exact costs, margins, exit codes."""

import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar
from xml.etree import ElementTree

import pytest
from fakes import wait_until
from forked import Forked, KeptOpen
from test_trees import OWN_GIT, commit, git, new_repository, source, state

from ctxbench.base.errors import UsageError
from ctxbench.base.number import Number
from ctxbench.cli import main
from ctxbench.engine.client import ForkServer
from ctxbench.engine.exit import Exit
from ctxbench.model.case import Case, Measure
from ctxbench.model.messages import Failure
from ctxbench.model.read_suite import load
from ctxbench.model.record import Record
from ctxbench.plugins.check import check as flow
from ctxbench.plugins.check import check_against as check
from ctxbench.plugins.check import exact
from ctxbench.plugins.check.check import conditions_phrase
from ctxbench.plugins.check.check_against import check_against
from ctxbench.plugins.check.evidence import PairFailure, PairRatios, PairResult
from ctxbench.plugins.check.operators import differing
from ctxbench.plugins.check.pairs import Pairs, Source
from ctxbench.plugins.check.request import Request, parse_accepted, parse_renamed
from ctxbench.plugins.check.result import ExactChange, ExitCode, GateResult, exit_code
from ctxbench.plugins.check.rows import RowKey, RowVerdict, failed_now
from ctxbench.plugins.check.rules import BELOW, GateRule
from ctxbench.plugins.check.texts import accepting, label_of, remarks, summary
from ctxbench.plugins.check.wire import PairRow, WrittenCall
from ctxbench.plugins.trees.tree_cases import suite_in_tree
from ctxbench.plugins.trees.trees import Tree, baseline_tree, working_tree
from ctxbench.worker.protocol import Reply, Task

pytestmark = pytest.mark.slow  # many small cases, which take seconds together

SUITE = """
title = "tiny"
modules = [{modules}]
metrics = [{metrics}]
[axes]
shape = [1, 16, 8, 8]
[measure]
warmup_s = 0
{gate}
"""


class FakePairs:
    """Stands in for `Pairs`: each row's log ratio, or failure, comes from `changes`; 0 if it has none."""

    changes: Mapping[str, float | PairFailure] = {}
    asked: Sequence[RowKey] = ()

    def __init__(self, baseline: Source, candidate: Source, measure: Measure, **of_flow: Any) -> None:
        self.baseline, self.candidate = baseline, candidate
        self.seconds: list[float] = []

    def __call__(self, rows: Sequence[RowKey]) -> dict[RowKey, PairResult]:
        self.seconds.append(0.0)
        wobble = 1e-3 * (-1) ** len(self.seconds)
        type(self).asked = [*self.asked, *rows]
        found: dict[RowKey, PairResult] = {}
        for row in rows:
            change = self.changes.get(f"{row.case.split()[0]} {row.mode}", 0.0)
            found[row] = change if isinstance(change, PairFailure) else PairRatios(math.log1p(change) + wobble)
        return found


@pytest.fixture(scope="module")
def environment() -> dict[str, Any]:
    return {"cpu": "a processor", "gpus": [], "packages": {"torch": "2"}, "torch_threads": 1}


@pytest.fixture(autouse=True)
def _forks(monkeypatch: pytest.MonkeyPatch, environment: dict[str, Any]) -> None:
    for name, value in OWN_GIT.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(check, "ForkServer", Forked)
    monkeypatch.setattr(check, "machine", lambda server: environment)
    monkeypatch.setattr(flow, "Pairs", FakePairs)
    monkeypatch.setattr(FakePairs, "changes", {})
    monkeypatch.setattr(FakePairs, "asked", [])


BEFORE: dict[str, str | bytes] = {
    "same.py": source("Same"),
    "grown.py": source("Grown"),
    "shrunk.py": source("Shrunk", width=5),
    "gone.py": source("Gone"),
    "renamed.py": source("Renamed"),
    "broken.py": source("Broken"),
    "stuck.py": source("Stuck"),
    "leaving.py": source("Leaving"),
    "mended.py": source("Mended", imports="import no_such_package"),
    "unstuck.py": source("Unstuck", body="raise ValueError('not yet')"),
    "unrepaired.py": source("Unrepaired", body="raise ValueError('not yet')"),
    "never.py": source("Never", imports="import no_such_package"),
    "package/__init__.py": "",
    "package/inner.py": source("Inner", width="WIDTH", imports="from package.widths import WIDTH"),
    "package/widths.py": "WIDTH = 2\n",
}
AFTER = {
    "same.py": source("Same", body="pass"),  # other code, for that is what is timed
    "grown.py": source("Grown", width=3),
    "shrunk.py": source("Shrunk", width=4),
    "renamed.py": source("AnotherName"),
    "broken.py": source("Broken", imports="import no_such_package"),
    "stuck.py": source("Stuck", body="raise ValueError('no longer')"),
    "leaving.py": source("Leaving", imports="import os; os._exit(3)"),
    "mended.py": source("Mended"),
    "unstuck.py": source("Unstuck"),
    "fresh.py": source("Fresh"),  # untracked
    "fresh_and_broken.py": source("Fresh", body="raise ValueError('not yet')"),
    "unrepaired.py": source("Unrepaired", body="raise ValueError('still not')"),
    "package/widths.py": "WIDTH = 12\n",
}


@pytest.fixture(scope="module")
def shared_repository(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A repository whose working tree has every kind of change, none of them committed; no check writes into it."""
    root = new_repository(tmp_path_factory.mktemp("repository"), BEFORE)
    for name, text in AFTER.items():
        (root / name).write_text(text)
    (root / "gone.py").unlink()
    git(root, "add", "grown.py")  # staged counts as well as not staged
    before = state(root)
    yield root
    assert state(root) == before


@pytest.fixture(scope="module")
def head(shared_repository: Path) -> Iterator[Tree]:
    """The files of its commit, which stay."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in OWN_GIT.items():
            patch.setenv(name, value)
        with baseline_tree(working_tree(shared_repository), "HEAD") as tree:
            yield tree


class Remembering(Forked):
    """Performs each task of the repository that tests share once, for nobody writes into it."""

    told: ClassVar[dict[str, tuple[list[Reply], Exit]]] = {}

    def run(self, task: Task, on_message: Callable[[Reply], None], timeout_s: float | None = None) -> Exit:
        key = re.sub(r'"[^"]*/outputs"', "outputs", f"{self.tree} {task}")  # a file in a folder of this check
        if key not in self.told:
            messages: list[Reply] = []
            ended = super().run(task, messages.append, timeout_s)
            self.told[key] = messages, ended
        messages, ended = self.told[key]
        for message in messages:
            on_message(message)
        return ended


@pytest.fixture
def repository(shared_repository: Path, head: Tree, monkeypatch: pytest.MonkeyPatch) -> Path:
    def of_ref(here: Tree, ref: str, adapters: Mapping[str, bytes]) -> AbstractContextManager[Tree]:
        return nullcontext(head) if ref == "HEAD" and not adapters else baseline_tree(here, ref, adapters)

    monkeypatch.setattr(check, "ForkServer", Remembering)
    monkeypatch.setattr(check, "baseline_tree", of_ref)
    monkeypatch.chdir(shared_repository)
    return shared_repository


@pytest.fixture(scope="module")
def suites(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("suites")


@pytest.fixture
def ask(suites: Path) -> Callable[..., GateResult]:
    """Check modules against HEAD."""

    def run(*modules: str, ref: str = "HEAD", timed: bool = False, gate: str = "", **options: Any) -> GateResult:
        path = suites / "tiny.toml"
        metrics = ["params", "macs", "memory", *["latency"] * timed]
        path.write_text(SUITE.format(modules=json.dumps(modules)[1:-1], metrics=json.dumps(metrics)[1:-1], gate=gate))
        return check_against(ref, Request(load(str(path)), **options))

    return run


Ask = Callable[..., GateResult]


def rows_of(result: GateResult) -> dict[str, RowVerdict]:
    return {label_of(result, row.row): row for row in result.rows}


@pytest.mark.parametrize(
    ("several", "told"),
    [
        ([{}], "[1, 16, 8, 8], float32, 1 thread"),
        (
            [{"memory_format": "channels_last", "execution": "compile", "network": "/a/net.py:mine", "threads": 2}],
            "[1, 16, 8, 8], float32, channels_last, compile, 2 threads, in mine",
        ),
        (
            [{"execution": "compile"}, {"dtype": "bfloat16"}, {"network": "resnet50_d8", "threads": 2}],
            "[1, 16, 8, 8], bfloat16, float32, compile, eager, 1 thread, 2 threads, alone, in resnet50_d8",
        ),
    ],
)
def test_all_conditions_but_defaults_that_all_rows_share_are_said(
    environment: dict[str, Any], several: list[dict[str, Any]], told: str
) -> None:
    cases = [Case("sa", "", {}, (1, 16, 8, 8), **conditions) for conditions in several]
    assert conditions_phrase(environment, cases) == f"a processor, torch 2, {told}"


def test_a_network_in_a_file_is_each_trees_own(tmp_path: Path) -> None:
    text = f"""
        title = "t"
        modules = ["sa"]
        axes = {{ shape = [1, 8, 4, 4], network = ["", "{tmp_path}/net.py:mine"] }}
        [[cases]]
        module = "sa"
        network = "{tmp_path}/net.py:mine"
    """
    (tmp_path / "s.toml").write_text(text)
    seen = suite_in_tree(load(str(tmp_path / "s.toml")), tmp_path).file
    assert (seen.axes.network, seen.cases) == (["", "net.py:mine"], [{"module": "sa", "network": "net.py:mine"}])


def test_unchanged_without_a_clock_is_ok_and_says_how_much_was_compared(repository: Path, ask: Ask) -> None:
    result = ask("same.py:Same")
    assert result.exit_code == ExitCode.OK
    assert (result.exact, result.compared, result.rows) == ((), 5, ())
    head = git(repository, "rev-parse", "HEAD")[:10]
    assert (result.baseline, result.candidate) == (f"HEAD ({head})", "the working tree")
    assert "[1, 16, 8, 8], float32, 1 thread" in result.conditions


CASE = "1x16x8x8 float32 cpu"


def test_growth_that_is_accepted_is_shown_and_ok(repository: Path, ask: Ask) -> None:
    result = ask("grown.py:Grown", accepted=parse_accepted(["params=50%", "memory"]), must_match=False)
    assert ExactChange(f"Grown {CASE}", "params", 2, 3, limit=0.5) in result.exact
    assert result.exit_code == ExitCode.OK
    assert "Grown grew: params +50 %. This is accepted." in remarks(result)
    of_suite = ask("grown.py:Grown", gate='[gate]\naccept = ["params"]', must_match=False)
    assert of_suite.exit_code == ExitCode.OK
    for few in (["macs"], ["params=49%"]):
        refused = ask("grown.py:Grown", accepted=parse_accepted(few))
        assert refused.exit_code == ExitCode.REGRESSED
        assert "Grown grew: params +50 %. To accept this: --accept params=50%" in remarks(refused)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("latency", "unknown metric of --accept 'latency'"),
        ("macs=", "--accept macs '' is not a positive share"),
        ("macs=-5%", "--accept macs '-5%' is not a positive share"),
        ("macs=5000%", "--accept macs 50: it must be more than 0 and less than 10"),
    ],
)
def test_what_cannot_be_accepted_is_said(text: str, sentence: str) -> None:
    with pytest.raises(UsageError, match=re.escape(sentence)):
        parse_accepted([text])


def test_a_suite_that_accepts_what_is_no_metric_is_refused(repository: Path, ask: Ask) -> None:
    with pytest.raises(
        UsageError, match=r"tiny\.toml: \[gate\] accept 'speed' \(known: launches, macs, memory, params"
    ):
        ask("same.py:Same", gate='[gate]\naccept = ["speed"]')


def test_growth_from_nothing_has_no_share() -> None:
    grown = ExactChange("a", "macs", 0, 7)
    assert (grown.growth, grown.accepted, accepting([grown])) == (math.inf, False, "--accept macs")
    assert replace(grown, limit=math.inf).accepted
    assert not replace(grown, limit=9.0).accepted
    assert accepting([ExactChange("a", "params", 1000, 1061), ExactChange("b", "params", 1000, 1070)]) == (
        "--accept params=7%"
    )


def test_a_class_under_another_name_is_compared_with_its_old_one(repository: Path, ask: Ask) -> None:
    result = ask("renamed.py:AnotherName", renamed=parse_renamed(["Renamed=AnotherName"]))
    assert (result.exact, result.compared, result.exit_code) == ((), 5, ExitCode.OK)
    (row,) = ask("renamed.py:Renamed").rows
    assert "if the class was renamed, add --renamed OLD=NEW" in row.reason
    with pytest.raises(UsageError, match="--renamed takes OLD=NEW"):
        parse_renamed(["New"])


def test_a_parameter_less_is_shown_and_ok(repository: Path, ask: Ask) -> None:
    result = ask("shrunk.py:Shrunk", must_match=False)
    assert ExactChange(f"Shrunk {CASE}", "params", 5, 4) in result.exact
    assert not any(change.worse for change in result.exact)
    assert result.exit_code == ExitCode.OK
    assert ask("shrunk.py:Shrunk").exit_code == ExitCode.CHANGED  # saved weights do not load


def test_every_kind_of_change_at_once(repository: Path, ask: Ask) -> None:
    names = ("Same", "Gone", "Renamed", "Broken", "Stuck", "Mended", "Unstuck", "Fresh")
    result = ask(*(f"{name.lower()}.py:{name}" for name in names), timed=True)
    rows = rows_of(result)
    assert {name: (row.status, row.verdict) for name, row in rows.items()} == {
        "Same infer": ("measured", "ok"),
        "Same train": ("measured", "ok"),
        "Gone": ("broken", None),
        "Renamed": ("broken", None),
        "Broken": ("broken", None),
        "Stuck": ("broken", None),
        "Mended": ("ok (new)", None),
        "Unstuck": ("ok (repaired)", None),
        "Fresh": ("ok (new)", None),
    }
    assert rows["Gone"].reason == f"vanished: there is no file {repository / 'gone.py'}"
    assert "unknown class in" in rows["Renamed"].reason
    assert "No module named 'no_such_package'" in rows["Broken"].reason
    assert rows["Stuck"].reason.startswith("error: ValueError: no longer (stuck.py, line ")
    assert rows["Mended"].reason.startswith(f"in {result.baseline}, loading ")
    assert "No module named 'no_such_package'" in rows["Mended"].reason
    assert rows["Unstuck"].reason.startswith(f"{result.baseline} fails: error: ValueError: not yet (unstuck.py, line ")
    assert rows["Fresh"].reason.startswith(f"in {result.baseline}, there is no file fresh.py (")
    assert result.exit_code == ExitCode.BROKEN
    assert {row.case.split()[0] for row in FakePairs.asked} == {"Same"}


ALONE = {
    "gone.py:Gone": ExitCode.BROKEN,
    "unstuck.py:Unstuck": ExitCode.OK,
    "fresh.py:Fresh": ExitCode.OK,
    "unrepaired.py:Unrepaired": ExitCode.NOTHING_COMPARED,
    "never.py:Never": ExitCode.NOTHING_COMPARED,
    "fresh_and_broken.py:Fresh": ExitCode.NOTHING_COMPARED,
}


@pytest.mark.parametrize(("module", "code"), ALONE.items())
def test_exit_codes_of_modules_that_one_side_lacks(repository: Path, ask: Ask, module: str, code: ExitCode) -> None:
    result = ask(module, timed=True)
    assert result.exit_code == code
    assert result.compared == 0
    assert not [note for note in result.notes if "name your modules" in note]  # they were named
    assert FakePairs.asked == []


def test_without_a_clock_a_new_module_leaves_the_others_verdict(repository: Path, ask: Ask) -> None:
    result = ask("same.py:Same", "fresh.py:Fresh")
    assert result.exit_code == ExitCode.OK
    assert [row.status for row in result.rows] == ["ok (new)"]
    assert "fresh.py (if it wraps a block that is there: --adapter fresh.py); now" in result.rows[0].reason
    assert (result.compared, [note for note in result.notes if "compared" in note]) == (5, [])


WRAPPER = """
from {source} import {name}

def make(channels, times=1):
    return {name}(channels)
"""


@pytest.fixture
def wrapper(repository: Path) -> Iterator[Path]:
    path = repository / "bench" / "wrap.py"
    path.parent.mkdir()
    path.write_text(WRAPPER.format(source="grown", name="Grown"))
    yield path
    shutil.rmtree(path.parent)


@pytest.mark.usefixtures("wrapper")
def test_a_wrapper_of_the_working_tree_serves_both_sides(ask: Ask) -> None:
    alone = ask("bench/wrap.py:make")
    assert [row.status for row in alone.rows] == ["ok (new)"]
    result = ask("bench/wrap.py:make", adapters=["bench/wrap.py"], accepted={"params": 1.0})
    assert [(each.baseline, each.candidate) for each in result.exact] == [(2, 3)]
    assert (result.rows, result.compared) == ((), 5)


def test_an_adapter_that_cannot_be_in_each_commit_is_refused(repository: Path, ask: Ask, tmp_path: Path) -> None:
    outside = tmp_path / "wrap.py"
    outside.write_text(WRAPPER.format(source="grown", name="Grown"))
    with pytest.raises(UsageError, match=r"the adapter .*wrap\.py lies outside the repository .*: put it inside"):
        ask("same.py:Same", adapters=[outside])
    with pytest.raises(UsageError, match=r"there is no file none\.py"):
        ask("same.py:Same", adapters=["none.py"])


def test_code_and_outputs_that_are_the_same_need_no_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ask: Ask
) -> None:
    root = new_repository(tmp_path / "repository", {
        "plain.py": source("Plain"), "uses.py": source("Uses", imports="from inner import scale"),
        "inner.py": "scale = 1\n", "other.py": source("Other"),
    })  # fmt: skip
    (root / "plain.py").write_text(f'"""Says what it is."""\n# and why\n{source("Plain")}')
    (root / "inner.py").write_text("scale = 2  # which nothing uses\n")
    monkeypatch.chdir(root)
    result = ask("plain.py:Plain", "uses.py:Uses", "other.py:Other", timed=True)
    reasons = {name: (row.verdict, row.replicates, row.reason) for name, row in rows_of(result).items()}
    untimed = ("ok", 0, "The same code and the same outputs: nothing to time.")
    assert reasons["Other infer"] == reasons["Other train"] == untimed
    # A docstring that was not there is one line more of what Python runs.
    assert reasons["Plain infer"][1] == reasons["Uses infer"][1] == 4
    assert {row.case.split()[0] for row in FakePairs.asked} == {"Plain", "Uses"}
    assert result.exit_code == ExitCode.OK
    (root / "plain.py").write_text(f"# and why\n{source('Plain')}")
    result = ask("plain.py:Plain", timed=True)
    assert {row.reason for row in result.rows} == {untimed[2]}
    assert result.exit_code == ExitCode.OK


@pytest.mark.parametrize(
    ("module", "sentence"),
    [
        ("nowhere.py:Block", "there is no file .*/nowhere.py"),
        ("no.such.package:Block", "there is no module 'no.such.package' to import"),
        ("same.py:Block", "unknown class in .*'Block'"),
        ("saa", "unknown module 'saa'; did you mean 'sa'"),
        ("/outside.py:Block", "/outside.py lies outside the repository .*: no other commit has it"),
    ],
)
def test_a_module_that_neither_side_has(repository: Path, ask: Ask, module: str, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        ask("same.py:Same", module)


def test_a_module_that_ends_the_process_when_it_is_imported(repository: Path, ask: Ask) -> None:
    sentence = "the modules of the working tree could not be listed: the process ended in listing with exit code 3"
    with pytest.raises(UsageError, match=sentence):
        ask("same.py:Same", "leaving.py:Leaving")


def test_unknown_refs_and_places_without_a_repository(
    repository: Path, ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UsageError, match="unknown git reference 'mian'; did you mean 'main'"):
        ask("same.py:Same", ref="mian")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="is not in a git repository"):
        ask("same.py:Same")


@pytest.mark.parametrize("timed", [False, True])
def test_the_registry_in_a_user_s_repository_compares_nothing_and_says_how_to(
    repository: Path, ask: Ask, timed: bool
) -> None:
    result = ask("sa", "ham_nmf", timed=timed)
    assert result.exit_code == ExitCode.NOTHING_COMPARED
    assert (result.rows, result.compared) == ((), 0)
    assert "left out, because their files are not in this repository: ham_nmf, sa" in result.notes
    assert "nothing was compared; name your modules with --module path.py:Class or --modules KEY" in result.notes


def test_from_a_subfolder_with_relative_paths(repository: Path, ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(repository / "package")
    result = ask("../grown.py:Grown", "inner.py:Inner", str(repository / "same.py:Same"))
    params = [(each.case, each.baseline, each.candidate) for each in result.exact if each.quantity == "params"]
    assert params == [(f"Grown {CASE}", 2, 3), (f"Inner {CASE}", 2, 12)]  # a helper of each side's own
    assert result.compared == 15


def test_explicit_cases_of_a_suite_are_found_in_both_trees(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "cases.toml"
    text = SUITE.format(modules='"same.py:Same"', metrics='"params"', gate="")
    path.write_text(text.replace("[axes]", 'cases = [{module = "grown.py:Grown", shape = [1, 8, 4, 4]}]\n[axes]'))
    result = check_against("HEAD", Request(load(str(path))))
    assert result.exact == (ExactChange("Grown 1x8x4x4 float32 cpu", "params", 2, 3),)
    assert result.compared == 2


# The verdicts on latency; the pairs are scripted

NEW_FAILURES = {
    "out of memory": "oom: out of memory: [enforce fail at alloc_cpu.cpp:119]",
    "crash": "crashed: killed in the measurement by SIGSEGV; it printed nothing",
    "NaN": "nan: the output of the infer pass holds NaN or infinity",
}


@pytest.mark.parametrize("message", NEW_FAILURES.values(), ids=NEW_FAILURES)
def test_a_row_that_newly_fails_is_broken(
    repository: Path, ask: Ask, monkeypatch: pytest.MonkeyPatch, message: str
) -> None:
    monkeypatch.setattr(FakePairs, "changes", {"Same train": PairFailure("candidate", message, True)})
    result = ask("same.py:Same", timed=True)
    rows = rows_of(result)
    assert (rows["Same train"].status, rows["Same train"].reason) == ("broken", message)
    assert (rows["Same infer"].verdict, rows["Same infer"].replicates) == ("ok", 4)
    assert result.exit_code == ExitCode.BROKEN


def test_a_row_that_fails_on_both_sides_is_not_compared(
    repository: Path, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    failure = PairFailure("both", "error: as ever")
    monkeypatch.setattr(FakePairs, "changes", {"Same train": failure, "Same infer": failure})
    result = ask("same.py:Same", timed=True)
    assert [row.status for row in result.rows] == ["not compared"] * 2
    # That the costs agree is no word on the latency that was asked for.
    assert (result.compared, result.exit_code) == (5, ExitCode.NOTHING_COMPARED)
    assert summary(result).endswith("Exit code 5: no time compared.")


SLOWER = {"Same infer": 0.08, "Same train": 0.08, "Inner infer": 0.08, "Inner train": -0.3}
MARGINS = '[gate]\nmargin = 0.05\nmargins = {"Same" = 0.2, "Inner train" = 0.01}\n'


def test_each_row_has_the_suite_s_margin_or_its_own(
    repository: Path, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakePairs, "changes", SLOWER)
    plain = rows_of(ask("same.py:Same", "package.inner:Inner", timed=True))
    assert {name: row.verdict for name, row in plain.items()} == {
        "Same infer": "regressed", "Same train": "regressed", "Inner infer": "regressed", "Inner train": "ok",
    }  # fmt: skip
    assert plain["Inner train"].change.value == pytest.approx(-0.3, abs=1e-6)
    result = ask("same.py:Same", "package.inner:Inner", timed=True, gate=MARGINS)
    assert {name: row.verdict for name, row in rows_of(result).items()} == {
        "Same infer": "ok", "Same train": "ok", "Inner infer": "regressed", "Inner train": "ok",
    }  # fmt: skip
    assert "rows with another margin: Same 0.2, Inner train 0.01" in result.notes
    assert (result.margin, result.exit_code) == (0.05, ExitCode.REGRESSED)


def test_a_margin_of_the_request_is_everyone_s(repository: Path, ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakePairs, "changes", SLOWER)
    result = ask("same.py:Same", timed=True, gate=MARGINS, margin=0.01)
    assert {row.verdict for row in result.rows} == {"regressed"}
    assert result.margin == 0.01
    assert not any("rows with another margin" in note for note in result.notes)
    assert ask("same.py:Same", timed=True, margin=0.1).exit_code == ExitCode.OK


def test_without_time_all_is_inconclusive_and_the_request_says_what_that_is(repository: Path, ask: Ask) -> None:
    result = ask("same.py:Same", timed=True, budget_s=1e-9)
    assert {row.verdict for row in result.rows} == {"inconclusive"}
    assert FakePairs.asked == []
    # Not a single pair: that is no pass.
    assert result.exit_code == ExitCode.NOTHING_COMPARED
    assert ask("same.py:Same", timed=True, budget_s=1e-9, inconclusive_is="fail").exit_code == ExitCode.NOTHING_COMPARED


# What the two trees share


def test_a_baseline_that_loads_the_working_tree_s_files_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ask: Ask
) -> None:
    helper = tmp_path / "repository" / "helpers" / "shared_width.py"
    path = f"import sys\nsys.path.insert(0, {str(helper.parent)!r})\nfrom shared_width import WIDTH"
    block = source("Block", width="WIDTH", imports=path)
    monkeypatch.chdir(
        new_repository(tmp_path / "repository", {"block.py": block, "helpers/shared_width.py": "WIDTH = 2\n"})
    )
    helper.write_text("WIDTH = 9\n")
    result = ask("block.py:Block")
    assert result.exact == ()
    assert f"both sides share {helper}: the baseline loads it from the working tree" in result.notes


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository whose package lies in a folder that only PYTHONPATH, or an editable install, puts on the path."""
    files: dict[str, str | bytes] = {"python/elsewhere_package.py": source("Elsewhere"), "same.py": source("Same")}
    root = new_repository(tmp_path / "elsewhere", files)
    monkeypatch.chdir(root)
    monkeypatch.syspath_prepend(str(root / "python"))
    return root


def test_a_baseline_whose_module_would_be_the_working_tree_s_is_not_compared(elsewhere: Path, ask: Ask) -> None:
    result = ask("same.py:Same", "elsewhere_package:Elsewhere")
    (row,) = result.rows
    file = elsewhere / "python" / "elsewhere_package.py"
    assert (label_of(result, row.row), row.status) == ("Elsewhere", "not compared")
    assert row.reason == f"in {result.baseline}, its module would come from {file}"
    assert result.compared == 5


def test_a_module_that_is_gone_here_but_installed_has_vanished(
    elsewhere: Path, ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(elsewhere, {"own_package.py": source("Own")})
    installed = tmp_path / "installed"
    installed.mkdir()
    (elsewhere / "own_package.py").rename(installed / "own_package.py")
    monkeypatch.syspath_prepend(str(installed))
    result = ask("own_package:Own")
    (row,) = result.rows
    assert (row.status, row.reason.partition(" names ")[2]) == (
        "broken",
        f"code that is not below the working folder: {installed / 'own_package.py'}; read it, and run it from its "
        "folder, or name it in the command",
    )
    assert result.exit_code == ExitCode.BROKEN


# Real processes

BEHAVIOUR = """
import os, signal, time
import torch
from torch import nn


class {name}(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))

    def forward(self, x):
        {body}
        return x * self.weight
"""
# What each module does before, and now. On the meta device, where costs are counted, none of it happens.
REAL = {
    "Even": ("time.sleep(0.004)", "time.sleep(0.004 + 0)"),
    "Slower": ("x.is_meta or time.sleep(0.001)", "x.is_meta or time.sleep(0.012)"),
    "Crashing": ("pass", "x.is_meta or os.kill(os.getpid(), signal.SIGSEGV)"),
    "Infinite": ("pass", "x = x if x.is_meta else x / 0"),
    "Hungry": ("pass", "x.is_meta or torch.empty(2**50)"),
    "Quitting": ("x.is_meta or os._exit(3)", "pass"),
}


def write_real(root: Path, modules: Mapping[str, tuple[str, str]]) -> list[str]:
    """A repository with each module as it was, and a working tree with each as it is; how a check names them."""
    new_repository(root, {f"{name}.py": BEHAVIOUR.format(name=name, body=was) for name, (was, _) in modules.items()})
    for name, (_, now) in modules.items():
        (root / f"{name}.py").write_text(BEHAVIOUR.format(name=name, body=now))
    return [f"{name}.py:{name}" for name in modules]


def write_suite(path: Path, *metrics: str) -> Path:
    path.write_text(SUITE.format(modules='"*"', metrics=json.dumps(metrics)[1:-1], gate=""))
    return path


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """A repository, its baseline as a tree that stays, and a launcher of pairs that keeps one server a tree."""
    root = tmp_path_factory.mktemp("real") / "repository"
    write_real(root, REAL)
    before = state(root)
    running: dict[Path | None, ForkServer] = {}

    def launch(tree: Path | None) -> Kept:
        if tree not in running:
            running[tree] = ForkServer(tree)
        return Kept(running[tree])

    with baseline_tree(working_tree(root), "HEAD") as tree:
        yield {"root": root, "baseline": tree, "launch": launch}
        for server in running.values():
            server.close()
    assert state(root) == before


class Kept(KeptOpen):
    """A fork server that stays open."""

    def __init__(self, server: ForkServer) -> None:
        self.server = server
        self.start, self.command, self.stop = server.start, server.command, server.stop


Command = Callable[..., tuple[int, dict[str, Any]]]


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, real: dict[str, Any]) -> Command:
    """`ctxbench check --against HEAD` with pairs of real processes: its exit code and its JSON.

    A wide margin and one look at two pairs: the changes are so large that two are enough, on a busy machine too.
    """
    monkeypatch.setattr("ctxbench.plugins.check.request.GateRule", partial(GateRule, looks=(2,)))
    monkeypatch.chdir(real["root"])
    monkeypatch.setattr(check, "baseline_tree", lambda here, ref, adapters: nullcontext(real["baseline"]))
    monkeypatch.setattr(flow, "Pairs", partial(Pairs, launch=real["launch"]))

    def run(*modules: str) -> tuple[int, dict[str, Any]]:
        suite = write_suite(tmp_path / "real.toml", "params", "latency")
        options = ["--suite", str(suite), "--modules", ",".join(f"{name}.py:{name}" for name in modules)]
        outputs = ["--json", str(tmp_path / "out.json"), "--junit", str(tmp_path / "out.xml")]
        arguments = ["ctxbench", "check", "--against", "HEAD", "--margin", "300%", *options, *outputs]
        monkeypatch.setattr(sys, "argv", arguments)
        with pytest.raises(SystemExit) as stopped:
            main()
        return int(stopped.value.code or 0), json.loads((tmp_path / "out.json").read_text())

    return run


def skip_if_undecided(result: Mapping[str, Any]) -> None:
    """A time that others' work disturbs is no defect of the gate, which then says that it cannot tell."""
    if "inconclusive" in [row["verdict"] for row in result["rows"]]:
        pytest.skip("undecided, for the machine was busy: run pytest -m timing with nothing beside it")


@pytest.mark.processes
@pytest.mark.timing
def test_rows_that_newly_fail_in_real_processes_leave_the_others_their_verdict(command: Command) -> None:
    names = [name for name in REAL if name != "Slower"]
    code, result = command(*names)
    assert (code, result["exit_code"], result["exact"]["compared"]) == (4, 4, len(names))
    skip_if_undecided(result)
    rows = {row["label"]: row for row in result["rows"]}
    expected = {
        "Even": ("ok", BELOW),
        "Crashing": ("broken", "crashed: killed in the measurement by SIGSEGV; "),
        "Hungry": ("broken", "oom: out of memory: "),
        "Quitting": ("not compared", "crashed: the process ended in the measurement with exit code 3; "),
    }
    assert rows["Infinite"]["status"] == "broken"
    assert rows["Infinite"]["reason"].startswith("error: the output holds NaN or infinity")
    for name, (outcome, reason) in expected.items():
        for mode in ("infer", "train"):
            row = rows[f"{name} {mode}"]
            assert (row["verdict"] or row["status"]) == outcome
            assert row["reason"].startswith(reason)


@pytest.mark.processes
@pytest.mark.timing
def test_a_slower_module_is_a_regression(command: Command, tmp_path: Path) -> None:
    """From 1 to 12 ms asleep, against a margin of 300 %."""
    code, result = command("Slower")
    skip_if_undecided(result)
    assert (code, result["exit_code"], result["exit_name"]) == (1, 1, "regressed")
    assert [(row["verdict"], row["replicates"]) for row in result["rows"]] == [("regressed", 2)] * 2
    assert all(3 < row["low"] < row["change"] < 30 for row in result["rows"])
    (results,) = ElementTree.parse(tmp_path / "out.xml").getroot()
    assert (results.get("tests"), results.get("failures"), results.get("errors")) == ("3", "2", "0")


@pytest.mark.long
@pytest.mark.processes
def test_a_child_killed_while_it_waits_costs_its_row_only(real: dict[str, Any]) -> None:
    """As the kernel does that runs out of memory while the other side works."""
    root = real["root"]
    rows = [RowKey(name) for name in "abc"]
    case = Case("Even", f"{root / 'Even.py'}:Even", {}, (1, 16, 8, 8))
    source = Source(root, {row: PairRow(case, "infer") for row in rows})

    def kill(pair: int, index: int, total: int, row: str) -> None:
        if row == "b":
            child = real["launch"](root).server._child
            os.kill(child, signal.SIGKILL)
            wait_until(lambda: not Path(f"/proc/{child}").exists())

    pairs = Pairs(
        replace(source, tree=real["baseline"].root), source, Measure(warmup_s=0), real["launch"], progress=kill
    )
    results = pairs(rows)
    assert [type(results[row]) for row in rows] == [PairRatios, PairFailure, PairRatios]


def test_a_regression_ends_the_command_with_1(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    suite, out = write_suite(tmp_path / "static.toml", "params"), tmp_path / "out.json"
    modules = ("--module", "grown.py:Grown", "--module", "same.py:Same")
    command = ["ctxbench", "check", "--against", "main", "--suite", str(suite), *modules, "--json", str(out)]
    monkeypatch.setattr(sys, "argv", command)
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == ExitCode.REGRESSED
    (change,) = json.loads(out.read_text())["exact"]["changes"]
    assert (change["case"], change["baseline"], change["candidate"]) == (f"Grown {CASE}", 2, 3)
    assert "Exit code 1: regressed" in " ".join(capsys.readouterr().out.split())


# A check that is interrupted

# Outputs are computed without inference mode, pairs with it.
WAITS = (
    "x.is_meta or not torch.is_inference_mode_enabled() or (open(os.environ['BEGUN'], 'w').close(), time.sleep(600))"
)


def processes_with(text: str) -> list[int]:
    """The processes that have this text in their environment."""
    found = []
    for file in Path("/proc").glob("[0-9]*/environ"):
        try:
            if text.encode() in file.read_bytes() and (file.parent / "exe").exists():
                found.append(int(file.parent.name))
        except (OSError, ProcessLookupError):
            continue
    return found


def start_check(folder: Path) -> tuple[subprocess.Popen[str], dict[str, object]]:
    """A check of a module that never ends, in a repository with a stash and a change; what the repository is before."""
    root, temporary = folder / "repository", folder / "temporary"
    folder.mkdir()
    (name,) = write_real(root, {"Waits": ("pass", WAITS)})
    commit(root, {"notes.txt": "one"})
    (root / "notes.txt").write_text("two")
    git(root, "stash", "--quiet")
    (root / "Waits.py").write_text(BEHAVIOUR.format(name="Waits", body=f"({WAITS}) or None"))
    temporary.mkdir()
    suite = write_suite(folder / "real.toml", "latency")
    process = subprocess.Popen(
        [sys.executable, "-m", "ctxbench", "check", "--against", "HEAD", "--suite", str(suite), "--modules", name],
        cwd=root,
        env={**os.environ, "TMPDIR": str(temporary), "BEGUN": str(folder / "begun")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    return process, state(root)


@pytest.mark.long
@pytest.mark.processes
@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="processes are listed in /proc")
def test_terminated_in_the_middle_of_a_pair_nothing_is_left(tmp_path: Path) -> None:
    """By SIGTERM. Ctrl-C is handled in the same place: see test_trees.py."""
    folder = tmp_path / "check"
    process, before = start_check(folder)
    wait_until((folder / "begun").exists)
    # The command, two servers and a child of each.
    assert len(processes_with(str(folder))) == 5
    assert len(list((folder / "temporary").iterdir())) == 1
    process.terminate()
    output, complaint = process.communicate()
    assert (process.returncode, output) == (130, "")
    assert complaint.endswith("interrupted: no verdict, and nothing is left behind\n")
    # The folder is gone with the command, and not a moment later.
    assert list((folder / "temporary").iterdir()) == []
    wait_until(lambda: not processes_with(str(folder)))
    assert state(folder / "repository") == before


# The exit code of rows and exact quantities together

UP, DOWN = ExactChange("a", "params", 1, 2), ExactChange("a", "params", 2, 1)
LOST = ExactChange("a", "macs", 2, None)


def verdict(status: Any, verdict: Any = None) -> RowVerdict:
    return RowVerdict(RowKey("a", "infer"), status, verdict, Number(0.0), 0.0, 4 if verdict else 0, "")


OK, REGRESSED, UNSURE = (verdict("measured", each) for each in ("ok", "regressed", "inconclusive"))
BROKEN, LEFT_OUT = verdict("broken"), verdict("not compared")
# Counting it was stopped at a time limit.
STOPPED = failed_now(RowKey("a"), Failure("timeout", "still in macs after 60 s"))


@pytest.mark.parametrize(
    ("rows", "changes", "compared", "code"),
    [
        ([OK], [], 4, ExitCode.OK),
        ([OK], [DOWN], 4, ExitCode.OK),
        ([OK], [UP], 4, ExitCode.REGRESSED),
        ([OK], [LOST], 4, ExitCode.REGRESSED),
        ([UNSURE], [UP], 4, ExitCode.REGRESSED),
        ([UNSURE], [DOWN], 4, ExitCode.INCONCLUSIVE),
        ([BROKEN], [UP], 4, ExitCode.BROKEN),
        ([REGRESSED, BROKEN], [], 4, ExitCode.BROKEN),
        ([REGRESSED, UNSURE], [], 4, ExitCode.REGRESSED),
        ([LEFT_OUT], [], 0, ExitCode.NOTHING_COMPARED),
        ([LEFT_OUT], [UP], 4, ExitCode.REGRESSED),
        ([], [], 0, ExitCode.NOTHING_COMPARED),
        ([], [], 4, ExitCode.OK),
        ([OK, STOPPED], [], 4, ExitCode.INCONCLUSIVE),
        ([STOPPED], [], 4, ExitCode.NOTHING_COMPARED),
    ],
)
def test_exit_codes(rows: list[RowVerdict], changes: list[ExactChange], compared: int, code: ExitCode) -> None:
    assert exit_code(rows, changes, compared, inconclusive_is="fail") == code
    relaxed = ExitCode.OK if code == ExitCode.INCONCLUSIVE else code
    assert exit_code(rows, changes, compared) == relaxed


@pytest.mark.parametrize(
    ("rows", "advisory"), [([STOPPED], False), ([OK, STOPPED], True), ([REGRESSED, STOPPED], True)]
)
def test_a_count_that_was_stopped_is_inconclusive_where_counts_alone_decide(
    rows: list[RowVerdict], advisory: bool
) -> None:
    options: dict[str, Any] = {"timed": advisory, "advisory": advisory, "inconclusive_is": "fail"}
    assert exit_code(rows, [], 4, **options) == ExitCode.INCONCLUSIVE
    assert exit_code(rows[:-1], [], 4, **options) == ExitCode.OK


def test_a_case_whose_count_was_stopped_is_inconclusive(
    repository: Path, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measured(server: Forked, measure: Measure, metrics: Sequence[str], case: Case) -> Record | Failure:
        if case.module == "Same" and server.tree == repository:
            return Failure("timeout", "still in macs after 60 s")
        return count(server, measure, metrics, case)  # type: ignore[arg-type]  # a stand-in for the server

    count = exact.measured
    monkeypatch.setattr(exact, "measured", measured)
    result = ask("same.py:Same", "shrunk.py:Shrunk", inconclusive_is="fail", must_match=False)
    assert {name: row.verdict for name, row in rows_of(result).items()} == {"Same": "inconclusive"}
    assert result.exit_code == ExitCode.INCONCLUSIVE


def test_a_regression_says_which_operators_are_new_and_on_which_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ask: Ask
) -> None:
    new_repository(tmp_path, {"wide.py": source("Wide"), "late.py": source("Late")})
    slower = source("Wide").replace("return x *", "x = x.exp().exp()\n        return x.relu() *")
    (tmp_path / "wide.py").write_text(slower)
    (tmp_path / "late.py").write_text(source("Late").replace("return x", "sum(range(9))\n        return x"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(FakePairs, "changes", {"Wide infer": 0.2, "Late infer": 0.2})
    notes = ask("wide.py:Wide", "late.py:Late", timed=True, must_match=False).notes
    assert "Wide: its forward pass differs by +2 exp 1x16x8x8 (wide.py:13), +1 relu 1x16x8x8 (wide.py:14)" in notes
    assert "Late: its forward pass runs the same operators on the same shapes" in notes


def test_operators_that_differ_are_told_by_the_line_that_has_more_or_fewer() -> None:
    def call(op: str, line: int, text: str, *shape: int) -> WrittenCall:
        return WrittenCall(op, shape, f"block.py:{line}", text)

    before = [call("exp", 3, "x = x.exp()", 2, 2), call("softmax", 4, "x = x.softmax(1)", 2, 2)]
    moved = [replace(each, line="block.py:9") for each in before]
    assert differing(before, moved) == "its forward pass runs the same operators on the same shapes"
    now = [*moved, call("exp", 12, "y = y.exp()", 2, 2)]
    assert differing(before, now) == "its forward pass differs by +1 exp 2x2 (block.py:12)"
    assert differing(now, before) == "its forward pass differs by -1 exp 2x2 (block.py:12)"
    many = [call(f"op{i}", i, str(i)) for i in range(6)]
    assert differing(before, [*before, *many]).endswith("+1 op3 (block.py:3), and 2 others")
    assert differing((), now) == differing(now, ()) == ""
