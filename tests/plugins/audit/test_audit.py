"""Published tables, recounted: how figures are read, each verdict, planted errors, wrong files, the command."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from fractions import Fraction
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from conftest import Done
from report_data import published

from ctxbench.model import published as form
from ctxbench.model.case import Case
from ctxbench.model.metric import Unit
from ctxbench.model.published import COUNTS as COUNTED
from ctxbench.model.published import Printed, Published
from ctxbench.model.read_suite import read_published
from ctxbench.plugins.audit import finding
from ctxbench.plugins.audit.child import count_case
from ctxbench.plugins.audit.differences import broken
from ctxbench.plugins.audit.finding import Finding, Verdict
from ctxbench.plugins.audit.recount import Recount
from ctxbench.plugins.audit.table import audit_table, summary
from ctxbench.plugins.audit.verdicts import judge

ROOT = Path(__file__).parents[3]
FINDINGS = ROOT / "results" / "audit"
# Of mmsegmentation's networks, which take ten minutes, a few rows are counted.
STORED = sorted(path for path in FINDINGS.glob("*.csv") if path.stem != "mmsegmentation")
NO_TIMM = pytest.mark.skipif(find_spec("timm") is None, reason="timm is not installed: make extras")
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


def audited(numbers: Mapping[str, int | str], rows: Mapping[str, Any], **about: Any) -> dict[tuple[str, str], Finding]:
    """The findings about a table whose counts are invented; a text is the reason why there is none."""
    table = Published.model_validate({**published(rows), "shape": [1, 8, 4, 4], **about})

    def count(case: Case, names: Iterable[str]) -> tuple[dict[str, int], dict[str, str]]:
        found = {name: numbers.get(f"{case.id.split(' ')[0]} {name}", numbers.get(name, 0)) for name in names}
        known = {name: value for name, value in found.items() if isinstance(value, int)}
        return known, {name: str(found[name]) for name in found.keys() - known.keys()}

    found = judge(Recount(Path("paper.toml"), table, count))
    return {(each.row, each.quantity): each for each in found}


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
        ("macs", "51.6G", Verdict.CONVENTION, "as two operations a MAC"),
        ("macs", "24.02", Verdict.CONVENTION, "G = 2^30"),
        ("macs", "25.7", Verdict.CONVENTION, "cut, not rounded"),
        ("macs", "17.61", Verdict.CONVENTION, "convolutions and linear layers alone, no products of two maps"),
        ("macs", "128", Verdict.CONVENTION, "of a training step; as two operations a MAC"),
        ("macs", "33.3", Verdict.NOT_REPRODUCED, ""),
        ("params", "0.996", Verdict.CONVENTION, "without biases"),
        ("params", "1.0025", Verdict.CONVENTION, "with buffers"),
        ("params", "976.6K", Verdict.NOT_REPRODUCED, ""),
        ("memory_train_2020", "326", Verdict.EQUAL, ""),
        ("memory_train_2020", "300", Verdict.CONVENTION, "under the PyTorch of today"),
        ("memory_train_2020", "110", Verdict.CONVENTION, "of the forward pass alone"),
        ("memory_train_2020", "342", Verdict.CONVENTION, "MiB = 10^6"),
        ("latency_train", "26.5", Verdict.NOT_JUDGED, "a time is measured on its device, not counted"),
        ("miou", "78.3", Verdict.NOT_JUDGED, "ctxbench does not count it"),
    ],
)
def test_a_figure_is_equal_by_the_source_s_convention_or_by_another(
    quantity: str, text: str, verdict: Verdict, why: str
) -> None:
    found = audited(COUNTS, {"se": {"printed": {quantity: text}}})["se", quantity]
    assert (found.verdict, re.sub(r" ?\(\d+ conventions tried\)", "", found.why)) == (verdict, why)


def test_a_source_that_names_operations_is_held_to_them() -> None:
    rows = {"se": {"printed": {"macs": "51.6"}}, "gc": {"printed": {"macs": "25.8"}}}
    found = audited(COUNTS, rows, counts={"macs": "2*macs"})
    assert found["se", "macs"].verdict == Verdict.EQUAL
    assert found["gc", "macs"].why.startswith("as MACs (")
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
    assert found["gc", "macs"].why == "the nearest, a convolution more, gives 30.00 (3 configurations tried)"
    by_block = audited({**COUNTS, "spectral macs": 31_500_000_000}, rows, alternatives=alternatives)
    assert by_block["gc", "macs"].why == "another block (3 configurations tried)"


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


def backbones(**changed: str) -> Published:
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
    return Published.model_validate(published(rows, keeps=[KEEP], units={"memory_train_2020": "GB = 2^30"}))


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
    assert broken(Published.model_validate({**backbones(**names).model_dump(), "keeps": [other]})) == {}
    one = broken(backbones(da_resnet50_d8_64="15.0"))
    assert [row for row, _ in one] == ["da resnet18_os32 64", "da resnet50_d8 64"]
    assert (
        "all 6 other such pairs 3.5 to 3.6; one of the two cannot be" in one["da resnet50_d8 64", "memory_train_2020"]
    )


# Eight blocks at a small input, and twenty wrong figures of them: each kind, which figures, and what they are then.
BLOCKS = ("sa", "da", "a2", "acf", "ham_nmf", "ema", "efficient", "external")
SHAPE = [1, 64, 16, 16]
_KIB = Unit("KiB", 2, 10)
UNITS = {"params": Unit("K", 10, 3), "macs": Unit("M", 10, 6), "memory_train": _KIB, "memory_infer": _KIB}
PLANTED = {
    "a wrong digit": ("sa params", "a2 macs", "ema memory_train", "efficient memory_infer"),
    "exchanged": ("acf macs", "external macs", "a2 params", "external params"),
    "operations for MACs": ("sa macs", "ham_nmf macs", "efficient macs"),
    "another prefix": ("ema params", "da params", "sa memory_train"),
    "the forward pass for training": ("a2 memory_train", "acf memory_train"),
    "another configuration": ("external memory_infer", "ham_nmf params"),
    "less than the weights": ("da macs", "ema macs"),
}
FOUND_AS = {
    "operations for MACs": Verdict.CONVENTION,
    "another prefix": Verdict.CONVENTION,
    "the forward pass for training": Verdict.CONVENTION,
    "another configuration": Verdict.CONFIGURATION,
    "less than the weights": Verdict.CANNOT_BE,
}
ALTERNATIVES = {
    "memory": {"about": "twice the memory", "settings": {"memory": 128}, "rows": ["external"]},
    "ham": {"about": "no upper bread", "settings": {"without": "upper"}, "rows": ["ham_nmf"]},
}


def counted_here(case: Case, names: Iterable[str]) -> tuple[Mapping[str, int], Mapping[str, str]]:
    found = count_case(case, [*names])
    return found.values, found.missing


def written(value: float, quantity: str) -> str:
    """A count with four digits in the unit of its column."""
    value /= UNITS[quantity].factor
    return f"{value:.{4 - len(str(int(value)))}f}"


def small_table(figures: Mapping[tuple[str, str], str]) -> Published:
    rows = {name: {"printed": {key: text for (row, key), text in figures.items() if row == name}} for name in BLOCKS}
    units = {key: str(unit) for key, unit in UNITS.items()}
    return Published.model_validate({**published(rows), "shape": SHAPE, "units": units, "alternatives": ALTERNATIVES})


@pytest.mark.slow
def test_twenty_planted_errors_are_found_and_what_is_right_stays_equal() -> None:
    blank = small_table({(name, key): "1" for name in BLOCKS for key in UNITS})
    recount = Recount(Path("paper.toml"), blank, counted_here)
    counts = {name: recount.counts(recount.case(name), COUNTED)[0] for name in BLOCKS}
    right = {(name, key): written(counts[name][key], key) for name in BLOCKS for key in UNITS}
    assert {each.verdict for each in judge(replace(recount, table=small_table(right)))} == {Verdict.EQUAL}

    def planted(kind: str, place: int, row: str, key: str) -> str:
        own = counts[row]
        match kind:
            case "a wrong digit":
                return right[row, key][:-1] + str((int(right[row, key][-1]) + 4) % 10)
            case "exchanged":
                return right[PLANTED[kind][place ^ 1].split(" ")[0], key]
            case "operations for MACs":
                return written(2 * own[key], key)
            case "another prefix":
                return written(own[key] * (1000 / 1024 if UNITS[key].base == 10 else 1024 / 1000), key)
            case "the forward pass for training":
                return written(own["memory_infer"], key)
            case "another configuration":
                (other,) = [each for each in blank.alternatives.values() if row in each.rows]
                return written(recount.counts(recount.case(row, other), [key])[0][key], key)
            case _:
                return written(0.4 * own["params_matrices"] * own["N"], key)

    wrong, kinds = dict(right), {}
    for kind, places in PLANTED.items():
        for place, name in enumerate(places):
            row, key = name.split(" ")
            wrong[row, key], kinds[row, key] = planted(kind, place, row, key), kind
    assert len(kinds) == 20
    found = {(each.row, each.quantity): each for each in judge(replace(recount, table=small_table(wrong)))}
    assert {figure for figure, each in found.items() if each.verdict != Verdict.EQUAL} == kinds.keys()
    for figure, kind in kinds.items():
        assert found[figure].verdict == FOUND_AS.get(kind, Verdict.NOT_REPRODUCED), (figure, kind, found[figure])


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
        ("[1, 16, 4, 4]", "[1, 8, 4, 4]", 7, "row 'se': se [1, 8, 4, 4]: ValueError: se has 8 channels, fewer than"),
        ("year = 2021\n", "", 1, "the key 'year' is missing; docs/plugins/audit.md has an example with every key"),
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
    assert (found["wide"].verdict, found["wide"].counted) == (Verdict.EQUAL, "272.0")
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


@pytest.mark.slow
@pytest.mark.parametrize(
    "stored", [pytest.param(path, id=path.stem, marks=[NO_TIMM] * (path.stem == "timm")) for path in STORED]
)
def test_the_stored_findings_are_those_of_today(command: Command, tmp_path: Path, stored: Path) -> None:
    out = tmp_path / "findings.csv"
    assert command("audit", stored.stem, "--out", out).returncode == 0
    assert finding.read(out) == finding.read(stored)


@NO_TIMM
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
    table = audit_table(read_published("hamburger"), found)
    assert len(table.rows) == 32
    (da,) = [row for row in table.rows if [cell.text for cell in row.cells[:2]] == ["da", "macs"]]
    assert da.cells[2].text == "79.5"
    assert table.notes[da.cells[2].notes[0] - 1].startswith("79.5G cannot be")
    assert da.cells[4].tone == "bad"
    assert table.caption[-1] == (
        "Not judged: latency_train, latency_infer; a time is measured on its device, not counted."
    )
    assert summary(found) == "of 32 figures 28 equal, 2 equal by another convention, 2 cannot be; 16 not judged"


def test_the_example_in_the_docs_names_every_key_and_is_a_table(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "plugins" / "audit.md").read_text(encoding="utf-8").split("```toml\n")[1].split("```")[0]
    path = tmp_path / "paper.toml"
    path.write_text(text)
    read_published(str(path))
    for model in (Published, form.PublishedRow, form.Alternative, form.Bound, form.Keep):
        for key in model.model_fields:
            assert re.search(rf"\b{key}\b", text), key
    page = (ROOT / "docs" / "plugins" / "audit.md").read_text(encoding="utf-8")
    assert all(f"`{name}`" in page for name in COUNTED if not name.endswith("_2020"))
