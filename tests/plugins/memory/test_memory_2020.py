"""A row's predicted numbers are its own; the PyTorch of 2020 has columns that stand beside the paper's figures."""

import csv
from pathlib import Path

import pytest

import ctxbench
from ctxbench.report.published import numbers_with_published, with_published
from ctxbench.report.run_data import open_run
from ctxbench.report.tables.suite import suite_table

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("shared_server")]
INPUT = (1, 512, 128, 128)


def static(path: Path, *modules: str, device: str = "cpu") -> dict[str, str]:
    """The first row of a static run as it is stored, without its own duration."""
    ctxbench.run(modules=[*modules], shape=INPUT, device=device, static=True, out=path)
    with open(path / "records.csv", encoding="utf-8", newline="") as file:
        return next(csv.DictReader(file)) | {"elapsed_s": ""}


@pytest.mark.parametrize("device", ["cpu", "titan-xp"])
def test_a_row_does_not_depend_on_the_rows_beside_it(tmp_path: Path, device: str) -> None:
    alone = static(tmp_path / "alone", "a2", device=device)
    assert static(tmp_path / "both", "a2", "gc", device=device) == alone
    mib = {
        name: round(int(alone[f"memory_{name}_bytes"]) / 2**20) for name in ("train_predicted", "train_predicted_2020")
    }
    assert mib == {"train_predicted": 357, "train_predicted_2020": 326}
    assert alone["memory_predicted_for"] == "cuda"


def test_fifteen_of_the_papers_sixteen_figures_are_those_of_2020(tmp_path: Path) -> None:
    ctxbench.run("table3", static=True, out=tmp_path / "run")
    frame = numbers_with_published(with_published(open_run(tmp_path / "run"))).frame.set_index("module")
    other = []
    for mode in ("train", "infer"):
        assert frame[f"memory_{mode}_published"].isna().all()
        published = frame[f"memory_{mode}_2020_published"].dropna().astype(int)
        assert len(published) == 8
        ours = (frame[f"memory_{mode}_predicted_2020_bytes"] / 2**20).round().astype(int)
        other += [(mode, module, ours[module]) for module in published.index if ours[module] != published[module]]
    assert other == [("train", "da", 5198)]
    columns = {column.key: column.group for column in suite_table(open_run(tmp_path / "run")).columns}
    assert columns["memory_train_2020"] == "Memory, train, PyTorch of 2020 (MiB)"


def test_without_the_papers_figures_the_table_has_no_column_of_2020(tmp_path: Path) -> None:
    static(tmp_path / "run", "gc")
    table = suite_table(open_run(tmp_path / "run"))
    assert [column.key for column in table.columns if "2020" in column.key] == []
