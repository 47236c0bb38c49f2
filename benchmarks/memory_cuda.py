"""Predicted against measured peak memory on a GPU; where they differ, block by block, for a step of `gpu.py`.

`blocks.csv` has the blocks that only the prediction or only the caching allocator's history has. Each module is traced
in a fresh process.
"""

import csv
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import pandas as pd
import torch
from allocator_history import Comparison, compare

from ctxbench import registry
from ctxbench.base.mode import MODES, Mode
from ctxbench.plugins.memory.measure import measure_peak
from ctxbench.plugins.memory.one_pass import prepared, run_pass
from ctxbench.plugins.memory.predict import predict_peak

MIB = 2**20
COLUMNS = ("module", "mode", "dtype", "predicted_bytes", "measured_bytes", "only_in", "bytes", "made_by", "where")


@dataclass(frozen=True)
class Traced:
    """One module in one mode: both peaks, and how the allocator's history differs from the prediction."""

    module: str
    mode: Mode
    predicted_bytes: int
    measured_bytes: int
    comparison: Comparison
    dtype: str

    @property
    def error(self) -> float:
        """Predicted over measured less one, the blocks at the measured peak that were not predicted left out."""
        return self.predicted_bytes / (self.measured_bytes - self.comparison.unmatched_bytes_at_peak) - 1


def trace(key: str, mode: Mode, shape: tuple[int, ...], dtype: str) -> Traced:
    """Measure one module, then run it again with the allocator recording."""
    kind = getattr(torch, dtype)
    module = registry.get(key).build(shape[1]).to("cuda", kind)
    image = torch.randn(shape, device="cuda", dtype=kind)
    profile = predict_peak(module, image, mode=mode, device="cuda")
    measured = measure_peak(module, image, mode=mode)
    with prepared(module, mode):
        torch.cuda.memory._record_memory_history(max_entries=10**6, context="alloc", stacks="python")
        output = run_pass(module, (image,), mode)
        torch.cuda.synchronize()
        entries = torch.cuda.memory._snapshot()["device_traces"][torch.cuda.current_device()]
        torch.cuda.memory._record_memory_history(enabled=None)
        del output
    return Traced(key, mode, profile.peak_bytes, measured, compare(profile, entries), dtype)


def trace_fresh(key: str, mode: Mode, shape: tuple[int, ...], dtype: str) -> Traced:
    """Trace in a fresh process, forked from one that has torch and has not used CUDA."""
    context = get_context("forkserver")
    context.set_forkserver_preload(["memory_cuda"])
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(trace, key, mode, shape, dtype).result()


def write_blocks(path: Path, results: list[Traced]) -> None:
    """Write the unmatched blocks of each module and mode, largest first; a row without a block where there is none."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for result in results:
            head = (result.module, result.mode, result.dtype, result.predicted_bytes, result.measured_bytes)
            for found in result.comparison.unmatched:
                writer.writerow((*head, found.only_in, found.block.bytes, found.block.made_by, found.block.where))
            if not result.comparison.unmatched:
                writer.writerow((*head, "", "", "", ""))


def show(result: Traced) -> str:
    """One line: both peaks in MiB, the error without workspaces, and the largest unmatched block."""
    largest = ""
    for first in result.comparison.unmatched[:1]:
        largest = f"  largest unmatched block: {first.block.bytes / MIB:.1f} MiB only in the {first.only_in}"
    return (
        f"{result.module:16} {result.mode:6} {result.dtype:8} predicted {result.predicted_bytes / MIB:9.1f}  measured "
        f"{result.measured_bytes / MIB:9.1f}  not predicted at the peak "
        f"{result.comparison.unmatched_bytes_at_peak / MIB:7.1f}  error {result.error:+.2%}{largest}"
    )


@dataclass(frozen=True)
class Peak:
    """The predicted and the measured peak of one row."""

    module: str
    mode: Mode
    dtype: str
    shape: tuple[int, ...]
    error: float

    def __str__(self) -> str:
        return f"{self.module} {self.mode} {self.dtype} {list(self.shape)}"


def peaks(frame: pd.DataFrame) -> list[Peak]:
    """The rows that have both peaks."""
    found = []
    for mode in MODES:
        columns = [f"memory_{mode}_predicted_bytes", f"memory_{mode}_bytes"]
        for _, row in frame[frame["status"] == "ok"].dropna(subset=columns).iterrows():
            shape = tuple(int(row[name]) for name in ("batch", "channels", "height", "width"))
            found.append(Peak(row["module"], mode, row["dtype"], shape, row[columns[0]] / row[columns[1]] - 1))
    return found


def blocks_that_differ(rows: Sequence[Peak], path: Path, deadline: float) -> list[str]:
    """Compare block by block, the largest error first, until the time is up; what was found, in phrases."""
    traced: list[Traced] = []
    notes = []
    for row in rows:
        if time.monotonic() > deadline - 20:
            break
        try:
            traced.append(trace_fresh(row.module, row.mode, row.shape, row.dtype))
        except Exception as error:
            notes.append(f"no history of {row}: {error}")
            continue
        print(show(traced[-1]), flush=True)
        write_blocks(path, traced)
    if traced:
        notes.insert(0, f"blocks of {len(traced)} rows are in {path.name}")
        for found in traced[0].comparison.unmatched[:1]:
            size = f"{found.block.bytes / MIB:.1f} MiB"
            notes.insert(1, f"the largest of the first: {size} only in the {found.only_in} ({found.block.where})")
    return notes[:4]
