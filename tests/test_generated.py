"""Generated command lines, suite files and damaged run folders: each command ends with a row, a table or a sentence.

A failure prints the command, what was wrong of it and how to repeat the trial. CTXBENCH_TEST_SEED gives other trials,
CTXBENCH_TEST_SAMPLE a tenth of as many.
"""

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from random import Random

import damages
import generated_suites
import pytest
import world
from attacks import small
from attacks.inputs import READERS, emptied, quick
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from trials import try_command

from ctxbench.base.errors import UsageError
from ctxbench.engine.run import resume
from ctxbench.results.run_folder import RunFolder

pytestmark = [pytest.mark.long, pytest.mark.processes]
# The same trials each time unless another seed is given.
GIVEN = next((name for name in ("CTXBENCH_TEST_SAMPLE", "CTXBENCH_TEST_SEED") if name in os.environ), None)
SEED = os.environ[GIVEN] if GIVEN else "1"
COMMAND_LINES, SUITE_FILES, RUN_FOLDERS, TORN_FOLDERS = (
    trials // (10 if GIVEN == "CTXBENCH_TEST_SAMPLE" else 1) for trials in (500, 200, 300, 100)
)
# A seed for each trial: of hypothesis' own draws, which vary earlier ones, two thirds were alike.
CHANCE = st.randoms(use_true_random=True)
Try = Callable[[Sequence[str]], None]
generated = settings(
    deadline=None,
    database=None,
    derandomize=False,
    print_blob=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The working folder of all trials, empty before each: the fork server stays in it, as that of a command does."""
    return tmp_path_factory.mktemp("place")


@pytest.fixture(scope="module")
def one_server(place: Path) -> Iterator[None]:
    with quick(place):
        yield


@pytest.fixture
def attempt(one_server: None, place: Path) -> Try:
    """Run a command in `place`."""

    def attempt(arguments: Sequence[str]) -> None:
        wrong = try_command(arguments, place)
        assert not wrong, "\n".join(
            [repr(arguments), *wrong, f"{GIVEN or 'CTXBENCH_TEST_SEED'}={SEED} repeats all trials"]
        )

    return attempt


@pytest.fixture
def measured(attempt: Try, place: Path, tmp_path: Path) -> Path:
    """A run of two modules on two devices, measured as a person would."""
    (emptied(place) / "small.toml").write_text(small.SUITE)
    attempt(["run", "--suite", "small.toml", "--out", str(tmp_path / "run")])
    return tmp_path / "run"


class TestCommands:
    """In a class of its own, so that a worker of a parallel run takes it while another takes the run folders."""

    def test_every_command_line_ends_in_words(self, attempt: Try, place: Path, measured: Path) -> None:
        @settings(generated, max_examples=COMMAND_LINES)
        @seed(SEED)
        @given(CHANCE)
        def try_line(chance: Random) -> None:
            world.make(emptied(place), measured)
            attempt(world.command_line(chance))

        try_line()

    def test_every_suite_file_ends_in_words(self, attempt: Try, place: Path) -> None:
        @settings(generated, max_examples=SUITE_FILES)
        @seed(SEED)
        @given(CHANCE)
        def try_suite(chance: Random) -> None:
            (emptied(place) / "suite.toml").write_text(generated_suites.text(chance), errors="surrogatepass")
            attempt(["run", "--suite", "suite.toml", "--dry-run"])

        try_suite()


class TestRunFolders:
    def test_every_damaged_run_folder_ends_in_words(self, attempt: Try, place: Path, measured: Path) -> None:
        @settings(generated, max_examples=RUN_FOLDERS)
        @seed(SEED)
        @given(CHANCE)
        def try_folder(chance: Random) -> None:
            damages.damage(Path(shutil.copytree(measured, emptied(place) / "run")), chance)
            attempt(chance.choice(READERS))

        try_folder()

    def test_every_torn_run_folder_is_continued_to_the_same_numbers_or_refused(
        self, place: Path, measured: Path
    ) -> None:
        whole = small.counted(RunFolder.open(measured))

        @settings(generated, max_examples=TORN_FOLDERS)
        @seed(SEED)
        @given(CHANCE)
        def try_folder(chance: Random) -> None:
            run = RunFolder.open(Path(shutil.copytree(measured, emptied(place) / "run")))
            run.save_meta(state="running", tables={})
            damages.tear_tables(run.path, chance)
            with suppress(UsageError):
                assert small.counted(resume(run.path, in_process=True)) == whole

        try_folder()
