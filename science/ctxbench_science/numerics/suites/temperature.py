"""Claims of the suite `temperature` about Appendix F of Geng et al., ICLR 2021."""

from collections.abc import Iterable

from ctxbench_science.claims.findings import Claim, Finding, Outcome, Rows, for_each

KMEANS = ("ham_cd", "ham_vq")


def below(rows: Rows, column: str, hams: Iterable[str], lower: float, higher: float, digits: str) -> Finding:
    """Finding on a number at the largest K being smaller at one T than at another."""
    last = rows.extreme("steps")

    def is_below(ham: str) -> Outcome:
        numbers = {each: last.number(column, module=ham, temperature=each) for each in (1.0, 0.01)}
        text = ", ".join(f"{value:{digits}} at T = {each:g}" for each, value in numbers.items())
        return numbers[lower] < numbers[higher], text

    return for_each(hams, is_below)


CLAIMS = (
    Claim(
        "A low T is better for VQ and CD",
        "the reconstruction error at the largest K is lower at T = 0.01 than at T = 1",
        lambda rows: below(rows, "reconstruction_error", KMEANS, 0.01, 1.0, ".4f"),
        proxy=True,
    ),
    Claim(
        "A lower T increases the variance",
        "the standard deviation of the error over seeds at the largest K is higher at T = 0.01 than at T = 1",
        lambda rows: below(rows, "reconstruction_spread", KMEANS, 1.0, 0.01, ".1e"),
        proxy=True,
    ),
    Claim(
        "NMF, whose codes start from this softmax, wants a high T",
        "the reconstruction error at the largest K is lower at T = 1 than at T = 0.01",
        lambda rows: below(rows, "reconstruction_error", ["ham_nmf"], 1.0, 0.01, ".4f"),
        proxy=True,
    ),
)
