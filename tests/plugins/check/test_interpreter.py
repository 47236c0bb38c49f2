"""A side of a pair without fork: in an interpreter of its own."""

from typing import Any

import pytest

from ctxbench.engine import interpreter
from ctxbench.engine.client import ForkServer
from ctxbench.engine.remote import task_of
from ctxbench.model.case import Case, Measure
from ctxbench.plugins.check.wire import BLOCK, NEXT, PairRow
from ctxbench.worker.protocol import Answer

SHAPE = (1, 8, 6, 5)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Stand-in for a fork server where none can be."""
    monkeypatch.setattr(interpreter, "FORKS", False)
    with ForkServer() as server:
        yield server


@pytest.mark.processes
def test_a_side_of_a_pair_takes_commands_and_is_stopped(server: ForkServer) -> None:
    measure = Measure(sample_s=0.01, warmup_s=0)
    server.start(task_of("side", measure, [PairRow(Case("linear", "", {}, SHAPE), "infer")]))
    for command in (b"", NEXT, BLOCK):
        answer = server.command(command)
        assert isinstance(answer, Answer)
        assert answer.failure is None
        assert bool(answer.wall) == (command == BLOCK)
    server.stop()
    assert server._interpreter.process.poll() is not None
