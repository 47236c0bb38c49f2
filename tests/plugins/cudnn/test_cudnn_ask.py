"""The process that asks cuDNN: where the library is, and each way in which it may end."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from ctxbench import devices
from ctxbench.plugins.cudnn import ask as module
from ctxbench.plugins.cudnn.ask import NoAnswerError, ask, cards, folders, identities
from ctxbench.plugins.cudnn.library import NAME, CudnnChoice, CudnnConvolution

ROOT = Path(__file__).parents[3]
ASKED = CudnnConvolution("forward", (1, 8, 4, 4), (16, 8, 1, 1), (1, 16, 4, 4), (0, 0), (1, 1), (1, 1))
ANSWERS = "import sys, json\nlines = sys.stdin.read().splitlines()\nprint(91900)\n"


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program in the place of the library's, and a folder that has a library by its name."""
    path = tmp_path / "program.py"
    (tmp_path / NAME).write_bytes(b"")
    monkeypatch.setattr(module, "PROGRAM", path)
    monkeypatch.setenv(module.FOLDER_ENV, str(tmp_path))
    module._kept.cache_clear()
    return path


def test_the_answers_are_in_the_order_of_the_questions(program: Path) -> None:
    program.write_text(f"{ANSWERS}print('[58, 512, [17]]')\nprint(json.dumps('no configuration'))\n")
    other = replace(ASKED, dtype="float16")
    (found,) = ask("h200", [ASKED, other])
    assert found.version == "9.19.0"
    assert found.choices == {ASKED: CudnnChoice(58, 512, (17,)), other: "no configuration"}


def test_the_program_gets_the_card_and_nothing_of_cudnn_s_settings(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDNN_LOGDEST_DBG", "stdout")
    program.write_text(
        f"import os\n{ANSWERS}assert not [each for each in os.environ if each.startswith('CUDNN_')]\n"
        "print(json.dumps([json.loads(lines[0])['properties']['deviceVer'], 0, []]))\n"
    )
    assert ask("t4", [ASKED])[0].choices[ASKED] == CudnnChoice(750, 0)


@pytest.mark.parametrize(
    ("ends", "sentence"),
    [
        ("import os\nos.abort()\n", "its process ended by SIGABRT: without a word"),
        ("import sys\nsys.exit('Cannot load symbol x')\n", "its process ended by exit code 1: Cannot load symbol x"),
        (
            "import os, sys\nprint('Cannot load symbol cublasLtGetVersion', file=sys.stderr, flush=True)\nos.abort()\n",
            r"ended by SIGABRT: Cannot load symbol cublasLtGetVersion \(it needs cuBLAS: pip install nvidia-cublas\)",
        ),
        ("print(91900)\n", "its process ended by exit code 0: without a word"),
    ],
)
def test_a_process_that_ends_is_one_sentence(program: Path, ends: str, sentence: str) -> None:
    program.write_text(ends)
    with pytest.raises(NoAnswerError, match=sentence):
        ask("h200", [ASKED])


def test_a_process_that_hangs_is_ended(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOAD_S", 0.1)
    monkeypatch.setattr(module, "EACH_S", 0.1)
    program.write_text("import time\ntime.sleep(60)\n")
    with pytest.raises(NoAnswerError, match="did not answer within 0 s"):
        ask("h200", [ASKED])


def test_what_was_answered_is_kept_until_the_library_changes(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CTXBENCH_NO_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    program.write_text(f"{ANSWERS}print('[1, 2, []]')\n")
    assert ask("h200", [ASKED])[0].choices[ASKED] == CudnnChoice(1, 2)
    program.write_text(f"{ANSWERS}print('[3, 4, []]')\n")
    assert ask("h200", [ASKED])[0].choices[ASKED] == CudnnChoice(1, 2)
    assert ask("t4", [ASKED])[0].choices[ASKED] == CudnnChoice(3, 4)
    program.write_text(f"{ANSWERS}assert len(lines) == 2\nprint('[3, 4, []]')\n")  # what is kept is not asked
    other = replace(ASKED, last=True)
    (found,) = ask("h200", [other, ASKED])
    assert (found.version, found.choices) == ("9.19.0", {other: CudnnChoice(3, 4), ASKED: CudnnChoice(1, 2)})
    before = identities()
    (tmp_path / NAME).write_bytes(b"another version")
    assert ask("h200", [ASKED])[0].choices[ASKED] == CudnnChoice(3, 4)
    assert identities() != before
    (tmp_path / NAME).unlink()
    assert "where there is no libcudnn" in identities()[0]


def test_a_folder_that_cannot_be_written_keeps_nothing_and_stops_nothing(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CTXBENCH_NO_CACHE", raising=False)
    cache = tmp_path / "cache"
    cache.write_bytes(b"")  # a file, into which root cannot write either
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    for engine in (1, 2):
        program.write_text(f"{ANSWERS}print('[{engine}, 2, []]')\n")
        assert ask("h200", [ASKED])[0].choices[ASKED] == CudnnChoice(engine, 2)


def test_a_folder_is_that_of_the_library_or_of_its_wheel_and_none_asks_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = tmp_path / module.IN_A_WHEEL
    inner.mkdir(parents=True)
    (inner / NAME).write_bytes(b"")
    monkeypatch.setenv(module.FOLDER_ENV, os.pathsep.join([str(tmp_path), str(inner)]))
    assert folders() == [inner.resolve()] * 2
    monkeypatch.setenv(module.FOLDER_ENV, "none")
    with pytest.raises(NoAnswerError, match="CTXBENCH_CUDNN is none"):
        folders()


def test_a_place_without_the_library_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(module.FOLDER_ENV, str(tmp_path))
    with pytest.raises(NoAnswerError, match=r"CTXBENCH_CUDNN names .*, where there is no libcudnn"):
        folders()
    monkeypatch.delenv(module.FOLDER_ENV)
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    with pytest.raises(NoAnswerError, match="there is none here"):
        folders()


def test_several_libraries_are_asked_in_their_order(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "newer").mkdir()
    (tmp_path / "newer" / NAME).write_bytes(b"")
    monkeypatch.setenv(module.FOLDER_ENV, os.pathsep.join([str(tmp_path), str(tmp_path / "newer")]))
    program.write_text(
        "import json, sys\nfolder = json.loads(sys.stdin.readline())['folder']\n"
        "print(92000 if folder.endswith('newer') else 91900)\nprint('[1, 2, []]')\n"
    )
    assert [each.version for each in ask("h200", [ASKED])] == ["9.19.0", "9.20.0"]


def test_a_card_without_properties_is_told(program: Path) -> None:
    with pytest.raises(NoAnswerError, match=r"known of h200, .* not of l4"):
        ask("l4", [ASKED])


def test_the_cards_have_all_that_cudnn_reads() -> None:
    own = json.loads((ROOT / "results/gpu-h200-2/cudnn-properties.json").read_text(encoding="utf-8"))
    assert {**cards()["h200"], "pciDeviceId": own["pciDeviceId"]} == own
    for name, properties in cards().items():
        assert properties.keys() == own.keys(), name


@pytest.mark.plugin("predict")
def test_the_cards_are_those_of_their_data_sheets() -> None:
    for name, sheet in devices.sheets(cards()).items():
        properties = cards()[name]
        assert properties["deviceName"] == sheet.title
        assert properties["l2CacheSize"] / 2**20 == pytest.approx(sheet.l2_mib, rel=0.21)
        assert sheet.memory_gib is not None
        assert 0.9 < properties["totalGlobalMem"] / 2**30 / sheet.memory_gib < 1.01
