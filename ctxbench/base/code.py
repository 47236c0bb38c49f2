"""Python code without what does not run."""

import ast


def without_docstrings(code: str | bytes) -> ast.Module:
    """The syntax tree of a file, with `pass` for each docstring; SyntaxError if it has none."""
    tree = ast.parse(code)
    for node in ast.walk(tree):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if ast.get_docstring(node, clean=False) is not None:
            node.body[:1] = [ast.Pass()]
    return tree
