"""Times every block of the registry on this machine's GPU, in one process: medians of seven blocks of passes.

The clock and the settings are those of a run (`ctxbench/devices/cuda.py`), the processes are not: one warms up all.
Run: python research/gpu_times.py results/gpu-NAME/times.csv [SECONDS]
"""

import csv
import statistics
import sys
import time
from pathlib import Path

import torch

from ctxbench import devices, registry
from ctxbench.base.mode import MODES, Mode
from ctxbench.plugins.memory.one_pass import run_pass

SHAPES = ((1, 512, 128, 128), (16, 256, 32, 32))
DTYPES = ("float32", "bfloat16")
BLOCKS, BLOCK_S, MOST_PASSES = 7, 0.006, 200
# A pass that takes longer is timed once.
LONG_S = 0.4


def main(path: Path, seconds: float) -> None:
    end = time.monotonic() + seconds
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["module", "mode", "dtype", "shape", "ms", "low_ms", "high_ms", "passes"])
        for shape in SHAPES:
            for dtype in DTYPES:
                for key in registry.names():
                    for mode in MODES:
                        if time.monotonic() > end:
                            return
                        head = (key, mode, dtype, "x".join(map(str, shape)))
                        writer.writerow([*head, *timed(key, mode, dtype, shape)])


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
