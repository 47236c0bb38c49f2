"""The table of metrics: names are taken once, quantities have their columns, and a metric is one file."""

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pandas as pd
import pytest

from ctxbench import metrics as core_metrics
from ctxbench import registry
from ctxbench.metrics import params, rates
from ctxbench.model import metrics
from ctxbench.model.metric import Column, Metric, Settings
from ctxbench.model.metrics import in_order
from ctxbench.model.record import columns
from ctxbench.plugin import loaded

ROOT = Path(__file__).parents[1]

BUFFERS = '''
"""Buffers: how many numbers a module holds in all its buffers."""

from ctxbench.model.case import Repeats
from ctxbench.model.metric import Column, Measurement, Metric, Quantity, Settings, Unit
from ctxbench.base.notes import Note


class Buffers(Settings):
    buffers_times: Repeats = 1


def count(measurement: Measurement) -> None:
    buffers = sum(buffer.numel() for buffer in measurement.on_meta[0].buffers())
    times = Buffers.of(measurement.settings).buffers_times
    measurement.report({"buffers": times * buffers}, Note("remark", {"text": "counted; with a semicolon"}))


METRIC = Metric(
    name="buffers",
    order=15,
    about="buffers",
    columns=[Column("buffers", int)],
    quantities=[
        Quantity(
            key="buffers", column="buffers", title="Buffers", unit=Unit("B"), origin="counted", part="counts",
            noun="buffers", comparative="fewer", exact=True,
        )
    ],
    convention="Buffers: all of them, whatever they are for",
    count=count,
    settings=Buffers,
    sentence=lambda row: f"holds {row['buffers']:.0f} numbers in buffers.",
)
'''


class Wrong(Settings):
    memory_device: str = ""


def test_every_quantity_has_its_columns() -> None:
    known = columns()
    derived = {key: each.derive for key, each in metrics.quantities().items() if each.derive}
    assert list(derived) == [
        "throughput_train", "throughput_infer", "macs_per_s", "matmul_share",
        "time_per_megapixel_train", "time_per_megapixel_infer",
    ]  # fmt: skip
    for derive in derived.values():
        assert metrics.quantity(derive.source).has_interval
        assert set(derive.needs) <= known.keys()
    for quantity in metrics.stored_quantities():
        assert quantity.column in known
        assert not quantity.measured_column or quantity.measured_column in known
        if quantity.has_interval:
            assert {quantity.detail(end) for end in ("low_ms", "high_ms", "confidence", "samples")} <= known.keys()


def test_the_metrics_are_in_the_order_of_tables() -> None:
    files = {path.stem for path in Path(str(core_metrics.__file__)).parent.glob("*.py")} - {"__init__"}
    own = [import_module(f"ctxbench.metrics.{name}") for name in files]
    declared = [*(module.METRIC for module in own if hasattr(module, "METRIC")), *loaded("metrics")]
    in_order = sorted(declared, key=lambda each: each.order)
    assert list(metrics.metrics().values()) == in_order
    assert metrics.static_metrics()[:3] == list(metrics.metrics())[:3] == ["params", "macs", "memory"]
    assert list(metrics.quantities()) == [each.key for metric in in_order for each in metric.quantities]


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
        (
            Metric("mine", 1, "", [], [replace(rates.MACS_PER_S, key="mine", column="params")], lambda values: ""),
            "The column params is declared twice, by the metrics params and mine.",
        ),
        (
            Metric("memory", 1, "", [], [], lambda values: "", settings=Wrong),
            "The setting memory_device of the metric memory must begin with memory_ and be no key that",
        ),
        (
            Metric("mine", 1, "", [], [], lambda values: "", settings=Wrong),
            "The setting memory_device of the metric mine must begin with mine_ and be no key",
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


# One after the other.
COMMANDS = """
import json, sys
from ctxbench.cli import main
for words in json.loads(sys.argv[1]):
    sys.argv = ["ctxbench", *words]
    try:
        main()
    except SystemExit as end:
        print("ended with", end.code or 0, file=sys.stderr)
"""


def ctxbench(root: Path, *commands: tuple[str, ...]) -> tuple[str, list[str]]:
    """Output of the commands, and what each says to standard error with its exit code last."""
    environment = os.environ | {"PYTHONPATH": str(root), "COLUMNS": "200"}
    command = [sys.executable, "-P", "-c", COMMANDS, json.dumps(commands)]
    done = subprocess.run(command, env=environment, cwd=root, capture_output=True, text=True, check=True)
    return done.stdout, re.findall(r"(?s).*?ended with \d+\n", done.stderr)


@pytest.mark.processes
def test_a_metric_is_one_file(copy: Path) -> None:
    suites = [copy / f"{name}.toml" for name in ("mine", "zero", "unknown")]
    text = 'title = "t"\nmodules = ["sa", "a2"]\nmetrics = ["params", "buffers"]\naxes.shape = [1, 8, 6, 5]\nmeasure.'
    for suite, line in zip(suites, ("buffers_times = 2", "buffers_times = 0", "buffers_time = 2"), strict=True):
        suite.write_text(f"{text}{line}")
    options = ("--suite", str(suites[0]), "--modules", "a2", "--rank-by", "buffers", "--out", "run")
    wrong = [("run", "--suite", str(suite)) for suite in suites[1:]]
    ranked, said = ctxbench(copy, ("compare", "sa", *options), ("report", "run", "--out", "report"), *wrong)
    assert [each.split()[-1] for each in said] == ["0", "0", "2", "2"]
    assert "Ranked by Buffers" in " ".join(ranked.split())
    assert ranked.index("> sa") < ranked.index("a2  ")
    assert "\nsa holds 0 numbers in buffers.\n" in ranked
    frame = pd.read_csv(copy / "run" / "records.csv")
    counts = dict(zip(frame["module"], frame["buffers"], strict=True))
    assert counts == {"sa": 0, "a2": 2 * sum(each.numel() for each in registry.get("a2").build(8).buffers())}
    page = (copy / "report" / "index.html").read_text(encoding="utf-8")
    assert "counted; with a semicolon" in page
    assert "Buffers: all of them, whatever they are for." in " ".join(page.split())
    zero = "key 'measure.buffers_times' is 0: it must be from 1 to 1,000,000: every one takes time"
    assert f"ctxbench: {suites[1]}: {zero}" in said[2]
    assert f"ctxbench: {suites[2]}: unknown key 'buffers_time'; did you mean 'buffers_times'" in said[3]
