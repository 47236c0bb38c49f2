"""What `ctxbench predict` prints: the time of a pass on a device that is not here, and what bounds it, by operator."""

import math
from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ctxbench.case import Case
from ctxbench.cli.describe import plain_table
from ctxbench.devices.sheet import Sheet
from ctxbench.errors import UsageError, unknown
from ctxbench.mode import MODES
from ctxbench.notes import Note
from ctxbench.predict import CONFIDENCE_SDS

if TYPE_CHECKING:
    from rich.table import Table

    from ctxbench.predict.passes import Kernel, PassTime

# Groups of kernels beyond these, and those with less than this share of the time, are summed up in one line.
LISTED_GROUPS, LEAST_SHARE = 15, 0.01
DTYPES = ("float32", "tf32", "bfloat16", "float16", "float64", "autocast-bfloat16", "autocast-float16")


def passes(case: Case, mode: str, sheet: Sheet, dtype: str) -> Iterator["Table | str"]:
    """The predicted time with its band, where it goes by operator, and what a reader must know of it."""
    import torch

    from ctxbench.memory import UnpredictableError
    from ctxbench.predict.operators import operators_of
    from ctxbench.predict.passes import time_of

    for name, value, allowed in (("mode", mode, MODES), ("dtype", dtype, DTYPES)):
        if value not in allowed:
            raise unknown(name, value, allowed)
    is_cast, _, product = dtype.rpartition("-")
    made = torch.float32 if is_cast or dtype == "tf32" else getattr(torch, dtype)
    autocast = getattr(torch, product) if is_cast else None
    with torch.device("meta"):
        model = case.build().to(made)
        x = torch.empty(case.shape, dtype=made)
    try:
        operators = operators_of(model, x, mode=mode, device=sheet.backend, autocast=autocast)  # type: ignore[arg-type]  # checked above
        found = time_of(operators, sheet, dtype)
    except UnpredictableError as error:
        raise UsageError(str(error)) from None
    yield (
        f"{case.title} {list(case.shape)} {dtype}, {mode}: predicted for {sheet.title}, not measured: "
        f"{found.ms:.3g} ms, 80 % band {found.low_ms:.3g} to {found.high_ms:.3g} ms"
    )
    yield (
        f"kernels and the gaps between them {found.device_ms:.3g} ms, launching them {found.host_ms:.3g} ms; "
        "the longer one counts"
    )
    yield _by_operator(found)
    bands = dict.fromkeys(f"{kernel.work.group}: {_basis(kernel)}" for kernel in found.kernels)
    yield f"Efficiency of each class, and its band: {'; '.join(bands)}."
    for note in [*found.notes(dtype), *[Note("autocast_cuda")] * bool(autocast)]:
        yield f"- {note}"
    yield "See docs/prediction.md."


def _by_operator(found: "PassTime") -> "Table":
    """The kernels, alike ones together, the longest time first."""
    groups: dict[tuple[str, ...], list[Kernel]] = defaultdict(list)
    for kernel in found.kernels:
        operator = kernel.operator
        key = (operator.name, operator.phase, operator.where, kernel.work.kind, kernel.bound)
        groups[key].append(kernel)
    order = sorted(groups.items(), key=lambda item: -sum(kernel.ms for kernel in item[1]))
    total = sum(kernel.ms for kernel in found.kernels)
    large = [each for each in order if sum(kernel.ms for kernel in each[1]) >= LEAST_SHARE * total][:LISTED_GROUPS]
    table = plain_table("ms", "share", "operator", "at", "kernels", "class", "bound by")
    for (name, _, where, kind, bound), kernels in large:
        ms = sum(kernel.ms for kernel in kernels)
        table.add_row(f"{ms:.3g}", f"{ms / total:.0%}", name, where, str(len(kernels)), kind, bound)
    if rest := [kernel for _, kernels in order[len(large) :] for kernel in kernels]:
        ms = sum(kernel.ms for kernel in rest)
        table.add_row(f"{ms:.3g}", f"{ms / total:.0%}", "others", "", str(len(rest)), "", "")
    return table


def _basis(kernel: "Kernel") -> str:
    rate = kernel.rate
    like = f", as {rate.like}" if rate.like else ""
    factor = math.exp(CONFIDENCE_SDS * rate.sd)
    return f"{rate.basis}{like}: x{1 / factor:.2g} to x{factor:.2g}"
