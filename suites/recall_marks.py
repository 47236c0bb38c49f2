"""What a run of the suite `recall_marks` says: does a rank or a dimension bound what can be looked up?"""

import json
from typing import Any

from ctxbench.claims import Claim, Finding, Missing, Outcome, Rows, decided, for_each, measured
from ctxbench.metrics.recall import SOLVED, accuracy_of
from ctxbench.number import Number

FEW, MANY = "lookup-2", "lookup-32"
# The hyper-parameter that sets the dimension of queries and keys (64 / reduction) or the rank, the smallest first.
SETTING = {"linear": ("reduction", (8, 1)), "efficient": ("reduction", (8, 1)), "ham_nmf": ("rank", (8, 64))}


def curve(rows: Rows, **wanted: object) -> dict[str, Number]:
    """The accuracies by task."""
    found: dict[str, Any] = json.loads(rows.row("recall_curve", **wanted)["recall_curve"])
    return {name: accuracy_of(each) for name, each in found.items()}


def attention(rows: Rows) -> Finding:
    found = {name: each.value for name, each in curve(rows, module="mhsa").items()}
    return decided(min(found.values()) >= SOLVED, ", ".join(f"{name} {value:.0f} %" for name, value in found.items()))


def more_marks(rows: Rows) -> Finding:
    def falls(module: str) -> Outcome:
        name, (small, _) = SETTING[module]
        found = curve(rows, module=module, **{name: small})
        return _below(found[MANY], found[FEW])

    return for_each(SETTING, falls)


def larger(rows: Rows) -> Finding:
    def helps(module: str) -> Outcome:
        name, sizes = SETTING[module]
        small, large = (curve(rows, module=module, **{name: size})[MANY] for size in sizes)
        return _below(small, large)

    return for_each(SETTING, helps)


def larger_everywhere(rows: Rows) -> Finding:
    def helps(module: str) -> Outcome:
        name, sizes = SETTING[module]
        small, large = (curve(rows, module=module, **{name: size}) for size in sizes)
        better = sum(large[marks].value > small[marks].value for marks in small)
        return better == len(small), f"better with {better} of {len(small)}"

    return for_each(SETTING, helps)


def _below(less: Number, more: Number) -> Outcome:
    """Whether one accuracy is below the other by their intervals over seeds; None where these overlap."""
    text = f"{less.value:.0f} % against {more.value:.0f} %"
    if less.high < more.low:
        return True, text
    return (False if less.low > more.high else None), text


def most_marks(rows: Rows) -> Finding:
    texts = []
    for row in (row for row in rows.rows if row["recall_curve"]):
        solved = [name for name, each in json.loads(row["recall_curve"]).items() if each["accuracy"] >= SOLVED]
        name, _ = SETTING.get(row["module"], ("", ()))
        setting = f" ({name} {value})" if (value := row.get(f"hparams.{name}")) else ""
        texts.append(f"{row['module']}{setting}: {solved[-1].partition('-')[2] if solved else 'none'}")
    if not texts:
        raise Missing("no row")
    return measured("; ".join(texts))


CLAIMS = (
    Claim("Self-attention looks up among any number of marks", f"mhsa reaches {SOLVED:g} % with each", attention),
    Claim(
        "More marks are harder for a small dimension or rank",
        "dimension or rank 8: the interval with 32 marks is below that with 2",
        more_marks,
    ),
    Claim(
        "A larger dimension or rank looks up more",
        "32 marks: the interval of dimension or rank 8 is below that of 64",
        larger,
    ),
    Claim(
        "A larger dimension or rank looks up more, whatever the number of marks",
        "64 has the higher mean with each (by chance with all five: 3 %); chosen after the run was seen",
        larger_everywhere,
    ),
    Claim("The most marks that each looks up", f"{SOLVED:g} % or more", most_marks),
)
