"""The claims of the suite `compile` decided from numbers worked by hand; its cases."""

from typing import Any

import pandas as pd
from judge import findings
from report_data import record

from ctxbench import registry
from ctxbench.model.read_suite import load
from ctxbench.model.record import columns


def row(module: str, execution: str, interval: tuple[float, float] | None = None, **values: Any) -> dict[str, Any]:
    """A record; the time of training is the middle of the interval."""
    found = record(module, execution=execution)
    if interval:
        low, high = interval
        values |= {"latency_train_ms": (low + high) / 2, "latency_train_low_ms": low, "latency_train_high_ms": high}
    found.take(values)
    return {name: found.get(name) for name in columns()}


def test_the_suite_has_every_module_in_both_executions_in_three_processes() -> None:
    suite = load("compile")
    assert {(case.module, case.execution) for case in suite.cases()} == {
        (name, execution) for name in registry.names() for execution in ("eager", "compile")
    }
    assert suite.file.measure.processes == 3


def test_claims_worked_by_hand() -> None:
    seconds = {"compile_infer_s": 9.0, "compile_train_s": 8.0}
    frame = pd.DataFrame(
        [
            row("a", "eager", (3.5, 4.5), error_infer=1e-7, error_train=1e-6),
            row("a", "compile", (1.9, 2.1), error_infer=2e-7, error_train=9e-4, **seconds),
            row("b", "eager", (0.9, 1.1), error_infer=1e-7, error_train=1e-4),
            row("b", "compile", (1.9, 2.1), error_infer=2e-3, error_train=1e-3, **seconds),
            row("c", "eager", (0.9, 1.1), error_infer=1e-7),
            row("c", "compile", status="error", message="cannot"),
            row("d", "eager", (1.0, 3.0), error_infer=1e-7),
            row("d", "compile", (0.9, 1.1), error_infer=1e-7, **seconds),
        ]
    )
    compiles, gradient, output, train, infer, repays = findings("compile", frame)
    assert compiles == ("not supported", "holds: 3 of 4; does not hold: 1 of 4 (c (error: cannot))")
    failed = "c the row with module=c, execution=compile ended with error"
    unknown = "; ".join(f"{name} no error_train with module={name}, execution=eager" for name in "cd")
    assert gradient == ("undecided", f"holds: 2 of 4; undecided: 2 of 4 ({unknown})")
    assert output == (
        "not supported",
        f"holds: 2 of 4; does not hold: 1 of 4 (b 2.0e-03 against 1.0e-07); undecided: 1 of 4 ({failed})",
    )
    assert train == (
        "not supported",
        f"faster: 1 of 4 (a 2.00); slower: 1 of 4 (b 0.50); undecided: 2 of 4 ({failed}; d the intervals overlap)",
    )
    assert infer.verdict == "undecided"
    assert repays == ("measured (no claim)", "a 4,000")


def test_times_of_one_process_decide_nothing() -> None:
    frame = pd.DataFrame([row("a", "eager", latency_train_ms=4.0), row("a", "compile", latency_train_ms=1.0)])
    *_, train, _, repays = findings("compile", frame)
    assert train == ("undecided", "faster: 0 of 1; undecided: 1 of 1 (fewer than 3 processes)")
    assert repays == ("undecided", "no module trains faster when compiled, by these intervals")


def test_rows_of_a_static_run_are_no_compiled_ones() -> None:
    frame = pd.DataFrame([row("a", "eager"), row("a", "compile")])
    assert {each.verdict for each in findings("compile", frame)} == {"undecided"}
