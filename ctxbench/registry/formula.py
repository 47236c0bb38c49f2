"""Closed forms such as `4*N*C*d + 2*B*n**2*d`: integer arithmetic on names, evaluated without eval()."""

import ast
import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

from ctxbench.base.errors import UsageError

# The longest closed form in characters, and the largest integer in it in bits: a float can hold it.
LONGEST, WIDEST = 1000, 1000
_TOO_WIDE = f"has an integer of more than {WIDEST} bits"
_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Pow: operator.pow,
}
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.Gt: operator.gt,
}
_FUNCTIONS: dict[str, Callable[..., int]] = {"min": min, "max": max, "ceil": math.ceil}


class FormulaError(UsageError):
    """A closed form that is not integer arithmetic on known names."""


def evaluate(formula: str, names: Mapping[str, Any]) -> int:
    """Evaluate a closed form over integers.

    Allowed: `+ - * // **`, `==`, `!=`, `<`, `>`, `and`, `or`, `not`, `a if condition else b`, integer, string and
    truth constants, `min`, `max`, `ceil`, and the given names. Raises FormulaError for anything else, for more than
    LONGEST characters, and for an integer of more than WIDEST bits.
    """
    if len(formula) > LONGEST:
        raise FormulaError(f"the closed form {formula[:40]!r}... has more than {LONGEST} characters")
    try:
        value = _value(ast.parse(formula, mode="eval").body, names)
    except SyntaxError as error:
        raise FormulaError(f"the closed form {formula!r} is not an expression: {error.msg}") from None
    except FormulaError as error:
        raise FormulaError(f"the closed form {formula!r} {error}") from None
    except (ArithmeticError, TypeError, ValueError, RecursionError, MemoryError) as error:
        raise FormulaError(f"the closed form {formula!r} cannot be evaluated: {error}") from None
    if isinstance(value, bool) or not isinstance(value, int):
        raise FormulaError(f"the closed form {formula!r} gives {value!r}, not an integer")
    if value.bit_length() > WIDEST:
        raise FormulaError(f"the closed form {formula!r} {_TOO_WIDE}")
    return value


def names_in(formula: str) -> set[str]:
    """The names that a closed form uses."""
    nodes = ast.walk(ast.parse(formula, mode="eval"))
    return {node.id for node in nodes if isinstance(node, ast.Name)} - _FUNCTIONS.keys()


def _value(node: ast.expr, names: Mapping[str, Any]) -> Any:
    match node:
        case ast.Constant(value=int() | str() | bool() as constant):
            return constant
        case ast.Name(id=name):
            if name not in names:
                raise FormulaError(f"uses {name!r}; known names are {', '.join(sorted(names))}")
            return names[name]
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            return _computed(op, _value(left, names), _value(right, names))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand, names)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return not _value(operand, names)
        case ast.IfExp(test=test, body=body, orelse=orelse):
            return _value(body if _value(test, names) else orelse, names)
        case ast.BoolOp(op=ast.And(), values=values):
            return all(_value(value, names) for value in values)
        case ast.BoolOp(op=ast.Or(), values=values):
            return any(_value(value, names) for value in values)
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _COMPARE:
            return _COMPARE[type(op)](_value(left, names), _value(right, names))
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in _FUNCTIONS:
            return _FUNCTIONS[name](*(_value(argument, names) for argument in args))
        case _:
            raise FormulaError(f"holds {ast.unparse(node)!r}, which is not integer arithmetic")


def _computed(op: ast.operator, left: Any, right: Any) -> Any:
    """An operation on two numbers, if it is not too large to be computed."""
    for each in (left, right):
        if not isinstance(each, int | float):
            raise FormulaError(f"computes with {each!r}, which is no number")
    if isinstance(left, int) and isinstance(right, int):
        is_power = isinstance(op, ast.Pow)
        if is_power and right < 0:
            raise FormulaError("has a negative exponent")
        if (left.bit_length() * right if is_power else left.bit_length() + right.bit_length()) > WIDEST:
            raise FormulaError(_TOO_WIDE)
    return _BINARY[type(op)](left, right)
