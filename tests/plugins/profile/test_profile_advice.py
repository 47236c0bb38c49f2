"""Each sentence of a profile's advice is there where it is true, with its line and its cost, and nowhere else."""

import re
from pathlib import Path
from tempfile import mkdtemp
from typing import Literal

import pytest
import torch

from ctxbench import registry
from ctxbench.base.mode import MODES, Mode
from ctxbench.base.number import significant
from ctxbench.plugins.predict.sheet import sheet
from ctxbench.plugins.profile.advice import advice
from ctxbench.plugins.profile.costs import Roof
from ctxbench.plugins.profile.profile import Part, Pass
from ctxbench.plugins.profile.static import Known, known, predicted

BLOCK = """import torch
from torch import nn
from torch.nn import functional


class Block(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 1, bias=False)

    def forward(self, given):
        x = self.first(given)
        row = x.flatten(2)
        LINE
        return x.relu()
"""
AT = "block.py:14"


def taken_apart(line: str, folder: Path, mode: Mode, device: Literal["cuda", "cpu"] = "cuda") -> tuple[Pass, Known]:
    """A block with this line, [1, 64, 64, 64]: predicted for a T4 or, for a CPU, without times."""
    path = Path(mkdtemp(dir=folder)) / "block.py"  # a file is read once
    path.write_text(BLOCK.replace("LINE", line), encoding="utf-8")
    with torch.device("meta"):
        module, x = registry.get(f"{path}:Block").build(64, {}), torch.empty(1, 64, 64, 64)
    if device == "cuda":
        return predicted(module, x, mode=mode, sheet=sheet("t4"), dtype="float32", autocast=None)[:2]
    roof = Roof(1e12, 1e11, 1e-6)
    found = known(module, x, mode=mode, device="cpu", dtype="float32", autocast=None, roof=roof)
    return Pass(mode, found.costs.all, roof, (1.0, 1.0, 1.0)), found


def told(line: str, folder: Path, mode: Mode = "infer", device: Literal["cuda", "cpu"] = "cuda") -> list[str]:
    """The sentences, their times as # and their shares as #."""
    taken, found = taken_apart(line, folder, mode, device)
    return [re.sub(r"[\d.]+ ms(?: \(\d+% of)?", lambda hit: re.sub(r"[\d.]+", "#", hit[0]), each)
            for each in advice(taken, found.memory)]  # fmt: skip


COPIES = "Without the copies at {} ({}), # ms (#% of all rows) are saved at most."
LOOP = (
    "At {}, one module calls {} times, and starting the calls takes most of # ms (#% of all rows): if no call needs "
    "another's result, one for all saves # ms at most."
)
UNFUSED = (
    "scaled_dot_product_attention at {} has no fused kernel here: {}. The line takes # ms (#% of all rows); with one, "
    "# ms are saved at most."
)
SCALED = (
    "At {} a product of {} numbers is scaled. A factor has {} as many: scale that, and # ms (#% of all rows) are saved "
    "at most."
)
LAYOUT = "The kernel of {} copies {}, because the layout of an argument is not contiguous: # ms at the roofline."
KEPT = "With fused attention at {}, at best (no map of {} is stored), the peak is {} and not {}."
FIVE = "its maps have 5 dimensions; a fused kernel takes [batch, heads, positions, channels]"


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("x = x.clone()", COPIES.format(AT, "clone, 2.0 MiB")),
        ("x = x.double().float()", COPIES.format(AT, "_to_copy, 6.0 MiB")),
        ("x = torch.stack([each * 2 for each in x.split(8, 2)], 0).sum(0)", LOOP.format(AT, "mul 8")),
        (
            "x = x + functional.scaled_dot_product_attention(*[x.view(1, 1, 2, 32, -1)] * 3).view_as(x)",
            UNFUSED.format(AT, FIVE),
        ),
        ("x = x + (row.mT @ row / 8).sum()", SCALED.format(AT, "1x4096x4096", "1.6%")),
        ("x = (row[..., ::2] @ row[..., ::2].mT @ row).view_as(x)", LAYOUT.format(f"bmm at {AT}", "1.0 MiB")),
        ("x = functional.conv2d(x.mT, self.first.weight)", LAYOUT.format(f"convolution at {AT}", "1.0 MiB")),
        ("x = x + ((row.mT @ row).softmax(-1) @ row.mT).sum()", KEPT.format(AT, "4096 x 4096", "3.0 MiB", "129.0 MiB")),
    ],
    ids=["copy", "cast", "loop", "unfused", "scaled", "layout", "layout of a convolution", "kept map"],
)
def test_each_sentence_is_there_where_it_is_true(line: str, sentence: str, tmp_path: Path) -> None:
    assert told(line, tmp_path) == [sentence]


@pytest.mark.parametrize("mode", ["infer", "train"])
@pytest.mark.parametrize(
    "line",
    [
        "x = x + 1",
        "x = x * 2 * 2 * 2 * 2 * 2 * 2",  # few calls
        "x = x + functional.scaled_dot_product_attention(*[row.mT.contiguous()[None]] * 3).sum()",
        "x = (row.softmax(-1) * row).view_as(x)",  # no map
        "x = x + (x @ x.mT).softmax(-1) @ x",  # a map that is no larger than its factors
        "x = x + ((row / 8).mT @ row).square().sum()",  # a factor is scaled
        "m = row.mT @ row; x = x + (m / 8).square().sum() + m.square().sum()",  # the product is read unscaled, too
        "m = row.mT @ row; x = x + (m * m).sum()",
        "x = x + (torch.mm(self.first.weight.flatten(1), row[0]) * given[0].flatten(1)).view_as(x)",  # by no number
        "x = x + (torch.addmm(row[0, 0], row[0].mT, row[0]) * 0.5).square().sum()",  # the factors are not all of it
    ],
)
def test_no_sentence_is_there_where_none_is_true(line: str, mode: Mode, tmp_path: Path) -> None:
    assert told(line, tmp_path, mode) == []


def test_a_convolution_of_a_cpu_and_the_gradient_of_the_loss_are_no_layouts(tmp_path: Path) -> None:
    unfolded = "x = functional.conv2d(x[..., 1:], self.first.weight.expand(-1, -1, 3, 3).contiguous())"
    assert not [each for each in told(unfolded, tmp_path, device="cpu") if "layout" in each]
    assert [each for each in told(unfolded, tmp_path) if "layout" in each]
    last = "return self.first(x)"  # the gradient of the sum is one number, which the kernel copies
    assert told(last, tmp_path, "train") == []
    _, found = taken_apart(last, tmp_path, "train")
    assert found.memory
    assert next(step.inner for step in found.memory.timeline if "convolution_backward" in step.op) == (2**20,)


@pytest.mark.slow
def test_the_times_of_the_sentences_are_those_of_the_line(tmp_path: Path) -> None:
    def sentence(line: str, mode: Mode) -> tuple[str, Part]:
        taken, found = taken_apart(line, tmp_path, mode)
        return " ".join(advice(taken, found.memory)), next(p for p in taken.parts("line") if p.name == AT)

    for mode in MODES:
        text, part = sentence("x = x.clone()", mode)
        assert f", {significant(part.ms.value)} ms ({part.share:.0%} of all rows)" in text
        text, part = sentence("x = torch.cat([each * 2 for each in x.split(1, 2)], 2)", mode)
        assert f"most of {significant(part.ms.value)} ms ({part.share:.0%} of all rows)" in text
        assert f"saves {significant(part.saved_ms)} ms at most" in text
        text, part = sentence("x = x + functional.scaled_dot_product_attention(*[x[None]] * 3)[0]", mode)
        assert f"The line takes {significant(part.ms.value)} ms" in text
        products_ms = part.flops / sheet("t4").peak("float32") * 1e3
        assert f"with one, {significant(part.ms.value - products_ms)} ms are saved at most" in text
        text, part = sentence("x = x + (row.mT @ row * 2).sum()", mode)
        scaling = sum(cost.ms[0] for cost in part.costs if cost.operator == "mul")
        assert f"scale that, and {significant(scaling)} ms" in text
        assert {cost.phase for cost in part.costs if cost.operator == "mul"} == (
            {"forward", "backward"} if mode == "train" else {"forward"}
        )
