"""Each way to name a card asks cuDNN; the tables of an H200 answer in its place."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from test_cudnn_choice import ROOT, known, rows
from torch.nn import functional
from wrapped import Wrapped

from ctxbench import devices, registry
from ctxbench.base.mode import Mode
from ctxbench.engine.cache import sheets_key
from ctxbench.engine.in_process import InProcess
from ctxbench.engine.one_process import Plan, measure_case
from ctxbench.engine.progress import Quiet
from ctxbench.model.case import Case, Measure
from ctxbench.model.record import Record
from ctxbench.plugins.cudnn import on_card as module
from ctxbench.plugins.cudnn.ask import Answers, NoAnswerError
from ctxbench.plugins.cudnn.library import CudnnChoice, CudnnConvolution
from ctxbench.plugins.memory.attention import ATTENTION
from ctxbench.plugins.memory.cards import Card
from ctxbench.plugins.memory.child import largest, memory
from ctxbench.plugins.memory.predict import on_card, predict_peak
from ctxbench.plugins.memory.profile import MemoryProfile

# Bytes that each convolution takes below, by card.
TAKEN = {"h200": 48 * 2**20, "t4": 16 * 2**20}


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(card: str, questions: Sequence[CudnnConvolution]) -> list[Answers]:
        if card not in TAKEN:
            raise NoAnswerError(f"not of {card}")
        return [Answers("9.19.0", {each: CudnnChoice(7, TAKEN[card]) for each in questions})]

    monkeypatch.setattr(module, "ask", ask)


def case_on(device: str) -> Case:
    return Case("ppm", registry.get("ppm").reference, {}, (1, 32, 16, 16), device=device)


def record_on(device: str) -> Record:
    return measure_case(case_on(device), Plan(Measure(), ["memory"]), InProcess()).record


@pytest.mark.plugin("predict")
@pytest.mark.usefixtures("scripted")
def test_a_row_of_a_run_has_the_workspaces_of_its_card_and_says_who_was_asked() -> None:
    rows = {device: record_on(device) for device in ("meta", "h200", "t4", "l4")}
    peaks = {device: row.get("memory_infer_predicted_bytes") for device, row in rows.items()}
    assert peaks["meta"] == peaks["l4"] < peaks["t4"] < peaks["h200"] <= peaks["meta"] + TAKEN["h200"]
    told = {
        device: [str(note) for note in row.notes if note.about == "memory_infer" and note.code.startswith("cudnn")]
        for device, row in rows.items()
    }
    assert told["meta"] == []
    assert told["h200"][0].startswith("cuDNN 9.19.0 was asked without a GPU what ")
    assert "take on h200: at most 48.0 MiB, in engine 7 (forward, " in told["h200"][0]
    assert told["t4"][1] == "These workspaces were compared with an H200 and cuDNN 9.19 alone."
    assert told["l4"] == ["cuDNN was not asked for its workspaces on l4: not of l4."]


@pytest.mark.plugin("choose")
@pytest.mark.usefixtures("scripted")
def test_choose_takes_the_largest_peak_of_its_devices_and_says_who_was_asked() -> None:
    from ctxbench.plugins.choose.choice import answer, candidates

    cases = [case_on(device) for device in ("t4", "h200")]
    (found,) = candidates(cases, "infer", Measure(), InProcess(), Quiet())
    assert found.memory == record_on("h200").get("memory_infer_predicted_bytes")
    said = [part for part in answer([found], 2**40, ["t4", "h200"], "infer") if isinstance(part, str)]
    assert [text for text in said if "was asked" in text] == [
        f"cuDNN 9.19.0 was asked without a GPU what convolutions take on {card}." for card in ("t4", "h200")
    ]


@pytest.mark.plugin("predict")
@pytest.mark.usefixtures("scripted")
def test_predict_tells_the_peak_on_the_card_whether_it_fits_and_who_was_asked() -> None:
    from ctxbench.plugins.predict.child import time
    from ctxbench.plugins.predict.sheet import sheet

    said = [part.text for part in time(case_on("meta"), "infer", "h200", sheet("h200"), "sum", "")]
    peak = record_on("h200").get("memory_infer_predicted_bytes") / 2**20
    assert f"- Its predicted peak is {peak:,.1f} MiB (ctxbench memory --for h200 explains it)." in said
    assert any(text.startswith("- NVIDIA H200 has 144,384 MiB: it fits.") for text in said)
    assert any(text.startswith("- cuDNN 9.19.0 was asked") for text in said)


@pytest.mark.plugin("predict")
@pytest.mark.usefixtures("scripted")
def test_memory_and_the_largest_batch_ask_too() -> None:
    card = Card("h200", "H200", "cuda", 141)
    shown = memory(case_on("meta"), "infer", "cuda", None, "sum", "", None, card)
    assert shown[0].value is not None
    assert shown[0].value.value == record_on("h200").get("memory_infer_predicted_bytes")
    image = Case("lka", registry.get("lka").reference, {}, (1, 32, 128, 128), device="meta")
    infer = ("infer", "cuda", 128 * 2**20)
    batches = [largest(image, *infer, cards) for cards in ([], ["t4"], ["t4", "h200"], ["h200"])]  # type: ignore[arg-type]  # of words
    assert batches[0] > batches[1] > batches[2] == batches[3] > 0


@pytest.mark.plugin("predict")
def test_what_is_kept_for_a_card_is_of_one_library(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    before, without = sheets_key(["t4"]), sheets_key(["meta"])
    monkeypatch.setenv("CTXBENCH_CUDNN", str(tmp_path))
    assert sheets_key(["t4"]) != before
    assert sheets_key(["meta"]) == without
    assert [*devices.sheets(["t4"])] == ["t4"]


@pytest.fixture
def of_an_h200(monkeypatch: pytest.MonkeyPatch) -> None:
    table = {replace(asked, tf32=asked.tf32 and asked.dtype == "float32"): choice for _, asked, choice in known()}

    def ask(card: str, questions: Sequence[CudnnConvolution]) -> list[Answers]:
        return [Answers("9.19.0", {each: table[each] for each in questions})]

    monkeypatch.setattr(module, "ask", ask)


def profile_of(name: str, mode: Mode, dtype: str, shape: str) -> MemoryProfile:
    image = tuple(map(int, shape.split("x")))
    model, x = Case(name, registry.get(name).reference, {}, image, dtype=dtype).on_meta()  # type: ignore[arg-type]  # four numbers
    return predict_peak(model, x, mode=mode)


def measured(*cells: str) -> dict[str, str]:
    found = rows(ROOT / "results/gpu-h200-2/peaks.csv.gz")
    return next(each for each in found if (each["module"], each["mode"], each["dtype"], each["shape"]) == cells)


@pytest.mark.usefixtures("of_an_h200")
@pytest.mark.parametrize(
    "cells",
    [
        ("ppm", "train", "float32", "1x128x64x64"),
        ("gated_cnn", "train", "float32", "1x512x128x128"),  # a copy beside the workspace
        ("isa", "infer", "bfloat16", "1x512x128x128"),
        ("sra", "train", "bfloat16", "1x128x64x64"),  # attention
        ("area", "train", "bfloat16", "1x512x128x128"),
        ("swin", "infer", "bfloat16", "1x512x128x128"),  # a mask as it is
    ],
)
def test_peaks_of_an_h200_to_the_byte(cells: tuple[str, Mode, str, str]) -> None:
    row, plain = measured(*cells), profile_of(*cells)
    assert on_card(plain, "h200").allocated_bytes == int(row["measured_bytes"])
    assert plain.allocated_bytes != int(row["measured_bytes"])


@pytest.mark.usefixtures("of_an_h200")
@pytest.mark.parametrize(
    "cells", [("ppm", "train", "bfloat16"), ("gated_cnn", "train", "float16"), ("isa", "infer", "float16")]
)
def test_a_peak_that_is_missed_lies_within_what_is_told(cells: tuple[str, Mode, str]) -> None:
    shape = "1x128x64x64" if cells[0] == "gated_cnn" else "1x512x128x128"
    found = on_card(profile_of(*cells, shape), "h200")
    ends = next(note.values for note in found.told if note.code == "cudnn_range")
    requested = int(measured(*cells, shape)["requested_bytes"])
    assert abs(found.peak_bytes / requested - 1) > 0.005
    assert 0.999 * ends["low"] <= requested / 2**20 <= 1.001 * ends["high"]
    assert any(name.startswith("aten.convolution") for name in found.marks)


@pytest.mark.parametrize(
    ("channels", "card", "is_marked"),
    [
        (64, "h200", False),
        (64, "h100-sxm", False),
        (64, "a100-sxm-80gb", False),
        (64, "rtx-a6000", True),
        (136, "h200", True),
    ],
)
def test_attention_is_marked_where_the_card_s_kernel_is_not_known(channels: int, card: str, is_marked: bool) -> None:
    image = torch.empty(2, 4, 256, channels, device="meta", dtype=torch.bfloat16, requires_grad=True)
    attention = Wrapped(lambda x: functional.scaled_dot_product_attention(x, x, x))
    plain = predict_peak(attention, image, mode="train")
    found = on_card(plain, card)
    assert ATTENTION in plain.marks
    assert (ATTENTION in found.marks) == is_marked
    (gradient,) = (step.inner for step in found.timeline if step.op.endswith("attention_backward.default"))
    if card in ("h200", "h100-sxm") and not is_marked:
        assert gradient == (2 * 4 * 256 * 64 * 2, 4 * 2 * 4 * 256 * 64 + 4 * 2 * 4 * 256 + 512)
    else:
        assert found.peak_bytes == plain.peak_bytes
