"""Claims of the suite `rank` about the latent dimension of Geng et al., ICLR 2021."""

from ctxbench_science.claims.findings import Claim, Finding, Outcome, Rows, each_of, measured
from ctxbench_science.numerics.hams import HAMS

# Relative: an error of r = 8 up to this much above that of r = 32 counts as no worse.
CLOSE = 0.1
D = 64


@each_of(HAMS)
def small(rows: Rows, ham: str) -> Outcome:
    few, many = (rows.number("reconstruction_error", module=ham, d=D, rank=rank) for rank in (8, 32))
    return few < (1 + CLOSE) * many, f"{few:.3f} at r = 8, {many:.3f} at r = 32"


@each_of(HAMS)
def cost(rows: Rows, ham: str) -> Outcome:
    few, many = (rows.number("macs", module=ham, d=D, rank=rank) for rank in (8, 32))
    return many < 4 * few, f"{many / few:.2f} times"


def least(rows: Rows) -> Finding:
    def gap(ham: str, rank: int) -> float:
        error, best = (
            rows.number(f"reconstruction_{which}", module=ham, d=D, rank=rank) for which in ("error", "least")
        )
        return error / best

    return measured("; ".join(f"{ham}: {gap(ham, 4):.2f} at r = 4, {gap(ham, 32):.2f} at r = 32" for ham in HAMS))


CLAIMS = (
    Claim(
        "r = 8 performs well",
        f"its reconstruction error is within {100 * CLOSE:g} % of that of r = 32 (d = {D})",
        small,
        proxy=True,
    ),
    Claim(
        "The cost grows more slowly than the rank",
        f"r = 32 has less than 4 times the MACs of r = 8, those of the breads included (d = {D})",
        cost,
    ),
    Claim(
        "How far the error is from the least one", f"over the least error of any matrix of the rank (d = {D})", least
    ),
)
