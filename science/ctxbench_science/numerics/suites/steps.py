"""Claims of the suite `steps` about the iterations of Geng et al., ICLR 2021."""

from ctxbench.base.fits import fit_line
from ctxbench_science.claims.findings import Claim, Finding, Outcome, Rows, decided, each_of
from ctxbench_science.numerics.hams import HAMS

# Relative: a smaller change of the reconstruction error is none.
SAME = 0.02


@each_of(HAMS)
def time(rows: Rows, ham: str) -> Outcome:
    times = rows.of(module=ham).times("infer", "steps")
    slope = fit_line(times.index, times).slope
    text = f"{slope.text()} ms a step"
    return (True if slope.low > 0 else False if slope.high <= 0 else None), text


@each_of(HAMS)
def enough(rows: Rows, ham: str) -> Outcome:
    few, many = (rows.number("reconstruction_error", module=ham, steps=steps) for steps in (6, 24))
    change = abs(many - few) / few
    return change < SAME, f"{few:.3f} at K = 6, {many:.3f} at K = 24 ({change:.1%})"


def one(rows: Rows) -> Finding:
    first, sixth = (rows.number("reconstruction_error", module="ham_vq", steps=steps) for steps in (1, 6))
    change = abs(first - sixth) / sixth
    return decided(change < SAME, f"ham_vq: {first:.3f} at K = 1, {sixth:.3f} at K = 6 ({change:.1%})")


@each_of(HAMS)
def falling(rows: Rows, ham: str) -> Outcome:
    errors = rows.of(module=ham).numbers("reconstruction_error", "steps")
    rises = errors.index[errors.diff() > 0]
    return rises.empty, f"rises to K = {', '.join(f'{steps:g}' for steps in rises)}" if len(rises) else "never rises"


CLAIMS = (
    Claim(
        "The time of an inference grows with K",
        "the 95 % interval of the slope over K lies above 0, through times of three or more processes each",
        time,
    ),
    Claim(
        "3 to 6 steps are enough",
        f"the reconstruction error changes by less than {100 * SAME:g} % from K = 6 to 24",
        enough,
        proxy=True,
    ),
    Claim(
        "K = 1 is acceptable for VQ",
        f"its reconstruction error is within {100 * SAME:g} % of that of K = 6",
        one,
        proxy=True,
    ),
    Claim("More steps lower the reconstruction error", "it does not rise from one K to the next", falling),
)
