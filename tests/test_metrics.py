"""The table of metrics: names are taken once, columns say their schema, and a metric is one file."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from ctxbench import metrics
from ctxbench.metrics import in_order, params
from ctxbench.metrics.base import Column, Metric
from ctxbench.results.record import columns

ROOT = Path(__file__).parents[1]

BUFFERS = '''
"""Buffers: how many numbers a module holds in all its buffers."""

from ctxbench.metrics.base import Column, Measurement, Metric, Quantity, Unit


def count(measurement: Measurement) -> None:
    buffers = sum(buffer.numel() for buffer in measurement.meta_model.buffers())
    measurement.report({"buffers": buffers}, "counted; with a semicolon")


METRIC = Metric(
    name="buffers",
    place=15,
    about="buffers",
    columns=[Column("buffers", int, since=3)],
    quantities=[
        Quantity(
            key="buffers", column="buffers", title="Buffers", unit=Unit("B"), origin="counted", part="counts",
            noun="buffers", comparative="fewer", exact=True,
        )
    ],
    convention=lambda values: "Buffers: all of them, whatever they are for",
    count=count,
)
'''


def test_every_quantity_has_its_column_and_every_column_its_schema() -> None:
    known = columns()
    for quantity in metrics.quantities().values():
        assert quantity.column in known
        assert not quantity.measured_column or quantity.measured_column in known
        if quantity.has_interval:
            assert {quantity.detail(end) for end in ("low_ms", "high_ms", "confidence", "samples")} <= known.keys()
    assert {name: column.since for name, column in known.items() if 1 < column.since < 6} == {
        "control_ms": 2, "control_low_ms": 2, "control_high_ms": 2, "energy_idle_w": 3,
        "memory_infer_requested_bytes": 3, "memory_train_requested_bytes": 3,
        "latency_infer_host_ms": 3, "latency_train_host_ms": 3, "processes": 4, "others_share": 4,
        **{f"latency_{mode}_{name}": 4 for mode in ("infer", "train")
           for name in ("process_ms", "spread_between", "spread_within")}, "control_process_ms": 4,
        "macs_train": 5, "macs_train_uncounted": 5,
    }  # fmt: skip


def test_the_metrics_are_in_the_order_of_tables() -> None:
    names = ["params", "macs", "memory", "predicted_time", "latency", "matmul", "energy", "compile"]
    assert list(metrics.metrics()) == [
        *(*names, "precision", "gradient", "jacobian", "reconstruction", "spectrum", "attention", "accuracy")
    ]
    assert metrics.static_metrics() == names[:4]
    assert list(metrics.quantities())[:7] == [
        "params", "macs", "macs_train", "memory_train", "memory_infer", "latency_train", "latency_infer",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("other", "sentence"),
    [
        (
            Metric("params", 1, "", [], [], lambda values: ""),
            "The metric params is declared twice, by the metrics params and params.",
        ),
        (
            Metric("mine", 1, "", [Column("params", int)], [], lambda values: ""),
            "The column params is declared twice, by the metrics params and mine.",
        ),
        (
            Metric("mine", 1, "", [], params.METRIC.quantities, lambda values: ""),
            "The quantity params is declared twice, by the metrics params and mine.",
        ),
    ],
)
def test_a_name_that_is_taken_is_refused(other: Metric, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        in_order([params.METRIC, other])


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package, with a metric more: one file."""
    root = tmp_path_factory.mktemp("copy")
    shutil.copytree(ROOT / "ctxbench", root / "ctxbench", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("modules", "suites", "report"):
        (root / "ctxbench" / name).symlink_to(ROOT / name)
    (root / "ctxbench" / "metrics" / "buffers.py").write_text(BUFFERS)
    return root


def ctxbench(root: Path, *arguments: str) -> str:
    environment = os.environ | {"PYTHONPATH": str(root), "COLUMNS": "200"}
    command = [sys.executable, "-P", "-m", "ctxbench", *arguments]
    done = subprocess.run(command, env=environment, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.processes
def test_a_metric_is_one_file(copy: Path) -> None:
    suite = copy / "mine.toml"
    suite.write_text(
        'title = "t"\nmodules = ["sa", "a2"]\nmetrics = ["params", "buffers"]\n[axes]\nshape = [1, 8, 6, 5]\n'
    )
    printed = ctxbench(copy, "run", "--suite", str(suite), "--static", "--out", str(copy / "run"))
    assert "Buffers" in printed
    assert "Buffers: all of them, whatever they are for." in " ".join(printed.split())
    frame = pd.read_csv(copy / "run" / "records.csv")
    counts = dict(zip(frame["module"], frame["buffers"], strict=True))
    assert counts["sa"] == 0
    assert counts["a2"] > 0
    ctxbench(copy, "report", str(copy / "run"), "--out", str(copy / "report"))
    page = (copy / "report" / "index.html").read_text(encoding="utf-8")
    assert "counted; with a semicolon" in page
    assert "Buffers" in page
    options = ("--suite", str(suite), "--modules", "a2", "--rank-by", "buffers", "--out", str(copy / "compared"))
    ranked = ctxbench(copy, "compare", "sa", *options)
    assert "Ranked by Buffers" in " ".join(ranked.split())
    assert ranked.index("> sa") < ranked.index("a2  ")


def test_names_titles_and_columns_need_no_torch_and_no_numpy() -> None:
    code = (
        "import sys\nfrom ctxbench.metrics import quantities\n"
        "from ctxbench.results.record import columns\nquantities(), columns()\n"
        "assert not {'torch', 'numpy', 'pandas', 'scipy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
