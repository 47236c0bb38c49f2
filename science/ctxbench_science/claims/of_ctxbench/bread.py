"""Claims of the suite `bread` about the breads and hams of Geng et al., ICLR 2021."""

from ctxbench_science.claims.findings import Claim, Finding, Outcome, Rows, each_of, measured

# Mi, as printed.
PRINTED = {"nothing": "0.50", "ham": "0.50", "upper": "0.25", "lower": "0.25", "breads": "0.00"}


@each_of(PRINTED)
def params(rows: Rows, part: str) -> Outcome:
    found = rows.of(without=part)
    counts = {f"{found.number('params', module=module) / 2**20:.2f}" for module in found.modules()}
    return counts == {PRINTED[part]}, f"+{', '.join(sorted(counts))} Mi"


def share(rows: Rows) -> Finding:
    whole, breads = (rows.number("macs", module="ham_nmf", without=part) for part in ("nothing", "ham"))
    return measured(f"{1 - breads / whole:.0%} of the MACs of Ham (NMF)")


CLAIMS = (
    Claim(
        "The block adds 0.50 Mi parameters, 0.50 without the ham, 0.25 without either bread, none as ham alone",
        "by the part that is left out, the printed digits (Mi = 2^20)",
        params,
    ),
    Claim("Which share of the cost is the ham", "MACs at this input", share),
)
