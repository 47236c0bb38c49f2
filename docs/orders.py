"""Sentences that one block gains more than another, or refusals, and the agreement of settings in their order."""

import math
from collections.abc import Sequence

from ctxbench.base.errors import UsageError
from ctxbench.base.number import Number
from ctxbench.plugins.twins.gains import Twins
from ctxbench.plugins.twins.records import PLAIN, Setting

# With fewer pairs the interval is not known.
FEWEST = 4
_Z = 1.959964


class Refused(UsageError):
    """A claim that one block is better than another, which the published accuracies do not tell."""


def claim(source: Twins, better: str, worse: str) -> str:
    """The sentence that one block is better than another. Refused, an error, where that is not told."""
    found = source.difference(better, worse)
    settings = len(source.differences(better, worse))
    points = f"{source.source.measure} {found.text(decimals=2, sign='+')} points"
    about = f"{points} over {settings} setting{'s' * (settings > 1)}"
    if not source.told_apart(better, worse):
        p, (_, pairs) = source.p_value(better, worse), source.tied_pairs()
        raise Refused(
            f"the records do not tell that {better} is better than {worse}: {about} (p = {p:.2f} among {pairs} pairs)"
        )
    if found.value < 0:
        raise Refused(f"{better} is not better than {worse}: {about}")
    return f"{better} is better than {worse}: {about}."


def rank_correlation(first: Sequence[float], second: Sequence[float]) -> Number:
    """Spearman's rank correlation with its 95 % interval by Fisher's transformation.

    The standard error is that of Bonett and Wright (Sample size requirements for estimating Pearson, Kendall and
    Spearman correlations, Psychometrika 2000). ValueError for fewer than FEWEST pairs, and for equal values alone.
    """
    from scipy.stats import spearmanr

    if len(first) != len(second) or len(first) < FEWEST:
        raise ValueError(f"a rank correlation needs {FEWEST} or more pairs, not {len(first)} and {len(second)} values")
    if len({*first}) == 1 or len({*second}) == 1:
        raise ValueError("values that are all equal have no order")
    value = float(spearmanr(first, second)[0])
    if abs(value) > 1 - 1e-12:
        return Number(value, origin="published")
    reach = _Z * math.sqrt((1 + value**2 / 2) / (len(first) - 3))
    ends = (math.tanh(math.atanh(value) + sign * reach) for sign in (-1, 1))
    return Number(value, *ends, origin="published")


def agreement(source: Twins, one: Setting, other: Setting) -> tuple[Number, int]:
    """Rank correlation of the gains in two settings over the blocks that both have, and how many these are."""
    gains = {block: source.differences(block, PLAIN) for block in source.blocks if block != PLAIN}
    shared = [own for own in gains.values() if one in own and other in own]
    return rank_correlation([own[one] for own in shared], [own[other] for own in shared]), len(shared)
