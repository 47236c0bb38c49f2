"""Claims of the suite `networks` about modules inside networks."""

from functools import partial

from ctxbench.model.case import EMPTY
from ctxbench_science.claims.findings import Claim, Finding, Missing, Outcome, Rows, measured, tally

# The network whose shares are judged, its sizes for counts and times, and the share that is called small.
NETWORK, COUNTED, TIMED = "resnet50_d8", 512, 256
SMALL = 0.1
COSTS = {
    "macs": "MACs",
    "memory_train_predicted_bytes": "training memory",
    "memory_infer_predicted_bytes": "inference memory",
}


def _modules(rows: Rows) -> list[str]:
    return [name for name in rows.modules() if name != EMPTY]


def _share(rows: Rows, column: str, module: str, network: str = NETWORK) -> float:
    """Cost added by a module, over the network without it."""
    part = rows.of(network=network, height=COUNTED)
    without = part.number(column, module=EMPTY)
    return (part.number(column, module=module) - without) / without


def small(rows: Rows, column: str) -> Finding:
    def is_small(module: str) -> Outcome:
        share = _share(rows, column, module)
        return share < SMALL, "" if share < SMALL else f"{share:+.0%}"

    return tally(_modules(rows), is_small)


def spread(rows: Rows, column: str) -> Finding:
    """The smallest and the largest share in each network."""
    texts = []
    for network, part in rows.split("network").items():
        shares = {}
        for module in _modules(part):
            try:
                shares[module] = _share(rows, column, module, network)
            except Missing:
                continue
        if shares:
            least, most = min(shares, key=shares.__getitem__), max(shares, key=shares.__getitem__)
            texts.append(f"{network}: {shares[least]:+.1%} ({least}) to {shares[most]:+.1%} ({most})")
    if not texts:
        raise Missing("no network has a module and a row without one")
    return measured("; ".join(texts))


def quick(rows: Rows, mode: str) -> Finding:
    def is_quick(module: str) -> Outcome:
        part = rows.of(network=NETWORK, height=TIMED)
        without = part.time(mode, module=EMPTY).value
        row = part.row(f"added_{mode}_low_ms", module=module)
        low, high = (row[f"added_{mode}_{end}_ms"] / without for end in ("low", "high"))
        text = f"{row[f'added_{mode}_ms'] / without:+.0%}"
        return (True, "") if high < SMALL else (False, text) if low > SMALL else (None, "the interval holds the limit")

    return tally(_modules(rows), is_quick)


CRITERION = f"added over the network without it, below {SMALL:.0%}; {NETWORK} at {COUNTED} x {COUNTED}"
TIMES = (
    f"the 95 % interval of the added time lies below {SMALL:.0%} of the network's time; {NETWORK} at {TIMED} x {TIMED}"
)
SPREAD = f"the smallest and the largest share in each network, {COUNTED} x {COUNTED}"
CLAIMS = (
    *(
        Claim(f"A module adds little to the {noun} of a network", CRITERION, partial(small, column=column))
        for column, noun in COSTS.items()
    ),
    Claim("A module adds little to the time of an inference", TIMES, partial(quick, mode="infer")),
    Claim("A module adds little to the time of a training step", TIMES, partial(quick, mode="train")),
    *(
        Claim(f"Which share of the {noun} the choice decides", SPREAD, partial(spread, column=column))
        for column, noun in COSTS.items()
    ),
)
