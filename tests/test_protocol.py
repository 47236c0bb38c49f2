"""Messages between processes: each comes back as it was, unknown ones are refused, a wrong name is no column."""

import json
import math

import pytest

from ctxbench.base.notes import Note
from ctxbench.engine.remote import task_of
from ctxbench.model.case import Case, Measure
from ctxbench.model.messages import (
    Doing,
    Failure,
    MissingColumns,
    Progress,
    Sample,
    Samples,
    Timeline,
    TimelineStep,
    Values,
)
from ctxbench.model.record import Record
from ctxbench.worker.lines import ProtocolError, decode, decode_task, encode, plain, tagged, untagged
from ctxbench.worker.protocol import (
    Answer,
    Ask,
    Done,
    Ended,
    MatmulRate,
    MeasureCase,
    Payload,
    Ready,
    Reply,
    Started,
    Task,
    WrongInput,
)

CASE = Case("ham_nmf", "m:C", {"steps": 3, "init": "fixed", "inverse": None}, (1, 8, 6, 5), threads=2)
TASKS: list[Task] = [
    Ask("machine", [], []),
    Ask("contract", ['"m.py:C"', "NaN"], ["m.py:C"], 8.0),
    task_of("counts", CASE, ["params"]),
    MatmulRate(CASE, Measure()),
    MeasureCase(CASE, Measure(protocol="paper"), ["params", "latency"], "torchprofile", True),
]
REPLIES: list[Reply] = [
    Ready(),
    Started(7),
    Done(),
    Ended(0, 9, ["sleep"]),
    Payload(plain({"cpu": "Z80", "load_average": [0.1, 0.2, math.nan]})),
    WrongInput("no such module"),
    Answer([1.5], [2.5, 3.5], Failure("nan", "NaN", "Traceback")),
    Values(
        {"params": 2**70, "latency_infer_ms": 0.1 + 0.2, "macs_counter": None},
        [Note("reused", {"path": "a; b", "n": [1, 2.5]}, "macs")],
    ),
    MissingColumns(["macs", "macs_train"], Note("no_macs", {"reason": "no count"})),
    MissingColumns(["macs"]),
    Doing("latency_infer"),
    Progress("latency_infer", 3, 1.5),
    Samples("control", [Sample(0.1, 4, 1 / 3)]),
    Timeline("train", [TimelineStep(0, "forward", "aten.bmm.default", 2**60 + 1)]),
    Failure("oom", "out of memory", ""),
]


@pytest.mark.parametrize("task", TASKS, ids=lambda task: type(task).__name__)
def test_a_task_comes_back_as_it_was(task: Task) -> None:
    line = encode(task)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert decode_task(line) == task


@pytest.mark.parametrize("reply", REPLIES, ids=lambda reply: type(reply).__name__)
def test_a_message_comes_back_as_it_was(reply: Reply) -> None:
    assert decode(encode(reply)) == reply


def test_a_line_belongs_to_the_task_whose_tag_it_has() -> None:
    line = encode(Done())
    garbage, own, rest = (b"no end" + tagged(b"a1", line)).split(b"\n")
    assert (untagged(b"a1", garbage), rest) == (None, b"")
    assert decode(untagged(b"a1", own) or b"") == Done()
    assert [untagged(tag, own) for tag in (b"a", b"a12", b"b1", b"")] == [None] * 4
    assert untagged(b"", tagged(b"", line).strip(b"\n")) == line.strip(b"\n")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"hello",
        b"[]",
        b"{}",
        b'{"type": "Nonsense"}',
        b'{"type": "Started"}',
        b'{"type": "Started", "pid": "many"}',
        json.dumps({"type": "MeasureCase"}).encode(),  # a task is no message
        b"[" * 10**6,
        b'{"type": "Values", "values": {"x": ' + b'{"x": ' * 10**5 + b"1" + b"}" * (10**5 + 2),
    ],
)
def test_what_is_no_message_is_refused(content: bytes) -> None:
    with pytest.raises(ProtocolError, match="no known message"):
        decode(content)


def test_a_message_for_which_no_memory_is_left_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(line: bytes) -> None:
        raise MemoryError

    monkeypatch.setattr("ctxbench.worker.lines.json.loads", full)
    with pytest.raises(ProtocolError, match=r"no known message: .*MemoryError"):
        decode(b'{"type": "Started", "pid": 1}')


def test_a_misspelt_column_is_an_error_and_not_lost() -> None:
    record = Record("c", "sa", "SA", "f", "m:C", "{}", "", 1, 8, 4, 4, "float32", "contiguous", "eager", None, "cpu")
    with pytest.raises(AttributeError):
        record.latency_infre_ms = 1  # type: ignore[attr-defined]  # the point of the test
    with pytest.raises(KeyError, match="a record has no column 'latency_infre_ms'"):
        record.take({"latency_infre_ms": 1})
    record.take({"latency_infer_ms": 1.5, "status": "nan"})
    assert (record.get("latency_infer_ms"), record.status) == (1.5, "nan")


def test_notes_are_a_list_each_once() -> None:
    record = Record("c", "sa", "SA", "f", "m:C", "{}", "", 1, 8, 4, 4, "float32", "contiguous", "eager", None, "cpu")
    first, second = Note("remark", {"text": "a; b"}), Note("remark", {"text": "a; b"}, "macs")
    record.note(first, second)
    record.note(second, Note("remark", {"text": "a; b"}), Note("no_memory_autocast"))
    assert record.notes == [first, second, Note("no_memory_autocast")]


def test_a_number_that_is_none_crosses_as_it_is() -> None:
    assert json.loads(plain([math.inf, {"ms": -math.inf}])) == [math.inf, {"ms": -math.inf}]
    assert math.isnan(json.loads(plain(math.nan)))
