"""The tables of a selective scan beside other blocks: from which size on it is cheaper, and what each looks up."""

import json
import math
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import cast

from ctxbench import registry
from ctxbench.base.mode import Mode
from ctxbench.base.number import Number, significant
from ctxbench.model.case import Case
from ctxbench.model.conditions import Shape
from ctxbench.model.metric import RecordRow
from ctxbench.model.metrics import quantity
from ctxbench.plugins.crossover.crossover import CostsAtSize, crossover
from ctxbench.plugins.crossover.table import Pairing, pairings, pairs_of, text_of
from ctxbench.plugins.memory.predict import predict_peak
from ctxbench.plugins.memory.profile import MemoryProfile
from ctxbench.plugins.memory.remedy import fused_scans
from ctxbench.plugins.predict.operators import operators_in
from ctxbench.plugins.predict.passes import time_of
from ctxbench.plugins.predict.sheet import sheets
from ctxbench.report.run_data import RunData
from ctxbench.table.markdown import escape

# A cost of a scan in one fused kernel, from its row.
AtBest = Callable[[RecordRow], float]


def compared(run: RunData) -> Iterator[tuple[str, str, Pairing]]:
    """Another block, what is equal, and the scan beside it: by default, and at the width with that one's parameters."""
    for pair in pairs_of(run):
        found = pairings(run.rows, [pair])
        least = min(map(_apart, found))
        for each in found:
            if not each.rows[0][1]["changed"]:
                yield pair[1], "channels", each
            elif _apart(each) == least:
                yield pair[1], "parameters", each


def _apart(pairing: Pairing) -> int:
    _, scan, other = pairing.rows[0]
    return abs(int(scan["params"]) - int(other["params"]))


def answer(pairing: Pairing, key: str, at_best: AtBest | None = None) -> str:
    """`< 64 (0.68)`: from which n on the scan is cheaper, and how many times the other's cost it has at the largest n.

    `at_best` gives the costs that take the place of the scan's.
    """
    cost = quantity(key)
    sizes = pairing.sizes(cost)
    if at_best:
        best = {n: Number(at_best(scan)) for n, scan, _ in pairing.rows}
        sizes = [CostsAtSize(size.n, best[size.n], Number(size.second.value)) for size in sizes]
    if len(sizes) < 2:
        return ""
    times = significant(sizes[-1].first.value / sizes[-1].second.value, 2)
    return escape(f"{text_of(crossover(sizes, cost.exact), sizes)} ({times})")


@cache
def _pass(hparams: str, shape: str, mode: Mode) -> MemoryProfile:
    size = cast("Shape", tuple(map(int, shape.split("x"))))
    case = Case("ss2d", registry.get("ss2d").reference, json.loads(hparams), size)
    return predict_peak(*case.on_meta(), mode=mode)


def fused_peak(row: RecordRow, mode: Mode) -> float:
    """The least peak in bytes if the scan stores no state."""
    (remedy,) = fused_scans(_pass(row["hparams"], row["shape"], mode))
    return remedy.peak_bytes


def fused_ms(row: RecordRow, mode: Mode) -> float:
    """The least time: all other operators as predicted, and the bytes that a fused scan must move."""
    profile = _pass(row["hparams"], row["shape"], mode)
    sheet = sheets()[row["device"]]
    rest = time_of([each for each in operators_in(profile) if not profile.in_scan(str(each.place))], sheet)
    return max(rest.host_ms, rest.device_ms + math.fsum(profile.scans.values()) / sheet.bandwidth * 1e3)


def both_forms(pairing: Pairing, key: str) -> tuple[str, str]:
    """A cost of the scan as it is, and fused at best."""
    cost, mode = key.split("_")
    at_best = {"memory": fused_peak, "latency": fused_ms}[cost]
    return answer(pairing, key), answer(pairing, key, partial(at_best, mode=cast("Mode", mode)))
