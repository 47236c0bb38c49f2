"""The blocks whose tests `make test` runs today."""

from types import SimpleNamespace
from typing import Any

import drawn_blocks
import pytest


def test_a_fifth_is_drawn_and_each_block_has_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawn_blocks, "_changed", set)
    days = [drawn_blocks.kept(f"2026-01-{day:02}") for day in range(1, 32)]
    assert {len(each) for each in days} == {len(drawn_blocks.blocks()) // 5}
    assert set().union(*days) == {*drawn_blocks.blocks()}


def test_a_changed_file_brings_the_blocks_that_are_made_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawn_blocks, "drawn", lambda names, seed: [])
    monkeypatch.setattr(drawn_blocks, "_changed", lambda: {"_ham", "sa"})
    assert drawn_blocks.kept("") == {"ham_cd", "ham_nmf", "ham_vq", "sa"}


def test_only_tests_of_many_blocks_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    def item(name: str, **params: object) -> Any:
        return SimpleNamespace(nodeid=f"test_a.py::{name}[{params}]", callspec=SimpleNamespace(params=params))

    many = [item("test_many", key=key, mode="train") for key in drawn_blocks.blocks()]
    others = [item("test_few", key="mhsa"), item("test_number", size=3), SimpleNamespace(nodeid="test_a.py::test_none")]
    monkeypatch.setattr(drawn_blocks, "kept", lambda seed: {"sa"})
    monkeypatch.delenv(drawn_blocks.VARIABLE, raising=False)
    assert drawn_blocks.left_out([*many, *others]) == []
    monkeypatch.setenv(drawn_blocks.VARIABLE, "drawn")
    assert drawn_blocks.left_out([*many, *others]) == [each for each in many if each.callspec.params["key"] != "sa"]
