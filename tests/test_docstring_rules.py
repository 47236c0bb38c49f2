"""A docstring that begins with an indirect clause is found, with its line."""

from docstring_rules import indirect

PLANTED = '"""Costs."""\n\n\nclass Whole:\n    """Whole numbers."""\n\n    def count(self):\n        """{} rows."""\n'


def test_an_indirect_docstring_is_found() -> None:
    assert list(indirect(PLANTED.format("How many"))) == [(8, "How many rows.")]
    assert list(indirect(PLANTED.format("Number of"))) == []
