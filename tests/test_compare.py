"""Comparison: order, front and sentences on plain numbers; rounds on a script; whole runs of tiny cases."""

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from ctxbench import cli, compare
from ctxbench.engine.client import Exit
from ctxbench.engine.rounds import execute_in_rounds
from ctxbench.engine.scheduler import Plan
from ctxbench.errors import UsageError
from ctxbench.messages import Failure, Sample, Samples, Values
from ctxbench.progress import Quiet
from ctxbench.ranking import (
    Standing,
    Value,
    dominates,
    exactly,
    front,
    order,
    ranked,
    sentence,
    sentences,
    shared_axes,
    times,
)
from ctxbench.results import RunFolder
from ctxbench.statistics import summarise
from ctxbench.suite import Case, Measure, load
from ctxbench.worker.protocol import MeasureCase, Reply, Task

ALL = ["params", "macs", "memory_train", "latency_infer"]


def standing(
    label: str,
    params: int,
    macs: int,
    memory: int | None,
    low: float,
    high: float,
    candidate: bool = False,
    status: str = "ok",
) -> Standing:
    """A row whose latency has the interval from `low` to `high` milliseconds."""
    values = {"params": exactly(params), "macs": exactly(macs), "latency_infer": Value((low + high) / 2, low, high)}
    if memory is not None:
        values["memory_train"] = exactly(memory)
    return Standing(label, candidate, values if status == "ok" else {}, status, "why")


MINE = standing("mine", 100, 1000, 500, 9.9, 10.1, candidate=True)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (exactly(3), exactly(4), -1),
        (exactly(4), exactly(4), 0),
        (exactly(5), exactly(4), 1),
        (Value(2, 1, 3), Value(3.5, 3, 4), 0),
        (Value(2, 1, 2.9), Value(3.5, 3, 4), -1),
        (Value(2, 0, math.inf), Value(90, 80, 100), 0),
    ],
)
def test_order_is_exact_for_counts_and_by_interval_for_times(first: Value, second: Value, expected: int) -> None:
    assert order(first, second) == expected
    assert order(second, first) == -expected


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        (standing("r", 50, 500, 250, 4, 5), "mine is dominated by r on all four."),
        (
            standing("r", 50, 500, 250, 9, 11),
            "mine is dominated by r: 2.0x fewer parameters, 2.0x fewer MACs and 2.0x less training memory; "
            "about the same inference latency.",
        ),
        (
            standing("r", 200, 2000, 1000, 20, 22),
            "mine dominates r on all four: 2.0x fewer parameters, 2.0x fewer MACs, 2.0x less training memory and "
            "2.1x less inference latency.",
        ),
        (
            standing("r", 100, 3000, 500, 9.8, 10.0),
            "mine dominates r: 3.0x fewer MACs; about the same parameters, training memory and inference latency.",
        ),
        (
            standing("r", 100, 1000, 2050, 9.75, 9.85),
            "mine: 4.1x less training memory than r, for 1.02x its inference latency; "
            "about the same parameters and MACs.",
        ),
        (standing("r", 100, 1000, 500, 10, 12), "mine is not told apart from r on any of the four."),
        (
            standing("r", 0, 2000, 500, 10, 12),
            "mine: 2.0x fewer MACs than r, for 100 parameters where it has none; "
            "about the same training memory and inference latency.",
        ),
        (
            standing("r", 0, 0, None, 0, 0, status="oom"),
            "mine and r cannot be compared: r ended with oom.",
        ),
    ],
)
def test_a_sentence_says_how_two_modules_stand(other: Standing, expected: str) -> None:
    assert sentence(MINE, other, ALL) == expected


@pytest.mark.parametrize(
    ("ratio", "text"), [(1.0003, "1.0003x"), (1.004, "1.004x"), (1.02, "1.02x"), (4.12, "4.1x"), (36.6, "37x")]
)
def test_a_ratio_shows_that_two_counts_differ(ratio: float, text: str) -> None:
    assert times(ratio) == text


def test_a_parameter_free_module_has_no_parameters_rather_than_a_ratio() -> None:
    free = standing("free", 0, 1000, 500, 9.9, 10.1, candidate=True)
    assert sentence(free, MINE, ALL).startswith("free dominates mine: no parameters; about the same MACs")


def test_the_front_holds_what_nothing_dominates() -> None:
    rows = [
        MINE,
        standing("cheap", 50, 1000, 500, 20, 21),
        standing("worse", 100, 1001, 500, 9.9, 10.1),
        standing("failed", 1, 1, 1, 1, 1, status="crashed"),
    ]
    assert dominates(MINE, rows[2], ALL)
    assert not dominates(MINE, MINE, ALL)
    assert [row.label for row in front(rows, ALL)] == ["mine", "cheap"]


def test_ranked_puts_unknown_and_failed_rows_last_and_drops_none() -> None:
    rows = [
        standing("failed", 1, 1, 1, 1, 1, status="timeout"),
        standing("unknown", 1, 1, None, 1, 1),
        standing("large", 1, 1, 9, 1, 1),
        standing("small", 1, 1, 2, 1, 1),
    ]
    assert [row.label for row in ranked(rows, "memory_train")] == ["small", "large", "unknown", "failed"]


def test_an_axis_that_a_measured_row_lacks_is_left_out_and_said() -> None:
    rows = [MINE, standing("r", 50, 500, None, 4, 5), standing("failed", 1, 1, None, 1, 1, status="oom")]
    assert shared_axes(rows) == ["params", "macs", "latency_infer"]
    texts = sentences(rows)
    assert texts[0] == "Not compared, since not every row has it: training memory."
    assert texts[1] == "On the Pareto front: r."
    assert texts[2] == "mine is dominated by r on all three."
    assert texts[3] == "mine and failed cannot be compared: failed ended with oom."


class Script:
    """An executor that notes each task and reports samples: 1, 2, ... ms more with each round."""

    def __init__(self, fails: tuple[int, str] | None = None) -> None:
        self.tasks: list[tuple[str, float, list[str]]] = []
        self.fails = fails

    def run(self, task: Task, on_message: Callable[[Reply], None], timeout_s: float | None = None) -> Exit:
        assert isinstance(task, MeasureCase)
        number = len(self.tasks)
        self.tasks.append((task.case.module, task.measure.budget_s, list(task.metrics)))
        if self.fails and self.fails[0] == number:
            on_message(Failure(self.fails[1], "no", "Traceback"))
            return Exit(0, 0, False, "")
        ms = [number + 1.0, number + 2.0, number + 3.0]
        samples = [Sample(0.1 * (i + 1), 4, value) for i, value in enumerate(ms)]
        stop = "interval" if number else "budget"
        on_message(Values({"params": 7, "latency_infer_stop": stop, "latency_infer_ms": ms[1]}))
        on_message(Samples("infer", samples))
        return Exit(0, 0, False, "")


def in_rounds(executor: Script, folder: Path, metrics: list[str]) -> RunFolder:
    cases = [Case(key, key, {}, (1, 8, 4, 4)) for key in ("sa", "a2", "dm")]
    run = RunFolder.create(folder, {})
    execute_in_rounds(cases, Plan(Measure(budget_s=3.0), metrics), executor, run, Quiet())
    return run


def test_rounds_go_back_and_forth_and_pool_both_processes(tmp_path: Path) -> None:
    executor = Script()
    run = in_rounds(executor, tmp_path / "run", ["params", "latency"])
    assert [module for module, _, _ in executor.tasks] == ["dm", "a2", "sa", "sa", "a2", "dm"]
    assert {budget for _, budget, _ in executor.tasks} == {1.5}
    assert [metrics for _, _, metrics in executor.tasks] == [["params", "latency"]] * 3 + [["latency"]] * 3
    frame = run.frame()
    assert list(frame["module"]) == ["sa", "a2", "dm"]
    assert list(frame["params"]) == [7, 7, 7]
    row = frame.set_index("module").loc["dm"]
    expected = summarise([1, 2, 3, 6, 7, 8])
    assert (row["latency_infer_ms"], row["latency_infer_samples"]) == (expected.median, 6)
    assert (row["latency_infer_low_ms"], row["latency_infer_high_ms"]) == (1, 8)
    assert list(frame["latency_infer_stop"]) == ["interval", "interval", "budget"]
    samples = run.samples()
    times = samples.loc[samples["case"].str.startswith("dm"), "at_s"]
    assert list(times.round(6)) == [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]


def test_without_latency_one_round_is_enough(tmp_path: Path) -> None:
    executor = Script()
    run = in_rounds(executor, tmp_path / "run", ["params"])
    assert len(executor.tasks) == 3
    assert list(run.frame()["module"]) == ["sa", "a2", "dm"]


@pytest.mark.parametrize(("task", "module", "message"), [(1, "a2", "no"), (4, "a2", "in the second round: no")])
def test_a_failure_in_either_round_is_the_rows_status(tmp_path: Path, task: int, module: str, message: str) -> None:
    executor = Script(fails=(task, "nan"))
    frame = in_rounds(executor, tmp_path / "run", ["params", "latency"]).frame().set_index("module")
    assert list(frame["status"]) == ["ok" if key != module else "nan" for key in frame.index]
    assert frame.loc[module, "message"] == message
    assert len(executor.tasks) == (5 if task == 1 else 6)


CANDIDATES = """
import torch
from torch import nn

class Mine(nn.Module):
    def __init__(self, channels: int, *, width: int = 2):
        super().__init__()
        self.narrow = nn.Conv2d(channels, width, 1)
        self.widen = nn.Conv2d(width, channels, 1)
    def forward(self, x):
        return x + self.widen(self.narrow(x).mean((2, 3), keepdim=True).relu())

class Local(nn.Module):
    def __init__(self, channels: int):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)
    def forward(self, x):
        return self.conv(x)
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "my_module.py"
    path.write_text(CANDIDATES, encoding="utf-8")
    return path


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(cli.app, [str(argument) for argument in arguments])


@pytest.mark.processes
@pytest.mark.usefixtures("shared_server")
def test_compare_measures_ranks_and_tells_and_its_rows_can_be_reused(
    file: Path, tmp_path: Path, suite_file: Callable[..., Path]
) -> None:
    suite = suite_file(["sa"], metrics=("params", "macs", "memory", "latency"))
    options = ["--suite", suite, "--against", "sa,linear", "--set", "linear.reduction=4", "--set", "Mine.width=3"]
    first = invoke("compare", f"{file}:Mine", f"{file}:Local", *options, "--anyway", "--out", tmp_path / "one")
    assert first.exit_code == 0, first.output
    assert re.search(r"Mine meets the contract: \d+ passed, 1 note", first.output)
    assert "Local does not meet the contract" in first.output
    assert re.search(r"On the Pareto front: .*Mine \(width=3\)", first.output)
    assert re.search(r"^Mine \(width=3\).* sa\b", first.output, re.MULTILINE)
    one = RunFolder.open(tmp_path / "one")
    frame = one.frame()
    assert list(frame["module"]) == ["Mine", "Local", "sa", "linear"]
    assert list(frame["hparams"]) == ['{"width": 3}', "{}", "{}", '{"reduction": 4}']
    assert frame["params"].iloc[0] == 8 * 3 + 3 + 3 * 8 + 8

    request = compare.Request([f"{file}:Mine"], ["sa", "linear"], {"": {"width": 4}, "linear": {"reduction": 4}})
    now = one.meta["environment"]
    run = compare.measure(request, now, suite=str(suite), reuse=tmp_path / "one", out=tmp_path / "two")
    second, held = run.frame.set_index("module"), frame.set_index("module")
    assert second.loc["sa", "latency_infer_ms"] == held.loc["sa", "latency_infer_ms"]
    assert second.loc["sa", "warnings"][-1] == f"reused from {tmp_path / 'one'}"
    assert second.loc["Mine", "params"] == 8 * 4 + 4 + 4 * 8 + 8
    assert run.folder.meta["reused"]["cases"] == list(held.loc[["sa", "linear"], "case"])
    copied, original = (r.samples()[lambda f: f["case"].str.startswith("sa")]["ms"] for r in (run.folder, one))
    assert list(copied) == list(original)
    copied, original = (r.timeline()[lambda f: f["case"].str.startswith("sa")]["bytes"] for r in (run.folder, one))
    assert list(copied) == list(original)
    assert len(copied) > 0

    with pytest.raises(UsageError, match=r"cannot be reused \(cpu: .* then, another now\)"):
        compare.measure(request, {**now, "cpu": "another"}, suite=str(suite), reuse=tmp_path / "one")
    with pytest.raises(UsageError, match=r"budget_s: 0.01 then, 2.0 now"):
        compare.measure(request, now, reuse=tmp_path / "one")


@pytest.mark.processes
@pytest.mark.usefixtures("shared_server")
def test_a_candidate_that_breaks_the_contract_is_not_measured(file: Path, tmp_path: Path) -> None:
    refused = invoke("compare", f"{file}:Local", "--against", "sa", "--out", tmp_path / "run")
    assert refused.exit_code == 1
    assert "local: a change at the centre reaches 9 of 1023 positions (1%), a 3x3 window" in refused.output
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--rank-by", "speed"], "unknown quantity to rank by 'speed'"),
        (["--against", "sb"], "unknown module 'sb'; did you mean 'sa'"),
        (["--suite", "comparre"], "unknown suite 'comparre'; did you mean 'compare'"),
        (["--set", "width"], "--set 'width' is not [module.]hyperparameter=value"),
    ],
)
@pytest.mark.processes
@pytest.mark.usefixtures("shared_server")
def test_a_wrong_name_is_refused_before_anything_runs(file: Path, options: list[str], sentence: str) -> None:
    result = invoke("compare", f"{file}:Mine", *options)
    assert isinstance(result.exception, UsageError)
    assert sentence in str(result.exception)
    assert "contract" not in result.output


@pytest.mark.parametrize(
    ("candidates", "settings", "sentence"),
    [
        (["{file}:Mine", "{file}:Mine"], {}, "are both called 'Mine'"),
        (["{file}:Mine"], {"lineal": {"reduction": 4}}, "did you mean 'linear'"),
        (["{file}:Mine"], {"linear": {"width": 4}}, "unknown hyper-parameter of 'linear' 'width'"),
    ],
)
def test_names_that_do_not_fit_together_are_refused(
    file: Path, tmp_path: Path, candidates: list[str], settings: dict[str, dict[str, Any]], sentence: str
) -> None:
    request = compare.Request([c.format(file=file) for c in candidates], ["linear"], settings)
    with pytest.raises(UsageError, match=sentence):
        compare.measure(request, {}, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_the_suite_measures_the_whole_registry_with_every_metric() -> None:
    suite = load("compare")
    assert suite.file.modules == ["*"]
    assert list(suite.file.metrics) == ["params", "macs", "memory", "latency"]
    assert {case.shape for case in suite.cases()} == {(1, 256, 64, 64)}
