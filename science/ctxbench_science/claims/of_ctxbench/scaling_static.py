"""Claims of the suite `scaling-static` about the orders of cost in n = H x W, the batch and the channels."""

import json
import math
from collections.abc import Mapping
from functools import partial

from ctxbench import registry
from ctxbench.base.errors import UsageError
from ctxbench.base.fits import fit_line
from ctxbench.model.conditions import Shape
from ctxbench.model.metric import RecordRow
from ctxbench_science.claims.findings import Claim, Finding, Missing, Outcome, Rows, tally

# Large enough for the term of highest order to be the whole.
FAR = 2**20
# By how much an exponent at the sizes of a run may miss the order, since terms of lower order are still there.
NEAR = 0.1
# How much lower an exponent of memory may be than that of the MACs.
WIDE = 0.25
# The places in a shape, how often the number of elements grows when a size doubles, and which sizes are fitted:
# those from this share of the largest.
AXES = {"H x W": ((2, 3), 2, 1 / 16), "batch": ((0,), 1, 0.0), "channels": ((1,), 1, 1 / 4)}


def along(rows: Rows, axis: str) -> Rows:
    """The rows that differ in one size alone, the others at their least; `size` is that size."""
    if axis != "batch":
        rows = rows.of(batch=1)
    if axis != "channels":
        rows = rows.extreme("channels", largest=False)
    if axis != "H x W":
        rows = rows.extreme("height", largest=False)
    sized = [{**row, "size": row["height"] * row["width"] if axis == "H x W" else row[axis]} for row in rows.rows]
    largest = max(row["size"] for row in sized)
    return Rows([row for row in sized if row["size"] >= AXES[axis][2] * largest])


def order(row: RecordRow, axis: str) -> float:
    """The exponent of the module's closed form of MACs as a size becomes very large. Missing if it declares none."""
    places, doublings, _ = AXES[axis]
    costs = []
    for times in (FAR, 2 * FAR):
        sizes = [int(row[name]) for name in ("batch", "channels", "height", "width")]
        batch, channels, height, width = (size * times if at in places else size for at, size in enumerate(sizes))
        shape: Shape = batch, channels, height, width
        try:
            cost = registry.get(str(row["module"])).closed_form("macs", shape, json.loads(str(row["hparams"])))
        except UsageError as error:
            raise Missing(str(error)) from None
        if not cost:
            raise Missing("no closed form of MACs")
        costs.append(cost)
    return math.log2(costs[1] / costs[0]) / doublings


def exponent(rows: Rows, column: str) -> float:
    """The exponent of a column over `size`. Missing for fewer than three sizes."""
    values = rows.numbers(column, "size", least=3)
    if (values <= 0).any():
        raise Missing(f"{column} is 0")
    return fit_line(values.index.map(math.log), values.map(math.log)).slope.value


def closed_form(rows: Rows) -> Finding:
    """Finding on counts of MACs equal to the module's closed form."""

    def is_equal(module: str) -> Outcome:
        own = rows.of(module=module)
        counted, formula = own.column("macs"), own.column("macs_formula")
        other = int((counted != formula).sum())
        return not other, f"{other} of {len(counted)} sizes" if other else ""

    return tally(rows.modules(), is_equal)


def growth(rows: Rows, axis: str) -> Finding:
    own = along(rows, axis)
    orders: dict[str, float] = {}

    def is_near(module: str) -> Outcome:
        chosen = own.of(module=module)
        orders[module] = order(chosen.rows[0], axis)
        slope = exponent(chosen, "macs")
        near = abs(slope - orders[module]) <= NEAR
        return near, "" if near else f"{slope:.2f} of {orders[module]:.2f}"

    found = tally(rows.modules(), is_near)
    return Finding(found.verdict, f"{found.text}; orders: {grouped(orders)}" if orders else found.text)


def memory(rows: Rows, mode: str) -> Finding:
    own = along(rows, "H x W")
    exponents: dict[str, float] = {}

    def follows(module: str) -> Outcome:
        chosen = own.of(module=module)
        exponents[module] = exponent(chosen, f"memory_{mode}_predicted_bytes")
        macs = exponent(chosen, "macs")
        same = exponents[module] >= macs - WIDE
        return same, "" if same else f"{exponents[module]:.2f}, MACs {macs:.2f}"

    found = tally(rows.modules(), follows)
    return Finding(found.verdict, f"{found.text}; exponents: {grouped(exponents)}" if exponents else found.text)


def grouped(values: Mapping[str, float]) -> str:
    """Modules by exponent, rounded to one place: `2.0: da, sa; 1.0: ...`."""
    groups: dict[float, list[str]] = {}
    for module, value in values.items():
        groups.setdefault(round(value, 1), []).append(module)
    return "; ".join(f"{value}: {', '.join(groups[value])}" for value in sorted(groups, reverse=True))


def order_claim(axis: str) -> Claim:
    return Claim(
        f"Over {axis}, MACs reach the order of their leading term at these sizes",
        f"the exponent over the largest sizes is within {NEAR} of that order",
        partial(growth, axis=axis),
    )


def memory_claim(mode: str, word: str) -> Claim:
    return Claim(
        f"Memory of {word} grows with H x W as the MACs do",
        f"the exponent of the memory predicted for CUDA is at most {WIDE} below that of the MACs",
        partial(memory, mode=mode),
    )


CLAIMS = (
    Claim("MACs are those of the closed form", "equal at every size", closed_form),
    order_claim("H x W"),
    memory_claim("train", "training"),
    memory_claim("infer", "inference"),
    order_claim("batch"),
    order_claim("channels"),
)
