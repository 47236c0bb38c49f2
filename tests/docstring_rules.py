"""Checks that docstrings begin with a verb or a noun, not with an indirect clause such as "What it does".

`python tests/docstring_rules.py`.
"""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
CLAUSE = re.compile(r"(?:How|That|Those|What|When|Where|Whether|Which|Who|Whom|Whose|Why)\b")


def indirect(source: str) -> Iterator[tuple[int, str]]:
    """Line and docstring of each module, class and function whose docstring begins with an indirect clause."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node) or ""
            if CLAUSE.match(text):
                yield node.body[0].lineno, text.splitlines()[0]


if __name__ == "__main__":
    files = subprocess.check_output(["git", "ls-files", "*.py"], cwd=ROOT, text=True).splitlines()
    found = [f"{file}:{line} {text}" for file in files for line, text in indirect((ROOT / file).read_text("utf-8"))]
    if found:
        sys.exit("\n".join([*found, "A docstring begins with a verb or a noun: `Number of rows`, `Return whether`."]))
