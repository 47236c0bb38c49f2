"""Launches and predicted times of both sides of a check, for a GPU that is not here."""

import math
from collections.abc import Sequence
from typing import Any

from ctxbench import devices
from ctxbench.base.number import Number, reason_unknown
from ctxbench.engine.client import ForkServer
from ctxbench.engine.remote import ask
from ctxbench.model.case import Case, Measure
from ctxbench.plugins.check.result import LAUNCHES, ExactChange
from ctxbench.plugins.check.rows import PREDICTED, GateVerdict, RowKey, RowVerdict, unmeasured
from ctxbench.plugins.check.wire import PredictedPass

SAME = "predicted for {device}: both sides start the same kernels"


def sheet_of(case: Case) -> devices.KnownDevice | None:
    """The data sheet of a case's device that is not here; None of one with a clock."""
    return next(iter(devices.sheets([case.device]).values()), None)


def predicted_passes(
    servers: tuple[ForkServer, ForkServer], sides: tuple[Case, Case], measure: Measure
) -> Sequence[PredictedPass]:
    """Each mode's kernels and times of a case on both sides; none where a process fails, which its counts say."""
    sheet, limit_s = sheet_of(sides[1]), measure.timeout_s
    for before in ask(servers[0], "passes", dict[str, Any], sides[0], measure, sheet, timeout_s=limit_s).told:
        kind, arguments = list[PredictedPass], (sides[1], measure, sheet, before)
        found: list[list[PredictedPass]] = ask(servers[1], "predicted", kind, *arguments, timeout_s=limit_s).told
        return found[0] if found else ()
    return ()


def launch_changes(name: str, passes: Sequence[PredictedPass]) -> tuple[list[ExactChange], int]:
    """The counts of kernels that differ, and how many were compared."""
    known = [each for each in passes if not each.unknown]
    changes = [
        ExactChange(name, f"{LAUNCHES}_{each.mode}", *each.kernels) for each in known if len({*each.kernels}) > 1
    ]
    return changes, len(known)


def predicted_rows(name: str, case: Case, passes: Sequence[PredictedPass], margin: float | None) -> list[RowVerdict]:
    """A row a mode: the change of its predicted time. It is a verdict only with a margin."""
    sheet = sheet_of(case)
    return [_row(RowKey(name, each.mode), each, sheet.title if sheet else "", margin) for each in passes]


def _row(row: RowKey, found: PredictedPass, device: str, margin: float | None) -> RowVerdict:
    if found.unknown:
        return unmeasured(row, "not compared", f"no time is predicted: {found.unknown}")
    change = Number(*found.change).map_monotonic(lambda ratio: ratio - 1)
    if change.has_interval and change.low == change.high == 0:
        return _verdict(row, "ok", change, SAME.format(device=device))
    origin = f"predicted for {device}, not measured"
    if margin is None and (why := reason_unknown(*found.change[1:], {"change": math.inf})):
        return _verdict(row, None, Number(math.nan), f"{origin}; the change is not known: {why}")
    told = f": {found.times[0]} in the baseline, {found.times[1]} now"
    if found.untold:
        told = f"; only the change is shown, not the times: {found.untold}"
    verdict: GateVerdict | None = None
    if margin is not None:
        verdict = "regressed" if change.low > margin else "ok" if change.high <= margin else "inconclusive"
    return _verdict(row, verdict, change, origin + told)


def _verdict(row: RowKey, verdict: GateVerdict | None, change: Number, reason: str) -> RowVerdict:
    return RowVerdict(row, PREDICTED, verdict, change, math.nan, 0, reason)
