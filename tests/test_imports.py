"""Packages that commands and parts of ctxbench import: what a person waits for, counted in place of timed."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from report_data import table3_run

pytestmark = pytest.mark.processes

# What takes long to import, of others and of Python.
HEAVY = [
    "torch", "torch._dynamo", "sympy", "numpy", "scipy", "scipy.special", "scipy.stats", "pandas", "pydantic", "rich",
    "matplotlib", "matplotlib.pyplot", "jinja2", "psutil", "asyncio", "multiprocessing", "unittest.mock",
]  # fmt: skip
COMMAND = """
import sys
from ctxbench import cli
sys.argv = ["ctxbench", {words}]
try:
    cli.main()
except SystemExit as done:
    assert not done.code, done.code
"""
SHAPE = ["--shape", "1,8,8,8"]
RUN = ["run", "--static", "--modules", "sa", *SHAPE, "--out", "new"]


def imported(code: str, folder: Path) -> set[str]:
    """Names of HEAVY that an interpreter has imported when it has run the code."""
    told = f"\nimport json, sys\nprint(json.dumps([name for name in {HEAVY} if name in sys.modules]), file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code + told], cwd=folder, capture_output=True, text=True, check=True)
    return {*json.loads(done.stderr.splitlines()[-1])}


@pytest.mark.drawn("cli")
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--help"], set()),
        (["list"], set()),
        (["run", "--help"], {"pydantic"}),
        (["report", "--help"], set()),
        pytest.param(["show", "ham_nmf"], {"pydantic", "rich"}, marks=pytest.mark.plugin("show")),
        pytest.param(
            ["predict", "sa", "--for", "t4", *SHAPE], {"pydantic", "rich"}, marks=pytest.mark.plugin("predict")
        ),
        (RUN, {"pydantic", "rich"}),
        (["report", "run", "--out", "page"], {"jinja2", "matplotlib", "numpy", "pydantic", "scipy", "scipy.special"}),
    ],
    ids=lambda value: " ".join(value[:2]) if isinstance(value, list) else "",
)
def test_a_command_imports_what_it_needs(words: list[str], expected: set[str], tmp_path: Path) -> None:
    if words[:2] == ["report", "run"]:
        table3_run(tmp_path / "run")
    assert imported(COMMAND.format(words=", ".join(map(repr, words))), tmp_path) == expected


COLUMNS = "from ctxbench.model import metrics, record\nmetrics.quantities(), record.columns()"
PROFILE = "from ctxbench.plugins.memory import convention, profile"


@pytest.mark.parametrize(
    ("code", "expected"), [(COLUMNS, {"pydantic"}), (PROFILE, set())], ids=["columns", "memory profile"]
)
def test_a_part_imports_what_it_needs(code: str, expected: set[str], tmp_path: Path) -> None:
    assert imported(code, tmp_path) == expected
