"""Claims of the suite `spectrum` about Fig. 6 of Geng et al., ICLR 2021."""

from ctxbench_science.claims.findings import Claim, Finding, Missing, Outcome, Rows, each_of, measured
from ctxbench_science.numerics.hams import HAMS

# The rank of the signal.
TRUE = 8
# Relative: a smaller change of energy or effective rank is none.
SAME = 0.05
# dB: a smaller difference of two gains is none.
CLOSE_DB = 0.1
LOST_DB = 1.0


@each_of(HAMS)
def concentration(rows: Rows, ham: str) -> Outcome:
    row = rows.of(module=ham, rank=TRUE)
    energy, rank = ([row.number(f"spectrum_{what}_{end}") for end in ("in", "out")] for what in ("energy", "rank"))
    text = f"energy {energy[0]:.3f} to {energy[1]:.3f}, effective rank {rank[0]:.1f} to {rank[1]:.1f}"
    return energy[1] > (1 + SAME) * energy[0], text


def others(rows: Rows) -> Finding:
    """Number of the other modules that change the effective rank, by direction."""
    names = [name for name in rows.modules() if name not in HAMS]
    if not names:
        raise Missing("no other module in this run")
    change = {
        name: rows.number("spectrum_rank_out", module=name) / rows.number("spectrum_rank_in", module=name)
        for name in names
    }
    groups = {
        "lower it": [name for name in names if change[name] < 1 - SAME],
        "raise it": [name for name in names if change[name] > 1 + SAME],
        f"within {100 * SAME:g} %": [name for name in names if abs(change[name] - 1) <= SAME],
    }
    texts = []
    for word, members in groups.items():
        named = ", ".join(f"{name} {change[name]:.2f}" for name in sorted(members, key=change.__getitem__))
        texts.append(f"{word}: {len(members)} of {len(names)}" + (f" ({named})" if named else ""))
    return measured("; ".join(texts))


@each_of(HAMS)
def recovery(rows: Rows, ham: str) -> Outcome:
    gain = rows.number("spectrum_gain", module=ham, rank=TRUE)
    return gain > 0, f"{gain:.2f} dB"


def best(rows: Rows) -> Finding:
    texts = []
    for ham in HAMS:
        own = rows.of(module=ham)
        gains, truncated = (own.numbers(column, "rank") for column in ("spectrum_gain", "spectrum_gain_best"))
        above = gains.index[gains - truncated > CLOSE_DB]
        texts.append(f"{ham}: {', '.join(f'{rank:g}' for rank in above) or 'none'}")
    return measured("; ".join(texts))


@each_of(HAMS)
def forgiving(rows: Rows, ham: str) -> Outcome:
    own = rows.of(module=ham)
    lost, by_svd = (
        own.number(column, rank=TRUE) - own.extreme("rank").number(column)
        for column in ("spectrum_gain", "spectrum_gain_best")
    )
    return lost < LOST_DB, f"{lost:.2f} dB lost, SVD {by_svd:.2f}"


CLAIMS = (
    Claim(
        "Hamburger concentrates the energy",
        f"behind a ham of rank {TRUE} the first {TRUE} singular values hold a share over {100 * SAME:g} % larger",
        concentration,
    ),
    Claim(
        "How many other modules lower the effective rank, too",
        f"output over input; a change of up to {100 * SAME:g} % is none",
        others,
    ),
    Claim("The untrained ham recovers the clean signal", f"its gain at rank {TRUE} is above 0 dB", recovery),
    Claim(
        "Ranks at which a ham denoises better than the truncated SVD of its rank",
        f"a gain that is over {CLOSE_DB:g} dB larger",
        best,
    ),
    Claim(
        "A rank far above that of the signal does little harm",
        f"the largest rank gains at most {LOST_DB:g} dB less than rank {TRUE}",
        forgiving,
    ),
)
