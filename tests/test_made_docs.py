"""The generated parts of the docs are what docs/update.py makes of the committed runs and of what ctxbench declares."""

import csv
import importlib
import json
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from ctxbench.model.metrics import metrics, quantities

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "results"
TABLE = RESULTS / "README.md"


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


@pytest.mark.long
def test_the_table_of_all_blocks_is_what_todays_code_counts(update: ModuleType) -> None:
    with (ROOT / "docs" / "blocks.csv").open(encoding="utf-8", newline="") as file:
        stored = list(csv.DictReader(file))
    texts = [{key: "" if value is None else str(value) for key, value in row.items()} for row in update.blocks.rows()]
    assert texts == stored


def test_a_suite_whose_claims_are_judged_names_its_page() -> None:
    lines = (ROOT / "docs" / "suites.md").read_text(encoding="utf-8").splitlines()
    judged = [line for line in lines if re.search(r"\| \d+ of \d+(;[^|]*)? \|$", line)]
    assert len(judged) > 10
    assert [line for line in judged if not line.startswith("| [")] == []


def test_every_sentence_stands_on_a_page_and_needs_the_verdicts_that_it_tells(update: ModuleType) -> None:
    blocks = {
        block[2].split()[0] for page in update.pages() for block in update.BLOCK.finditer(page.read_text("utf-8"))
    }
    assert update.sentences.TEXTS["sentences"].keys() - blocks == set()
    with pytest.raises(
        SystemExit, match="compile-cpu does not say supported of 'The compiled gradient is the eager one'"
    ):
        update.sentences.judged("compile-cpu", "supported", "The compiled gradient is the eager one")


@pytest.mark.slow
def test_a_claim_is_of_one_experiment_which_is_the_newest_of_its_question_and_whole(update: ModuleType) -> None:
    made = list(update.sentences.experiments())
    assert len(made) > 20
    assert sum(bool(runs) for *_, runs in made) > 10
    assert {name: runs for name, _, runs in made if len(runs) > 1} == {}
    dates = {path.parent: question_and_time(path) for path in RESULTS.glob("**/run.json")}
    for name, text, runs in made:
        for folder in (RESULTS / run for run in runs):
            question, time = dates[folder]
            newer = [str(other) for other, (of, when) in dates.items() if of == question and when > time]
            assert not newer, f"{name}: {folder.name} is older than {newer}"
            part = update.lists.part_of(folder)
            assert part in text, f"{name}: {folder.name} has {part}, which the sentence does not say"


def question_and_time(path: Path) -> tuple[tuple[Any, ...], str]:
    """Question that a run answers: its suite, what it measures and on what kind of device; and when it did."""
    meta = json.loads(path.read_text(encoding="utf-8"))
    question = (path.parent.parent, meta["suite"], meta["static"], bool(meta["environment"]["gpus"]))
    return question, meta["environment"]["time"]


def test_a_caption_stands_once_on_a_page(update: ModuleType) -> None:
    seen: set[str] = set()
    assert update.once("| a |\n\nhere: X.<br>\nTime: s.", seen) == "| a |\n\nhere: X.<br>\nTime: s."
    assert update.once("| a |\n\nX.<br>\nTime: s.", seen) == "| a |"


def test_the_page_of_python_functions_is_that_of_their_docstrings(update: ModuleType) -> None:
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    for section in update.made("api-list").split("\n\n## "):
        assert section in page, "run make report"


def test_the_command_of_a_committed_run_writes_into_its_folder() -> None:
    commands = {}
    for path in RESULTS.glob("**/run.json"):
        commands[path.parent.relative_to(ROOT).as_posix()] = json.loads(path.read_text(encoding="utf-8"))["command"]
    programs = ("repeatability.py", "gpu.py")
    own = {folder: command for folder, command in commands.items() if not command.startswith(programs)}
    assert len(own) > 20
    assert [folder for folder, command in own.items() if not command.startswith("ctxbench run ")] == []
    assert {folder: re.findall(r"--out (\S+)", command) for folder, command in own.items()} == {f: [f] for f in own}
    shown = re.findall(r"^\| `([\w-]+)` \|.*\| `(.*)` \|$", TABLE.read_text(encoding="utf-8"), re.MULTILINE)
    assert dict(shown).items() >= {Path(f).name: c for f, c in own.items() if f.count("/") == 1}.items()


def rows_of(page: str, table: str) -> list[list[str]]:
    """The cells of a generated table, without its two heading lines."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    block = text.split(f"<!-- table: {table} -->\n")[1].split("<!-- /table -->")[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in block.splitlines()[2:]]


def names_in(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def test_the_docs_list_every_quantity() -> None:
    listed = {}
    for metric, *_, origin, cell in rows_of("reference.md", "metric-list"):
        for key, unit in re.findall(r"`(\w+)`(?: \((.+?)\))?(?:, |$)", cell):
            listed[key] = (*names_in(metric), origin, unit)
    assert listed.keys() == quantities().keys()
    for key, quantity in quantities().items():
        metric, origin, unit = listed[key]
        assert unit == quantity.unit.symbol
        assert quantity.origin in origin.split(", ")
        assert key in [each.key for each in metrics()[metric].quantities]


def test_the_docs_list_every_metric() -> None:
    rows = rows_of("reference.md", "metric-list")
    assert [names_in(row[0]) for row in rows] == [[name] for name in metrics()]
    assert [row[1] for row in rows] == [metric.about for metric in metrics().values()]


def test_a_scan_is_compared_at_its_default_width_and_at_the_other_blocks_parameters(update: ModuleType) -> None:
    found: dict[tuple[str, str], tuple[int, int]] = {}
    for block, equal, pairing in update.scans.compared(update.lists.stored_run("prediction/scan")):
        _, scan, other = pairing.rows[0]
        found[block, equal] = scan["params"], other["params"]
    assert {block for block, _ in found} == {"mhsa", "ham_nmf", "mala"}
    assert len({scan for (_, equal), (scan, _) in found.items() if equal == "channels"}) == 1
    equals = [each for (_, equal), each in found.items() if equal == "parameters"]
    assert len(equals) == 3
    assert all(scan == pytest.approx(other, rel=0.01) for scan, other in equals)
