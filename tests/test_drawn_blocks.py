"""The blocks whose tests `make test` runs today."""

import drawn_blocks
import pytest

pytest_plugins = "pytester"


def test_a_fifth_is_drawn_and_each_block_has_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawn_blocks, "_changed", set)
    days = [drawn_blocks.kept(f"2026-01-{day:02}") for day in range(1, 32)]
    assert {len(each) for each in days} == {len(drawn_blocks.blocks()) // 5}
    assert set().union(*days) == {*drawn_blocks.blocks()}


def test_a_changed_file_brings_the_blocks_that_are_made_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawn_blocks, "drawn", lambda names, seed: [])
    monkeypatch.setattr(drawn_blocks, "_changed", lambda: {"_ham", "sa"})
    assert drawn_blocks.kept("") == {"ham_cd", "ham_nmf", "ham_vq", "sa"}


def test_only_tests_of_many_blocks_are_drawn(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    many = [f"test_a.py::test_many[{key}]" for key in drawn_blocks.blocks()]
    monkeypatch.setattr(drawn_blocks, "kept", lambda seed: {"sa"})
    items = pytester.getitems(
        f"import pytest\n@pytest.mark.parametrize('key', {drawn_blocks.blocks()!r})\ndef test_many(key): pass\n"
        "@pytest.mark.parametrize('key', ['mhsa', 'ham_nmf'])\ndef test_few(key): pass\ndef test_none(): pass\n"
    )
    monkeypatch.delenv(drawn_blocks.VARIABLE, raising=False)
    assert drawn_blocks.left_out(items) == []
    monkeypatch.setenv(drawn_blocks.VARIABLE, "drawn")
    assert len(drawn_blocks.left_out(items)) == len(many) - 1
