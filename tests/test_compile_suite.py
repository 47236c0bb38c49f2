"""The claims of the suite `compile` decided from numbers worked by hand; its cases."""

import math
import runpy
from pathlib import Path
from typing import Any

import pandas as pd

from ctxbench import registry
from ctxbench.suite.read import load

PAGE = Path(__file__).parents[1] / "docs" / "suites" / "compile"


def row(module: str, execution: str, **values: Any) -> dict[str, Any]:
    empty = dict.fromkeys(("latency_train_ms", "latency_infer_ms", "compile_train_s", "error_train"), math.nan)
    return {"module": module, "execution": execution, "status": "ok", "message": "", **empty, **values}


def test_the_suite_has_every_module_in_both_executions() -> None:
    cases = load("compile").cases()
    assert {(case.module, case.execution) for case in cases} == {
        (name, execution) for name in registry.names() for execution in ("eager", "compile")
    }


def test_claims_worked_by_hand() -> None:
    frame = pd.DataFrame(
        [
            row("a", "eager", latency_train_ms=4.0, error_infer=1e-7, error_train=1e-6),
            row("a", "compile", latency_train_ms=2.0, error_infer=2e-7, error_train=5e-6, compile_train_s=8.0),
            row("b", "eager", latency_train_ms=1.0, error_infer=1e-7),
            row("b", "compile", latency_train_ms=2.0, error_infer=2e-6, compile_train_s=8.0),
            row("c", "eager", error_infer=1e-7),
            row("c", "compile", status="error", message="cannot", error_infer=math.nan),
        ]
    )
    found = list(runpy.run_path(f"{PAGE}.py")["claims"](frame))
    assert [(text, holds) for _, text, holds in found] == [
        ("c: cannot", False),
        ("median 1.25; a 2.00, b 0.50", "by over 10% for 1 of 2; 1 are slower by over 10%"),
        ("no times in this run", "not measured"),
        ("ratio of the errors: median 11.00; largest: b 20.0 (error 2.0e-06), a 2.0 (error 2.0e-07)", "not for b"),
        ("ratio of the errors: median 5.00; largest: a 5.0 (error 5.0e-06)", "yes"),
        ("a 4,000", "no claim"),
    ]


def test_the_page_shows_every_figure() -> None:
    text = PAGE.with_suffix(".md").read_text(encoding="utf-8")
    for figure in load("compile").file.figures:
        assert f"<!-- table: results/compile-cpu {figure.name} -->" in text
