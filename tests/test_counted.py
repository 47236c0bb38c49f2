"""What was counted before is told again: when, when not, and with a cache folder that is of no use."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import Done
from fakes import ENDED_WELL, FakeExecutor, counted

from ctxbench import registry
from ctxbench.case import Case, Measure
from ctxbench.engine import counted as cache
from ctxbench.engine.counted import Counted
from ctxbench.engine.exit import Exit
from ctxbench.messages import Failure
from ctxbench.results.run_folder import RunFolder
from ctxbench.worker.lines import encode
from ctxbench.worker.protocol import MeasureCase, Reply

CASE = Case("sa", "ctxbench.modules.sa:SelfAttention", {}, (1, 8, 4, 4), device="meta")
TOLD = [*map(encode, counted())]
TASK = MeasureCase(CASE, Measure(), ["params"])


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv(cache.SWITCH)
    monkeypatch.setattr(cache, "user_cache_path", lambda name: tmp_path / name)
    return tmp_path / "ctxbench" / "counted"


class Counts(FakeExecutor):
    """Says how often it was asked."""

    asked = 0

    def __init__(self, *said: Reply, ended: Exit = ENDED_WELL) -> None:
        super().__init__(self.answer, ended)
        self.said = said or counted()

    def answer(self, task: MeasureCase) -> list[Reply]:
        self.asked += 1
        return [*self.said]


def told(executor: Counted, task: MeasureCase = TASK) -> list[bytes]:
    found: list[Reply] = []
    assert executor.run(task, found.append).code == 0
    return [*map(encode, found)]


def test_a_second_run_is_told_the_same_and_asks_nobody() -> None:
    script = Counts()
    assert told(Counted(script)) == told(Counted(script)) == TOLD
    assert script.asked == 1


@pytest.mark.parametrize(
    "other",
    [
        replace(TASK, metrics=["macs"]),
        replace(TASK, counter="torchprofile"),
        replace(TASK, measure=Measure(memory_device="cuda-2020")),
        replace(TASK, case=replace(CASE, shape=(1, 8, 4, 5))),
        replace(TASK, case=replace(CASE, hparams={"d": 4})),
        replace(TASK, case=replace(CASE, device="titan-xp")),
    ],
)
def test_another_task_is_counted(other: MeasureCase) -> None:
    script = Counts()
    told(Counted(script))
    told(Counted(script), other)
    assert script.asked == 2


@pytest.mark.parametrize(
    "case", [replace(CASE, device="cpu"), replace(CASE, reference="mine.py:Mine"), replace(CASE, reference="a.b:C")]
)
def test_what_is_measured_and_modules_of_others_are_never_kept(case: Case) -> None:
    script = Counts()
    for _ in range(2):
        told(Counted(script), replace(TASK, case=case))
    assert script.asked == 2


@pytest.mark.parametrize(
    ("said", "ended"),
    [
        ([Failure("error", "no", "Traceback")], ENDED_WELL),
        (counted(), Exit(1, 0, False, "")),
        (counted(), Exit(0, 9, False, "")),
        (counted(), Exit(0, 0, False, "a module printed this")),
    ],
)
def test_only_what_ended_well_is_kept(said: list[Reply], ended: Exit, folder: Path) -> None:
    Counted(Counts(*said, ended=ended)).run(TASK, lambda message: None)
    assert not folder.exists()


def test_other_code_is_counted_and_what_the_former_code_kept_is_removed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = Counts()
    told(Counted(script))
    monkeypatch.setattr(cache, "_code", lambda: "other")
    told(Counted(script))
    assert script.asked == 2
    assert [path.name for path in folder.iterdir()] == ["other"]


def test_each_source_file_and_version_is_part_of_the_code(monkeypatch: pytest.MonkeyPatch) -> None:
    before = cache._code()
    read = Path.read_bytes
    for path in (Path(registry.get("ham_nmf").file), Path(cache.__file__)):
        monkeypatch.setattr(Path, "read_bytes", lambda self, path=path: read(self) + b"#" * (self == path))
        assert cache._code() != before
    monkeypatch.setattr(Path, "read_bytes", read)
    monkeypatch.setattr(cache, "version", lambda name: "0")
    assert cache._code() != before


@pytest.mark.parametrize("damage", [b"", b"{", b'{"type": "Values"}\n', b'{"type": "TakeSide"}\n', b"\xff\n"])
def test_a_damaged_file_is_counted_anew(folder: Path, damage: bytes) -> None:
    script = Counts()
    told(Counted(script))
    (path,) = folder.glob("*/*")
    path.write_bytes(damage)
    assert told(Counted(script)) == told(Counted(script)) == TOLD
    assert script.asked == 2


def test_a_folder_that_cannot_be_written_is_one_sentence(folder: Path) -> None:
    folder.parent.parent.mkdir(exist_ok=True)
    folder.parent.write_text("a file")
    script, notes = Counts(), list[str]()
    executor = Counted(script, notes.append)
    for _ in range(2):
        assert told(executor) == TOLD
    assert script.asked == 2
    (note,) = notes
    assert note.startswith(f"what is counted is not kept for the next run: {folder}")
    assert note.endswith(": Not a directory")


def test_the_switch_has_all_counted_anew(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setenv(cache.SWITCH, "1")
    script = Counts()
    for _ in range(2):
        told(Counted(script))
    assert script.asked == 2
    assert not folder.exists()


@pytest.mark.processes
def test_a_static_run_gives_the_same_records_from_the_cache(
    command: Callable[..., Done], tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frames = []
    for name in ("first", "second"):
        command("run", "--static", "--modules", "sa,ham_nmf", "--shape", "1,16,8,8", "--out", tmp_path / name)
        frames.append(RunFolder.open(tmp_path / name).frame().drop(columns="elapsed_s"))
    assert len(list(folder.glob("*/*"))) == 2
    assert frames[0].equals(frames[1])
    assert frames[0]["status"].eq("ok").all()
