"""Results of a check, and their text in the terminal and in JSON."""

import io
import json
import math
from dataclasses import replace
from typing import Any

from rich.console import Console, RenderableType

from ctxbench.base.number import Number
from ctxbench.plugins.check import ci_files, terminal
from ctxbench.plugins.check.power import Spread
from ctxbench.plugins.check.result import ExactChange, ExitCode, GateResult, OutputVerdict
from ctxbench.plugins.check.rows import GateVerdict, RowKey, RowVerdict, Status
from ctxbench.plugins.check.self_test import SelfTest

SA, HAM = "sa-1x64x32x32", "ham_nmf-1x64x32x32"


def measured(
    row: RowKey, verdict: GateVerdict, change: float, low: float, high: float, replicates: int, reason: str
) -> RowVerdict:
    return RowVerdict(row, "measured", verdict, Number(change, low, high), 0.002, replicates, reason)


def unmeasured(row: RowKey, status: Status, reason: str) -> RowVerdict:
    return RowVerdict(row, status, None, Number(math.nan, -math.inf, math.inf), math.nan, 0, reason)


REGRESSED = replace(
    measured(RowKey(SA, "infer"), "regressed", 0.0912, 0.0641, 0.1234, 16, "Above the margin."), clock="cpu", wall=0.1
)
OK = measured(RowKey(SA, "train"), "ok", 0.0012, -0.0031, 0.0055, 4, "Below the margin.")
DOUBTFUL = measured(RowKey(HAM, "infer"), "inconclusive", 0.03, -0.021, 0.091, 24, "Around the margin.")
LATE = measured(RowKey(HAM, "train"), "inconclusive", 0.2, -1.0, math.inf, 1, "No time was left.")
BROKEN = unmeasured(RowKey("mine", "infer"), "broken", "error: RuntimeError: sizes differ")
ABSENT = unmeasured(RowKey("dm", "infer"), "not compared", "unsupported: no complex numbers")
GROWN = ExactChange(SA, "params", 1_048_576, 1_310_720)
SHRUNK = ExactChange(HAM, "memory_train_predicted_bytes", 2000, 1500)
CHANGED = OutputVerdict(SA, "changed", "the output by 50 %", 0.5)
SAME = OutputVerdict(HAM, "same", "", 1e-16)
LABELS = {SA: "sa", HAM: "ham"}


def result(*rows: RowVerdict, exit_code: ExitCode = ExitCode.OK, **changes: Any) -> GateResult:
    found = GateResult(
        baseline="main (1a2b3c4d5e)", candidate="the working tree", rows=rows, labels=LABELS, exact=(), compared=130,
        margin=0.05, conditions="2 threads", notes=(), elapsed_s=187.3, exit_code=exit_code, must_match=False,
    )  # fmt: skip
    return replace(found, **changes)


EVERYTHING = result(
    *(REGRESSED, OK, DOUBTFUL, LATE, BROKEN, ABSENT),
    exit_code=ExitCode.BROKEN,
    exact=(GROWN, SHRUNK),
    outputs=(CHANGED, SAME),
    notes=("Uncommitted changes are measured.",),
)


def drawn(found: GateResult, width: int = 80, **options: Any) -> str:
    return shown(terminal.result_page(found), width, **options)


def shown(part: RenderableType, width: int = 80, **options: Any) -> str:
    console = Console(file=io.StringIO(), width=width, **options)
    console.print(part)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def parsed(found: GateResult, tested: SelfTest | None = None) -> Any:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    text = ci_files.as_json(found, tested)
    text.encode("utf-8")
    return json.loads(text, parse_constant=refuse)


def self_test(*spreads: Spread, rows: tuple[RowVerdict, ...] = (REGRESSED, OK, LATE)) -> SelfTest:
    return SelfTest(result(*rows, exit_code=ExitCode.REGRESSED), spreads)


TESTED = self_test(
    Spread(REGRESSED.row, 0.1, 0.0123, 0.0801), Spread(OK.row, 0.0, 0.0049, 0.0604), Spread(LATE.row, 0.0, None, None)
)
