"""Times every block of the registry on this machine's GPU, in one process: medians of seven blocks of passes.

A row that takes far longer an operator than the rows before it is timed again, and the faster time counts: other work
disturbs the host. The clock and the settings are those of a run (`ctxbench/devices/cuda.py`), the processes are not:
one warms up all.
Run: python research/gpu_times.py results/gpu-NAME/times.csv [SECONDS]
"""

import csv
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from ctxbench import devices, registry
from ctxbench.base.mode import MODES, Mode
from ctxbench.plugins.memory.one_pass import run_pass
from ctxbench.plugins.predict.operators import operators_of

SHAPES = ((1, 512, 128, 128), (16, 256, 32, 32))
DTYPES = ("float32", "bfloat16")
BLOCKS, BLOCK_S, MOST_PASSES = 7, 0.006, 200
# A pass that takes longer is timed once.
LONG_S = 0.4
# A row is off that takes an operator this many times as long as the median of so many rows before it.
OFF, NEIGHBOURS = 2.0, 9


def main(path: Path, seconds: float) -> None:
    end = time.monotonic() + seconds
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["module", "mode", "dtype", "shape", "ms", "low_ms", "high_ms", "passes"])
        before: list[float] = []
        for shape in SHAPES:
            for dtype in DTYPES:
                for key in registry.names():
                    for mode in MODES:
                        if time.monotonic() > end:
                            return
                        head = (key, mode, dtype, "x".join(map(str, shape)))
                        row = undisturbed((key, mode, dtype, shape), before)
                        writer.writerow([*head, *row])


def undisturbed(case: tuple[str, Mode, str, tuple[int, ...]], before: list[float]) -> list[str | int]:
    """A row, timed again if it is off; its microseconds an operator are printed, and added to those `before` it."""
    key, mode, _, shape = case
    row, operators, again = timed(*case), launches(key, mode, shape), ""
    if row[0] and is_off(1e3 * float(row[0]) / operators, before):
        row, again = min(row, timed(*case), key=lambda each: float(each[0] or "inf")), ", timed again"
    if row[0]:
        before.append(1e3 * float(row[0]) / operators)
        print(f"{key} {mode}: {before[-1]:.1f} us an operator{again}", flush=True)
    return row


def is_off(us: float, before: Sequence[float]) -> bool:
    """Return whether a row takes far longer an operator than the rows before it."""
    near = before[-NEIGHBOURS:]
    return len(near) == NEIGHBOURS and us > OFF * statistics.median(near)


def launches(key: str, mode: Mode, shape: tuple[int, ...]) -> float:
    """Operators that the host starts in a pass."""
    with torch.device("meta"):
        module, x = registry.get(key).build(shape[1]), torch.empty(shape)
    return sum(each.launches for each in operators_of(module, x, mode=mode))


def timed(key: str, mode: Mode, dtype: str, shape: tuple[int, ...]) -> list[str | int]:
    """Median, smallest and largest milliseconds, and the passes of a block; the error in the last place."""
    device = devices.device("cuda")
    device.set_flags(dtype, None, False)
    clock, kind = device.clock(), getattr(torch, dtype)
    module = registry.get(key).build(shape[1]).to("cuda", kind).train(mode == "train")
    x = torch.randn(shape, device="cuda", dtype=kind)

    def step() -> object:
        module.zero_grad(set_to_none=True)
        return run_pass(module, (x,), mode)

    try:
        clock.time_block(step, 1)
        once = clock.time_block(step, 1)
        passes = max(1, min(MOST_PASSES, round(BLOCK_S / once)))
        blocks = 1 if once > LONG_S else BLOCKS
        times = [clock.time_block(step, passes) / passes for _ in range(blocks)]
    except RuntimeError as error:
        return ["", "", "", f"{type(error).__name__}: {error}".split("\n")[0]]
    return [*(f"{1000 * each:.5f}" for each in (statistics.median(times), min(times), max(times))), passes]


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]) if sys.argv[2:] else 120.0)
