"""Does in this clone what a new user does before they run the tests, and leaves there what that leaves.

`python tests/first_hour.py` runs the commands of README.md and of the tutorial, as they print them, `make table3` cut
short and a report, with the ctxbench of `.venv`; git must then see no change. With `--litter`, which is for a clone
that is thrown away, it also leaves what else a person may have beside the tracked files. CI then runs README's
test command.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# Two quick rows of the suite without its clock.
CUT_SHORT = "--modules a2,ham_cd --static"
# What breaks a test, a check or a build that reads more than the tracked files.
LITTER = {
    "conftest.py": "raise RuntimeError('a conftest of a person')\n",
    "typing.py": "raise RuntimeError('a file of a person')\n",
    "pytest.ini": "[pytest]\naddopts = --no-such-option\n",
    "ruff.toml": "line-length = 20\n",
    "mypy.ini": "[mypy]\npython_version = 2.7\n",
    ".env": "PYTHONPATH=/nowhere\n",
    "modules/scratch.py": "import nothing\n",
    "ctxbench/plugins/mine/__init__.py": "1 / 0\n",
    "networks/scratch.py": "import nothing\n",
    "suites/mine.toml": "title = 1\n",
    "published/mine.toml": "title = 1\n",
    "docs/notes.md": "a page in no list: [nowhere](nowhere.md)\n",
    "tests/test_mine.py": "def test_mine():\n    assert False\n",
    "tests/plugins/mine/test_mine.py": "1 / 0\n",
    "results/mine/run.json": "{}\n",
    "results/mine-cpu/run.json": "{}\n",
    "results/audit/mine.csv": "a\n1\n",
    "build/lib/ctxbench/plugins/gone/__init__.py": "1 / 0\n",
    "docs/site/index.html": "an old site\n",
}


def commands(page: str) -> list[str]:
    """The shell commands that a page of the repository shows, without those that install.

    Of a block with output these are the lines behind `$ `; a line that ends in a backslash goes on.
    """
    found = []
    for language, block in FENCE.findall((ROOT / page).read_text(encoding="utf-8")):
        lines = block.replace("\\\n", " ").splitlines()
        prompted = [line[2:] for line in lines if line.startswith("$ ")]
        found += prompted or [line for line in lines if language == "sh" and line.startswith("ctxbench ")]
    return [re.sub(r"\s+", " ", line.partition(" #")[0]).strip() for line in found]


def run(command: str) -> None:
    """Run a command of a page. SystemExit if it fails."""
    print(f"$ {command}", flush=True)
    environment = {**os.environ, "PATH": f"{ROOT / '.venv' / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(command, shell=True, cwd=ROOT, env=environment, check=False, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{done.stdout}{done.stderr}\n{command!r} ended with {done.returncode}")


def printed(*command: str) -> str:
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout


def first_hour() -> None:
    """Do what README and the tutorial say, in their order."""
    for command in commands("README.md"):
        run(command)
    run(f"{printed('make', '-n', 'table3').splitlines()[-1]} {CUT_SHORT}")
    (run_folder,) = (ROOT / "runs").glob("table3-*")
    run(f"ctxbench report runs/{run_folder.name}")
    for command in commands("docs/tutorial.md"):
        run(command)
    if changed := printed("git", "status", "--porcelain"):
        sys.exit(f"git sees a change after README's commands:\n{changed}")


def leave_litter() -> None:
    """Leave files of a person's own, another checkout, a stash, and a detached head."""
    for name, text in LITTER.items():
        (ROOT / name).parent.mkdir(parents=True, exist_ok=True)
        (ROOT / name).write_text(text, encoding="utf-8")
    shutil.copytree(next((ROOT / "runs").glob("table3-*")), ROOT / "results" / "table3-mine")
    printed("git", "clone", "--quiet", "--local", ".", "second")
    with (ROOT / "README.md").open("a", encoding="utf-8") as file:
        file.write("A line that is put aside.\n")
    printed("git", "-c", "user.name=a", "-c", "user.email=a@example.org", "stash", "--quiet")
    printed("git", "checkout", "--quiet", "--detach")


if __name__ == "__main__":
    first_hour()
    if sys.argv[1:] == ["--litter"]:
        leave_litter()
