"""RecountedTable tables, recounted: how figures are read, each verdict, planted errors, wrong files, the command."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import Done, need_torchvision
from report_data import published
from torch.nn.modules.module import register_module_forward_pre_hook

from ctxbench import registry
from ctxbench.base.errors import UsageError
from ctxbench.engine.isolated import IsolatedLoader
from ctxbench.meta.on_meta import on_meta
from ctxbench.metrics.params import count_params
from ctxbench.model.case import Case
from ctxbench.model.metric import Unit
from ctxbench.model.published import Printed
from ctxbench.model.read_suite import read_published
from ctxbench.networks._parts import backbone
from ctxbench.plugins.audit import finding, function
from ctxbench.plugins.audit import recounted as form
from ctxbench.plugins.audit.child import count_case
from ctxbench.plugins.audit.conventions import TOOLS
from ctxbench.plugins.audit.counts import BlockCounts
from ctxbench.plugins.audit.differences import broken
from ctxbench.plugins.audit.finding import AuditFinding, Verdict
from ctxbench.plugins.audit.recount import Recount, whole
from ctxbench.plugins.audit.recounted import COUNTS as COUNTED
from ctxbench.plugins.audit.recounted import RecountedTable
from ctxbench.plugins.audit.table import audit_table, summary
from ctxbench.plugins.audit.verdicts import judge
from ctxbench.plugins.macs.counter import count_macs
from ctxbench.table.result import Stopped

ROOT = Path(__file__).parents[3]
FINDINGS = ROOT / "results" / "audit"
# Of the networks of mmsegmentation, which take minutes, a few rows are counted.
STORED = sorted(path for path in FINDINGS.glob("*.csv") if path.stem != "mmsegmentation")
EXTRAS = {
    **{
        path.stem: ["networks"]
        for path in (ROOT / "published").glob("*.toml")
        if '"timm:' in path.read_text(encoding="utf-8") or path.stem == "timm"
    },
    **{name: ["networks", "detectors"] for name in ("yolo11", "yolo12", "yolov8_fracture")},
}
Command = Callable[..., Done]


@pytest.mark.parametrize(
    ("text", "unit", "number", "step"),
    [
        ("10.6M", Unit("M", 10, 6), "10.6e6", "1e5"),
        ("10.6M", Unit("M", 2, 20), "11114905.6", "104857.6"),  # the column's own symbol
        ("804G", Unit("M", 10, 6), "804e9", "1e9"),  # another one says what it is itself
        ("7.4", Unit("GB", 2, 30), "7945689497.6", "107374182.4"),
        ("7.4 GB", Unit("GB", 2, 30), "7945689497.6", "107374182.4"),
        ("+21.1G", Unit("G", 10, 9), "21.1e9", "1e8"),
        ("1,411", Unit("MiB", 2, 20), "1479540736", "1048576"),
        ("12.3MiB", Unit("M", 10, 6), "12897484.8", "104857.6"),
    ],
)
def test_a_figure_is_read_with_its_unit_and_rounding(text: str, unit: Unit, number: str, step: str) -> None:
    printed = Printed.parse(text)
    assert printed.value * printed.factor(unit) == Fraction(number)
    assert printed.step * printed.factor(unit) == Fraction(step)


@pytest.mark.parametrize("text", ["", "-", "OOM", "1,41", "7.4.1", "~7", "7 apples", "7,4", "-3", "1e6", "٣", "7."])
def test_what_is_no_figure_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"write the figure as printed|the unit"):
        Printed.parse(text)


def audited(
    numbers: Mapping[str, int | str], rows: Mapping[str, Any], **about: Any
) -> dict[tuple[str, str], AuditFinding]:
    """The findings about a table whose counts are invented; a text is the reason why there is none."""
    table = RecountedTable.model_validate({**published(rows), "shape": [1, 8, 4, 4], **about})

    def count(case: Case, names: Iterable[str]) -> tuple[dict[str, int], dict[str, str]]:
        lacking = {name: "no counter is asked" for name in names if "_as_" in name}
        found = {name: numbers.get(f"{case.id.split(' ')[0]} {name}", numbers.get(name, 0)) for name in names} | lacking
        known = {name: value for name, value in found.items() if isinstance(value, int)}
        return known, {name: str(found[name]) for name in found.keys() - known.keys()}

    found = judge(Recount(Path("paper.toml"), table, count))
    return {(each.row, each.quantity): each for each in found}


LAYERS = "convolutions and linear layers alone, no products of two maps"
TWICE = "as two operations a MAC"
COUNTS = {
    "params": 1_000_000, "params_bias": 4_000, "params_norm": 2_000, "params_matrices": 994_000, "buffers": 2_500,
    "macs": 25_796_000_000, "macs_matmul": 25_770_000_000, "macs_layers": 17_610_000_000, "macs_norm": 9_000_000,
    "macs_train": 64_000_000_000, "memory_infer": 100 * 2**20, "memory_infer_2020": 110 * 2**20,
    "memory_train": 300 * 2**20, "memory_train_2020": 326 * 2**20,
}  # fmt: skip


@pytest.mark.parametrize(
    ("quantity", "text", "verdict", "why"),
    [
        ("macs", "25.8", Verdict.EQUAL, ""),
        ("macs", "25.80", Verdict.EQUAL, ""),
        ("macs", "51.6G", Verdict.CONVENTION, f"{TWICE} or without normalisation; {TWICE}"),
        ("macs", "52G", Verdict.NOT_REPRODUCED, "would be equal: as two operations a MAC"),
        ("macs", "24.02", Verdict.CONVENTION, "G = 2^30 or without normalisation; G = 2^30"),
        ("macs", "24", Verdict.NOT_REPRODUCED, "would be equal: G = 2^30"),
        ("macs", "25.7", Verdict.CONVENTION, "cut, not rounded"),
        ("macs", "17.61", Verdict.CONVENTION, LAYERS),
        ("macs", "128", Verdict.CONVENTION, "of a training step; as two operations a MAC"),
        (
            "macs",
            "33.3",
            Verdict.NOT_REPRODUCED,
            f"x1.29 of the count; the nearest of 19 conventions, {LAYERS}; {TWICE}, gives 35.22",
        ),
        ("params", "0.996", Verdict.CONVENTION, "without biases"),
        ("params", "1.0025", Verdict.CONVENTION, "with buffers"),
        (
            "params",
            "976.6K",
            Verdict.NOT_REPRODUCED,
            "x0.977 of the count; the nearest of 10 conventions, without biases, gives 996.00K",
        ),
        ("memory_train_2020", "326", Verdict.EQUAL, ""),
        ("memory_train_2020", "300", Verdict.NOT_REPRODUCED, "would be equal: under the PyTorch of today"),
        ("memory_train_2020", "110", Verdict.NOT_REPRODUCED, "would be equal: of the forward pass alone"),
        ("memory_train_2020", "342", Verdict.NOT_REPRODUCED, "would be equal: MiB = 10^6"),
        ("latency_train", "26.5", Verdict.NOT_JUDGED, "a time is measured on its device, not counted"),
        ("miou", "78.3", Verdict.NOT_JUDGED, "ctxbench does not count it"),
    ],
)
def test_one_figure_is_of_a_convention_if_few_figures_of_its_digits_would_be(
    quantity: str, text: str, verdict: Verdict, why: str
) -> None:
    found = audited(COUNTS, {"se": {"printed": {quantity: text}}})["se", quantity]
    assert (found.verdict, re.sub(r" \(\d+ conventions tried.*", "", found.why)) == (verdict, why)


def test_a_source_that_names_operations_is_held_to_them() -> None:
    rows = {"se": {"printed": {"macs": "51.6"}}, "gc": {"printed": {"macs": "25.8"}}}
    found = audited(COUNTS, rows, counts={"macs": "2*macs"})
    assert found["se", "macs"].verdict == Verdict.EQUAL
    assert found["gc", "macs"].why.startswith("would be equal: as MACs (")
    own = {"se": {"printed": {"macs": "25.9"}, "counts": {"macs": "macs + 100000000"}}}
    assert audited(COUNTS, own, counts={"macs": "2*macs"})["se", "macs"].verdict == Verdict.EQUAL


def test_what_cannot_be_counted_is_not_judged_and_says_why() -> None:
    found = audited({**COUNTS, "memory_train": "it depends on the data"}, {"se": {"printed": {"memory_train": "1"}}})
    assert found["se", "memory_train"].verdict == Verdict.NOT_JUDGED
    assert found["se", "memory_train"].why == "it depends on the data"


def test_another_configuration_is_one_that_the_table_lists_and_what_it_contradicts_is_told() -> None:
    rows = {"se": {"printed": {"macs": "30.0", "params": "1.00"}}, "gc": {"printed": {"macs": "31.5"}}}
    alternatives = {
        "wide": {"about": "four times as wide", "counts": {"macs": "macs + 9000000000", "params": "params*4"}},
        "conv": {"about": "a convolution more", "counts": {"macs": "macs + 4204000000", "params": "params*2"}},
        "other": {"about": "another block", "block": "spectral", "rows": ["gc"]},
    }
    found = audited({**COUNTS, "spectral macs": 1}, rows, alternatives=alternatives)
    assert found["se", "macs"].verdict == Verdict.CONFIGURATION
    assert found["se", "macs"].why == (
        "a convolution more; its params would be 2.000, not 1.00 (2 configurations tried)"
    )
    assert found["se", "params"].verdict == Verdict.EQUAL
    assert found["gc", "macs"].verdict == Verdict.NOT_REPRODUCED
    other = f"the nearest of 19 conventions, {LAYERS}; {TWICE}, gives 35.22"
    nearest = "the nearest, a convolution more, gives 30.00 (3 configurations tried)"
    assert found["gc", "macs"].why == f"x1.22 of the count; {other}; {nearest}"
    by_block = audited({**COUNTS, "spectral macs": 31_500_000_000}, rows, alternatives=alternatives)
    assert by_block["gc", "macs"].why == "another block (3 configurations tried)"


def test_a_figure_whose_other_configuration_fails_is_not_judged_and_says_why() -> None:
    rows = {"se": {"printed": {"macs": "30.0", "params": "1.00"}}, "gc": {"printed": {"macs": "31.5"}}}
    others = {
        "conv": {"about": "a convolution more", "counts": {"macs": "macs + 4204000000"}},
        "other": {"about": "another block", "block": "spectral"},
    }
    table = RecountedTable.model_validate({**published(rows), "shape": [1, 8, 4, 4], "alternatives": others})

    def count(case: Case, names: Iterable[str]) -> tuple[dict[str, int], dict[str, str]]:
        if case.id.startswith("spectral"):
            raise UsageError("no such size")
        return {name: COUNTS.get(name, 0) for name in names}, {}

    found = {(each.row, each.quantity): each for each in judge(Recount(Path("paper.toml"), table, count))}
    assert found["se", "params"].verdict == Verdict.EQUAL  # no other configuration is tried
    assert found["se", "macs"].verdict == Verdict.CONFIGURATION  # nor another than the one that is equal
    assert found["gc", "macs"].verdict == Verdict.NOT_JUDGED
    assert found["gc", "macs"].why == "another configuration, another block, cannot be counted: no such size"


def test_a_bound_is_shown_with_its_arithmetic() -> None:
    rows = {"se": {"printed": {"params": "1.00", "macs": "0.0150"}}}
    bound = {"quantity": "macs", "least": "params*N", "why": "too few", "rows": ["se"]}
    found = audited(COUNTS, rows, bounds=[bound])["se", "macs"]
    assert (found.verdict, found.why) == (Verdict.CANNOT_BE, "too few: 995,000 x 16 = 0.01592")
    weights = audited(COUNTS, rows)["se", "macs"]
    assert weights.why == "its weights alone, all applied at each position, take more: 994,000 x 16 = 0.01590"
    sparse = audited({**COUNTS, "macs_layers": 15_500_000}, rows)["se", "macs"]
    assert sparse.verdict == Verdict.NOT_REPRODUCED  # weights that are not applied everywhere bound nothing
    other = audited(COUNTS, {"se": {"printed": {"params": "3.00", "macs": "0.0150"}}})["se", "macs"]
    assert other.verdict == Verdict.NOT_REPRODUCED  # nor those of another block


METHODS = ("se", "gc", "sa", "da", "a2", "ema", "dm")
KEEP = {"quantity": "memory_train_2020", "differing": "network", "why": "The backbone adds it."}


def backbones(**changed: str) -> RecountedTable:
    """Seven methods in two networks at two inputs; the deeper one takes 3.5 GB more, or 3.9."""
    rows = {}
    for index, block in enumerate(METHODS):
        for size, add in ((64, 3.5), (96, 3.9)):
            for network, more in (("resnet18_os32", 0.0), ("resnet50_d8", add)):
                name = f"{block} {network} {size}"
                text = f"{5 + 0.3 * index + size / 64 + more + 0.1 * (index % 2 and more > 0):.1f}"
                rows[name] = {
                    "block": block, "network": network, "shape": [2, 3, size, size],
                    "printed": {"memory_train_2020": changed.get(name.replace(" ", "_"), text)},
                }  # fmt: skip
    return RecountedTable.model_validate(published(rows, keeps=[KEEP], units={"memory_train_2020": "GB = 2^30"}))


def test_a_figure_that_breaks_what_all_others_keep_is_found_and_so_are_two_that_were_exchanged() -> None:
    assert broken(backbones()) == {}
    figures = {name: row.printed["memory_train_2020"] for name, row in backbones().rows.items()}
    first, second = "sa resnet50_d8 64", "sa resnet18_os32 96"
    names = {first.replace(" ", "_"): figures[second], second.replace(" ", "_"): figures[first]}
    found = broken(backbones(**names))
    assert [row for row, _ in found] == [first, second]
    assert (
        f"exchanged with {second}, both keep it (4 exchanges tried). The backbone adds it."
        in found[first, "memory_train_2020"]
    )
    other = {**KEEP, "pairs": [["resnet18_os32", "convnext_tiny"]]}
    assert broken(RecountedTable.model_validate({**backbones(**names).model_dump(), "keeps": [other]})) == {}
    one = broken(backbones(da_resnet50_d8_64="15.0"))
    assert [row for row, _ in one] == ["da resnet18_os32 64", "da resnet50_d8 64"]
    assert (
        "all 6 other such pairs 3.5 to 3.6; one of the two cannot be" in one["da resnet50_d8 64", "memory_train_2020"]
    )


# A row of `se` takes 16 channels or more.
GOOD = """title = "t"
authors = "a"
venue = "v"
year = 2021
seen = "read"
shape = [1, 16, 4, 4]
[rows.se]
printed = { params = "0.049K", macs = "0.001" }
[rows.wide]
block = "linear"
settings = { reduction = 4 }
printed = { params = "0.1K" }
"""


@pytest.mark.parametrize(
    ("old", "new", "line", "sentence"),
    [
        (
            '"0.049K"',
            '"0.144 apples"',
            8,
            "key 'rows.se.printed.params' is '0.144 apples': the unit 'apples' is unknown",
        ),
        ('"0.001"', '"OOM"', 8, "key 'rows.se.printed.macs' is 'OOM': write the figure as printed, such as '7.4'"),
        ("macs = ", "flops = ", 8, "unknown quantity 'flops'"),
        ("[1, 16, 4, 4]", "[1, 16, 4]", 6, "shape [1, 16, 4] has 3 numbers; it takes four"),
        ('"read"', '"seen"', 5, "key 'seen' is 'seen': input should be 'read' or 'recalled'"),
        ("block =", "blok =", 10, "unknown key 'blok'; did you mean 'block'?"),
        ("year = 2021", "year = '2021'", 4, "key 'year' is '2021': input should be a valid integer"),
        ("[rows.se]", "[units]\nmacs = 'G'\n[rows.se]", 8, "key 'units.macs' is 'G': write it as a symbol and a power"),
        ("[rows.se]", "[counts]\nmacs = '2*mac'\n[rows.se]", 8, "uses 'mac'; known names are"),
        ("[rows.se]", "[counts]\nmacs = '2*'\n[rows.se]", 8, "is not an expression"),
        ("[rows.se]", "[counts]\nmacs = 'macs*10**400'\n[rows.se]", 8, "has an integer of more than 1000 bits"),
        ("[rows.se]", "[counts]\nmacs = 'macs//(C - 16)'\n[rows.se]", 9, "row 'se': the closed form 'macs//(C - 16)'"),
        ('"0.001"', f'"{"9" * 400}"', 8, "write the figure as printed, such as '7.4'"),
        (
            "[rows.se]",
            "[[keeps]]\nquantity = 'macs'\nwhy = ''\ndiffering = 'shape'\n[rows.se]",
            10,
            "'keeps.0.differing'",
        ),
        ("[rows.se]", "[alternatives.a]\nabout = ''\nrows = ['sa']\n[rows.se]", 1, "unknown row 'sa'"),
        ('block = "linear"', 'block = "linar"', 9, "row 'wide': unknown module 'linar'; did you mean 'linear'?"),
        (
            "reduction",
            "reducton",
            9,
            "row 'wide': unknown hyper-parameter of 'linear' 'reducton'; did you mean 'reduction'?",
        ),
        ("reduction = 4", "reduction = 'x'", 9, "row 'wide': hyper-parameter 'reduction' is 'x'; it must be int"),
        ('block = "linear"', 'block = "linear"\nnetwork = "resnet"', 9, "row 'wide': unknown network 'resnet'"),
        ("shape = [1, 16, 4, 4]\n", "", 6, "row 'se': the row has no shape, and the table names none"),
        ("year = 2021\n", "", 1, "the key 'year' is missing; see those in published/"),
    ],
)
def test_a_wrong_file_gets_one_sentence_with_its_line(
    command: Command, tmp_path: Path, old: str, new: str, line: int, sentence: str
) -> None:
    path = tmp_path / "paper.toml"
    path.write_text(GOOD.replace(old, new, 1))
    done = command("audit", path)
    assert done.returncode == 2
    (said,) = [each for each in done.stderr.splitlines() if each.startswith("ctxbench:")]
    assert f"{path}, line {line}: " in said
    assert sentence in said


@pytest.mark.slow
def test_a_table_of_one_s_own_with_a_block_of_one_s_own(command: Command, tmp_path: Path) -> None:
    path, module, out = tmp_path / "paper.toml", tmp_path / "mine.py", tmp_path / "findings.csv"
    path.write_text(GOOD.replace('"linear"\nsettings = { reduction = 4 }', '"mine"').replace('"0.1K"', '"272"'))
    path.write_text(path.read_text().replace("[rows.se]", "[units]\nparams = 'one = 10^0'\n[rows.se]"))
    module.write_text(
        "from torch import nn\n\n\nclass Mine(nn.Conv2d):\n"
        "    def __init__(self, channels):\n        super().__init__(channels, channels, 1)\n"
    )
    done = command("audit", path, "--block", f"mine={module}:Mine", "--out", out)
    assert done.returncode == 0, done.stderr
    found = {each.row: each for each in finding.read(out) if each.quantity == "params"}
    assert (found["wide"].verdict, found["wide"].counted) == (Verdict.EQUAL, "272")
    assert found["se"].counted == "0.0490K"
    assert "of 3 figures" in done.stdout
    for option, sentence in (
        ("mine", "--block 'mine' is not NAME=REFERENCE, such as mine=my_module.py:MyContext"),
        (f"mien={module}:Mine", "unknown block of this table 'mien'; did you mean 'mine'?"),
        ("mine=none.py:Mine", "there is no file"),
    ):
        wrong = command("audit", path, "--block", option)
        assert wrong.returncode == 2
        assert sentence in wrong.stderr


def column(*figures: str, **about: Any) -> list[tuple[str, str]]:
    """Verdict and reason of each MAC figure of rows whose counts are 1, 2, 3, ... times `COUNTS`."""
    blocks = ("se", "gc", "sa", "da", "a2", "ema")[: len(figures)]
    numbers: dict[str, int | str] = {
        f"{block} {name}": times * value for times, block in enumerate(blocks, 1) for name, value in COUNTS.items()
    }
    rows = {block: {"printed": {"macs": text}} for block, text in zip(blocks, figures, strict=True)}
    found = audited(numbers, rows, **about)
    return [(found[block, "macs"].verdict, found[block, "macs"].why) for block in blocks]


PRODUCTS = "matrix products and convolutions alone"


def test_a_column_follows_the_convention_that_makes_most_of_it_equal() -> None:
    assert column("25.77", "51.54", "77.31") == [(Verdict.CONVENTION, PRODUCTS)] * 3
    *three, (verdict, why) = column("25.77", "51.54", "77.31", "103.184")
    assert three == [(Verdict.CONVENTION, PRODUCTS)] * 3
    assert (verdict, why) == (Verdict.NOT_AS_COLUMN, "equal as the source means it, where the column is not")
    *three, (verdict, why) = column("25.80", "51.59", "77.39", "103.08")
    assert three == [(Verdict.EQUAL, "")] * 3
    assert verdict == Verdict.NOT_AS_COLUMN
    assert why.startswith(f"would be equal: {PRODUCTS} (")
    assert why.endswith(" (16 conventions tried, 8 of the 2061 figures near it would fit one)")


def test_no_convention_is_that_of_a_column_by_one_figure_of_several() -> None:
    once = column("25.77", "33.33")
    assert [verdict for verdict, _ in once] == [Verdict.NOT_REPRODUCED] * 2
    assert once[0][1].startswith(f"would be equal: {PRODUCTS} (")
    rows = {name: {"block": "se", "printed": {"macs": "25.77"}} for name in ("first", "again", "thrice")}
    same = audited(COUNTS, rows)  # one figure, three times
    assert {each.why for each in same.values()} == {
        f"{PRODUCTS} (16 conventions tried, 1.2 % of the figures near these would fit one)"
    }
    half = column("25.77", "51.54", "1.00", "2.00")
    assert [verdict for verdict, _ in half] == [Verdict.NOT_REPRODUCED] * 4


@pytest.mark.parametrize(
    ("figures", "row", "words"),
    [
        (
            ("25.80", "77.39", "51.59"),
            1,
            "x1.50 of the count; exchanged with sa: the two counts are in each other's place",
        ),
        (("25.80", "25.80", "77.39"), 1, "x0.50 of the count; it is the count of se"),
        (("25.80", "51.95", "77.39"), 1, "x1.0069 of the count; with two digits exchanged, 51.59, it is equal"),
        (("25.80", "5.159", "77.39"), 1, "x0.10 of the count; it is 10^-1 times the count: the point is off"),
        (("25.80", "51592M", "77.39G"), 1, ""),
        (("25.80", "412.74", "77.39"), 1, "x8.00 of the count; it is the count of a batch of 8, not 1"),
        (("25.80", "53.00", "77.39"), 1, "x1.027 of the count; the nearest of 19 conventions, normalisation as five"),
        (("25.80", "51.00", "77.39"), 1, "x0.989 of the count; the nearest of 16 conventions"),
    ],
)
def test_the_reason_for_a_figure_that_is_not_reproduced_is_never_empty(
    figures: tuple[str, ...], row: int, words: str
) -> None:
    verdict, why = column(*figures)[row]
    assert why.startswith(words) if words else (verdict, why) == (Verdict.EQUAL, "")


def test_half_of_a_peak_may_be_of_16_bits_and_another_input_is_counted() -> None:
    half = audited(COUNTS, {"se": {"printed": {"memory_train": "150"}}})["se", "memory_train"]
    assert half.why == "x0.50 of the count; it is half the count, as in 16 bits"
    table = RecountedTable.model_validate(
        {**published({"se": {"printed": {"macs": "42.6"}}}), "shape": [1, 16, 224, 224]}
    )

    def count(case: Case, names: Iterable[str]) -> tuple[dict[str, int], dict[str, str]]:
        known = {name: COUNTS[name] * case.shape[2] ** 2 // 224**2 for name in names if name in COUNTS}
        return known, dict.fromkeys({*names} - known.keys(), "no counter is asked")

    (found,) = judge(Recount(Path("paper.toml"), table, count))
    assert found.why == "x1.65 of the count; an input of 288 x 288, not 224 x 224, gives it"


@pytest.mark.slow
def test_a_row_that_fails_is_not_judged_and_the_others_are(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "paper.toml"
    path.write_text(GOOD.replace("[rows.se]", "[rows.se]\nshape = [1, 8, 4, 4]"))
    done = command("audit", path, "--out", tmp_path / "findings.csv")
    assert done.returncode == 0, done.stderr
    found = {(each.row, each.quantity): each for each in finding.read(tmp_path / "findings.csv")}
    assert {found["se", quantity].verdict for quantity in ("params", "macs")} == {Verdict.NOT_JUDGED}
    assert found["se", "macs"].why.startswith("se [1, 8, 4, 4]: ValueError: se has 8 channels, fewer than")
    assert found["wide", "params"].verdict != Verdict.NOT_JUDGED
    path.write_text(path.read_text().partition("[rows.wide]")[0])
    alone = command("audit", path)
    assert alone.returncode == 2
    assert f"{path}, line 7: row 'se': se [1, 8, 4, 4]: ValueError" in alone.stderr


def test_an_audit_that_is_stopped_prints_what_is_counted_and_judges_nothing(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "paper.toml"
    path.write_text(GOOD)

    def counted(loader: Any, case: Case, names: Iterable[str]) -> tuple[dict[str, int], dict[str, str]]:
        if case.id.startswith("linear"):
            raise KeyboardInterrupt
        return {name: COUNTS.get(name, 0) for name in names}, {}

    monkeypatch.setattr(function, "counts_of", counted)
    done = command("audit", path, "--out", tmp_path / "findings.csv")
    assert done.returncode == 130
    assert [line for line in done.stderr.splitlines() if "counting" in line or "stopped" in line][-3:] == [
        "   0 s  [1/2] counting se",
        "   0 s  [2/2] counting wide",
        "stopped; 2 figures counted, none judged",
    ]
    assert done.stdout.count("the audit was stopped") == 2
    assert not (tmp_path / "findings.csv").exists()
    with pytest.raises(Stopped) as stop:
        function.audit(str(path))
    rows = [(each.row, each.quantity, each.verdict) for each in stop.value.result.value]
    assert rows == [("se", "params", Verdict.NOT_JUDGED), ("se", "macs", Verdict.NOT_JUDGED)]


NETWORK = """
from torch import nn


def net(*, width=4):
    return nn.Sequential(nn.Conv2d(3, width, 3), nn.BatchNorm2d(width), nn.Flatten(), nn.Linear(width * 36, 10))
"""


@pytest.mark.slow
def test_a_whole_network_needs_no_slot(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path, out = tmp_path / "paper.toml", tmp_path / "findings.csv"
    (tmp_path / "net.py").write_text(NETWORK)
    head = GOOD.partition("[rows.se]")[0].replace("[1, 16, 4, 4]", "[1, 3, 8, 8]")
    network = f"network = '{tmp_path / 'net.py'}:net'\n"
    path.write_text(
        f"{head}[units]\nparams = 'one = 10^0'\nmacs = 'one = 10^0'\n"
        f"[rows.Net]\n{network}printed = {{ params = '1570', macs = '5472' }}\n"
        f"[rows.Wide]\n{network}settings = {{ width = 8 }}\nprinted = {{ params = '3130' }}\n"
    )
    done = command("audit", path, "--out", out)
    assert done.returncode == 0, done.stderr
    # 3*9*4 + 4 + 2*4 + 144*10 + 10 parameters; 36*108 + 36*4 + 1440 MACs
    assert [(each.counted, each.verdict) for each in finding.read(out)] == [
        ("1570", Verdict.EQUAL),
        ("5472", Verdict.EQUAL),
        ("3130", Verdict.EQUAL),
    ]
    path.write_text(path.read_text().replace(":net'", ":nett'"))
    wrong = command("audit", path)
    assert wrong.returncode == 2
    assert "row 'Net': " in wrong.stderr
    assert "'nett'" in wrong.stderr


def test_a_library_s_network_is_named_shortly() -> None:
    assert whole("torchvision:swin_t") == "torchvision.models:swin_t"
    assert whole("timm:convnext_tiny") == "timm.models:convnext_tiny"
    assert whole("mine.py:net") == "mine.py:net"


@pytest.mark.parametrize(
    ("key", "others"),
    [
        pytest.param("linear", 0, id="linear"),
        pytest.param("ham_nmf", 1, id="ham_nmf: also with its norms folded"),
        pytest.param("swin", 2, id="swin: also both modes in 2020, when attention ran other operators"),
        pytest.param("shsa", 3, id="shsa: also all of these"),
    ],
)
def test_all_counts_of_a_row_by_all_counters_take_three_passes(key: str, others: int) -> None:
    entry, called = registry.get(key), list[str]()
    case = Case(key, entry.reference, {}, (1, 64, 32, 32), entry.defaults, device="meta")
    with register_module_forward_pre_hook(lambda module, _: called.append(type(module).__name__)):
        found = count_case(case, [*COUNTED, *TOOLS["macs"].values(), *TOOLS["params"].values()])
    assert len(found.values) > len(TOOLS["macs"]) + len(COUNTED)
    # of memory in both modes, and of the layers and functions that other counters see
    assert called.count(type(entry.build(64)).__name__) == 3 + others


def test_both_peaks_that_are_read_off_a_pass_are_asked_for_at_once() -> None:
    asked: list[list[str]] = []

    def count(case: Case, names: Iterable[str]) -> tuple[dict[str, int], dict[str, str]]:
        asked.append([*names])
        return dict.fromkeys(names, 7), {}

    recount = Recount(Path("paper.toml"), read_published("hamburger", RecountedTable), count)
    for name in ("memory_train_2020", "memory_train"):
        recount.counts(recount.case("ham_nmf"), [name])
    assert asked == [["memory_train", "memory_train_2020"]]


@pytest.mark.slow
def test_counts_are_kept_between_runs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("CTXBENCH_NO_CACHE", raising=False)
    monkeypatch.setattr("ctxbench.engine.cache.user_cache_path", lambda name: tmp_path / name)
    asked: list[str] = []

    def counted(
        loader: IsolatedLoader, about: str, question: str, kind: Any, case: Case, *names: list[str], **_: float
    ) -> tuple[list[Any], list[str]]:
        if question == "call":
            return [f"{case.module}()"], []
        asked.append(case.module)
        return [BlockCounts(dict.fromkeys(names[0], 7), {})], [f"{case.module} says so"]

    monkeypatch.setattr(IsolatedLoader, "_ask", counted)
    entries = {key: registry.get(key) for key in ("se", "gc")}
    cases = [Case(key, each.reference, {}, (1, 16, 4, 4), each.defaults) for key, each in entries.items()]
    for case in (*cases, *cases):
        assert function.counts_of(IsolatedLoader(), case, ["params"]) == ({"params": 7}, {})
        assert capsys.readouterr().err == f"{case.module} says so\n"
    assert asked == ["se", "gc"]
    mine = tmp_path / "mine.py"
    mine.write_text("from torch import nn\n\n\nclass Mine(nn.Conv2d):\n    pass\n")
    own = Case("Mine", f"{mine}:Mine", {}, (1, 16, 4, 4))
    for _ in range(2):
        function.counts_of(IsolatedLoader(), own, ["params"])
        assert capsys.readouterr().err == "built: Mine()\nMine says so\n"
    assert asked == ["se", "gc", "Mine", "Mine"]
    library = tmp_path / "site-packages" / "networks.py"
    library.parent.mkdir()
    library.write_text(mine.read_text())
    for _ in range(2):
        function.counts_of(IsolatedLoader(), replace(own, reference=f"{library}:Mine"), ["params"])
        assert capsys.readouterr().err == "built: Mine()\nMine says so\n"
    assert asked == ["se", "gc", "Mine", "Mine", "Mine"]


@pytest.mark.slow
@pytest.mark.drawn("audit", "macs")
@pytest.mark.parametrize(
    "stored",
    [
        pytest.param(path, id=path.stem, marks=[pytest.mark.extra(each) for each in EXTRAS.get(path.stem, ())])
        for path in STORED
    ],
)
def test_the_stored_findings_are_those_of_today(command: Command, tmp_path: Path, stored: Path) -> None:
    if EXTRAS.get(stored.stem) == ["networks"] and stored.stem != "timm":
        need_torchvision()
    out = tmp_path / "findings.csv"
    assert command("audit", stored.stem, "--out", out).returncode == 0
    assert finding.read(out) == finding.read(stored)


NETWORKS = re.findall(
    r"^\| `(\w+)` \| (\d+) \| ([\d,]+) \| ([\d,]+) \|",
    (ROOT / "docs" / "plugins" / "audit.md").read_text(encoding="utf-8"),
    re.M,
)


def test_the_page_counts_four_networks() -> None:
    assert len(NETWORKS) == 4


@pytest.mark.extra("networks")
@pytest.mark.slow
@pytest.mark.parametrize(("name", "side", "params", "macs"), NETWORKS)
def test_the_page_s_counts_of_networks_are_those_of_timm(name: str, side: str, params: str, macs: str) -> None:
    model, x = on_meta(backbone(name).eval()), torch.empty(1, 3, int(side), int(side), device="meta")
    assert (f"{count_params(model):,}", f"{count_macs(model, x).macs:,}") == (params, macs)


@pytest.mark.extra("networks")
@pytest.mark.slow
def test_rows_of_mmsegmentation_are_as_stored(command: Command, tmp_path: Path) -> None:
    rows = ("fcn R-50-D8 512x1024", "gcnet R-50-D8 512x1024", "ccnet R-50-D8 512x1024", "ann R-50-D8 512x1024")
    lines = (ROOT / "published" / "mmsegmentation.toml").read_text(encoding="utf-8").splitlines()
    head = lines[: lines.index("[alternatives.thousands]")]
    own = [line for line in lines if line.startswith(tuple(f'"{row}' for row in rows))]
    path, out = tmp_path / "few.toml", tmp_path / "findings.csv"
    path.write_text("\n".join([*head, "[rows]", *own]), encoding="utf-8")
    assert command("audit", path, "--out", out).returncode == 0
    found = finding.read(out)
    assert len(found) == len(rows)
    stored = {each.row: each for each in finding.read(FINDINGS / "mmsegmentation.csv")}
    assert found == [stored[each.row] for each in found]


def test_the_table_has_what_is_counted_and_says_what_is_left_out() -> None:
    stored = FINDINGS / "hamburger.csv"
    found = finding.read(stored)
    table = audit_table(read_published("hamburger", RecountedTable), found)
    assert len(table.rows) == 32
    (da,) = [row for row in table.rows if [cell.text for cell in row.cells[:2]] == ["da", "macs"]]
    assert da.cells[2].text == "79.5"
    assert table.notes[da.cells[2].notes[0] - 1].startswith("79.5G cannot be")
    assert da.cells[4].tone == "bad"
    assert table.caption[-1] == (
        "Not judged: latency_train, latency_infer; a time is measured on its device, not counted."
    )
    assert summary(found) == (
        "of 32 figures 28 equal, 1 not as the rest of the column, 2 cannot be, 1 not reproduced; 16 not judged"
    )


def test_the_example_in_the_docs_names_every_key_and_is_a_table(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "plugins" / "audit.md").read_text(encoding="utf-8").split("```toml\n")[1].split("```")[0]
    path = tmp_path / "paper.toml"
    path.write_text(text)
    read_published(str(path), RecountedTable)
    for model in (RecountedTable, form.RecountedRow, form.Alternative, form.LeastFigure, form.Keep):
        for key in model.model_fields:
            assert re.search(rf"\b{key}\b", text), key
    page = (ROOT / "docs" / "plugins" / "audit.md").read_text(encoding="utf-8")
    assert all(f"`{name}`" in page for name in COUNTED if not name.endswith("_2020"))
