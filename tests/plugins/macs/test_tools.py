"""Conventions of other counters: what they give is what the packages printed, which results/counters keeps."""

import csv
import gzip
from collections.abc import Callable
from pathlib import Path

import pytest
from torch import nn
from torch.nn import functional

from ctxbench import registry
from ctxbench.plugins.macs.tools import NAMES
from ctxbench.plugins.macs.tools.calls import Calls
from ctxbench.plugins.macs.tools.table import TOOLS, as_tools
from ctxbench.plugins.macs.watch import UncountableError

PRINTED = Path(__file__).parents[3] / "results" / "counters" / "conventions.csv.gz"
BLOCKS = ("se", "gc", "mhsa", "coord", "spectral", "mila")


class Twice(nn.Module):
    """A layer called twice."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(8, 8, 1)

    def forward(self, x):  # type: ignore[no-untyped-def]  # counted by its calls
        return self.conv(self.conv(x))


class ByFunction(nn.Module):
    """A convolution that is called as a function."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(8, 16, 3)

    def forward(self, x):  # type: ignore[no-untyped-def]  # counted by its calls
        return functional.conv2d(x, self.conv.weight)


# As of the same names in research/counters.py.
SMALL: dict[str, Callable[[], nn.Module]] = {
    "conv, groups": lambda: nn.Conv2d(8, 16, 3, groups=4),
    "transposed conv": lambda: nn.ConvTranspose2d(8, 4, 2, stride=2),
    "batch norm, no weights": lambda: nn.BatchNorm2d(8, affine=False),
    "softmax layer": lambda: nn.Softmax(1),
    "upsampling, bilinear": lambda: nn.Upsample(scale_factor=2, mode="bilinear"),
    "a layer called twice": Twice,
    "functional.conv2d": ByFunction,
}


def printed(case: str) -> dict[str, float]:
    """The numbers that the packages printed for a case, by the names of the tools; none where a reason is stored."""
    with gzip.open(PRINTED, "rt", encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["case"] == case]
    return {row["tool"]: float(row["printed"]) for row in rows if row["printed"] and not row["why"]}


@pytest.mark.parametrize("case", BLOCKS)
def test_a_convention_gives_what_the_package_printed_for_a_block(case: str) -> None:
    calls, found = Calls(registry.get(case).build(64), (1, 64, 64, 64)), printed(case)
    assert {name: TOOLS[name].count(calls) for name in found} == found


@pytest.mark.parametrize("case", SMALL)
def test_a_convention_gives_what_the_package_printed_for_a_layer(case: str) -> None:
    calls, found = Calls(SMALL[case](), (2, 8, 64, 64)), printed(case)
    assert {name: TOOLS[name].count(calls) for name in found} == found
    assert len(found) > len(TOOLS) / 2


def test_a_tool_has_a_line_with_the_share_of_products_that_it_does_not_see() -> None:
    table, *about = as_tools(ByFunction(), (2, 8, 64, 64), NAMES)
    macs = 2 * 16 * 62 * 62 * 8 * 9
    prints = {name: row[1:4] for name, row in zip(NAMES, table.rows, strict=True)}
    assert prints == {
        "thop": ("0", "MACs", f"{macs:,} MACs, 100.0%"),
        "thop-at-32": ("0", "FLOPs", f"{macs:,} MACs, 100.0%"),
        "ptflops": (f"{macs // 2:,}", "MACs", "none"),
        "ptflops-layers": ("0", "MACs", f"{macs:,} MACs, 100.0%"),
        "fvcore": (f"{macs:,}", "flops", "none"),
        "mmengine": (f"{macs // 2:,}", "flops", "none"),
        "torchprofile": (f"{macs:,}", "MACs", "none"),
        "calflops": (f"{2 * macs:,}", "FLOPs", "none"),
        "deepspeed": (f"{2 * macs:,}", "FLOPs", "none"),
        "torchinfo": ("0", "mult-adds", f"{macs:,} MACs, 100.0%"),
        "flop-counter-mode": (f"{2 * macs:,}", "FLOPs", "none"),
    }
    assert table.rows[0][4].startswith(f"convolution, {Path(__file__).name}:")
    assert len(about) == len(NAMES)


class OfOneSize(nn.Module):
    """A module for maps of 8 x 8 alone."""

    def forward(self, x):  # type: ignore[no-untyped-def]  # counted by its calls
        return x * x.view(1, 8, 8, 8)


class Counted(Twice):
    """A module that knows how often it ran."""

    runs = 0

    def forward(self, x):  # type: ignore[no-untyped-def]  # counted by its calls
        type(self).runs += 1
        return self.conv(self.conv(x))


def test_each_input_runs_once_and_one_that_is_not_taken_is_a_sentence() -> None:
    calls = Calls(Counted(), (2, 8, 8, 8))
    found = [TOOLS[name].count(calls) for name in ("thop", "ptflops", "mmengine", "ptflops-layers")]
    assert found == [2 * 2 * 8**4, 2 * 9 * 8**3, 2 * 8**4, 2 * 9 * 8**3]
    assert Counted.runs == 2  # of two images, and of one
    with pytest.raises(UncountableError, match=r"\(1, 8, 32, 32\) is not taken"):
        TOOLS["thop-at-32"].count(Calls(OfOneSize(), (1, 8, 8, 8)))
