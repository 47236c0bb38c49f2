"""The cases of walks that `make test` tries today."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import drawn_cases
import pytest


def item(name: str, mark: pytest.Mark | None = None, /, **params: object) -> Any:
    case = f"[{'-'.join(map(str, params.values()))}]" if params else ""
    return SimpleNamespace(
        nodeid=f"test_a.py::{name}{case}",
        path=Path("test_a.py"),
        callspec=SimpleNamespace(params=params),
        get_closest_marker=lambda name: mark,
    )


def test_a_fifth_is_drawn_and_each_case_has_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawn_cases, "_changed", set)
    days = [drawn_cases.kept(f"2026-01-{day:02}") for day in range(1, 32)]
    assert {len(each) for each in days} == {-(-len({*drawn_cases.known()}) // 5)}
    assert set().union(*days) == {*drawn_cases.known()}


@pytest.mark.plugin("check")
def test_a_changed_file_brings_the_cases_that_are_made_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawn_cases, "drawn", lambda names, seed: [])
    monkeypatch.setattr(drawn_cases, "_changed", lambda: {"_ham", "sa", "check", "plugins", "cost-table"})
    assert drawn_cases.kept("") == {"ham_cd", "ham_nmf", "ham_vq", "sa", "check"}


def test_only_walks_over_many_cases_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    many = [item("test_many", key=key, mode="train") for key in drawn_cases.blocks()]
    others = [item("test_few", key="mhsa"), item("test_number", size=3), item("test_none")]
    monkeypatch.setattr(drawn_cases, "kept", lambda seed: {"sa"})
    monkeypatch.delenv(drawn_cases.VARIABLE, raising=False)
    assert drawn_cases.left_out([*many, *others]) == []
    monkeypatch.setenv(drawn_cases.VARIABLE, "drawn")
    assert drawn_cases.left_out([*many, *others]) == [each for each in many if each.callspec.params["key"] != "sa"]


@pytest.mark.parametrize(
    ("changed", "tried"),
    [({"b"}, {"b", "drawn"}), (set(), {"drawn"}), ({"room"}, {"b", "c", "drawn"}), ({"test_a"}, {"b", "c", "drawn"})],
)
def test_a_marked_walk_is_drawn_unless_what_it_is_about_has_changed(
    monkeypatch: pytest.MonkeyPatch, changed: set[str], tried: set[str]
) -> None:
    monkeypatch.setenv(drawn_cases.VARIABLE, "drawn")
    monkeypatch.setattr(drawn_cases, "_changed", lambda: changed)
    monkeypatch.setattr(drawn_cases, "drawn", lambda names, seed: ["drawn"])
    walk = [item("test_walk", pytest.mark.drawn("room").mark, case=case) for case in ("b", "c", "drawn")]
    left = [each for each in walk if each not in drawn_cases.left_out(walk)]
    assert {each.callspec.params["case"] for each in left} == tried
