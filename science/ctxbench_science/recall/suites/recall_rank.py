"""Claims of the suite `recall_rank`: what a ham brings whose rank is a bottleneck."""

from ctxbench_science.claims.findings import Claim, Finding, Outcome, Rows, for_each, measured
from ctxbench_science.recall.suites.recall import reached

# The ranks below both sides of the matrix, 64 x 256.
BELOW = (4, 8, 16, 32)
FULL = 64
GRADIENTS = {"one_step": "one step", "bptt": "all steps"}


def one_step(rows: Rows) -> Finding:
    """Outcome at each rank: whether the interval with the gradient of one step is below that of all steps."""

    def judge(rank: str) -> Outcome:
        one, every = (reached(rows, "segment", module="ham_nmf", rank=int(rank), gradient=each) for each in GRADIENTS)
        return one.high < every.low, f"{one.text(decimals=0)} against {every.text(decimals=0)} % mean IoU"

    return for_each(map(str, BELOW), judge)


def ranks(rows: Rows) -> Finding:
    parts = []
    for gradient, name in GRADIENTS.items():
        found = [reached(rows, "segment", module="ham_nmf", rank=rank, gradient=gradient) for rank in (*BELOW, FULL)]
        parts.append(f"{name}: {', '.join(each.text(decimals=0) for each in found)} %")
    return measured("; ".join(parts))


CLAIMS = (
    Claim(
        "At a rank that is a bottleneck, too, the gradient of one step costs ability",
        "segment at rank 4, 8, 16 and 32 of 64 x 256: its interval is below that of the gradient through all steps",
        one_step,
    ),
    Claim("What a smaller rank costs", f"segment, mean IoU at rank 4, 8, 16, 32 and {FULL}, which is full rank", ranks),
)
