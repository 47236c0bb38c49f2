"""Systems that have no process or no thread to give for a while: waited for, told, and no module's fault."""

import errno
import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from fakes import FakeExecutor, cases, counted
from forked import in_fork
from test_strangers import Command, SuiteFile

from ctxbench.base.errors import EngineError
from ctxbench.engine import client
from ctxbench.engine.exit import Exit
from ctxbench.engine.one_process import Plan, measure_case
from ctxbench.engine.remote import task_of
from ctxbench.model.case import Measure
from ctxbench.model.failures import describe_failure
from ctxbench.worker import fork_server
from ctxbench.worker.lines import decode
from ctxbench.worker.processes import WAITS_S, retry_fork
from ctxbench.worker.protocol import NoProcess, Reply

pytestmark = [pytest.mark.processes, pytest.mark.usefixtures("shared_server")]


class Clock:
    """Stands for `time`: it remembers for how long it was to sleep."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr("ctxbench.worker.processes.time", found)
    monkeypatch.setattr("ctxbench.engine.one_process.time.sleep", found.sleep)
    return found


def refusing(number: int, times: int) -> Callable[[], int]:
    """A start of a process that the system refuses so often."""
    left = [number] * times

    def start() -> int:
        if left:
            raise OSError(left.pop(), "Resource temporarily unavailable")
        return 7

    return start


@pytest.mark.parametrize("number", [errno.EAGAIN, errno.ENOMEM])
def test_a_short_want_of_processes_is_waited_out(number: int, clock: Clock) -> None:
    assert retry_fork(refusing(number, 2)) == 7
    assert clock.slept == [*WAITS_S]


@pytest.mark.parametrize(("number", "waits"), [(errno.EAGAIN, [*WAITS_S]), (errno.ENOENT, [])])
def test_what_lasts_is_an_error(number: int, waits: Sequence[float], clock: Clock) -> None:
    with pytest.raises(OSError, match="temporarily unavailable"):
        retry_fork(refusing(number, 3))
    assert clock.slept == waits


def test_a_fork_server_that_cannot_fork_says_so_and_goes_on(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    messages, written = os.pipe()
    acks, _ = pipe = os.pipe()
    server = fork_server._Server(-1, written, acks, -1, -1, -1)
    monkeypatch.setattr(os, "fork", refusing(errno.EAGAIN, 3))
    server.fork(task_of("machine"), b"tag")
    line = os.read(messages, 1000).strip()
    assert decode(line.removeprefix(b"tag ")) == NoProcess("Resource temporarily unavailable")
    assert clock.slept == [*WAITS_S]
    for descriptor in (messages, written, *pipe):
        os.close(descriptor)


def messages_of_a_server_that_waits() -> list[str]:
    """The kinds of messages of a task whose fork server goes on only when the child is done."""
    (messages, written), (orders, acks), (woken, wake) = os.pipe(), os.pipe(), os.pipe()
    os.set_blocking(wake, False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.set_wakeup_fd(wake)
    read = b""

    def until_done(pid: int, group: int) -> None:
        nonlocal read
        while b'"Done"' not in read:
            read += os.read(messages, 65536)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "setpgid", until_done)
        fork_server._Server(orders, written, acks, os.open(os.devnull, os.O_WRONLY), woken, wake).fork(
            task_of("machine"), b"tag"
        )
    read += os.read(messages, 65536)
    return [type(decode(line.removeprefix(b"tag "))).__name__ for line in read.split(b"\n") if line]


def test_the_number_of_a_child_comes_before_what_it_reports() -> None:
    assert in_fork(messages_of_a_server_that_waits) == ["Started", "Payload", "Done", "Ended"]


def test_the_want_of_processes_is_the_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    with client.ForkServer() as server, monkeypatch.context() as patched:
        patched.setattr(server, "_next", lambda deadline: NoProcess("no room"))
        patched.setattr(server, "start", lambda task: None)
        with pytest.raises(EngineError, match="the system starts no process to run a module in: no room; see `ulimit"):
            server.run(task_of("machine"), lambda message: None)


def test_a_case_that_lacked_a_thread_is_measured_again(clock: Clock) -> None:
    replies: list[Sequence[Reply]] = [[describe_failure(RuntimeError("can't start new thread"))], counted(), counted()]
    executor = FakeExecutor(lambda task: replies.pop(0))
    outcome = measure_case(cases(1)[0], Plan(Measure(), ["params"]), executor)
    assert (outcome.record.status, outcome.record.get("params"), len(replies)) == ("ok", 7, 1)
    assert clock.slept == [WAITS_S[-1]]


def test_a_run_without_processes_can_be_resumed(
    command: Command, suite_file: SuiteFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    suite, out = suite_file(["linear"], ("params",)), tmp_path / "run"
    with monkeypatch.context() as patched:

        def execute(*arguments: Any) -> None:
            raise EngineError("no room")

        patched.setattr("ctxbench.engine.run.execute", execute)
        done = command("run", "--suite", suite, "--out", out)
    assert (done.returncode, done.stderr.splitlines()[-1]) == (
        2,
        f"ctxbench: no room; continue with: ctxbench resume {out}",
    )
    assert command("resume", out).returncode == 0


@pytest.mark.parametrize(
    "said", ["can't start new thread", "libgomp: Thread creation failed: Resource temporarily unavailable"]
)
def test_a_want_of_threads_is_not_the_modules(said: str) -> None:
    failure = describe_failure(RuntimeError(said))
    assert (failure.status, failure.message) == (
        "error",
        f"the machine could start no more threads: RuntimeError: {said}",
    )
    ended = Exit(1, 0, False, f"{said}\n")
    assert ended.status(60, "first_infer", kernel_killed=False) == (
        "crashed",
        f"the machine could start no more threads in first_infer; it last printed: {said}",
    )
