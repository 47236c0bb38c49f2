"""The suites of the Hamburger paper's other questions, run small: every row, figure, table and claim."""

import gc
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from judge import verdicts

import ctxbench
from ctxbench.model.conditions import Shape
from ctxbench.model.read_suite import load
from ctxbench.report.curves import figures_of
from ctxbench.report.figures.kinds import choose
from ctxbench.report.panels import panels_of
from ctxbench.report.run_data import open_run
from ctxbench.report.tables.curve import curve_tables
from ctxbench_science.claims.findings import claims_of

ROOT = Path(__file__).parents[3]
SMALL: dict[str, Shape] = {
    "gradient": (1, 8, 4, 4),
    "steps": (1, 8, 4, 4),
    "rank": (1, 8, 6, 6),
    "bread": (1, 8, 8, 8),
    "initialisation": (1, 8, 4, 4),
    "temperature": (1, 8, 4, 4),
}
# Fewer values than the suites have, and those that the claims read.
FEWER: dict[str, dict[str, Any]] = {
    "gradient": {"steps": [1, 3, 6]},
    "steps": {"steps": [1, 6, 24]},
    "rank": {"d": [32, 64], "rank": [4, 8, 32]},
    "initialisation": {"steps": [1, 2]},
    "temperature": {"steps": [1, 2], "temperature": [1.0, 0.01]},
}
FEW_SEEDS = {"gradient": 1, "jacobian": 1, "reconstruction": 2}

# Metrics that take long, and on which no claim of the suite rests.
LEFT_OUT = {
    name: {"latency"} if name in ("gradient", "initialisation", "temperature") else {"latency", "memory"}
    for name in SMALL
}


@pytest.fixture(scope="module", params=[pytest.param(name, marks=pytest.mark.drawn("numerics")) for name in SMALL])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ctxbench.Run:
    name: str = request.param
    out = tmp_path_factory.mktemp("suites") / name
    metrics = [metric for metric in load(name).file.metrics if metric not in LEFT_OUT[name]] or ["params"]
    hparams = {module: FEWER.get(name, {}) for module in ("ham_nmf", "ham_cd", "ham_vq")}
    collect = gc.collect

    def collect_and_freeze() -> None:
        """Collect, and let the collections of the next rows pass over what is left."""
        collect()
        gc.freeze()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gc, "collect", collect_and_freeze)
        for metric, seeds in FEW_SEEDS.items():
            patch.setattr(f"ctxbench_science.numerics.{metric}.SEEDS", seeds)
        return ctxbench.run(name, shape=SMALL[name], metrics=metrics, hparams=hparams, out=out, in_process=True)


@pytest.mark.slow
def test_every_row_is_measured_and_what_does_not_apply_says_why(run: ctxbench.Run) -> None:
    frame = run.frame
    assert frame["status"].eq("ok").all(), frame["message"].tolist()
    assert frame["memory_train_predicted_bytes"].notna().all() == ("memory" in run.folder.meta["metrics"])
    assert not frame["notes"].map(lambda each: [note for note in each if "applic" in str(note)]).sum()
    for metric, column in (("gradient", "gradient_cosine_input"), ("jacobian", "step_norm")):
        if metric in run.folder.meta["metrics"]:
            reason = frame["gradient_reason" if metric == "gradient" else "step_reason"]
            assert (frame[column].notna() ^ (reason.fillna("") != "")).all()


@pytest.mark.slow
def test_every_figure_has_lines_and_tables(run: ctxbench.Run) -> None:
    panels = panels_of([open_run(run.path)])
    figures = figures_of(panels[0])
    assert figures
    assert [kind.name for kind in choose(None, panels)] == [figure.name for figure in figures]
    for figure in figures:
        tables = curve_tables(panels, figure)
        left_out = tuple(LEFT_OUT[run.folder.meta["suite"]])
        assert len(tables) == len([key for key in figure.y if not key.startswith(left_out)]), figure.name


def with_constant_times(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame with 2 ms for each training pass and 1 ms for each inference, in three processes."""
    for mode, ms in (("train", 2.0), ("infer", 1.0)):
        columns = {"ms": ms, "low_ms": ms, "high_ms": ms, "processes": [dict.fromkeys((1, 2, 3), ms)] * len(frame)}
        frame = frame.assign(**{f"latency_{mode}_{name}": value for name, value in columns.items()})
    return frame


@pytest.mark.slow
def test_the_claims_are_decided(run: ctxbench.Run) -> None:
    suite, frame = str(run.folder.meta["suite"]), run.folder.frame()
    without, decided = (verdicts(suite, each) for each in (frame, with_constant_times(frame)))
    assert len(decided) > 1
    assert "undecided" not in decided
    claims = claims_of(suite, load(suite).file.title)
    timed = [claim.criterion for claim, verdict in zip(claims, without, strict=True) if verdict == "undecided"]
    assert all("three or more processes" in criterion for criterion in timed)


@pytest.mark.slow
def test_constant_times_are_no_linear_ones(run: ctxbench.Run) -> None:
    suite = str(run.folder.meta["suite"])
    if suite in ("gradient", "steps"):
        claims = claims_of(suite, load(suite).file.title)
        found = zip(claims, verdicts(suite, with_constant_times(run.folder.frame())), strict=True)
        assert [verdict for claim, verdict in found if "time" in claim.text] == ["not supported"]


@pytest.mark.parametrize("name", SMALL)
def test_each_suite_has_a_question_with_its_answer_and_a_source(name: str) -> None:
    suite = load(name)
    text = (ROOT / "docs" / "suites" / "hamburger.md").read_text(encoding="utf-8")
    lines = text.splitlines()
    answer = next(i for i, line in enumerate(lines) if line.startswith(f"<!-- table: results/{name}-cpu verdicts"))
    heading = next(line for line in reversed(lines[:answer]) if line.startswith("#"))
    assert heading.endswith("?"), "the heading is the question"
    for part in ("**How.**", f"results/{name}-cpu/records.csv"):
        assert part in text
    assert "ICLR 2021" in suite.file.source
    assert suite.cases()


def test_the_published_rows_of_each_suite_belong_to_its_cases() -> None:
    for name in SMALL:
        suite = load(name)
        cases = [{f"{key}={value}" for key, value in case.hparams.items()} | {case.module} for case in suite.cases()]
        for name, row in suite.file.published.rows.items() if suite.file.published else ():
            assert {row.block, *(f"{key}={value}" for key, value in row.settings.items())} in cases, name
