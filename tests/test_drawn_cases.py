"""The cases of walks that `make test` tries today."""

import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import drawn_cases
import pytest


def item(name: str, mark: pytest.Mark | None = None, /, **params: object) -> Any:
    case = f"[{'-'.join(map(str, params.values()))}]" if params else ""
    return SimpleNamespace(
        nodeid=f"test_a.py::{name}{case}",
        path=Path("tests/folder/test_a.py"),
        callspec=SimpleNamespace(params=params),
        get_closest_marker=lambda name: mark,
        iter_markers=lambda name: [mark] if mark else [],
    )


def test_a_tenth_is_drawn_and_each_case_has_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    names = drawn_cases.known()
    monkeypatch.setattr(drawn_cases, "known", lambda: names)
    monkeypatch.setattr(drawn_cases, "blocks", list)
    monkeypatch.setattr(drawn_cases, "_changed", set)
    days = [drawn_cases.kept(f"2026-{month:02}-{day:02}") for month in range(1, 13) for day in range(1, 29)]
    assert {len(each) for each in days} == {-(-len({*names}) // 10)}
    assert set().union(*days) == {*names}


@pytest.mark.plugin("check")
def test_a_changed_file_brings_the_cases_that_are_made_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawn_cases, "drawn", lambda names, seed: [])
    monkeypatch.setattr(drawn_cases, "_changed", lambda: {"_ham", "sa", "check", "plugins", "cost-table"})
    assert drawn_cases.kept("") == {"ham_cd", "ham_nmf", "ham_vq", "sa", "check"}


def test_of_a_walk_over_names_those_of_today_are_tried_and_few_cases_always(monkeypatch: pytest.MonkeyPatch) -> None:
    walk = [item("test_walk", key=key, mode="train") for key in drawn_cases.blocks()]
    few = [*(item("test_few", size=size) for size in range(3)), item("test_none")]
    monkeypatch.setattr(drawn_cases, "kept", lambda seed: {"sa"})
    monkeypatch.delenv(drawn_cases.VARIABLE, raising=False)
    assert drawn_cases.left_out([*walk, *few]) == []
    monkeypatch.setenv(drawn_cases.VARIABLE, "drawn")
    assert drawn_cases.left_out([*walk, *few]) == [each for each in walk if each.callspec.params["key"] != "sa"]


def test_of_a_test_with_many_cases_a_tenth_is_tried_and_tests_differ_in_which(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(drawn_cases.VARIABLE, "drawn")
    monkeypatch.setattr(drawn_cases, "_changed", set)
    tried = []
    for name in ("test_one", "test_two"):
        many = [item(name, size=size) for size in range(40)]
        left = drawn_cases.left_out(many)
        tried.append({each.callspec.params["size"] for each in many if each not in left})
    assert [len(each) for each in tried] == [4, 4]
    assert tried[0] != tried[1]


@pytest.mark.parametrize(
    ("changed", "tried"),
    [
        ({"b"}, {"b", "drawn"}),
        (set(), {"drawn"}),
        ({"tests", "test"}, {"drawn"}),
        *(({part}, {"b", "c", "drawn"}) for part in ("room", "test_a", "a", "folder")),
    ],
)
def test_a_marked_test_is_drawn_unless_what_it_is_about_has_changed(
    monkeypatch: pytest.MonkeyPatch, changed: set[str], tried: set[str]
) -> None:
    monkeypatch.setenv(drawn_cases.VARIABLE, "drawn")
    monkeypatch.setattr(drawn_cases, "_changed", lambda: changed)
    monkeypatch.setattr(drawn_cases, "drawn", lambda names, seed: ["drawn"])
    walk = [item("test_walk", pytest.mark.drawn("room").mark, case=case) for case in ("b", "c", "drawn")]
    left = [each for each in walk if each not in drawn_cases.left_out(walk)]
    assert {each.callspec.params["case"] for each in left} == tried


def test_a_commit_of_very_many_files_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {"HEAD~1": [f"room/{number}.py" for number in range(101)], "HEAD": ["room/mine.py"]}
    monkeypatch.setattr(
        subprocess, "run", lambda command, **options: SimpleNamespace(stdout="\n".join(names[command[-1]]))
    )
    assert drawn_cases._changed() == {"room", "mine"}
    names["HEAD~1"].pop()
    assert len(drawn_cases._changed()) == 101
