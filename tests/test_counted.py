"""Cached counts: reused, not reused, and with a cache folder that is of no use."""

import errno
import functools
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import fields, replace
from functools import partial
from importlib.metadata import distribution
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from conftest import Done
from fakes import ENDED_WELL, FakeExecutor, counted

import ctxbench
from ctxbench.engine import cache, client
from ctxbench.engine.cache import CachedExecutor
from ctxbench.engine.exit import Exit
from ctxbench.model.case import Case, Measure
from ctxbench.model.messages import Failure
from ctxbench.results.run_folder import RunFolder
from ctxbench.results.sources import code_digest
from ctxbench.table.result import Result
from ctxbench.worker.lines import encode
from ctxbench.worker.protocol import Imported, MeasureCase, MeasureCases, Measured, Reply, Task

ROOT = Path(__file__).resolve().parents[1]
CASE = Case("sa", "ctxbench.modules.sa:SelfAttention", {}, (1, 8, 4, 4), device="meta")
TOLD = [*map(encode, counted())]
TASK = MeasureCase(CASE, Measure(), ["params"])
PREDICT = pytest.mark.plugin("predict")
digest_once = functools.cache(code_digest)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv(cache.NO_CACHE_ENV)
    monkeypatch.setattr(cache, "user_cache_path", lambda name: tmp_path / name)
    monkeypatch.setattr(cache, "code_digest", digest_once)
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


def told(executor: CachedExecutor, task: MeasureCase = TASK) -> list[bytes]:
    found: list[Reply] = []
    assert executor.run(task, found.append).code == 0
    return [*map(encode, found)]


def test_a_second_run_is_told_the_same_and_asks_nobody() -> None:
    script = Counts()
    assert told(CachedExecutor(script)) == told(CachedExecutor(script)) == TOLD
    assert script.asked == 1


# Another value of each field of a case, and of a task.
OF_CASE: dict[str, Any] = {
    "module": "se",
    "reference": "ctxbench.modules.se:SqueezeExcitation",
    "hparams": {"d": 4},
    "defaults": {"d": 4},
    "shape": (1, 8, 4, 5),
    "network": "vit_small",
    "dtype": "float64",
    "device": "titan-xp",
    "memory_format": "channels_last",
    "execution": "compile",
    "threads": 2,
}
OF_TASK: dict[str, Any] = {
    "case": CASE,
    "measure": Measure(memory_device="cuda-2020"),
    "metrics": ["macs"],
    "counter": "torchprofile",
    "force": True,
    "kept": "folder",
}


def test_the_others_have_each_field_once() -> None:
    assert OF_CASE.keys() == {each.name for each in fields(Case)}
    assert OF_TASK.keys() == {each.name for each in fields(MeasureCase)}
    assert all(getattr(CASE, name) != other for name, other in OF_CASE.items())


@pytest.mark.parametrize(
    "other",
    [
        *(
            pytest.param(
                replace(TASK, case=replace(CASE, **{name: value})), marks=[PREDICT] * (name == "device"), id=name
            )
            for name, value in OF_CASE.items()
        ),
        *(pytest.param(replace(TASK, **{name: OF_TASK[name]}), id=name) for name in OF_TASK if name != "case"),
    ],
)
def test_another_task_is_counted(other: MeasureCase) -> None:
    script = Counts()
    told(CachedExecutor(script))
    for _ in range(2):
        told(CachedExecutor(script), other)
    assert script.asked == (3 if other.case.network else 2)  # in a network, nothing is kept


@pytest.mark.parametrize(
    "case", [replace(CASE, device="cpu"), replace(CASE, reference="mine.py:Mine"), replace(CASE, reference="a.b:C")]
)
def test_what_is_measured_and_modules_of_others_are_never_kept(case: Case) -> None:
    script = Counts()
    for _ in range(2):
        told(CachedExecutor(script), replace(TASK, case=case))
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
    CachedExecutor(Counts(*said, ended=ended)).run(TASK, lambda message: None)
    assert not folder.exists()


@pytest.mark.parametrize("part", ["ctxbench.engine.cache.counting_code", "platform.python_version"])
def test_with_other_code_or_python_all_is_counted_anew_and_what_was_kept_is_removed(
    part: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = Counts()
    told(CachedExecutor(script))
    (former,) = folder.iterdir()
    monkeypatch.setattr(part, lambda: "other")
    told(CachedExecutor(script))
    assert script.asked == 2
    assert [path.name for path in folder.iterdir()] == [cache.counting_code()] != [former.name]


@pytest.mark.parametrize(
    "file",
    [
        *("modules/ham_nmf.py", "modules/_ham.py", "ctxbench/plugins/macs/rules.py", "ctxbench/engine/cache.py"),
        *(
            pytest.param(f"ctxbench/plugins/predict/{name}", marks=PREDICT)
            for name in ("efficiencies.csv", "devices.csv", "errors.csv", "hopper.csv", "products.csv", "sheets.toml")
        ),
    ],
)
def test_another_file_of_ctxbench_has_all_counted_anew(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    script, read = Counts(), Path.read_bytes
    monkeypatch.setattr(cache, "code_digest", code_digest)
    told(CachedExecutor(script))
    changed = ROOT / file
    assert changed.is_file()
    monkeypatch.setattr(Path, "read_bytes", lambda self: read(self) + b"#" * (self == changed))
    told(CachedExecutor(script))
    assert script.asked == 2


@pytest.mark.parametrize("package", cache.PACKAGES)
@pytest.mark.parametrize("change", [{"version": "0"}, {"record": "torch/version.py,sha256=0,9"}])
def test_another_build_of_a_package_has_all_counted_anew(
    package: str, change: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    script = Counts()

    def installed(name: str) -> object:
        found = distribution(name)
        facts = {"version": found.version, "record": found.read_text("RECORD"), **(change if name == package else {})}
        return SimpleNamespace(version=facts["version"], read_text={"RECORD": facts["record"]}.get)

    told(CachedExecutor(script))
    monkeypatch.setattr(cache, "distribution", installed)
    told(CachedExecutor(script))
    assert script.asked == 2


@PREDICT
def test_another_sheet_has_its_times_predicted_anew(tmp_path: Path) -> None:
    script, sheet = Counts(), tmp_path / "mine.toml"
    task = replace(TASK, case=replace(CASE, device=str(sheet)))
    text = (ROOT / "ctxbench/plugins/predict/sheets.toml").read_text().split("[p100-pcie]")[0]
    for content in (text, text, text.replace("bandwidth_gb_s = ", "bandwidth_gb_s = 1")):
        sheet.write_text(content)
        told(CachedExecutor(script), task)
    assert script.asked == 2


def damaged(whole: bytes) -> Iterator[bytes]:
    """An entry with one bit flipped at each byte, cut at each byte, torn into its lines, and other things than one."""
    yield from (whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :] for at in range(len(whole)))
    yield from (whole[:at] for at in range(len(whole)))
    lines = whole.splitlines(keepends=True)
    yield from (b"".join(lines[:at] + lines[at + 1 :]) for at in range(len(lines)))
    yield from (whole + b"\n", whole + whole, b"{", b"\xff\n", *TOLD)


def test_a_damaged_file_is_counted_anew_and_replaced(folder: Path) -> None:
    script = Counts()
    executor = CachedExecutor(script)
    told(executor)
    (path,) = folder.glob("*/*")
    whole = path.read_bytes()
    kinds = [*damaged(whole)]
    assert len(kinds) > 2 * len(whole) > 200
    for index, damage in enumerate(kinds):
        path.write_bytes(damage)
        assert told(executor) == TOLD
        assert script.asked == index + 2, damage
        assert path.read_bytes() == whole


def irregular(path: Path) -> Iterator[tuple[str, Callable[[], object]]]:
    """Other things in the place of a file, by name, and what puts each there."""
    yield "folder", path.mkdir
    yield "pipe", lambda: os.mkfifo(path)
    yield "device", lambda: path.symlink_to("/dev/zero")
    yield "circle", lambda: path.symlink_to(path.name)
    yield "link to nothing", lambda: path.symlink_to("missing")
    yield "huge", lambda: os.truncate(os.open(path, os.O_CREAT | os.O_WRONLY), cache.MOST_BYTES + 1)
    for text in (
        "",
        "[]",
        "null",
        "3",
        "NaN",
        "{}",
        '{"Tiny": {"params": [999]}}',
        "[" * 200_000,
        "\0" * 100,
        "é",
        "\n",
    ):
        yield repr(text[:20]), functools.partial(path.write_text, text, "utf-8")
    for content in (b"\xff\xfe" * 100, b"\x80", b"\x1f\x8b\x08"):
        yield repr(content[:4]), functools.partial(path.write_bytes, content)


@pytest.mark.parametrize("name", ["counted", "history"])
def test_what_is_no_entry_is_not_there_and_is_told_to_who_asks(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = cache.Cache(name)
    kept.write(b"key", b"content")
    path = kept._path(b"key")
    kinds = [*irregular(path)]
    assert len(kinds) == 20
    for what, put in kinds:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        put()
        for is_verbose in (False, True):
            monkeypatch.setattr("ctxbench.base.terminal.is_verbose", is_verbose)
            assert kept.read(b"key") is None, what
            told = capsys.readouterr().err
            is_told = is_verbose and what != "link to nothing"
            assert told.endswith(": counted again\n") if is_told else told == "", what
    path.unlink()
    kept.write(b"key", b"content")
    assert kept.read(b"key") == b"content"
    assert kept.read(b"other key") is None


def test_what_was_kept_for_another_task_or_by_other_code_is_counted_anew(folder: Path) -> None:
    script = Counts()
    told(CachedExecutor(script))
    (path,) = folder.glob("*/*")
    told(CachedExecutor(script), replace(TASK, metrics=["macs"]))
    (other,) = {*folder.glob("*/*")} - {path}
    elsewhere = folder / "other code" / path.name
    elsewhere.parent.mkdir()
    elsewhere.write_bytes(cache._sealed(elsewhere, b"".join(TOLD)))
    for foreign in (other, elsewhere):
        path.write_bytes(foreign.read_bytes())
        assert told(CachedExecutor(script)) == TOLD
    assert script.asked == 4


@pytest.mark.parametrize(
    "line", [b"no JSON", b"[]", b'{"type": "Values", "values": 3}', b'{"type": "Nothing"}', b"\xff"]
)
def test_a_sealed_line_that_is_no_message_is_counted_anew(line: bytes, folder: Path) -> None:
    script = Counts()
    told(CachedExecutor(script))
    (path,) = folder.glob("*/*")
    path.write_bytes(cache._sealed(path, b"".join(TOLD) + line + b"\n"))
    assert told(CachedExecutor(script)) == told(CachedExecutor(script)) == TOLD
    assert script.asked == 2


@pytest.mark.parametrize("failing", ["fsync", "replace"])
@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()])
def test_what_cannot_be_written_leaves_no_file(
    failing: str, error: BaseException, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"os.{failing}", Mock(side_effect=error))
    with nullcontext() if isinstance(error, OSError) else pytest.raises(KeyboardInterrupt):
        assert told(CachedExecutor(Counts())) == TOLD
    assert [*folder.glob("*/*")] == []


def test_a_count_that_a_persons_file_had_a_part_in_is_not_kept(folder: Path) -> None:
    told(CachedExecutor(Counts(Imported({"/mine.py": "0"}), *counted())))
    assert not folder.exists()


def test_a_folder_that_cannot_be_written_is_one_sentence(folder: Path) -> None:
    folder.parent.parent.mkdir(exist_ok=True)
    folder.parent.write_text("a file")
    script, notes = Counts(), list[str]()
    executor = CachedExecutor(script, notes.append)
    for _ in range(2):
        assert told(executor) == TOLD
    assert script.asked == 2
    (note,) = notes
    assert note.startswith(f"what is counted is not kept for the next run: {folder}")
    assert note.endswith(": Not a directory")


def test_a_folder_that_is_removed_meanwhile_stops_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.rmtree", lambda path, ignore_errors: None)
    monkeypatch.setattr(Path, "mkdir", lambda *arguments, **options: None)  # another version has removed it again
    notes = list[str]()
    assert told(CachedExecutor(Counts(), notes.append)) == TOLD
    assert len(notes) == 1
    assert not folder.exists()


def test_of_what_was_kept_what_was_used_longest_ago_goes_first(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names, content = [b"first", b"second", b"third"], bytes(1000)
    kept = cache.Cache("counted")
    for age, name in zip((3, 2, 1), names, strict=True):
        kept.write(name, content)
        os.utime(kept._path(name), (1e9 - age, 1e9 - age))
    assert kept.read(names[0]) == content  # used now
    monkeypatch.setattr(cache, "MOST_KEPT", 2500)
    kept.write(b"another", content)  # a command removes once, before it writes
    assert [kept._path(name).exists() for name in names] == [True] * 3
    cache.Cache("counted").write(b"one more", content)
    assert [kept._path(name).exists() for name in names] == [True, False, False]
    assert kept.read(b"one more") == content


def test_an_entry_that_another_command_removes_meanwhile_stops_no_keeping(folder: Path) -> None:
    first = cache.Cache("counted")
    first.write(b"key", b"content")
    first._path(b"gone").symlink_to("nowhere")  # it is listed, and not there
    second = cache.Cache("counted", pytest.fail)
    second.write(b"other", b"content")
    assert second.read(b"other") == b"content"


def test_the_switch_has_all_counted_anew(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setenv(cache.NO_CACHE_ENV, "1")
    script = Counts()
    for _ in range(2):
        told(CachedExecutor(script))
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
        monkeypatch.setattr("ctxbench.engine.interpreter.start", None)  # the second starts no process
    assert len(list(folder.glob("*/*"))) == 3  # the machine's, and one a block
    assert frames[0].equals(frames[1])
    assert frames[0]["status"].eq("ok").all()


@PREDICT
def test_of_a_block_on_several_devices_what_is_not_kept_is_counted_in_one_process() -> None:
    rows = [replace(TASK, case=replace(CASE, device=each)) for each in ("t4", "a100-40gb", "h100-sxm")]
    asked: list[list[str]] = []

    class Several:
        def run(self, task: Task, on_message: Callable[[Reply], None], timeout_s: float | None = None) -> Exit:
            own = task.tasks if isinstance(task, MeasureCases) else [task]
            asked.append([each.case.device for each in own if isinstance(each, MeasureCase)])
            for _ in own:
                for message in (*counted(), *[Measured()] * isinstance(task, MeasureCases)):
                    on_message(message)
            return ENDED_WELL

    def told(*tasks: MeasureCase) -> list[bytes]:
        found: list[Reply] = []
        assert CachedExecutor(Several()).run(MeasureCases(tasks), found.append) == ENDED_WELL
        return [*map(encode, found)]

    measured = encode(Measured())
    assert told(*rows[:1]) == TOLD
    together = [*TOLD, measured, *TOLD, measured, *TOLD]
    assert told(*rows) == told(*rows) == together
    assert asked == [["t4"], ["a100-40gb", "h100-sxm"]]
    between = [replace(TASK, case=replace(CASE, device=each)) for each in ("l4", "t4", "a10", "h200")]
    assert told(*between) == told(*between) == [*together, measured, *TOLD]
    assert asked[2:] == [["l4"], ["a10", "h200"]]


@pytest.mark.processes
@PREDICT
def test_a_prediction_of_an_own_block_is_told_again_without_a_process(
    shared_server: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "mine.py"
    file.write_text("from torch import nn\n\n\ndef block(channels):\n    return nn.Conv2d(channels, channels, 1)\n")
    shape = (1, 16, 8, 8)
    asked: list[Callable[[], Result[Any]]] = [
        lambda: ctxbench.predict_time("se", shape, "t4"),
        *(partial(ctxbench.predict_memory, "se", shape, mode="infer", target=each) for each in ("cuda", "cpu", "t4")),
    ]

    def answers() -> list[Any]:
        profile = ctxbench.profile("se", shape, mode="infer", target="t4")
        return [*((each().value, each().parts) for each in asked), str(profile.passes)]  # NaN equals nothing

    first = answers()
    monkeypatch.setattr(client, "ForkServer", None)  # nothing is started
    assert answers() == first
    drawn: dict[str, Any] = {"plot": tmp_path / "x.png"}
    for name, options in (("se", drawn), (f"{file}:block", {})):
        with pytest.raises(TypeError, match="NoneType"):
            ctxbench.predict_memory(name, shape, **options)
