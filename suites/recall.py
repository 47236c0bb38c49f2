"""What a run of the suite `recall` says: which blocks bring which context."""

from ctxbench.claims import Claim, Finding, Missing, Outcome, Rows, decided, for_each, measured
from ctxbench.metrics.recall import KINDS, NOISE, SOLVED, accuracy_of, first_of, from_histogram
from ctxbench.number import Number

CHANCE = 10.0
# Percent, in lookup-8: 15 other digits have marks.
POOLED = from_histogram(15) + NOISE


def accuracy(rows: Rows, kind: str, **wanted: object) -> float:
    return rows.number(f"recall_{kind}", **wanted)


def best(rows: Rows, kind: str, module: str) -> float:
    """The largest accuracy of a module's rows, which differ in hyper-parameters."""
    return float(rows.of(module=module).column(f"recall_{kind}").max())


def chance(rows: Rows) -> Finding:
    found = {kind: accuracy(rows, kind, module="identity") for kind in KINDS}
    text = ", ".join(f"{kind} {value:.1f} %" for kind, value in found.items())
    return decided(all(abs(value - CHANCE) <= NOISE for value in found.values()), text)


def attention(rows: Rows) -> Finding:
    found = {kind: accuracy(rows, kind, module="mhsa") for kind in KINDS}
    text = ", ".join(f"{kind} {value:.0f} %" for kind, value in found.items())
    return decided(all(value >= SOLVED for value in found.values()), text)


def pooling(rows: Rows) -> Finding:
    def judge(module: str) -> Outcome:
        one, other = (best(rows, kind, module) for kind in ("global", "lookup"))
        return one >= SOLVED and other <= POOLED, f"global {one:.0f} %, lookup {other:.0f} %"

    return for_each(("gc", "se"), judge)


def families(rows: Rows) -> Finding:
    if not rows.modules():
        raise Missing("no row")
    parts = []
    for kind in KINDS:
        solved = [m for m in rows.modules() if best(rows, kind, m) >= SOLVED]
        parts.append(f"{kind}: {len(solved)} ({', '.join(solved)})")
    return measured("; ".join(parts))


def gradient(rows: Rows) -> Finding:
    """Whether the intervals over seeds overlap for each task."""
    texts, holds = [], True
    for kind in KINDS:
        one, all_steps = (_over_seeds(rows, kind, gradient) for gradient in ("one_step", "bptt"))
        holds = holds and one.high >= all_steps.low
        texts.append(f"{kind}: {one.value:.0f} % with one step, {all_steps.value:.0f} % with all")
    return decided(holds, "; ".join(texts))


def _over_seeds(rows: Rows, kind: str, gradient: str) -> Number:
    found = accuracy_of(first_of(kind, rows.row("recall_curve", module="ham_nmf", gradient=gradient)["recall_curve"]))
    if not found.has_interval:
        raise Missing("one seed, which has no interval")
    return found


CLAIMS = (
    Claim("Without a module no task is above chance", f"identity within {NOISE:g} of {CHANCE:g} %", chance),
    Claim("Self-attention solves all three tasks", f"mhsa reaches {SOLVED:g} % in each", attention),
    Claim(
        "A block that pools solves global and fails lookup",
        f"{SOLVED:g} % or more in global; in lookup {POOLED:.0f} % or less, what the digits' histogram allows, and "
        "noise; of several settings the best",
        pooling,
    ),
    Claim("Which modules solve which task", f"{SOLVED:g} % or more; of several settings the best", families),
    Claim(
        "The one-step gradient costs Ham (NMF) no ability",
        "in no task is the interval of the one-step gradient below that of all steps",
        gradient,
    ),
)
