"""Fixtures that several test files share."""

import functools
import gc
import importlib
import os
import random
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest

START = str(Path(__file__).parent / "start")  # what runs first in each process that a test starts
sys.path.insert(0, START)
# Each test file can be run alone: what it shares with others is in the folders of tests.
sys.path += [str(each) for kind in ("plugins", "science") for each in sorted(Path(__file__).parent.glob(f"{kind}/*/"))]
_science = {each.parent.name for each in Path(__file__).parents[1].glob("science/ctxbench_science/*/__init__.py")}
if _science - entry_points(group="ctxbench.plugins").names:
    pytest.exit(
        "ctxbench-science, as it is in science/, is not installed here: make .venv/.dev, "
        "or .venv/bin/pip install --no-deps --no-build-isolation --editable ./science"
    )
importlib.import_module("surroundings").prepare()
processors: Any = importlib.import_module("processors")
processors.cap()  # before torch is imported

from ctxbench import cli  # noqa: E402  # see above
from ctxbench.base.extras import lacking  # noqa: E402  # see above
from ctxbench.engine.client import ForkServer  # noqa: E402  # see above
from ctxbench.plugin import plugins  # noqa: E402  # see above

TINY = """
title = "tiny"
modules = {modules}
metrics = {metrics}
[axes]
shape = [1, 8, 6, 5]
{axes}
[measure]
processes = {processes}
sample_s = 0.01
warmup_s = 0
timeout_s = {timeout}
{measure}
"""


@functools.cache
def _torchvision_refuses() -> str:
    """The last line of why a fresh process cannot import torchvision; this one may have a part of it."""
    command = [sys.executable, "-c", "import torchvision.models"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stderr.strip().rpartition("\n")[2] if done.returncode else ""


def need_torchvision() -> None:
    """Skip a test where torchvision is missing, or built for another torch."""
    if refused := _torchvision_refuses():
        pytest.skip(f"torchvision cannot be imported: {refused}")


# Test files of ten seconds and more, those of `make long` and the longest first; a worker that takes one last would end
# alone.
LONGEST = (
    "test_deletions",
    "test_committed_counts",
    "test_other_systems",
    "test_generated",
    "test_ray",
    "test_attack",
    "test_operator_sweep",
    "test_paper_suites",
    "test_audit",
    "test_strangers",
    "test_memory_cpu",
    "test_report_layout",
    "test_compare",
    "test_profile",
    "test_engine",
    "test_history",
    "test_gate_check",
    "test_gate_agreement",
    "test_mmsegmentation",
    "test_contract",
    "test_gate_check_stored",
    "test_pytest_plugin",
    "test_cli",
    "test_api",
    "test_made_docs",
)
machines: Any = importlib.import_module("machines")
# Threads of the tests whose numbers depend on them.
THREADS = int(os.environ.get("CTXBENCH_TEST_THREADS", "1"))
# A seed that shuffles the test files, and one that draws a sample of generated trials; `random` draws a seed, which the
# workers of a parallel run inherit.
ORDER, SAMPLE = "CTXBENCH_TEST_ORDER", "CTXBENCH_TEST_SAMPLE"
for _name in (ORDER, SAMPLE):
    if os.environ.get(_name) == "random":
        os.environ[_name] = str(random.randrange(10**6))

# The commands that went with a plugin, where tests/delete_plugins.py proves that the rest holds.
GONE = set(os.environ.get("CTXBENCH_TEST_GONE", "").split())

_start_process: Any = subprocess.Popen.__init__


def _skip_if_gone(words: Sequence[object]) -> None:
    """Skip the test where it calls a command that went."""
    called = re.findall(r"ctxbench['\"]?,? +['\"]?(\w+)", " ".join(map(str, words)))
    for name in GONE & {*called}:
        pytest.skip(f"the command {name} is not there")


def _start_on_the_machine_of_the_tests(
    process: Any, *arguments: Any, env: Mapping[str, str] | None = None, **more: Any
) -> None:
    """Start a process whose Python begins with `start/sitecustomize.py`, whatever environment a test gives it."""
    words = [arguments[0]] if isinstance(arguments[0], str) else arguments[0]
    _skip_if_gone(words)
    if Shared.is_for_quick and Shared.server is None and "ctxbench.worker.fork_server" in words:
        pytest.fail("it starts a fork server of its own, which imports torch: use shared_server or the mark processes")
    environment = dict(os.environ if env is None else env)
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [START, environment.get("PYTHONPATH")]))
    for name in (machines.VARIABLE, processors.VARIABLE):
        if name in os.environ:
            environment.setdefault(name, os.environ[name])
    _start_process(process, *arguments, env=environment, **more)


subprocess.Popen.__init__ = _start_on_the_machine_of_the_tests  # type: ignore  # mypy knows eight forms of it


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, Any, Any]:
    """Let no garbage be collected while all is imported: it took a tenth of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Generator[None, None, None]:
    """Choose the machine: the real one for tests that judge real times, which are then the only ones.

    The files whose tests take long come first; the others with those first that start processes, or in the order of a
    seed. `make test` draws the cases of tests that have many (`drawn_cases.py`).
    """
    if drawing := sys.modules.get("hypothesis.internal.conjecture.providers"):
        # Its examples need no constants of our source, for which its own hook would parse all files that are imported.
        drawing._get_local_constants = lambda: drawing._local_constants  # type: ignore[attr-defined]  # private
    yield  # pytest leaves out what -m does not ask for
    if gone := {*importlib.import_module("drawn_cases").left_out(items)}:
        items[:] = [item for item in items if item not in gone]
        config.hook.pytest_deselected(items=[*gone])
    timing = [item for item in items if item.get_closest_marker("timing")]
    os.environ.setdefault(machines.VARIABLE, "real" if len(timing) == len(items) else "quiet")
    machines.take_place()
    machine = os.environ[machines.VARIABLE]
    for item in timing if machine != "real" else ():
        item.add_marker(pytest.mark.skip(reason="judges real times: run pytest -m timing"))
    for item in items:
        for other in (name for each in item.iter_markers("plugin") for name in each.args if name not in plugins()):
            item.add_marker(pytest.mark.skip(reason=f"the plugin {other} is not there"))
    is_lacking = functools.cache(functools.partial(lacking, ""))
    for item in items:
        for extra in (name for each in item.iter_markers("extra") for name in each.args if is_lacking(name)):
            item.add_marker(pytest.mark.skip(reason=f"the packages of the extra {extra} are missing: make extras"))
    for item in items if machine == "restless" else ():
        if item.get_closest_marker("at_rest"):
            item.add_marker(pytest.mark.xfail(strict=True, reason="is about a machine at rest"))
    longest, seed = {stem: place for place, stem in enumerate(LONGEST)}, os.environ.get(ORDER)

    def order(item: pytest.Item) -> tuple[int, float]:
        name = item.path.name
        rest = random.Random(f"{seed} {name}").random() if seed else not item.get_closest_marker("processes")
        return longest.get(item.path.stem, len(longest)), rest

    items.sort(key=order)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Tell tests of `make quick` from others while they run; what several share may start before."""
    Shared.is_for_quick = not any(map(item.get_closest_marker, ("processes", "slow", "long", "timing")))
    try:
        return (yield)
    finally:
        Shared.is_for_quick = False


def _freeze() -> None:
    """Keep the garbage collector from passing over all of torch each time that a measurement collects first."""
    gc.collect(1)
    gc.freeze()


# Before a run that the tests of a file share, too.
_few_objects_of_the_file = pytest.fixture(autouse=True, scope="module")(_freeze)
_few_objects_of_the_test = pytest.fixture(autouse=True)(_freeze)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """For each reason of a skip one line: how many tests were skipped, and what to install; the seeds."""
    reasons = Counter(
        str(report.longrepr[2]).removeprefix("Skipped: ")
        for report in terminalreporter.stats.get("skipped", [])
        if isinstance(report.longrepr, tuple)
    )
    for reason, count in reasons.most_common():
        terminalreporter.write_line(f"{count} test{'s' * (count > 1)} skipped: {reason}")
    if os.environ.get("CTXBENCH_TEST_CASES") == "drawn":
        terminalreporter.write_line(
            "of tests with many cases: a tenth, drawn by the day; CTXBENCH_TEST_CASES=all for all"
        )
    for name, what in ((ORDER, "the order of the files"), (SAMPLE, "the sample of generated trials")):
        if name in os.environ:
            terminalreporter.write_line(f"{what}: {name}={os.environ[name]}")


@pytest.fixture(autouse=True)
def _not_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the parallel test run from a test's processes, in which pytest-benchmark would time nothing."""
    for name in ("PYTEST_XDIST_WORKER", "PYTEST_XDIST_WORKER_COUNT", "PYTEST_XDIST_TESTRUNUID"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(autouse=True)
def _counted_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is taken from an earlier run's counts, and no test's script leaves any."""
    monkeypatch.setenv("CTXBENCH_NO_CACHE", "1")


@pytest.fixture
def plain_kernels() -> Iterator[None]:
    """`THREADS` threads; without oneDNN and NNPACK, whose blocks depend on the processor."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(THREADS)
    (nnpack,) = torch.backends.nnpack.set_flags(False)
    with torch.backends.mkldnn.flags(enabled=False):
        yield
    torch.backends.nnpack.set_flags(nnpack)
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def one_server() -> Iterator[ForkServer]:
    with ForkServer() as server:
        yield server


@pytest.fixture
def shared_server(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs, commands and functions of this process fork from one server: torch is imported once, not for each."""
    _share(request.getfixturevalue("one_server"), monkeypatch)


@pytest.fixture(scope="module")
def module_server(one_server: ForkServer) -> Iterator[None]:
    """The same for a run that the tests of a file share."""
    with pytest.MonkeyPatch.context() as patch:
        _share(one_server, patch)
        yield


def asked_of(request: pytest.FixtureRequest, parameter: str) -> list[str]:
    """Values of a parameter in the file's tests that use this fixture: of many cases `make test` tries a tenth."""
    tests: list[Any] = [item for item in request.session.items if item.path == request.path]
    users = [each for each in tests if request.fixturename in each.fixturenames and hasattr(each, "callspec")]
    return list(dict.fromkeys(each.callspec.params[parameter] for each in users if parameter in each.callspec.params))


class Shared:
    """Servers in place of those that runs, commands and functions start: one for all, and those of source trees."""

    # A test of `make quick` is running, which starts no server of its own.
    is_for_quick = False
    server: ForkServer | None = None
    of_tree: Callable[..., Any] = ForkServer


def _fork_server(tree: Path | None = None, static: bool = True, malloc: str = "keep", *, soon: bool = True) -> Any:
    """The server that is there; one of its own where a module has kept this function beyond the test."""
    if tree or Shared.server is None:
        return Shared.of_tree(tree, static, malloc)
    return nullcontext(Shared.server)


def _share(server: ForkServer, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Shared, "server", server)
    for name, module in [*sys.modules.items()]:  # wherever it was imported to
        if name.startswith("ctxbench.") and vars(module).get("ForkServer") is ForkServer:
            patch.setattr(module, "ForkServer", _fork_server)


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A stand-in for torch.cuda."""
    import torch

    fake = importlib.import_module("fake_cuda").FakeCuda()
    monkeypatch.setattr(torch, "cuda", fake)
    return fake


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Put a fake NVML in place."""

    def place(*arguments: Any, **options: Any) -> Any:
        fake = importlib.import_module("fake_cuda").FakeNvml(*arguments, **options)
        monkeypatch.setitem(sys.modules, "pynvml", fake)
        return fake

    return place


@pytest.fixture(scope="session")
def _whole_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("small")
    run: Path = importlib.import_module("attacks.small").begin(folder, folder / "run").path
    return run


@pytest.fixture
def small_run(_whole_run: Path, tmp_path: Path) -> Any:
    """A copy of a run that was measured once (`attacks/small.py`)."""
    return importlib.import_module("ctxbench.results.run_folder").RunFolder.open(
        shutil.copytree(_whole_run, tmp_path / "run")
    )


@dataclass(frozen=True)
class Done:
    """Result of a command: its exit code and what it printed."""

    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def command(
    shared_server: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Done]:
    """Run `ctxbench` with these arguments in this process: an interpreter of its own would import torch for each."""

    def run(*arguments: object) -> Done:
        _skip_if_gone(("ctxbench", *arguments))
        monkeypatch.setattr(sys, "argv", ["ctxbench", *map(str, arguments)])
        capsys.readouterr()
        code = 0
        try:
            cli.main()
        except SystemExit as ended:
            code = int(ended.code or 0)
        return Done(code, *capsys.readouterr())

    return run


@pytest.fixture
def suite_file(tmp_path: Path) -> Callable[..., Path]:
    """Write a suite of tiny cases and return its path."""

    def write(
        modules: list[str],
        metrics: tuple[str, ...] = ("params", "latency"),
        axes: str = "",
        timeout: float = 60,
        measure: str = "",
        processes: int = 1,
    ) -> Path:
        path = tmp_path / "tiny.toml"
        text = TINY.format(
            modules=modules, metrics=list(metrics), axes=axes, timeout=timeout, measure=measure, processes=processes
        )
        path.write_text(text.replace("'", '"'), encoding="utf-8")
        return path

    return write
