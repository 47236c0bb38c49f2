"""On macOS and Windows, as far as hiding from ctxbench what these systems lack can show it."""

import csv
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
import without_a_clock
from conftest import Done
from fakes import LONGEST_S, EngineClock
from without_a_clock import COMMANDS

from ctxbench import registry
from ctxbench.engine import interpreter
from ctxbench.engine.client import ForkServer
from ctxbench.engine.exit import Exit
from ctxbench.engine.remote import task_of
from ctxbench.model.case import Case, Measure
from ctxbench.model.messages import Doing
from ctxbench.worker.protocol import MeasureCase, Reply

TESTS = Path(__file__).parent
FIXTURES = TESTS / "fixtures"
MORE = ("verify linear --size 8 8", "memory missing.py:M --shape 1,8,6,5")
SHAPE = (1, 8, 6, 5)
On = Callable[..., Done]
Command = Callable[..., Done]
SuiteFile = Callable[..., Path]


@pytest.fixture
def on(tmp_path: Path) -> On:
    """Run Python with these arguments without what a system lacks (`start/other_systems.py`); "" is the one here."""

    def run(system: str, *arguments: object) -> Done:
        environment = {**os.environ, **({"CTXBENCH_TEST_SYSTEM": system} if system else {})}
        words = [sys.executable, *map(str, arguments)]
        done = subprocess.run(words, capture_output=True, text=True, env=environment, cwd=tmp_path, check=False)
        return Done(done.returncode, done.stdout, done.stderr)

    return run


@pytest.fixture(scope="module")
def on_linux() -> dict[tuple[str, ...], tuple[int, str]]:
    """Keep what commands ended with and printed here for all systems that are compared with it."""
    return {}


LACKS = """
import platform
from ctxbench.base import clocks as this_machine
from ctxbench.devices import cpu
from ctxbench.worker import processes
print(this_machine.FORKS, cpu._model() == (platform.processor() or "unknown"), hasattr(this_machine.os, "fork"))
try:
    processes.adopt_orphans()
except AttributeError as error:
    print(error)
from ctxbench.worker import fork_server
"""


@pytest.mark.processes
@pytest.mark.parametrize(
    ("system", "prints", "fails"),
    [("macos", "False True True", ""), ("windows", "False True False", "No module named 'fcntl'")],
)
def test_what_a_system_lacks_is_hidden_from_ctxbench(on: On, system: str, prints: str, fails: str) -> None:
    done = on(system, "-c", LACKS)
    assert done.stdout == f"{prints}\nctypes.CDLL is hidden: {system} has none\n"
    assert fails in done.stderr
    assert bool(done.returncode) == bool(fails)


@pytest.mark.processes
@pytest.mark.parametrize(
    ("system", "commands"),
    [
        ("windows", ["memory sa --shape 1,8,6,5"]),
        *(pytest.param(system, [*COMMANDS, *MORE], marks=pytest.mark.long) for system in ("macos", "windows")),
    ],
)
def test_what_needs_no_clock_prints_what_it_does_on_linux(
    on: On,
    shared_server: None,
    on_linux: dict[tuple[str, ...], tuple[int, str]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    system: str,
    commands: list[str],
) -> None:
    there = on(system, TESTS / "without_a_clock.py", *commands)
    if (*commands,) not in on_linux:
        monkeypatch.setattr(registry, "_registered", {})  # by other tests
        monkeypatch.setattr(sys, "argv", ["without_a_clock.py", *commands])
        on_linux[*commands,] = without_a_clock.main(), capsys.readouterr().out
    assert (there.returncode, there.stdout) == on_linux[*commands,]
    assert there.stdout.count("exit code") == len(commands)


@pytest.mark.processes
@pytest.mark.long
@pytest.mark.parametrize("system", ["macos", "windows"])
def test_a_suite_is_measured_with_a_note_of_what_could_not_be_set(
    on: On, suite_file: SuiteFile, tmp_path: Path, system: str
) -> None:
    failing = Path(shutil.copy(FIXTURES / "failing.py", tmp_path))
    suite = suite_file(["linear", f"{failing}:Quit"], ("params", "macs", "memory", "latency"))
    done = on(system, "-m", "ctxbench", "run", "--suite", suite, "--out", "run")
    assert done.returncode == 1, done.stderr
    with (tmp_path / "run" / "records.csv").open(newline="") as file:
        linear, quits = csv.DictReader(file)
    assert (linear["status"], linear["params"], linear["macs"]) == ("ok", "91", "3690")
    assert float(linear["latency_train_ms"]) == pytest.approx(20, rel=0.01)  # the machine of the tests
    assert "malloc_as_it_is" in [note["code"] for note in json.loads(linear["notes"])]
    assert (quits["status"], quits["message"]) == (
        "crashed",
        "the process ended in memory_infer with exit code 3; it last printed: last words",
    )
    environment = json.loads((tmp_path / "run" / "run.json").read_text())["environment"]
    assert environment["malloc"] == {}
    assert (environment["load_average"] is None) == (system == "windows")
    for words in ("report run --out page", "diff run run"):
        assert on(system, "-m", "ctxbench", *words.split()).returncode == 0


@pytest.mark.parametrize("words", ["run", "run --static"])
def test_a_limit_of_memory_is_refused(
    command: Command, suite_file: SuiteFile, monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    monkeypatch.setattr("ctxbench.base.clocks.FORKS", False)
    done = command(*words.split(), "--suite", suite_file(["linear"], measure="memory_limit_gib = 1"))
    sentence = "ctxbench: memory_limit_gib in [measure] is held on Linux only: take it out of the suite\n"
    assert (done.returncode, done.stderr) == (2, sentence)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Substitute for a fork server where none can be."""
    monkeypatch.setattr(interpreter, "FORKS", False)
    with ForkServer() as server:
        yield server


SLEEPER = """
import subprocess
from pathlib import Path
from torch import nn

class Leaves(nn.Identity):
    def __init__(self, channels):
        super().__init__()
        Path(__file__).with_name("pid").write_text(str(subprocess.Popen(["sleep", "600"]).pid))
"""


@pytest.mark.processes
def test_each_task_has_an_interpreter_of_its_own_with_which_ends_what_a_module_starts(
    server: ForkServer, tmp_path: Path
) -> None:
    path = tmp_path / "leaves.py"
    path.write_text(SLEEPER)
    leaves = Case("Leaves", f"{path}:Leaves", {}, SHAPE, device="meta")
    used = []
    for task in (task_of("machine"), MeasureCase(leaves, Measure(), ["params"])):
        replies: list[Reply] = []
        assert server.run(task, replies.append) == Exit(0, 0, False, "")
        assert replies
        used.append(server._interpreter.process)
    assert used[0].pid != used[1].pid
    assert [process.returncode is None for process in used] == [False, False]
    left = psutil.Process(int((tmp_path / "pid").read_text()))
    assert psutil.wait_procs([left], timeout=LONGEST_S)[1] == []


@pytest.mark.processes
@pytest.mark.long
@pytest.mark.parametrize(("name", "code", "number", "timed_out"), [("Segfault", 0, 11, False), ("Sleep", 0, 9, True)])
def test_how_an_interpreter_ended_is_told(
    server: ForkServer, monkeypatch: pytest.MonkeyPatch, name: str, code: int, number: int, timed_out: bool
) -> None:
    clock = EngineClock(*[Doing("first_infer")] * timed_out)
    monkeypatch.setattr("ctxbench.base.clocks.here", clock)
    case = Case(name, f"{FIXTURES / 'failing.py'}:{name}", {}, SHAPE)
    ended = server.run(MeasureCase(case, Measure(), ["latency"]), clock, timeout_s=600)
    assert (ended.code, ended.signal, ended.timed_out, ended.early) == (code, number, timed_out, True)


@pytest.mark.processes
@pytest.mark.long
def test_an_interpreter_ends_when_the_command_is_killed() -> None:
    code = (
        "from ctxbench.model.case import Case, Measure\n"
        "from ctxbench.engine import interpreter\n"
        "from ctxbench.engine.client import ForkServer\n"
        "from ctxbench.worker.protocol import MeasureCase\n"
        "interpreter.FORKS = False\n"
        "server = ForkServer()\n"
        f"case = Case('Sleep', '{FIXTURES / 'failing.py'}:Sleep', {{}}, {SHAPE})\n"
        "server.start(MeasureCase(case, Measure(), ['latency']))\n"
        "print(server._interpreter.process.pid, flush=True)\n"
        "input()\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout
        watched = psutil.Process(int(process.stdout.readline()))
        process.kill()
    assert psutil.wait_procs([watched], timeout=LONGEST_S)[1] == []
