"""What a run of the suite `attention_approximation` says of Li et al., 2020 and of Han et al., ICCV 2023."""

import pandas as pd

from ctxbench.claims import Claim, Finding, Missing, Outcome, Rows, decided, for_each, measured

# The largest error of a first-order expansion that counts as small.
SMALL = 0.1
NAMES = ("linear", "focused_linear")
HEADS = {"1 head": 1, "8 heads": 8}


def column(rows: Rows, name: str) -> "pd.Series[float]":
    """A column of rows that all ended ok and all have it. Missing otherwise."""
    failed = rows.frame[rows.frame["status"] != "ok"]
    if not failed.empty:
        raise Missing(f"a row of {failed['module'].iloc[0]} ended with {failed['status'].iloc[0]}")
    if rows.frame[name].isna().any():
        raise Missing(f"no {name}")
    return rows.frame[name].astype(float)


def first_order(rows: Rows) -> Finding:
    errors = rows.of(module="linear").numbers("attention_error", "reduction", least=1)
    text = ", ".join(f"{value:.3f} at reduction {reduction:g}" for reduction, value in errors.items())
    return decided(bool((errors < SMALL).all()), text)


def low_rank(rows: Rows) -> Finding:
    def is_the_width(module: str) -> Outcome:
        own = rows.of(module=module)
        ranks, setting, more = column(own, "attention_rank"), "reduction", 1
        if module == "focused_linear":
            setting, more = "heads", 0
        widths = pd.concat(
            [
                (part.frame["channels"] // value + more).clip(upper=part.frame["height"] * part.frame["width"])
                for value, part in own.split(setting).items()
            ]
        )
        text = ", ".join(f"{rank:g}" for rank in sorted(ranks.unique()))
        return bool((ranks == widths.reindex(ranks.index)).all()), text

    return for_each(NAMES, is_the_width)


def sharper(rows: Rows) -> Finding:
    def sharpens(heads: str) -> Outcome:
        own = rows.of(module="focused_linear", heads=HEADS[heads])
        entropies = own.numbers("attention_entropy", "focus")
        text = ", ".join(f"{value:.3f} (p = {p:g})" for p, value in entropies.items())
        return bool((entropies.diff().dropna() < 0).all()), text

    return for_each(HEADS, sharpens)


def nearer(rows: Rows) -> Finding:
    def is_nearer(heads: str) -> Outcome:
        own = rows.of(module="focused_linear", heads=HEADS[heads])
        errors = own.numbers("attention_error", "focus")
        best = errors.idxmin()
        softmax = own.number("attention_entropy_softmax", focus=best)
        return float(str(best)) > 1, f"least error {errors[best]:.2f} at p = {best:g}, entropy of softmax {softmax:.3f}"

    return for_each(HEADS, is_nearer)


def restored(rows: Rows) -> Finding:
    focused = rows.of(module="focused_linear")
    full = focused.frame["height"] * focused.frame["width"]
    ranks, without = column(focused, "attention_rank_convolution"), column(focused, "attention_rank")
    text = f"rank {without.min():g} to {without.max():g} without, at least {ranks.min():g} of {full.max():g} with it"
    return decided(bool((ranks == full).all()), text)


def cost(rows: Rows) -> Finding:
    sa = rows.number("macs", module="sa")
    ratios = {module: column(rows.of(module=module), "macs") / sa for module in NAMES}
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
