"""Odd surroundings of ctxbench, and what the tests see of those of the person who starts them."""

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
import surroundings
from forked import in_fork

import ctxbench
from ctxbench.results.run_folder import RunFolder

OWN = '''"""\u039b."""
from torch import nn
from ctxbench import register
@register("own", title="\u039b module", family="other")
class Own(nn.Conv2d):
    def __init__(self, channels):
        super().__init__(channels, channels, 1)
'''
# ASCII alone can be read and printed, no home can be written, and the date is another one than in UTC. Python itself
# finds no package in a folder that ASCII cannot name.
ODD = {
    "LC_ALL": "C",
    "PYTHONUTF8": "0" if f"{ctxbench.__file__}{sys.executable}".isascii() else "1",
    "PYTHONCOERCECLOCALE": "0",
    "HOME": f"{os.devnull}/none",
    "TZ": "Asia/Kathmandu",
    "COLUMNS": "20",
    "FORCE_COLOR": "1",
    "TERM": "dumb",
    "PYTHONHASHSEED": "7",
}


@pytest.mark.processes
def test_a_run_in_odd_surroundings_has_its_numbers(tmp_path: Path) -> None:
    folder = tmp_path / "\u00d6l und \u00df"
    folder.mkdir()
    (folder / "own.py").write_text(OWN, encoding="utf-8")
    subprocess.run(["git", "init", "--quiet", folder], check=True)
    command = [sys.executable, "-m", "ctxbench", "run", "--static", "--modules", "own.py:Own", "--shape", "1,64,8,6"]
    done = subprocess.run(
        [*command, "--out", "run"], cwd=folder, env={"PATH": os.environ["PATH"], **ODD}, umask=0o077,
        stdin=subprocess.DEVNULL, capture_output=True, check=False,
    )  # fmt: skip
    assert (done.returncode, b"Traceback" in done.stderr) == (0, False), done.stderr
    frame = RunFolder.open(folder / "run").frame()
    assert frame[["module", "params"]].to_numpy().tolist() == [["own", 64 * 65]]
    assert b"own" in done.stdout


def test_what_a_person_sets_does_not_reach_the_tests() -> None:
    theirs = {
        "LC_ALL": "tr_TR.UTF-8", "LANGUAGE": "tr", "TZ": "Asia/Kathmandu", "COLUMNS": "40", "FORCE_COLOR": "1",
        "CI": "true", "GITHUB_ACTIONS": "true", "GIT_DIR": "/x", "PYTHONWARNINGS": "error", "PYTHONPATH": "/x",
        "OMP_NUM_THREADS": "8", "CUDA_VISIBLE_DEVICES": "0", "MPLBACKEND": "TkAgg", "RAY_ADDRESS": "auto",
        "TORCH_LOGS": "+dynamo", "XDG_CACHE_HOME": "/x", "CTXBENCH_NO_CACHE": "1", "http_proxy": "http://x",
    }  # fmt: skip
    kept = {"PATH": "/bin", "TMPDIR": "/y", "CTXBENCH_TEST_ORDER": "7"}
    seen = surroundings.environment({**theirs, **kept, "HOME": "/root"}, "/home")
    assert seen == {**kept, **surroundings.FIXED, **surroundings.of_this_user("/home")}


@pytest.mark.processes
def test_this_process_has_the_surroundings_of_the_tests() -> None:
    assert os.environ.items() >= surroundings.FIXED.items()
    code = "import os, time; print(os.umask(0), time.tzname[0], os.path.expanduser('~'), open('/dev/null').encoding)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(0o022), "UTC", os.environ["HOME"], "UTF-8"]


HOMES = """
import os, pathlib, sys, tempfile
sys.path.insert(0, sys.argv[1])
import surroundings
tempfile.tempdir = sys.argv[2]
print(surroundings._new_home(), flush=True)
sys.stdin.read() if sys.argv[3] == "waits" else os._exit(0)
"""


@pytest.mark.processes
def test_the_homes_of_tests_that_were_killed_are_removed(tmp_path: Path) -> None:
    (tmp_path / f"{surroundings.HOME}other").mkdir()
    command = [sys.executable, "-c", HOMES, str(Path(surroundings.__file__).parent), str(tmp_path)]
    with subprocess.Popen([*command, "waits"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as living:
        assert living.stdout
        used = Path(living.stdout.readline().strip())
        killed, last = (Path(subprocess.check_output([*command, "ends"], text=True).strip()) for _ in "ab")
        assert {*tmp_path.iterdir()} == {used, last, tmp_path / f"{surroundings.HOME}other"}
        assert killed != last
    assert not used.exists()


@pytest.mark.processes
def test_figures_are_drawn_where_a_notebook_names_a_backend_that_is_not_installed() -> None:
    named = "module://matplotlib_inline_of_another_environment.backend_inline"
    assert in_fork(_backend_beside, named) == ("agg", named)


def _backend_beside(named: str) -> tuple[str, str]:
    os.environ["MPLBACKEND"] = named
    importlib.import_module("ctxbench.report.figures")
    return importlib.import_module("matplotlib").get_backend(), os.environ["MPLBACKEND"]
