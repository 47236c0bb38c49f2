"""Times of a selective scan of torch's operators, of the same scan in one compiled loop, and of copying its bytes.

The loop is C++, with the states in the first cache: what a fused kernel does on one core of a CPU. All run in one
thread and are timed by its processor time, so that other work on the machine counts for little. It needs g++.

Run: python research/fused_scan.py [repeats]. Writes results/fused-scan; then python docs/update.py docs/scan.md.
"""

import ctypes
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import torch
from stamp import stamp, write_stamp
from torch import Tensor

from ctxbench.devices.cpu import processor
from ctxbench.meta.scan import selective_scan

FOLDER = Path(__file__).resolve().parents[1] / "results" / "fused-scan"
# Channels, states, positions.
SIZES = [(128, 1, 1024), (128, 1, 4096), (256, 16, 1024), (256, 16, 4096)]
COPIED = 2**24  # numbers, more than any cache holds
LOOP = """
#include <cmath>
#include <vector>
extern "C" void scan(const float *value, const float *step, const float *rate, const float *enter, const float *leave,
                     float *result, long positions, long channels, long states) {
  std::vector<float> kept(states * channels, 0.0f);
  for (long t = 0; t < positions; ++t) {
    const float *x = value + t * channels, *dt = step + t * channels;
    float *y = result + t * channels;
    for (long d = 0; d < channels; ++d) y[d] = 0.0f;
    for (long s = 0; s < states; ++s) {
      const float in = enter[t * states + s], out = leave[t * states + s], *a = rate + s * channels;
      float *h = kept.data() + s * channels;
      for (long d = 0; d < channels; ++d) {
        h[d] = expf(dt[d] * a[d]) * h[d] + dt[d] * x[d] * in;
        y[d] += out * h[d];
      }
    }
  }
}
"""


def compiled(folder: str) -> Callable[..., None]:
    """The loop for this processor, with exponentials of several numbers at once."""
    source, library = Path(folder, "scan.cpp"), Path(folder, "scan.so")
    source.write_text(LOOP)
    options = ["-O3", "-march=native", "-ffast-math", "-shared", "-fPIC"]
    subprocess.run(["g++", *options, str(source), "-o", str(library), "-lmvec", "-lm"], check=True)
    function: Callable[..., None] = ctypes.CDLL(str(library)).scan
    return function


def arguments(channels: int, states: int, positions: int) -> list[Tensor]:
    """Random arguments of a scan on one route, in the ranges of a new module; the skip is zero."""
    torch.manual_seed(0)
    value, step = torch.randn(1, 1, positions, channels), torch.empty(1, 1, positions, channels).uniform_(1e-3, 0.1)
    rate = -torch.empty(1, channels, states).uniform_(1, 16)
    enter, leave = torch.randn(2, 1, 1, positions, states)
    return [value, step, rate, enter, leave, torch.zeros(1, channels)]


def fused(loop: Callable[..., None], parts: list[Tensor]) -> Callable[[], Tensor]:
    """The same scan by the loop."""
    value, step, rate, enter, leave, _ = parts
    read = [value, step, rate[0].T.contiguous(), enter, leave]
    result = torch.empty_like(value)
    sizes = [ctypes.c_long(each) for each in (value.size(2), value.size(3), rate.size(2))]

    def run() -> Tensor:
        loop(*(ctypes.c_void_p(each.data_ptr()) for each in [*read, result]), *sizes)
        return result

    return run


def cpu_ms(run: Callable[[], object]) -> float:
    before = time.thread_time()
    run()
    return (time.thread_time() - before) * 1e3


def row(loop: Callable[..., None], size: tuple[int, int, int], repeats: int) -> dict[str, float]:
    """One size: medians of runs in turns, the scan over each of the others, and how far the two scans are apart."""
    parts = arguments(*size)
    value, _, _, enter, *_ = parts
    source, copy = torch.randn(2, COPIED)
    runs: dict[str, Callable[[], Tensor]] = {
        "scan": lambda: selective_scan(*parts), "fused": fused(loop, parts), "copy": lambda: copy.copy_(source),
    }  # fmt: skip
    with torch.inference_mode():
        ours, theirs = runs["scan"](), runs["fused"]()
        apart = float((ours - theirs).abs().max() / ours.abs().max())
        if not apart < 1e-5:
            raise SystemExit(f"The loop does not compute the scan: {apart} apart.")
        times: dict[str, list[float]] = {name: [] for name in runs}
        for _ in range(repeats):
            for name, run in runs.items():
                times[name].append(cpu_ms(run))
    moved = 3 * value.numel() + 2 * enter.numel()  # value, step, result; enter, leave
    bound = [each * moved / (2 * COPIED) for each in times["copy"]]
    found = {"channels": size[0], "states": size[1], "positions": size[2], "apart": apart}
    for name, of in {"scan": times["scan"], "fused": times["fused"], "bytes": bound}.items():
        found[f"{name}_ms"] = statistics.median(of)
    for name, of in {"fused": times["fused"], "bytes": bound}.items():
        ratios = sorted(mine / other for mine, other in zip(times["scan"], of, strict=True))
        found |= {f"over_{name}": statistics.median(ratios), f"over_{name}_low": ratios[0]}
        found[f"over_{name}_high"] = ratios[-1]
    return found


def main() -> None:
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 9
    torch.set_num_threads(1)
    evidence = stamp()
    with tempfile.TemporaryDirectory() as folder:
        loop = compiled(folder)
        rows = [row(loop, size, repeats) for size in SIZES]
    write_stamp(FOLDER, evidence | {"cpu": processor(), "torch": torch.__version__, "repeats": str(repeats)})
    pd.DataFrame(rows).to_csv(FOLDER / "times.csv", index=False, lineterminator="\n", float_format="%.4g")


if __name__ == "__main__":
    main()
