"""Modules that hang, crash or eat memory, checks that are stopped, and the lines that tell the results."""

import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fakes import EngineClock
from test_contract import CORE

from ctxbench.base.errors import UsageError
from ctxbench.engine.client import ForkServer
from ctxbench.engine.exit import Exit
from ctxbench.plugins.verify import lines
from ctxbench.plugins.verify.contract import CheckResult, judged
from ctxbench.plugins.verify.verify import verify
from ctxbench.plugins.verify.wire import CheckDone, CheckStarted
from ctxbench.worker.lines import plain
from ctxbench.worker.protocol import Payload, Reply, Task


def told(value: CheckStarted | CheckDone) -> Payload:
    """Message of a process with this value."""
    return Payload(plain(value))


MISBEHAVING = """
import itertools, os, signal, time
import torch
from torch import nn

class Fine(nn.Module):
    def __init__(self, channels: int, *, width: int = 4):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 1)
    def forward(self, x):
        return self.conv(x) + x.mean((2, 3), keepdim=True)

def shorten():
    # The clock of the check runs, which the kernel reads in steps; a hundredth of a second is left on it now.
    left, _ = signal.getitimer(signal.ITIMER_PROF)
    assert 0 < left < 601
    signal.setitimer(signal.ITIMER_PROF, 0.01)

class LoopsInPython(Fine):
    def forward(self, x):
        if x.shape[2:] == (1, 1):
            shorten()
            while True:
                pass
        return super().forward(x)

class LoopsInC(Fine):
    def forward(self, x):
        if x.shape[2:] == (1, 1):
            shorten()
            sum(itertools.repeat(0))
        return super().forward(x)

class LoopsTwice(LoopsInPython):
    def forward(self, x):
        if x.shape[2] == 9:
            shorten()
            sum(itertools.repeat(0))
        return super().forward(x)

class LoopsFromTheStart(Fine):
    def __init__(self, channels: int):
        shorten()
        sum(itertools.repeat(0))

class Sleeps(Fine):
    def forward(self, x):
        if x.shape[2:] == (1, 1):
            time.sleep(1e6)
        return super().forward(x)

class Leaves(Fine):
    def forward(self, x):
        os._exit(0)

class Crashes(Fine):
    def forward(self, x):
        print("about to crash", flush=True)
        os.abort()

class Eats(Fine):
    def forward(self, x):
        torch.ones(2**34)
        return x
"""


@pytest.fixture(scope="module")
def server(one_server: ForkServer) -> ForkServer:
    return one_server


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "misbehaving.py"
    path.write_text(MISBEHAVING, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("name", "fact", "hint"),
    [
        ("Leaves", "the process ended with exit code 0", "it printed nothing"),
        ("Crashes", f"killed by {signal.SIGABRT.name}", "it last printed: about to crash"),
        ("Eats", "out of memory", "fix it"),
    ],
)
@pytest.mark.processes
def test_the_engine_holds_what_hangs_crashes_or_eats_memory(
    server: ForkServer, file: Path, name: str, fact: str, hint: str
) -> None:
    results = verify(f"{file}:{name}", server, channels=4, timeout_s=600)
    assert [result.name for result in results if result.broken] == ["shape and dtype"]
    assert fact in results[-1].fact
    assert hint in results[-1].hint


@pytest.mark.parametrize("name", ["LoopsInPython", "LoopsInC"])
@pytest.mark.processes
def test_a_check_whose_processor_time_is_used_up_is_not_decided_and_the_others_run(
    server: ForkServer, file: Path, name: str
) -> None:
    results = verify(f"{file}:{name}", server, channels=4, timeout_s=600, compilers=False)
    assert [result.name for result in results] == [c.name for c in CORE]
    (stopped,) = [result for result in results if result.outcome == "not decided"]
    assert stopped.name == "1x1"
    assert stopped.fact == "still running after 600 s of processor time"
    assert stopped.hint.endswith("or allow more: verify --timeout 3000 (Python: timeout_s=3000)")
    assert judged(results) == "not decided"


@pytest.mark.parametrize(
    ("name", "undecided"), [("LoopsTwice", ["odd and non-square", "1x1"]), ("LoopsFromTheStart", ["constructs"])]
)
@pytest.mark.processes
def test_after_two_stopped_checks_or_one_that_the_others_need_no_other_runs(
    server: ForkServer, file: Path, name: str, undecided: list[str]
) -> None:
    results = verify(f"{file}:{name}", server, channels=4, timeout_s=600, compilers=False)
    assert [result.name for result in results if result.outcome == "not decided"] == undecided
    assert results[-1].name == undecided[-1]
    assert results[-1].hint.endswith(". The later checks did not run.")
    assert not any(result.broken for result in results)


@pytest.mark.processes
def test_a_module_that_sleeps_is_stopped_by_the_wall_s_clock_and_not_decided(
    server: ForkServer, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = EngineClock(told(CheckStarted("1x1", required=True, vital=False)))
    monkeypatch.setattr("ctxbench.base.clocks.here", clock)

    class Timed:
        def run(self, task: Task, on_message: Callable[[Reply], None], timeout_s: float | None = None) -> Exit:
            def listen(message: Reply) -> None:
                clock(message)
                on_message(message)

            return server.run(task, listen, timeout_s)

    results = verify(f"{file}:Sleeps", Timed(), channels=4, timeout_s=150, compilers=False)
    assert [result.name for result in results] == [c.name for c in CORE]
    (stopped,) = [result for result in results if result.outcome == "not decided"]
    assert (stopped.name, stopped.fact) == ("1x1", "the process was still running after 750 s")


def test_checks_that_only_inform_may_be_stopped_as_often_as_there_are_and_decide_nothing() -> None:
    runs: list[tuple[list[Reply], Exit]] = [
        ([told(CheckStarted(name, required=False, vital=False))], Exit(0, signal.SIGPROF, False, "")) for name in "abc"
    ]
    passed = CheckResult("d", "passed", "well")
    runs.append(([told(CheckStarted("d", required=True, vital=False)), told(CheckDone(passed))], Exit(0, 0, False, "")))
    played = iter(runs)

    class Played:
        def run(self, task: Task, on_message: Callable[[Reply], None], timeout_s: float | None = None) -> Exit:
            said, ended = next(played)
            for message in said:
                on_message(message)
            return ended

    begun: list[str] = []
    results = verify("sa", Played(), on_start=begun.append)
    assert begun == [*"abcd"]
    assert [(each.name, each.outcome) for each in results] == [
        *((name, "not decided") for name in "abc"),
        ("d", "passed"),
    ]
    assert judged(results) == "met"


@pytest.mark.processes
def test_results_arrive_one_by_one_and_hyperparameters_are_passed_on(server: ForkServer, file: Path) -> None:
    seen: list[CheckResult] = []
    results = verify(f"{file}:Fine", server, channels=4, hparams={"width": 7}, compilers=False, on_result=seen.append)
    assert seen == results
    assert results[0].fact == "Fine(4, width=7)"
    assert "misbehaving" not in sys.modules
    assert not any(result.broken for result in results)


@pytest.mark.parametrize(
    ("reference", "hparams", "sentence"),
    [
        ("{file}:Finn", {}, "did you mean 'Fine'"),
        ("{file}:Fine", {"widht": 3}, "did you mean 'width'"),
        ("{file}:Fine", {"width": "wide"}, "must be int"),
        ("nothing", {}, "unknown module 'nothing'"),
    ],
)
@pytest.mark.processes
def test_a_wrong_name_is_a_usage_error(
    server: ForkServer, file: Path, reference: str, hparams: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(UsageError, match=sentence):
        verify(reference.format(file=file), server, channels=4, hparams=hparams)
    with pytest.raises(UsageError, match="at least 1"):
        verify("sa", server, size=(0, 3))


def test_a_line_says_verdict_name_fact_and_hint() -> None:
    failed = CheckResult("global", "failed", "local", "widen it")
    note = CheckResult("position mixing", "failed", "none", "correct if intended", required=False)
    assert lines.line(failed).plain.split() == ["FAILED", "global", "local", "hint:", "widen", "it"]
    assert lines.verdict(note) == "note"
    assert lines.summary("mine", [note]).plain == "mine meets the contract: 1 note"
    assert lines.summary("mine", [note, failed]).plain == "mine does not meet the contract: 1 failed, 1 note"
    stopped = CheckResult("1x1", "not decided", "still running after 60 s of processor time", "allow more")
    assert lines.line(stopped).plain.startswith("undecided 1x1   ")
    sentence = "it is not decided whether mine meets the contract: 1 undecided, 1 note"
    assert lines.summary("mine", [note, stopped]).plain == sentence
    assert lines.summary("mine", [failed, stopped]).plain == "mine does not meet the contract: 1 failed, 1 undecided"


@pytest.mark.parametrize(
    ("outcomes", "code"),
    [
        ([("passed", True), ("failed", False)], 0),
        ([("passed", True), ("not decided", False)], 0),
        ([("passed", True), ("not decided", True)], 3),
        ([("not decided", True), ("failed", True)], 1),
    ],
)
def test_the_exit_code_of_verify_says_whether_the_contract_is_met(
    command: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, outcomes: list[tuple[Any, bool]], code: int
) -> None:
    results = [CheckResult("1x1", outcome, "", required=required) for outcome, required in outcomes]
    monkeypatch.setattr("ctxbench.plugins.verify.function.check_contract", lambda *arguments, **options: results)
    assert command("verify", "sa").returncode == code
