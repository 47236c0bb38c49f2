"""Claims of the suite `initialisation` about Appendix F of Geng et al., ICLR 2021."""

from ctxbench_science.claims.findings import Claim, Finding, Outcome, Rows, for_each, measured
from ctxbench_science.numerics.hams import HAMS


def learned(rows: Rows) -> Finding:
    last = rows.extreme("steps")

    def costs_more(ham: str) -> Outcome:
        random, learned = (
            last.number("memory_train_predicted_bytes", module=ham, init=init) / 2**20 for init in ("random", "learned")
        )
        return learned > random, f"{random:.2f} MiB random, {learned:.2f} MiB learned"

    return for_each(HAMS, costs_more)


def online(rows: Rows) -> Finding:
    last = rows.extreme("steps")

    def is_better(ham: str) -> Outcome:
        online, random = (last.number("reconstruction_error", module=ham, init=init) for init in ("online", "random"))
        return online < random, f"{online:.4f} online, {random:.4f} random"

    return for_each(HAMS, is_better)


def spread(rows: Rows) -> Finding:
    last = rows.extreme("steps")
    texts = []
    for ham in HAMS:
        found = last.of(module=ham).numbers("reconstruction_spread", "init")
        texts.append(f"{ham}: {found.idxmax()} {found.max():.4f}, {found.idxmin()} {found.min():.4f}")
    return measured("; ".join(texts))


CLAIMS = (
    Claim(
        "Learned bases, which are trained through all steps, cost more memory than random ones",
        "predicted memory of training at the largest K; whether they need all steps is not tested",
        learned,
    ),
    Claim(
        "The warm start helps",
        "the reconstruction error at the largest K is lower with online bases than with random ones",
        online,
        proxy=True,
    ),
    Claim(
        "How much the error depends on the seed",
        "the largest and the smallest standard deviation over seeds, at the largest K",
        spread,
    ),
)
