"""A person's own suite can have claims, and what is wrong with their file is one sentence."""

from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Done
from report_data import add, definition, new_run, record

from ctxbench.plugins.claims.own_claims import own_claims

Command = Callable[..., Done]
HEAD = "from ctxbench.results.claims import Claim, Rows, decided\n"
SMALLER = """
def smaller(rows: Rows):
    return decided(rows.number("params", module="ham_nmf") < rows.number("params", module="sa"), "ham_nmf 524288")

CLAIMS = [Claim("A ham has fewer parameters.", "params of ham_nmf below those of sa", smaller)]
"""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run of the suite `my-suite.toml` of the working folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my-suite.toml").write_text('title = "Mine"\nmodules = ["sa"]\n[axes]\nshape = [1, 8, 4, 4]\n')
    about = {"suite": "my-suite", "suite_file": {"file": "my-suite.toml", "sha256": "", "commit": ""}}
    folder = new_run(tmp_path / "run", definition=definition(title="Mine", published=None), **about)
    for module in ("sa", "ham_nmf"):
        add(folder, record(module))
    return folder.path


def test_the_claims_beside_a_suite_are_in_its_report(run: Path, command: Command) -> None:
    Path("my_suite.py").write_text(HEAD + SMALLER)
    done = command("report", run, "--out", "out")
    assert done.returncode == 0, done.stderr
    assert "supported: A ham has fewer parameters.: ham_nmf 524288" in done.stdout
    assert Path("out/tables/my-suite-claims.csv").is_file()


def decided_by(body: str) -> str:
    return f'{HEAD}def decide(rows: Rows):\n    {body}\nCLAIMS = [Claim("It holds.", "always", decide)]\n'


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        ("CLAIMS = [\n", "my_suite.py is no Python file: '[' was never closed"),
        ("CLAIMS = 3\n", "my_suite.py: CLAIMS is no list of ctxbench.results.claims.Claim"),
        (
            "CLAIMS = ['a']\n",
            "entry 1 of CLAIMS is no ctxbench.results.claims.Claim with a text and a criterion",
        ),
        (
            HEAD + "CLAIMS = [Claim(1, 'c', print)]\n",
            "entry 1 of CLAIMS is no ctxbench.results.claims.Claim with a text",
        ),
        ("raise SystemExit(0)\nCLAIMS = []\n", "my_suite.py failed in its own code:\n"),
        (decided_by("rows.nothing"), "deciding the claim 'It holds.' of my_suite.py failed in its own code:\n"),
        (decided_by("raise SystemExit(0)"), "deciding the claim 'It holds.' of my_suite.py failed in its own code:\n"),
        (decided_by("return True"), "my_suite.py: deciding the claim 'It holds.' gives True, not what `measured`"),
    ],
)
def test_what_is_wrong_with_a_file_of_claims_is_a_sentence(
    run: Path, command: Command, code: str, sentence: str
) -> None:
    Path("my_suite.py").write_text(code)
    done = command("report", run, "--out", "out")
    assert (done.returncode, done.stdout) == (2, "")
    assert sentence in done.stderr
    assert "own_claims.py" not in done.stderr
    assert not Path("out").exists()


def test_what_a_run_lacks_leaves_a_claim_undecided(run: Path, command: Command) -> None:
    Path("my_suite.py").write_text(decided_by('rows.number("params", module="se")'))
    assert "undecided: It holds.: no row with module=se" in command("report", run, "--out", "out").stdout


@pytest.mark.parametrize(
    ("file", "title", "code"),
    [
        ("my-suite.toml", "Mine", "raise SystemExit('of a module')\n"),  # binds no CLAIMS
        ("my-suite.toml", "Another", "raise SystemExit('of another suite')\nCLAIMS = []\n"),
        ("elsewhere/my-suite.toml", "Mine", "raise SystemExit('elsewhere')\nCLAIMS = []\n"),
        ("", "Mine", "raise SystemExit('of no file')\nCLAIMS = []\n"),
    ],
)
def test_other_files_are_not_run(run: Path, file: str, title: str, code: str) -> None:
    Path("my_suite.py").write_text(code)
    assert own_claims({"file": file}, title) == ()
