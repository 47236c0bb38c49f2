"""Claims of the suite `attention_approximation` about Li et al., 2020 and of Han et al., ICCV 2023."""

import pandas as pd

from ctxbench_science.claims.findings import Claim, Finding, Outcome, Rows, decided, each_of, measured

# The largest error of a first-order expansion that counts as small.
SMALL = 0.1
NAMES = ("linear", "focused_linear")
HEADS = {"1 head": 1, "8 heads": 8}


def first_order(rows: Rows) -> Finding:
    errors = rows.of(module="linear").numbers("attention_error", "reduction", least=1)
    text = ", ".join(f"{value:.3f} at reduction {reduction:g}" for reduction, value in errors.items())
    return decided(bool((errors < SMALL).all()), text)


@each_of(NAMES)
def low_rank(rows: Rows, module: str) -> Outcome:
    own = rows.of(module=module)
    ranks, channels, full = own.column("attention_rank"), own.column("channels"), positions(own)
    widths = channels // own.column("reduction") + 1 if module == "linear" else channels // own.column("heads")
    text = ", ".join(f"{rank:g}" for rank in sorted(ranks.unique()))
    return bool((ranks == widths.clip(upper=full)).all()), text


def positions(rows: Rows) -> "pd.Series[float]":
    return rows.column("height") * rows.column("width")


@each_of(HEADS)
def sharper(rows: Rows, heads: str) -> Outcome:
    own = rows.of(module="focused_linear", heads=HEADS[heads])
    entropies = own.numbers("attention_entropy", "focus")
    text = ", ".join(f"{value:.3f} (p = {p:g})" for p, value in entropies.items())
    return bool((entropies.diff().dropna() < 0).all()), text


@each_of(HEADS)
def nearer(rows: Rows, heads: str) -> Outcome:
    own = rows.of(module="focused_linear", heads=HEADS[heads])
    errors = own.numbers("attention_error", "focus")
    best = errors.idxmin()
    softmax = own.number("attention_entropy_softmax", focus=best)
    return float(str(best)) > 1, f"least error {errors[best]:.2f} at p = {best:g}, entropy of softmax {softmax:.3f}"


def restored(rows: Rows) -> Finding:
    focused = rows.of(module="focused_linear")
    ranks, without = focused.column("attention_rank_convolution"), focused.column("attention_rank")
    full = positions(focused)
    text = f"rank {without.min():g} to {without.max():g} without, at least {ranks.min():g} of {full.max():g} with it"
    return decided(bool((ranks == full).all()), text)


def cost(rows: Rows) -> Finding:
    sa = rows.number("macs", module="sa")
    ratios = {module: rows.of(module=module).column("macs") / sa for module in NAMES}
    return measured("; ".join(f"{name} {each.min():.2f} to {each.max():.2f}" for name, each in ratios.items()))


CLAIMS = (
    Claim(
        "Linear attention is softmax over unit queries and keys to first order",
        f"|A - S| / |S| is below {SMALL} at every reduction",
        first_order,
    ),
    Claim(
        "Linear attention has low rank",
        "the rank is the width of a head's queries (one more for linear), or n where that is less",
        low_rank,
    ),
    Claim(
        "The focus p sharpens the weights",
        "with 1 and 8 heads, the entropy of the rows falls from each p to the next",
        sharper,
    ),
    Claim(
        "The focus brings the weights nearer to softmax's",
        "untrained, with 1 and 8 heads, the error is least at some p above 1 (p = 3 is the paper's)",
        nearer,
    ),
    Claim(
        "The depthwise convolution restores the rank of the equivalent matrix",
        "the rank with the convolution is n in every row",
        restored,
    ),
    Claim("How much linear attention costs", "MACs relative to self-attention at this n", cost),
)
