"""Conventions of other counters: what they give is what the packages printed, which results/counters keeps."""

import csv
import gzip
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import pytest
from torch import Tensor, nn
from torch.nn import functional
from wrapped import Wrapped

from ctxbench import registry
from ctxbench.base.errors import UsageError
from ctxbench.plugins.macs.tools import counters, full_name, not_run, readings
from ctxbench.plugins.macs.tools.calls import Calls
from ctxbench.plugins.macs.tools.reading import reading
from ctxbench.plugins.macs.tools.table import as_tools
from ctxbench.plugins.macs.watch import UncountableError

PRINTED = Path(__file__).parents[3] / "results" / "counters" / "conventions.csv.gz"
BLOCKS = ("se", "gc", "mhsa", "coord", "spectral", "mila")


def by_function() -> nn.Module:
    """A convolution that is called as a function."""
    return Wrapped(lambda x, conv: functional.conv2d(x, conv.weight), nn.Conv2d(8, 16, 3))


# As of the same names in research/counters.py.
SMALL: dict[str, Callable[[], nn.Module]] = {
    "conv, groups": lambda: nn.Conv2d(8, 16, 3, groups=4),
    "transposed conv": lambda: nn.ConvTranspose2d(8, 4, 2, stride=2),
    "batch norm, no weights": lambda: nn.BatchNorm2d(8, affine=False),
    "softmax layer": lambda: nn.Softmax(1),
    "upsampling, bilinear": lambda: nn.Upsample(scale_factor=2, mode="bilinear"),
    "a layer called twice": lambda: Wrapped(lambda x, conv: conv(conv(x)), nn.Conv2d(8, 8, 1)),
    "functional.conv2d": by_function,
}


def printed(case: str) -> dict[str, tuple[int | None, int | None]]:
    """Figures and params that the packages printed for a case, by full names; none where a reason is stored."""
    with gzip.open(PRINTED, "rt", encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["case"] == case and row["printed"] and not row["why"]]
    return {named(row): (int(float(row["printed"])), int(row["params"]) if row["params"] else None) for row in rows}


def named(row: Mapping[str, str]) -> str:
    """The full name of the reading that a row is of."""
    return "+".join(filter(None, (f"{row['tool']}@{row['version']}", row["state"])))


def numbers(calls: Calls, names: Iterable[str], of: Mapping[str, tuple[int | None, int | None]]) -> dict[str, object]:
    """Figures that the rules give, in the form of `printed`: params where the package's are stored."""
    found = {name: reading(name) for name in names}
    return {
        name: (each.count(calls), each.params(calls) if of[name][1] is not None else None)
        for name, each in found.items()
    }


@pytest.mark.parametrize("case", BLOCKS)
def test_a_reading_gives_what_the_package_printed_for_a_block(case: str) -> None:
    found = printed(case)
    assert numbers(Calls(registry.get(case).build(64), (1, 64, 64, 64)), found, found) == found


@pytest.mark.parametrize("case", SMALL)
def test_a_reading_gives_what_the_package_printed_for_a_layer(case: str) -> None:
    found = printed(case)
    assert numbers(Calls(SMALL[case](), (2, 8, 64, 64)), found, found) == found
    assert len(found) > len(readings()) / 3


def test_each_version_that_is_known_has_run_and_the_others_did_not() -> None:
    with gzip.open(PRINTED, "rt", encoding="utf-8", newline="") as file:
        rows = [*csv.DictReader(file)]
    assert {named(row) for row in rows if row["printed"]} == {*readings()}
    assert {named(row) for row in rows if not row["case"]} == {*not_run()}


def test_a_number_that_differs_from_the_package_has_a_reason() -> None:
    with gzip.open(PRINTED, "rt", encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["printed"] and not row["why"]]
    odd = [row for row in rows if float(row["printed"]) != float(row["convention"] or -1)]
    assert [*odd, *(row for row in rows if row["params"] and row["params"] != row["own_params"])] == []
    assert len(rows) > 2000


def test_a_counter_has_a_line_with_its_params_its_ratio_and_why_it_differs() -> None:
    table, *about = as_tools(by_function(), (2, 8, 64, 64), [full_name(each) for each in counters()])
    macs = 2 * 16 * 62 * 62 * 8 * 9
    missed = f"leaves out {macs:,} MACs (100.0%), most of them in convolution, {Path(__file__).name}:"
    found = {row[0].partition("@")[0]: row[1:5] for row in table.rows}
    assert found == {
        "thop": ("0", "0", "MACs", "x0.000"),
        "thop-at-32": ("0", "0", "FLOPs", "x0.000"),
        "ultralytics-thop": ("1,168", "0", "MACs", "x0.000"),
        "ptflops": ("1,168", "0", "MACs", "x0.000"),
        "ptflops-aten": ("1,168", f"{macs // 2:,}", "MACs", "x0.500"),
        "fvcore": ("1,168", f"{macs:,}", "flops", "x1.000"),
        "mmengine": ("1,168", f"{macs // 2:,}", "flops", "x0.500"),
        "torchprofile": ("", f"{macs:,}", "MACs", "x1.000"),
        "calflops": ("1,168", f"{2 * macs:,}", "FLOPs", "x2.000"),
        "deepspeed": ("1,168", f"{2 * macs:,}", "FLOPs", "x2.000"),
        "torchinfo": ("1,168", "0", "mult-adds", "x0.000"),
        "flop-counter-mode": ("", f"{2 * macs:,}", "FLOPs", "x2.000"),
    }
    assert table.rows[0][5].startswith(missed)
    assert next(row for row in table.rows if row[0].startswith("fvcore"))[5] == ""
    assert len(about) == len(counters())


def test_work_that_nobody_reads_is_told_and_left_out_of_traces() -> None:
    names = ("fvcore@0.1.5", "torchprofile@0.1.0", "thop@0.1.1")
    module = Wrapped(lambda x, one, other: (other(x), one(x))[1], nn.Conv2d(8, 8, 1), nn.Conv2d(8, 8, 1))
    table, *_, unread = as_tools(module, (1, 8, 8, 8), names)
    assert [row[2] for row in table.rows] == [f"{8**4:,}", f"{8**4:,}", f"{2 * 8**4:,}"]
    missed = f"leaves out {8**4:,} MACs (50.0%), most of them in convolution, {Path(__file__).name}:"
    assert all(row[5].startswith(missed) for row in table.rows[:2])
    assert unread.text == f"{8**4:,} MACs are computed, but the output does not depend on them."


def test_a_counter_that_fails_prints_nothing_and_why() -> None:
    table, *_ = as_tools(nn.Upsample(scale_factor=(2.0, 2.0)), (1, 8, 8, 8), ["calflops@0.3.2"])
    assert table.rows[0][1:] == ("", "nothing", "FLOPs", "", "it fails on a module without parameters")
    resized = nn.Sequential(nn.Conv2d(8, 8, 1), nn.Upsample(scale_factor=(2.0, 2.0)))
    table, *_ = as_tools(resized, (1, 8, 8, 8), ["calflops@0.3.2"])
    assert table.rows[0][5] == "it fails on a scale_factor of several numbers in interpolate"


@pytest.mark.parametrize(
    ("name", "full"), [("ultralytics-thop", "ultralytics-thop@2.2.3"), ("fvcore+no-grad", "fvcore@0.1.5+no-grad")]
)
def test_a_counter_without_a_version_is_the_newest(name: str, full: str) -> None:
    assert full_name(name) == full


@pytest.mark.parametrize("name", ["thop@9", "ptflops@0.7.1", "fvcore+fused", "thop+no-grad"])
def test_a_version_or_state_that_is_not_known_is_a_sentence_with_the_known_ones(name: str) -> None:
    counter = name.replace("+", "@").partition("@")[0]
    with pytest.raises(UsageError, match=f"unknown version or state of this counter .*known: .*{counter}@"):
        full_name(name)
    with pytest.raises(UsageError, match=r"thop@0\.0\.31 was not run, so it has no figures: its code takes"):
        full_name("thop@0.0.31")


def test_inputs_that_are_given_by_name_are_no_number_where_a_rule_reads_them() -> None:
    def forward(x: Tensor, attention: nn.Module) -> Tensor:
        tokens = x.flatten(2).transpose(1, 2)
        found: Tensor = attention(tokens, tokens, value=tokens)[0]
        return found

    calls = Calls(Wrapped(forward, nn.MultiheadAttention(8, 2, batch_first=True)), (1, 8, 4, 4))
    with pytest.raises(UncountableError, match="inputs of a MultiheadAttention are given by name"):
        reading("ptflops@0.7").count(calls)
    assert reading("ultralytics-thop@2.1.6").count(calls) == 9696  # as its package prints


def test_each_input_runs_once_and_one_that_is_not_taken_is_a_sentence() -> None:
    runs: list[int] = []

    def twice(x: Tensor, conv: nn.Module) -> Tensor:
        runs.append(len(x))
        found: Tensor = conv(conv(x))
        return found

    calls = Calls(Wrapped(twice, nn.Conv2d(8, 8, 1)), (2, 8, 8, 8))
    found = [reading(full_name(name)).count(calls) for name in ("thop", "ptflops-aten", "mmengine", "ptflops")]
    assert found == [2 * 2 * 8**4, 2 * 9 * 8**3, 2 * 8**4, 2 * 9 * 8**3]
    assert sorted(runs) == [1, 2]
    of_one_size = Wrapped(lambda x: x * x.view(1, 8, 8, 8))
    with pytest.raises(UncountableError, match=r"\(1, 8, 32, 32\) is not taken"):
        reading("thop-at-32@0.1.1").count(Calls(of_one_size, (1, 8, 8, 8)))
