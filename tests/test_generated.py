"""Commands with generated options, suites and run folders: each ends with a row, a table or a sentence."""

import functools
import itertools
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ctxbench.engine.verify import verify
from trials import LONG, refuse, try_command

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

import damages
import generated_suites
import world
from attacks import small

pytestmark = [pytest.mark.long, pytest.mark.processes]
SUITE_FILES = int(__import__('os').environ.get('M', 500))
RUN_FOLDERS = int(__import__('os').environ.get('K', 1000))
COMMAND_LINES = int(__import__("os").environ.get("N", 2000))

Try = Callable[[Sequence[str], Path], None]
# A seed for each trial: hypothesis' own draws repeat themselves, and two thirds of the trials were alike.
CHANCE = st.randoms(use_true_random=True)
generated = settings(
    deadline=None,
    database=None,
    derandomize=False,
    print_blob=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("measured")
    return small.begin(folder, folder / "run").path


@pytest.fixture
def attempt(shared_server: None, monkeypatch: pytest.MonkeyPatch) -> Try:
    """Run a command in a folder, which is removed if all went well."""
    for name in LONG:
        monkeypatch.setattr(name, refuse)
    # Compilers take seconds for each module.
    monkeypatch.setattr("ctxbench.engine.verify.verify", functools.partial(verify, compilers=False))

    def attempt(arguments: Sequence[str], folder: Path) -> None:
        import time; t=time.time()
        code, wrong = try_command(arguments, folder)
        with open('/tmp/atk/log','a',errors='replace') as f: print(f'{time.time()-t:.2f}', code, ascii(arguments)[:600], '|' + ' '.join(wrong).replace(chr(10),' // ')[-900:] if wrong else '', file=f, flush=True)
        if __import__('os').environ.get('COLLECT'): wrong = []
        assert not wrong, "\n".join([repr(arguments), *wrong])
        for each in (folder, folder.with_name(f"{folder.name}-temporary")):
            shutil.rmtree(each)

    return attempt


def test_every_command_line_ends_in_words(attempt: Try, measured: Path, tmp_path: Path) -> None:
    numbers = itertools.count()

    @settings(generated, max_examples=COMMAND_LINES)
    @given(CHANCE)
    def try_line(chance: Random) -> None:
        attempt(world.command_line(chance), world.make(tmp_path / str(next(numbers)), measured))

    try_line()


def test_every_suite_file_ends_in_words(attempt: Try, tmp_path: Path) -> None:
    numbers = itertools.count()

    @settings(generated, max_examples=SUITE_FILES)
    @given(CHANCE)
    def try_suite(chance: Random) -> None:
        folder = tmp_path / str(next(numbers))
        folder.mkdir()
        (folder / "suite.toml").write_text(generated_suites.text(chance), errors="surrogatepass")
        attempt(["run", "--suite", "suite.toml", "--dry-run"], folder)

    try_suite()


# What reads a run folder. What `check` measures besides would take longer than all of it.
READERS = (
    ["report", "run", "--figures", "none"],
    ["report", "run", "--columns", "params,latency_infer", "--figures", "none"],
    ["report", "run", "run", "--figures", "none"],
    ["check", "--baseline", "run", "--modules", "linear", "--device", "t4"],
    ["resume", "run"],
    ["compare", "linear", "--suite", "tiny.toml", "--modules", "acf", "--rank-by", "params", "--reuse", "run"],
)


def test_every_damaged_run_folder_ends_in_words(attempt: Try, measured: Path, tmp_path: Path) -> None:
    numbers = itertools.count()

    @settings(generated, max_examples=RUN_FOLDERS)
    @given(CHANCE)
    def try_folder(chance: Random) -> None:
        folder = tmp_path / str(next(numbers))
        folder.mkdir()
        (folder / "tiny.toml").write_text(world.SUITE)
        damages.damage(Path(shutil.copytree(measured, folder / "run")), chance)
        attempt(chance.choice(READERS), folder)

    try_folder()
