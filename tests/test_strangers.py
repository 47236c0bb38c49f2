"""A user's code never ends a command in silence or in a traceback, and a row says what it did to its process."""

import gc
import math
import os
import re
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
import torch
from conftest import Done, asked_of
from torch import Tensor

import ctxbench
from ctxbench.engine.client import ForkServer
from ctxbench.engine.remote import task_of
from ctxbench.executions.base import Built, Execution
from ctxbench.model.case import Case, Measure
from ctxbench.model.messages import Doing
from ctxbench.registry.reference import Reference
from ctxbench.worker import child
from ctxbench.worker.lines import ProtocolError, decode
from ctxbench.worker.measurement import CaseMeasurement
from ctxbench.worker.protocol import MeasureCase, Payload, Reply

pytestmark = [pytest.mark.processes, pytest.mark.usefixtures("shared_server")]
Command = Callable[..., Done]
SuiteFile = Callable[..., Path]
HOSTILE = Path(__file__).parent / "fixtures" / "hostile.py"
SHAPE = ("--shape", "1,8,6,5")
TELLS: dict[str, tuple[str, ...]] = {"memory": (), "show": (), "predict": ("--for", "t4")}

# Of a module that raises or ends its process: what the commands say, and the status of its row.
ENDS = {
    "Refuses": ("ValueError: it takes 64 channels or more, not 8 (hostile.py, line ", "error"),
    "ExitsWhenBuilt": ("SystemExit: no GPU here (hostile.py, line ", "error"),
    "Exits": ("SystemExit: 0 (hostile.py, line ", "error"),
    "ExitsWithText": ("SystemExit: the extension is not built (hostile.py, line ", "error"),
    "RaisesBase": ("Base: of no usual kind (hostile.py, line ", "error"),
    "Interrupts": ("KeyboardInterrupt (hostile.py, line ", "error"),
    "EndsAGenerator": ("GeneratorExit (hostile.py, line ", "error"),
    "StopsIteration": ("StopIteration: next(iter(())) (hostile.py, line ", "error"),
    "SaysNothing": ("Unprintable: its text cannot be printed", "error"),
    "SaysTooMuch": ("ValueError: xxxx", "error"),
    "Leaves": ("with exit code 0; it last printed: last words", "crashed"),
    "Segfault": ("SIGSEGV; it printed nothing", "crashed"),
    "Aborts": ("SIGABRT; it printed nothing", "crashed"),
}
# Of a module that changes what all in its process uses: the note of its row.
CHANGES = {
    "Hostile": "",
    "ReplacesOutput": "",
    "ClosesOutput": "",
    "NeverEnds": "",
    "PrintsALot": "",
    "ClearsEnvironment": "",
    "SetsThreads": "the module changes global settings of its process: torch.get_num_threads changes from 2 to 1",
    "SetsDtype": "torch.get_default_dtype changes from torch.float32 to torch.float64",
    "EditsInput": "the module changes its input in place",
    "OtherDtype": "the output has another dtype than the input: float32 in, float64 out",
    "Forks": "the module forks its process",
}


def by_command(modules: Iterable[str], few: Iterable[str]) -> list[tuple[str, str]]:
    """Each of the modules with one command, and a few with each."""
    first, *others = TELLS
    return [(first, module) for module in modules] + [(about, module) for about in others for module in few]


@pytest.mark.drawn("worker", "engine")
@pytest.mark.parametrize(("about", "module"), by_command(ENDS, ("Refuses", "Exits", "Leaves")))
def test_a_module_that_does_not_answer_is_told_in_a_sentence(module: str, about: str, command: Command) -> None:
    done = command(about, f"{HOSTILE}:{module}", *TELLS[about], *SHAPE)
    assert done.returncode == 2
    assert done.stderr.startswith(f"ctxbench: {module} ")
    assert ENDS[module][0] in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.drawn("worker", "engine")
@pytest.mark.parametrize(("about", "module"), by_command(CHANGES, ("ReplacesOutput", "NeverEnds", "SetsDtype")))
def test_what_a_module_does_to_its_process_does_not_reach_the_command(
    module: str, about: str, command: Command
) -> None:
    done = command(about, f"{HOSTILE}:{module}", *TELLS[about], *SHAPE)
    assert (done.returncode, module in done.stdout, "1x8x6x5" in done.stdout or "mul" in done.stdout) == (0, True, True)
    built = rf"built: \S*hostile\.py:\d+ {module}\(channels=8\)"
    assert re.fullmatch(built, done.stderr.strip("x\n"))  # beside it what the module prints


@pytest.mark.parametrize("about", TELLS)
@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["se", "--shape", "1,3,8,8"], "ValueError: se has 3 channels, fewer than reduction (16) (_checks.py, line "),
        (["ham_nmf", "--shape", "1,32,8,8", "--set", "steps=0"], "ham_nmf [1, 32, 8, 8]: ValueError: steps is 0"),
        (["se", "--shape", "1,32,1000000000000,1000000"], "the product of B,C,H,W is too large"),
    ],
)
def test_what_a_module_of_ours_refuses_is_a_sentence(
    arguments: Sequence[str], sentence: str, about: str, command: Command
) -> None:
    done = command(about, *arguments, *TELLS[about])
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert sentence in done.stderr


# What a file does when it is imported, and what is said of it.
IMPORTS = {
    "import sys\nsys.exit()": "SystemExit",
    "code = 0\nraise SystemExit(code)": "line 2, in <module>\n    raise SystemExit(code)\nSystemExit: 0",
    "import sys\nsys.exit('not here')": "SystemExit: not here",
    "raise GeneratorExit": "line 1, in <module>\n    raise GeneratorExit\nGeneratorExit",
    "raise KeyboardInterrupt": "KeyboardInterrupt",
    "class Odd(BaseException):\n    def __str__(self): raise self\nraise Odd": "Odd",
    "import os\nos._exit(0)": "ended its process with exit code 0; it printed nothing",
    "import os\nos.abort()": "was killed by SIGABRT; it printed nothing",
}
COMMANDS = {
    "memory": ["memory", "{}:M"],
    "show": ["show", "{}:M"],
    "predict": ["predict", "{}:M", "--for", "t4"],
    "choose": ["choose", "--memory", "2GiB", "--device", "t4", "--modules", "{}:M", *SHAPE],
    "run": ["run", "--suite", "quick", "--static", "--modules", "{}:M"],
    "dry run": ["run", "--suite", "quick", "--dry-run", "--modules", "{}:M"],
    "run in process": ["run", "--suite", "quick", "--static", "--in-process", "--modules", "{}:M"],
    "network": ["run", "--suite", "quick", "--static", "--modules", "sa", "--network", "{}:f"],
    "memory in network": ["memory", "sa", "--network", "{}:f"],
}


# Each file with one command in a process of its own and with one in this process; with the others one that raises and
# one that leaves.
FILES = [(name, source) for name in ("memory", "run in process") for source in IMPORTS] + [
    (name, source) for name in COMMANDS for source in IMPORTS
    if name not in ("memory", "run in process") and ("raise SystemExit" in source or "_exit" in source)
]  # fmt: skip


@pytest.mark.parametrize(("name", "source"), FILES)
def test_a_file_that_ends_its_process_when_it_is_imported(
    name: str, source: str, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "mine.py"
    path.write_text(source)
    done = command(*(each.format(path) for each in COMMANDS[name]))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("ctxbench: loading ")
    assert str(path) in done.stderr
    assert IMPORTS[source] in done.stderr
    assert {each.name for each in tmp_path.iterdir()} - {"__pycache__"} == {"mine.py"}


def test_the_process_of_a_command_runs_no_file_of_a_user(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(f"import os\nassert os.getpid() != {os.getpid()}\n{HOSTILE.read_text()}")
    for arguments in (["show", f"{path}:Hostile"], ["run", "--static", "--modules", f"{path}:Hostile"]):
        done = command(*arguments, *SHAPE, *["--out", tmp_path / "run"] * (arguments[0] == "run"))
        assert (done.returncode, "Hostile" in done.stdout) == (0, True)


def test_a_module_does_not_end_the_command_that_measures_in_its_own_process(command: Command, tmp_path: Path) -> None:
    modules, out = f"{HOSTILE}:Leaves,linear", tmp_path / "run"
    done = command("run", "--in-process", "--static", "--modules", modules, *SHAPE, "--out", out)
    assert done.returncode == 1
    assert "error: SystemExit: 0 (hostile.py, line " in done.stdout
    assert ctxbench.load(out).frame["status"].tolist() == ["error", "ok"]


@pytest.fixture(scope="module")
def measured(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, module_server: None
) -> ctxbench.Run:
    """One run over the modules that are asked for, and those whose lines are looked for in the log."""
    folder = tmp_path_factory.mktemp("strangers")
    suite = folder / "strangers.toml"
    logged = ("ExitsWithText", "Interrupts", "SaysNothing")
    modules = [f"{HOSTILE}:{name}" for name in {*logged, *asked_of(request, "module")}]
    suite.write_text(
        f'title = "t"\nmodules = {modules}\nmetrics = ["params", "memory", "latency"]\n'
        "[axes]\nshape = [1, 8, 6, 5]\nthreads = 2\n[measure]\nprocesses = 1\nsample_s = 0.01\nwarmup_s = 0\n"
    )
    return ctxbench.run(str(suite), out=folder / "run")


@pytest.fixture
def rows(measured: ctxbench.Run) -> pd.DataFrame:
    return measured.frame.set_index("module")


@pytest.mark.parametrize("module", ENDS)
def test_what_a_module_says_as_it_ends_is_in_its_row(rows: pd.DataFrame, module: str) -> None:
    sentence, status = ENDS[module]
    assert (rows.loc[module, "status"], sentence in rows.loc[module, "message"]) == (status, True)


def test_the_log_has_the_lines_that_ended_a_module(measured: ctxbench.Run) -> None:
    log = (measured.path / "log.txt").read_text()
    for said in (
        r'sys.exit\("the extension is not built"\)\n(.*\n)?SystemExit: the extension is not built',
        r"raise KeyboardInterrupt\nKeyboardInterrupt",
        r"raise Unprintable\n.+\.Unprintable: <exception str\(\) failed>",
    ):
        assert re.search(said, log), said


@pytest.mark.parametrize("module", CHANGES)
def test_what_a_module_changes_is_in_the_notes_of_its_row(rows: pd.DataFrame, module: str) -> None:
    row = rows.loc[module]
    assert (row["status"], row["message"]) == ("ok", "")
    notes = [str(note) for note in row["notes"] if note.code not in ("disturbed", "memory_unchecked")]
    assert len(notes) == bool(CHANGES[module])
    assert CHANGES[module] in "".join(notes)


def test_a_copy_that_a_module_forks_tells_nothing(one_server: ForkServer) -> None:
    case = Case("Forks", f"{HOSTILE}:Forks", {}, (1, 8, 6, 5))
    replies: list[Reply] = []
    one_server.run(MeasureCase(case, Measure(sample_s=0.01, warmup_s=0), ["latency"]), replies.append)
    doing = [reply.what for reply in replies if isinstance(reply, Doing)]
    assert doing.count("first_train") == 1


@pytest.mark.usefixtures("shared_server")
def test_the_output_of_autocast_may_have_its_dtype(suite_file: SuiteFile, tmp_path: Path) -> None:
    suite = suite_file([f"{HOSTILE}:Multiplies"], axes='dtype = ["autocast-bfloat16"]')
    row = ctxbench.run(str(suite), out=tmp_path / "run").frame.loc[0]
    assert (row["status"], {note.code for note in row["notes"]} - {"memory_unchecked"}) == ("ok", set())


@pytest.mark.long
def test_a_module_that_prints_without_end_is_verified(command: Command) -> None:
    done = command("verify", f"{HOSTILE}:PrintsALot")
    assert done.returncode == 1
    assert "FAILED    prints nothing" in done.stdout
    assert "torch.export" in done.stdout
    assert "the process was killed" not in done.stdout


@pytest.mark.long
def test_a_module_that_forks_is_found(command: Command) -> None:
    done = command("verify", f"{HOSTILE}:Forks")
    assert (done.returncode, "FAILED    global state            it forks its process" in done.stdout) == (1, True)


def test_a_runtime_does_not_hide_that_a_module_returns_a_tuple(monkeypatch: pytest.MonkeyPatch) -> None:
    class Runtime(Execution):
        name, exports = "runtime", True

        def build(self, model: torch.nn.Module, x: Tensor, kept: str = "") -> Built:
            return Built(lambda given: given)

    monkeypatch.setattr("ctxbench.worker.measurement.execution", lambda name: Runtime())
    case = Case("Tuple", f"{HOSTILE}:Tuple", {}, (1, 8, 6, 5), threads=1)
    measurement = CaseMeasurement(case, Measure(), lambda message: None)
    measurement.load()
    with pytest.raises(TypeError, match="Tuple returns tuple; a context module returns one tensor"):
        measurement.first_pass("infer")


def test_what_is_left_of_an_endless_line_is_no_message() -> None:
    read, write = os.pipe()
    server = object.__new__(ForkServer)
    server._buffer = b""
    server._interpreter = SimpleNamespace(read=lambda wait_s: os.read(read, 65536))  # type: ignore[assignment]  # a fake

    def send() -> None:
        with os.fdopen(write, "wb") as pipe:
            pipe.write(b'{"type": "WrongInput", "message": "' + b"x" * 2**23 + b'"}\n')

    sender = threading.Thread(target=send)
    sender.start()
    line = server._line(math.inf)
    sender.join()
    os.close(read)
    assert isinstance(line, bytes)
    assert len(line) < 2**23
    with pytest.raises(ProtocolError, match="no known message"):
        decode(line)


def test_reading_what_a_file_declares_leaves_no_compiled_file_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    path = tmp_path / "block.py"
    path.write_text("import torch\nclass Block(torch.nn.Identity): pass\n")
    with ForkServer(static=False) as server:
        replies: list[Reply] = []
        server.run(task_of("module", Reference(str(path), "Block")), replies.append)
    assert [type(reply) for reply in replies] == [Payload]
    assert os.listdir(tmp_path) == ["block.py"]


def test_what_a_finalizer_raises_is_a_line_that_is_said_once(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Sad:
        def __del__(self) -> None:
            raise ValueError("no\x1b")

    monkeypatch.setattr(sys, "unraisablehook", child._tell_ignored)
    for _ in range(3):
        Sad()
        gc.collect()
    (line,) = capsys.readouterr().err.splitlines()
    name = re.escape(Sad.__del__.__qualname__)
    assert re.fullmatch(rf"ignored: {name} raised ValueError: no\x1b \(test_strangers\.py, line \d+\)", line)
