"""Choosing a module for a memory and devices: what fits, the order, the largest batch, wrong sizes."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import Done

import ctxbench
from ctxbench import registry
from ctxbench.base.errors import UsageError
from ctxbench.base.notes import Note, joined
from ctxbench.base.number import Number
from ctxbench.model.case import Case
from ctxbench.plugins.choose.choice import Candidate, answer, is_tied, ordered
from ctxbench.plugins.choose.command import size_in_bytes
from ctxbench.table.table import Cell, TableColumn

# A data sheet without a size of memory.
MINE = """
[mine]
title = "Mine"
peak_tflops = { float32 = 1.0 }
bandwidth_gb_s = 100
l2_mib = 1
processors = 1
"""


def candidate(module: str, memory: int | None, ms: float | None = None, mixes: bool = True) -> Candidate:
    """A prediction with a band of 10 % on either side."""
    times = {} if ms is None else {"t4": Number(ms, 0.9 * ms, 1.1 * ms, origin="predicted")}
    case = Case(module, registry.get(module).reference, {}, (2, 16, 8, 8))
    return Candidate(case, memory, times, "" if times else "no time", mixes)


def test_what_fits_is_ordered_by_time_and_the_rest_by_its_excess() -> None:
    found = [
        candidate("sa", 300, 1.0),
        candidate("a2", 90, 3.0),
        candidate("linear", 100, 2.0),
        candidate("dm", 200, 0.5),
        candidate("acf", None, 1.0),
        candidate("apc", 10),
    ]
    fits, rest = ordered(found, 100, "t4")
    assert [each.case.module for each in fits] == ["linear", "a2", "apc"]
    assert [(each.case.module, each.excess(100)) for each in rest] == [("dm", 100), ("sa", 200), ("acf", 0)]
    assert [is_tied(each, fits, "t4") for each in fits] == [True, False, False]


def test_the_orders_that_the_band_of_the_ratio_supports_are_counted() -> None:
    found = [
        candidate("sa", 90, 1.0),
        candidate("a2", 90, 1.1),
        candidate("linear", 90, 3.0),
        candidate("dm", 200, 9.0),
    ]
    assert "On t4, the predictions are precise enough to order 2 of the 3 pairs that fit." in answer(
        found, 100, ["t4"], "train"
    )


@pytest.mark.parametrize(
    ("text", "size"), [("2GiB", 2**31), ("1500 MB", 1_500_000_000), ("64mib", 2**26), ("100B", 100), ("0.5KiB", 512)]
)
def test_a_size_has_a_unit(text: str, size: int) -> None:
    assert size_in_bytes(text) == size


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        *((each, "is not a size, such as 2GiB") for each in ("", "two", "2 TB", "0GiB", "-1GiB", "1e9 B", "९GiB")),
        ("2", "--memory 2 has no unit; write it with one, such as 2GiB"),
        ("9" * 400 + "B", "it must be more than 0"),
    ],
)
def test_a_wrong_size_is_a_sentence(text: str, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        size_in_bytes(text)


@pytest.mark.processes
def test_the_command_answers_the_question(command: Callable[..., Done], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    options = ("--shape", "1,64,32,32", "--device", "t4,a100-40gb", "--modules", "sa,linear,se")
    done = command("choose", "--memory", "10MiB", *options, "--largest-batch")
    assert done.returncode == 0, done.stderr
    # What is known of a module is shown before the next one is predicted.
    told = [re.sub(r"^ *\d+ s  |: Params .* Time, train .*", "", line) for line in done.stderr.splitlines()]
    modules = ("sa", "linear", "se")
    assert told == [
        line
        for number, module in enumerate(modules, 1)
        for line in (
            f"[{number}/3] predicting {module}",
            *(f"{module} 1x64x32x32 float32 {device}" for device in ("t4", "a100-40gb")),
        )
    ] + [f"the largest batch of {module}" for module in modules]
    lines = done.stdout.splitlines()
    (fits,) = [line for line in lines if line.startswith("linear")]
    (rest,) = [line for line in lines if line.startswith("sa ")]
    assert lines.index(fits) < lines.index(rest)
    assert "MiB too much" in rest
    assert "every position gets the same context" in done.stdout
    (control,) = [line for line in lines if line.startswith("se ")]
    assert lines.index(rest) < lines.index(control)


@pytest.mark.processes
@pytest.mark.usefixtures("shared_server")
def test_from_python() -> None:
    chosen = ctxbench.choose((1, 32, 4, 4), "t4", 2**23, modules=["linear", "se"], largest_batch=True)
    assert [(each.case.module, each.memory is not None) for each in chosen.value] == [("linear", True), ("se", True)]
    assert all(each.batch and each.batch > 1 for each in chosen.value)
    assert chosen.frame["module"].tolist() == ["linear"]


def test_no_module_stands_under_a_heading_of_its_own() -> None:
    found = [replace(candidate("se", 10, 1.0), mixes=False), replace(candidate("identity", 5, 0.1), mixes=False)]
    told = answer([candidate("sa", 90, 3.0), *found], 100, ["t4"], "train")
    parts = [part for part in told if not isinstance(part, str)]
    assert [(part.title, [str(row.cells[0].text) for row in part.rows]) for part in parts] == [
        ("", ["sa"]),
        ("every position gets the same context from far away, or none", ["se"]),
        ("without a module, for comparison", ["identity"]),
    ]


@pytest.mark.processes
def test_local_blocks_say_so_and_may_be_left_out(command: Callable[..., Done], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    options = ("--memory", "1GiB", "--shape", "1,64,32,32", "--device", "t4", "--modules", "linear,dwconv")
    assert "dwconv [local: 7 x 7]  " in command("choose", *options).stdout
    done = command("choose", *options, "--local", "no")
    assert (done.returncode, "linear" in done.stdout, "dwconv" in done.stdout) == (0, True, False)


def test_columns_of_plugins_stand_before_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def columns(keys: list[str]) -> tuple[list[tuple[TableColumn, list[Cell]]], str]:
        cells = [Cell("+1") if key == "sa" else Cell() for key in keys]
        return [(TableColumn("gain", "gain", "mIoU", "published"), cells)], "Gains are published."

    monkeypatch.setattr("ctxbench.report.beside.loaded", lambda kind: {"beside": [columns]}[kind])
    changed = candidate("sa", 300, 1.0)
    changed = replace(changed, case=replace(changed.case, hparams={"heads": 2}))
    table, *rest = (
        part
        for part in answer([candidate("sa", 90, 3.0), candidate("a2", 80, 4.0), changed], 100, ["t4"], "train")
        if not isinstance(part, str) or "publ" in part
    )
    assert not isinstance(table, str)
    assert [(column.header, column.origin) for column in table.columns][-2:] == [
        ("gain: mIoU", "published"),
        ("", "text"),
    ]
    assert [[cell.text for cell in row.cells][-2:] for row in table.rows] == [
        ["+1", ""],
        ["", ""],
        ["", "0.00 MiB too much"],
    ]
    assert rest == ["Gains are published."]


def test_a_reason_stands_once_however_many_notes_have_it() -> None:
    reason = "it reads a tensor's values"
    notes = [
        Note("no_macs", {"reason": reason}),
        Note("no_memory", {"reason": reason}),
        Note("no_time", {"reason": reason}),
    ]
    assert joined(notes) == f"no memory prediction, no predicted time: {reason}"
    others = [Note("remark", {"text": "slow"}), Note("no_macs", {"reason": "another"})]
    assert joined([*notes, *others]) == f"no memory prediction, no predicted time: {reason}; slow; another"
    assert joined([]) == ""


@pytest.mark.processes
def test_without_a_memory_the_smallest_device_gives_it(
    command: Callable[..., Done], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    done = command("choose", "--shape", "8,512,128,128", "--device", "a100-40gb,t4", "--modules", "sa,linear")
    assert done.returncode == 0, done.stderr
    assert "predicted peak of at most 16,384.00 MiB (the memory of t4) on CUDA" in done.stdout
    (over,) = [line for line in done.stdout.splitlines() if line.startswith("sa ")]
    assert over.endswith("25,605.01 MiB too much")
    assert "ECC, the driver and CUDA's context take a part" in done.stdout
    path = tmp_path / "mine.toml"
    path.write_text(MINE, encoding="utf-8")
    done = command("choose", "--shape", "1,64,8,8", "--device", path, "--modules", "sa")
    assert done.returncode == 2
    assert "has no memory_gib. Say how much there is: --memory 16GiB" in done.stderr
    path.write_text(f'{MINE}backend = "cpu"\n', encoding="utf-8")
    done = command("choose", "--shape", "1,64,8,8", "--device", path, "--modules", "sa", "--memory", "1GiB")
    assert done.returncode == 0, done.stderr
    assert "Peaks are those of CUDA; ctxbench memory MODULE --for cpu predicts that of a CPU." in done.stdout


@pytest.mark.processes
def test_each_dtype_has_a_table_of_its_own(command: Callable[..., Done], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    options = ("--shape", "1,64,32,32", "--device", "t4", "--modules", "sa", "--dtype", "float32,bfloat16")
    done = command("choose", "--memory", "1GiB", *options)
    assert done.returncode == 0, done.stderr
    lines = [line.split(":")[0].split("  ")[0] for line in done.stdout.splitlines()]
    wanted = ["train at [1, 64, 32, 32], float32", "sa", "train at [1, 64, 32, 32], bfloat16", "sa"]
    assert [line for line in lines if line in wanted] == wanted


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--memory", "2GiB", "--shape", "1,64,8,8", "--device", "cpu"), "device cpu: choose measures nothing"),
        (("--memory", "2GiB", "--shape", "1,64,8,8", "--device", "t5"), "unknown device 't5'; did you mean 't4'"),
        (("--shape", "1,64,8,8", "--device", "t5"), "unknown device 't5'; did you mean 't4'"),
        (("--memory", "2GB", "--shape", "1,64,8", "--device", "t4"), "has 3 numbers"),
        (("--memory", "2GB", "--shape", "1,64,8,8", "--device", "t4", "--mode", "test"), "unknown mode 'test'"),
        (("--memory", "2GB", "--shape", "1,64,8,8", "--device", "t4", "--modules", "sab"), "unknown module 'sab'"),
        (("--memory", "2GB", "--shape", "1,64,8,8", "--device", "t4", "--local", "not"), "unknown local 'not'"),
    ],
)
def test_wrong_input_ends_with_2(command: Callable[..., Done], options: tuple[str, ...], sentence: str) -> None:
    done = command("choose", *options)
    assert (done.returncode, sentence in done.stderr) == (2, True), done.stderr


def test_times_without_tf32_say_how_far_pytorchs_default_is_off() -> None:
    case = Case("sa", "ctxbench.modules.sa:SelfAttention", {}, (1, 8, 4, 4))
    times = {"a100-40gb": Number(1.0, 0.9, 1.1, origin="predicted"), "t4": Number(1.0, 0.9, 1.1, origin="predicted")}
    found = [
        Candidate(case, 1, times, "", True, defaults={"a100-40gb": 0.5}),
        Candidate(replace(case, module="gc"), 1, times, "", True),
    ]
    told = [part for part in answer(found, 2**20, ["a100-40gb", "t4"], "infer") if isinstance(part, str)]
    assert [text for text in told if "TF32" in text] == [
        "On a100-40gb, float32 is without TF32. PyTorch's default has TF32 in convolutions: such times are 0.50 to "
        "1.00 times these (--dtype tf32-convolutions)."
    ]
