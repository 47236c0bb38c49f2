"""Recall in runs: its rows, their sentences, the time that it takes, and claims on rank."""

import json
import re
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Done
from fakes import FakeExecutor, counted

from ctxbench.base.clocks import usable_cores
from ctxbench.engine.one_process import Plan, measure_case
from ctxbench.model.case import Case
from ctxbench.model.read_suite import Overrides, load
from ctxbench.model.suite_file import MeasureTable
from ctxbench.results.run_folder import RunFolder
from ctxbench_science.claims.findings import ClaimVerdict, Rows
from ctxbench_science.recall.metric import STEP_S, Recall, learned_of, sentence, takes_s
from ctxbench_science.recall.suites import recall_rank as rank_claims
from ctxbench_science.recall.training import RATES

pytestmark = pytest.mark.slow  # small trainings, which take seconds together
ROOT = Path(__file__).resolve().parents[3]


def found_on(*accuracies: float) -> dict[str, object]:
    """A task of 64 cells as a row holds it."""
    learned = sum(each >= 80 for each in accuracies)
    value = sorted(accuracies)[len(accuracies) // 2]
    return {"accuracy": value, "accuracies": accuracies, "learned": learned, "trained_steps": 800, "cells": 64}


def test_a_module_that_only_pools_did_not_learn_to_look_up() -> None:
    curve = {"segment": found_on(40, 41, 42), "global": found_on(95, 94, 10), "lookup-8": found_on(24, 24, 25)}
    row = {"recall_curve": json.dumps(curve)}
    assert sentence(row) == (
        "segments with a mean IoU of 41 [39, 43] %; learned global in 800 steps (94 %, 2 of 3 seeds); did not learn "
        "lookup-8 in 800 steps (24 %, 0 of 3 seeds): accuracy on small tasks, chance is 10 %."
    )
    assert "learned in part lookup-32" in sentence({"recall_curve": json.dumps({"lookup-32": found_on(24, 24, 25)})})


def test_the_share_of_seeds_that_learned_has_an_exact_interval() -> None:
    share = learned_of(found_on(*[90] * 5, *[10] * 3))
    # Clopper and Pearson: the roots of the binomial tails at 2.5 %
    assert (share.value, share.low, share.high) == pytest.approx((62.5, 24.49, 91.48), abs=0.01)


SUITE = """
title = "Mine"
modules = [{modules}]
metrics = ["params", "recall"]
[axes]
shape = [1, 32, 5, 5]
threads = 1
[measure]
recall_shape = [16, 4, 4]
processes = 1
recall_tasks = ["global", "lookup-{marks}"]
recall_steps = 20
recall_seeds = 2
"""


def test_the_estimate_of_trainings_counts_steps_seeds_and_cores() -> None:
    small = MeasureTable(recall_tasks=["where"], recall_shape=[32, 4, 4], recall_steps=100, recall_seeds=1)
    assert takes_s(small) == pytest.approx(100 * (1 + 2) * STEP_S / 8 / len(usable_cores()))
    usual = MeasureTable(recall_tasks=["segment", "global"], recall_steps=800, recall_segment_steps=300)
    assert takes_s(usual) == pytest.approx((300 + 800) * (5 + 2) * STEP_S / len(usable_cores()))


@pytest.mark.parametrize(
    ("asked", "trains"), [([], False), (["--metrics", "params,recall"], True), (["--metrics", "latency,recall"], True)]
)
@pytest.mark.processes
def test_a_dry_run_counts_the_trainings_if_they_are_asked_for(
    command: Callable[..., Done], asked: list[str], trains: bool
) -> None:
    done = command("run", "--dry-run", "--suite", "quick", "--modules", "sa", "--shape", "1,16,4,4", *asked)
    assert done.returncode == 0, done.stderr
    (seconds,) = re.findall(r"^sa .* (\d+) s", done.stdout, re.MULTILINE)
    least_s = trains * takes_s(MeasureTable())
    assert int(least_s) <= float(seconds) < least_s + 60


@pytest.mark.plugin("compare")
def test_compare_counts_the_trainings_too(suite_file: Callable[..., Path]) -> None:
    from ctxbench.plugins.compare.comparison import ComparisonPlan, expected_s

    suite = str(suite_file(["sa"], metrics=("params",)))
    (cases, plain), (_, trained) = (
        expected_s(ComparisonPlan(load(suite, Overrides(metrics=metrics)), [], ["sa", "se"]).suite)
        for metrics in (["params"], ["params", "recall"])
    )
    assert cases == 2
    assert trained - plain == pytest.approx(2 * takes_s(MeasureTable()))


def test_trainings_have_a_time_limit_of_their_own() -> None:
    case = Case("sa", "ctxbench.modules.sa:X", {}, (1, 8, 4, 4))
    script, measure = FakeExecutor(lambda task: counted()), MeasureTable(timeout_s=7, recall_timeout_s=100)
    for metrics in (["params"], ["params", "recall"]):
        measure_case(case, Plan(measure, metrics), script)
    assert script.timeouts == [7, 107]


@pytest.mark.processes
def test_a_row_has_the_accuracies_of_its_seeds_and_why_there_is_none(
    command: Callable[..., Done], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # below which a suite may name code
    broken = tmp_path / "mine.py"
    broken.write_text(
        "import torch\n\n\nclass Breaks(torch.nn.Module):\n    def __init__(self, channels: int) -> None:\n"
        "        super().__init__()\n        self.scale = torch.nn.Parameter(torch.ones(1))\n\n"
        "    def forward(self, x):\n        return self.scale * x * (torch.nan if self.training else 1)\n"
    )
    suite = tmp_path / "mine.toml"
    suite.write_text(SUITE.format(modules=f'"identity", "{broken}:Breaks"', marks=4))
    done = command("run", "--suite", suite, "--device", "cpu", "--out", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    assert "the training on global diverged: the loss was nan at step 1" in done.stdout
    first, second = RunFolder.open(tmp_path / "run").rows()
    curve = json.loads(first["recall_curve"])
    assert list(curve) == ["global", "lookup-4"]
    assert len(curve["lookup-4"]["accuracies"]) == 2
    assert min(curve["lookup-4"]["accuracies"]) <= first["recall_lookup"] <= max(curve["lookup-4"]["accuracies"])
    assert first["recall_gradient"] == ""
    assert curve["global"]["steps"] is None
    assert curve["global"]["rate"] in RATES
    assert first["recall_where_reason"] == "not asked for"
    assert [second[f"recall_{kind}_reason"] for kind in ("global", "lookup")] == ["its training diverged"] * 2
    assert (second["status"], json.loads(second["recall_curve"])) == ("ok", {})
    assert sentence(first).startswith("did not learn global in 20 steps (")
    assert sentence(first).endswith("0 of 2 seeds): accuracy on small tasks, chance is 10 %.")
    assert sentence(second) == "has no recall: its training diverged"
    suite.write_text(SUITE.format(modules='"identity"', marks=20))
    done = command("run", "--suite", suite, "--device", "cpu", "--out", tmp_path / "other")
    (row,) = RunFolder.open(tmp_path / "other").frame().to_dict("records")
    assert row["recall_lookup_reason"].endswith("has room for 8 marks (at most 32)")


def test_the_page_names_every_key_of_a_suite() -> None:
    page = (ROOT / "docs" / "plugins" / "recall.md").read_text(encoding="utf-8")
    keys = tomllib.loads(page.split("```toml\n")[1].split("```")[0])["measure"]
    assert keys.keys() == Recall.model_fields.keys()


def test_the_claims_on_rank_are_decided_from_rows() -> None:
    def rows(step: float) -> Rows:
        return Rows(
            [
                {
                    "module": "ham_nmf", "status": "ok", "hparams.rank": rank, "hparams.gradient": gradient,
                    "recall_curve": json.dumps({"segment": found_on(*(base + rank / 8 + each for each in range(5)))}),
                }
                for rank in (4, 8, 16, 32, 64) for gradient, base in (("one_step", 40), ("bptt", 40 + step))
            ]
        )  # fmt: skip

    assert rank_claims.one_step(rows(30)).verdict is ClaimVerdict.SUPPORTED
    assert rank_claims.one_step(rows(1)).verdict is ClaimVerdict.NOT_SUPPORTED
    assert "all steps: 72 [71, 74], " in rank_claims.ranks(rows(30)).text
