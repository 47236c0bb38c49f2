"""Closed forms: integer arithmetic on names and nothing else."""

import pytest

from ctxbench.registry.formula import FormulaError, evaluate


@pytest.mark.parametrize(
    ("formula", "value"),
    [
        ("4*N*C*d + 2*B*n**2*d", 4 * 12 * 3 * 5 + 2 * 2 * 36 * 5),
        ("(C + 1)//2 - -1", 3),
        ("C if mode == 'x' else 4*C", 3),
        ("ceil(n) + min(B, C) + max(B, C)", 6 + 2 + 3),
        ("N*(C > 2) + (B < 1 or not flag)", 13),
        ("2**62 + 1", 2**62 + 1),
    ],
)
def test_evaluates(formula: str, value: int) -> None:
    names = {"N": 12, "C": 3, "d": 5, "B": 2, "n": 6, "mode": "x", "flag": False}
    assert evaluate(formula, names) == value


@pytest.mark.parametrize(
    ("formula", "sentence"),
    [
        ("C*", "is not an expression"),
        ("C*q", "uses 'q'; known names are C"),
        ("__import__('os').getcwd()", "is not integer arithmetic"),
        ("C/2", "is not integer arithmetic"),
        ("C.bit_length()", "is not integer arithmetic"),
        ("C == 3", "not an integer"),
        ("'text'", "not an integer"),
        ("9**9**9", "more than 1000 bits"),
        ("C**C**C**C**C", "more than 1000 bits"),
        ("2**1000", "more than 1000 bits"),
        ("C*10**2000", "more than 1000 bits"),
        ("2**-1", "negative exponent"),
        ("1//0", "cannot be evaluated"),
        ("C//(C - 3)", "cannot be evaluated"),
        ("'a' + 1", "'a', which is no number"),
        ("'a'*9", "'a', which is no number"),
        ("min()", "cannot be evaluated"),
        ("max(1)", "cannot be evaluated"),
        ("ceil('a')", "cannot be evaluated"),
        ("-'a'", "cannot be evaluated"),
        ("1" + " + 1" * 250, "more than 1000 characters"),
        ("1" * 5000, "more than 1000 characters"),
        ("1" * 400, "more than 1000 bits"),
    ],
)
def test_refuses(formula: str, sentence: str) -> None:
    with pytest.raises(FormulaError, match="closed form") as caught:
        evaluate(formula, {"C": 3})
    assert sentence in str(caught.value)
