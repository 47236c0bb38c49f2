"""The generated parts of the docs are what docs/update.py makes of the committed runs and of what ctxbench declares."""

import importlib
import re
from pathlib import Path
from types import ModuleType

import pytest

from ctxbench.base.mode import MODES
from ctxbench.model.metrics import metrics, quantities

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def update() -> ModuleType:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "docs"))
        return importlib.import_module("update")


@pytest.mark.long
def test_the_tables_in_the_docs_are_those_of_the_committed_runs(update: ModuleType) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "| `sa` Self-attention (SA)" in readme
    for page in update.pages():
        text = page.read_text(encoding="utf-8")
        assert update.updated(text) == text, f"{page.name} is not what `make report` writes"


def test_each_headline_names_its_evidence_and_says_as_of_where_the_code_it_judges_has_changed(
    update: ModuleType,
) -> None:
    evidence = importlib.import_module("evidence")
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    table = (ROOT / "results" / "README.md").read_text(encoding="utf-8")
    digests = dict(re.findall(r"^\| `(\w+)` \| `results/.* \| `([0-9a-f]{12})` \|$", table, re.MULTILINE))
    assert digests.keys() == evidence.HEADLINES.keys()
    for name, then in digests.items():
        named = evidence.named(name, then)
        assert named in readme, f"README.md must name {named}: make the evidence again, then `make report`"


def rows_of(page: str, table: str) -> list[list[str]]:
    """The cells of a generated table, without its two heading lines."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    block = text.split(f"<!-- table: {table} -->\n")[1].split("<!-- /table -->")[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in block.splitlines()[2:]]


def names_in(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def test_the_docs_list_every_quantity() -> None:
    rows = rows_of("reference.md", "quantities")
    assert [names_in(row[0]) for row in rows] == [[key] for key in quantities()]
    for (_, title, unit, origin, metric, columns), (key, quantity) in zip(rows, quantities().items(), strict=True):
        assert (title, origin) == (quantity.title, quantity.origin)
        assert unit.split()[0] == (quantity.unit.symbol or "none")
        assert key in [each.key for each in metrics()[metric].quantities]
        assert names_in(columns)[0] == quantity.column
        filled = {column.name for column in metrics()[metric].columns} | ({key} if quantity.derive else set())
        assert set(names_in(columns)) <= filled


def test_the_docs_list_every_metric_and_its_columns() -> None:
    assert [names_in(row[0]) for row in rows_of("suite-files.md", "metrics")] == [[name] for name in metrics()]
    assert [row[1] for row in rows_of("suite-files.md", "metrics")] == [metric.about for metric in metrics().values()]
    rows = rows_of("reference.md", "columns")
    assert [row[0] for row in rows] == list(metrics())
    for name, cell in rows:
        listed = {column.replace("*", mode) for column in names_in(cell) for mode in MODES}
        assert listed == {column.name for column in metrics()[name].columns}


def test_a_scan_is_compared_at_its_default_width_and_at_the_other_blocks_parameters() -> None:
    found: dict[tuple[str, str], tuple[float, float]] = {}
    for block, equal, scan, other, *_ in rows_of("scan.md", "scan-counts"):
        found[block, equal] = float(scan), float(other)
    assert {block for block, _ in found} == {"`mhsa`", "`ham_nmf`", "`mala`"}
    assert len({scan for (_, equal), (scan, _) in found.items() if equal == "channels"}) == 1
    equals = [each for (_, equal), each in found.items() if equal == "parameters"]
    assert len(equals) == 3
    assert all(scan == pytest.approx(other, rel=0.01) for scan, other in equals)
