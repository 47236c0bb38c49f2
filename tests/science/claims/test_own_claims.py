"""A person's own suite can have claims, and what is wrong with their file is one sentence."""

from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Done
from report_data import add, definition, new_run, record

from ctxbench.base.errors import UsageError
from ctxbench.report.write import write_report
from ctxbench.results.run_folder import RunFolder
from ctxbench_science.claims.own_claims import decided, own_claims

Command = Callable[..., Done]
HEAD = "from ctxbench_science.claims.findings import Claim, Rows, decided\n"
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


def end(run: Path) -> None:
    """Have the claims of a run decided, as at its end."""
    folder = RunFolder.open(run)
    folder.save_meta(**decided(folder))


def test_the_claims_beside_a_suite_are_in_its_report_which_runs_no_code(run: Path, command: Command) -> None:
    Path("my_suite.py").write_text(HEAD + SMALLER)
    end(run)
    Path("my_suite.py").write_text("raise SystemExit('run')\nCLAIMS = []\n")
    done = command("report", run, "--out", "out")
    assert done.returncode == 0, done.stderr
    assert "supported: A ham has fewer parameters.: ham_nmf 524288" in done.stdout
    assert Path("out/tables/my-suite-claims.csv").is_file()


def test_a_report_without_ctxbench_science_says_how_to_get_claims(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for suite, count in (("table3", 1), ("my-own", 0)):
        folder = new_run(tmp_path / suite, suite=suite)
        add(folder, record("sa"))
        monkeypatch.setattr("ctxbench.base.extras.SCIENCE", "not_installed")
        hint = "the claims of suites come with ctxbench-science: in the clone, pip install -c constraints.txt ./science"
        assert write_report([folder.path], tmp_path / "out", figures=[], force=True).hints == (hint,) * count


@pytest.mark.processes
def test_a_run_decides_the_claims_of_its_suite_at_its_end(
    tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    suite = tmp_path / "my-suite.toml"
    suite.write_text(
        'title = "Mine"\nmodules = ["sa", "ham_nmf"]\nmetrics = ["params"]\n[axes]\nshape = [1, 8, 4, 4]\n'
    )
    (tmp_path / "my_suite.py").write_text(HEAD + SMALLER)
    done = command("run", "--suite", suite, "--static", "--out", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    (claim,) = RunFolder.open(tmp_path / "run").meta["claims"]
    assert (claim["claim"], claim["found"], claim["proxy"]) == ("A ham has fewer parameters.", "ham_nmf 524288", False)
    other = suite.rename(tmp_path / "other.toml")
    (tmp_path / "other.py").write_text(decided_by("raise SystemExit(0)"))
    done = command("run", "--suite", other, "--static", "--out", tmp_path / "again")
    assert (done.returncode, "deciding the claim 'It holds.'" in done.stderr) == (0, True)
    assert RunFolder.open(tmp_path / "again").meta["state"] == "finished"
    monkeypatch.setattr("ctxbench.base.extras.SCIENCE", "not_installed")
    done = command("run", "--suite", other, "--static", "--out", tmp_path / "without")
    assert "other.py is not asked for claims; claims of suites come with ctxbench-science" in done.stderr


def decided_by(body: str) -> str:
    return f'{HEAD}def decide(rows: Rows):\n    {body}\nCLAIMS = [Claim("It holds.", "always", decide)]\n'


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        ("CLAIMS = [\n", "my_suite.py is no Python file: '[' was never closed"),
        ("CLAIMS = 3\n", "my_suite.py: CLAIMS is no list of ctxbench_science.claims.findings.Claim"),
        ("CLAIMS = ['a']\n", "entry 1 of CLAIMS is no ctxbench_science.claims.findings.Claim with a text"),
        (
            HEAD + "CLAIMS = [Claim(1, 'c', print)]\n",
            "entry 1 of CLAIMS is no ctxbench_science.claims.findings.Claim with a text",
        ),
        ("raise SystemExit(0)\nCLAIMS = []\n", "my_suite.py failed inside its code:\n"),
        (decided_by("rows.nothing"), "deciding the claim 'It holds.' of my_suite.py failed inside its code:\n"),
        (decided_by("raise SystemExit(0)"), "deciding the claim 'It holds.' of my_suite.py failed inside its code:\n"),
        (decided_by("return True"), "my_suite.py: deciding the claim 'It holds.' gives True, not what `measured`"),
    ],
)
def test_what_is_wrong_with_a_file_of_claims_is_a_sentence(run: Path, code: str, sentence: str) -> None:
    Path("my_suite.py").write_text(code)
    with pytest.raises(UsageError) as caught:
        end(run)
    assert sentence in str(caught.value)
    assert "own_claims.py" not in str(caught.value)


def test_what_a_run_lacks_leaves_a_claim_undecided(run: Path, command: Command) -> None:
    Path("my_suite.py").write_text(decided_by('rows.number("params", module="se")'))
    end(run)
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
