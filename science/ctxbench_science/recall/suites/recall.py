"""Claims of the suite `recall`: the context that blocks learn to bring."""

import json
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from ctxbench.base.number import Number
from ctxbench_science.claims.findings import Claim, Finding, Missing, Outcome, Rows, decided, each_of, measured
from ctxbench_science.recall.metric import CHANCE, NOISE, SOLVED, accuracy_of, first_of, from_histogram, learned_of

SUMS = ("global", "lookup")
# Percent, in lookup-8: 15 other digits have marks.
POOLED = from_histogram(15) + NOISE
# Percent: the least gap between two kinds of context in `segment`.
GAP = 5.0
# Without context, with one vector of it, with that of the neighbours, with all.
LADDER: tuple[Mapping[str, Any], ...] = (
    {"module": "identity"},
    {"module": "gc", "reduction": 4},
    {"module": "Local"},
    {"module": "mhsa"},
)
# The hams and EMA with the gradient through all steps.
ALL_STEPS = {"ham_nmf": "bptt", "ham_vq": "bptt", "ham_cd": "bptt", "ema": "unrolled"}


def found(rows: Rows, kind: str, **wanted: object) -> dict[str, Any]:
    return first_of(kind, rows.row("recall_curve", **wanted)["recall_curve"])[1]


def reached(rows: Rows, kind: str, **wanted: object) -> Number:
    return accuracy_of(kind, found(rows, kind, **wanted))


def best(rows: Rows, kind: str, module: str) -> float:
    """The largest accuracy of a module's rows, which differ in hyper-parameters."""
    return float(rows.of(module=module).column(f"recall_{kind}").max())


@each_of(("identity",))
def chance(rows: Rows, module: str) -> Outcome:
    values = {kind: reached(rows, kind, module=module).value for kind in SUMS}
    return all(abs(value - CHANCE) <= NOISE for value in values.values()), _percents(values)


def ladder(rows: Rows) -> Finding:
    steps = [reached(rows, "segment", **wanted) for wanted in LADDER]
    pairs = list(pairwise(steps))
    apart = all(low.high < high.low and high.value - low.value >= GAP for low, high in pairs)
    return decided(
        apart, ", ".join(f"{each['module']} {step.value:.0f} %" for each, step in zip(LADDER, steps, strict=True))
    )


def attention(rows: Rows) -> Finding:
    values = {kind: reached(rows, kind, module="mhsa").value for kind in SUMS}
    return decided(all(value >= SOLVED for value in values.values()), _percents(values))


def pooling(rows: Rows) -> Finding:
    values = {kind: best(rows, kind, "gc") for kind in SUMS}
    return decided(values["global"] >= SOLVED and values["lookup"] <= POOLED, _percents(values))


def mixing(rows: Rows) -> Finding:
    values = {kind: reached(rows, kind, module="Mixing").value for kind in SUMS}
    return decided(all(value < SOLVED for value in values.values()), _percents(values))


def honest(rows: Rows) -> Finding:
    """Return the finding on modules that get the labels of other scenes right."""
    trained = [row for row in rows.rows if row["recall_curve"]]
    if not trained:
        raise Missing("no row")
    most = max(
        (each["shuffled"], row["module"]) for row in trained for each in json.loads(row["recall_curve"]).values()
    )
    return decided(most[0] <= CHANCE + NOISE, f"at most {most[0]:.1f} %, {most[1]}")


def families(rows: Rows) -> Finding:
    if not rows.modules():
        raise Missing("no row")
    parts = []
    for kind in SUMS:
        solved = [m for m in rows.modules() if best(rows, kind, m) >= SOLVED]
        parts.append(f"{kind}: {len(solved)} ({', '.join(solved)})")
    return measured("; ".join(parts))


@each_of(ALL_STEPS)
def one_step(rows: Rows, module: str) -> Outcome:
    """Outcome by overlap of the intervals: over seeds in `segment`, of the share of seeds that learned elsewhere."""
    parts, holds = [], True
    for kind in ("segment", *SUMS):
        one, every = (
            _judged(kind, found(rows, kind, module=module, gradient=gradient))
            for gradient in ("none" if module == "ema" else "one_step", ALL_STEPS[module])
        )
        holds = holds and one.high >= every.low
        what = "mean IoU" if kind == "segment" else "of the seeds"
        parts.append(f"{kind} {one.value:.0f} against {every.value:.0f} % {what}")
    return holds, ", ".join(parts)


@each_of(ALL_STEPS)
def all_steps(rows: Rows, module: str) -> Outcome:
    share = learned_of(found(rows, "global", module=module, gradient=ALL_STEPS[module]))
    return share.value > 50, f"{share.value:.0f} % of the seeds"


def _judged(kind: str, each: Mapping[str, Any]) -> Number:
    return accuracy_of(kind, each) if kind == "segment" else learned_of(each)


def _percents(values: Mapping[str, float]) -> str:
    return ", ".join(f"{kind} {value:.0f} %" for kind, value in values.items())


CLAIMS = (
    Claim(
        "No context, pooling, the neighbours and attention are distinguished by segment",
        f"identity, gc (reduction 4), Local, mhsa: each {GAP:g} points above the one before, and the intervals apart",
        ladder,
    ),
    Claim("Without a module no digit of another cell is found", f"identity within {NOISE:g} of {CHANCE:g} %", chance),
    Claim("Self-attention solves global and lookup", f"median {SOLVED:g} % or more in both", attention),
    Claim(
        "A block that pools solves global and fails lookup",
        f"gc: {SOLVED:g} % or more in global; in lookup {POOLED:.0f} % or less, what the digits' histogram allows, and "
        "noise; of several settings the best",
        pooling,
    ),
    Claim("Fixed random mixing solves neither global nor lookup", f"Mixing: below {SOLVED:g} % in both", mixing),
    Claim("No module reads the labels", f"labels of other scenes: at most {CHANCE + NOISE:g} % right", honest),
    Claim("Which modules solve which task", f"median {SOLVED:g} % or more; of several settings the best", families),
    Claim(
        "The gradient of one step, or of none, costs no ability",
        "in no task is its interval below that of the gradient through all steps: of the mean IoU, of the share of "
        "seeds that learned",
        one_step,
    ),
    Claim(
        "With the gradient through all steps the hams and EMA learn global", "more than half of the seeds", all_steps
    ),
)
