"""A type checker knows what `import ctxbench` has: each name of `dir`, arguments and results, with mypy --strict."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import ctxbench

ROOT = Path(__file__).parents[1]
BESIDE = ("modules", "networks", "published", "report", "suites")
# Their own types are of no account here, and take minutes to read.
SKIPPED = ["torch", "numpy", "pandas", "pydantic", "rich", "scipy", "matplotlib", "sympy", "typer"]
USER = """
import ctxbench

found = ctxbench.run("quick", modules=["sa"], shape=(1, 64, 32, 32), dtype="float16", static=True)
failed: int = found.failed
loaded: ctxbench.Run = ctxbench.load(found.path)
peak: float = ctxbench.predict_memory("sa", (1, 64, 32, 32), dtype="float16").value.value
low: float = ctxbench.predict_time("sa", (1, 64, 32, 32), "t4", mode="train").value.low
outcomes: list[str] = [each.outcome for each in ctxbench.verify("sa", channels=64).value]
"""
WRONG = ('ctxbench.predict_memory("sa", dtyp="float16")', "ctxbench.run(shape=3.5)", "ctxbench.runs", "found.value")


@pytest.mark.slow
@pytest.mark.processes
def test_mypy_knows_what_a_user_imports(tmp_path: Path) -> None:
    """The package lies as it installs, with the folders beside it inside."""
    package = tmp_path / "site" / "ctxbench"
    package.mkdir(parents=True)
    for each in (*(ROOT / "ctxbench").iterdir(), *(ROOT / name for name in BESIDE)):
        (package / each.name).symlink_to(each)
    script, settings = tmp_path / "user.py", tmp_path / "mypy.ini"
    names = [f"reveal_type(ctxbench.{name})" for name in dir(ctxbench)]
    text = "\n".join([USER, *names, *WRONG])
    script.write_text(text, encoding="utf-8")
    sections = "".join(f"[mypy-{name}.*]\nfollow_imports = skip\n" for name in SKIPPED)
    settings.write_text(f"[mypy]\nmypy_path = {package.parent}\nfollow_imports = silent\n{sections}", encoding="utf-8")
    arguments = ["--strict", "--config-file", settings, "--cache-dir", tmp_path / "cache", script]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *map(str, arguments)], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    told = re.findall(r"^user\.py:(\d+): (error|note): (.*)$", done.stdout, re.MULTILINE)
    wrong = {int(line) for line, kind, _ in told if kind == "error"}
    lines = text.splitlines()
    assert {lines[number - 1] for number in wrong} == set(WRONG), done.stdout + done.stderr
    revealed = [sentence for _, _, sentence in told if sentence.startswith("Revealed type")]
    assert len(revealed) == len(names)
    assert all(sentence.startswith('Revealed type is "def (') for sentence in revealed), revealed
