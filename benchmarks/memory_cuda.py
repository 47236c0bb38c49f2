"""Predicted against measured peak memory on a GPU: all blocks of the registry, for a step of `gpu.py`.

Other processes predict, this one measures, and then names the operators of the blocks that only one side has.
"""

import csv
import os
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import torch
from allocator_history import UnmatchedBlock, compare, made_blocks
from torch.nn.attention import SDPBackend, sdpa_kernel

from ctxbench import devices, registry
from ctxbench.base.mode import MODES, Mode
from ctxbench.plugins.memory.measure import measure_peak
from ctxbench.plugins.memory.one_pass import prepared, run_pass
from ctxbench.plugins.memory.predict import predict_peak

MIB = 2**20
# On compute capability 9.0 a process that has used CUDA prefers cuDNN's kernel, which is not predicted.
NOT_PREDICTED = (SDPBackend.CUDNN_ATTENTION, SDPBackend.OVERRIDEABLE, SDPBackend.ERROR)
LARGEST = 20  # of the blocks of a row, which are written
CELLS = ("module", "mode", "dtype", "shape")
Shape = tuple[int, int, int, int]


@dataclass(frozen=True)
class Case:
    """One block in one mode, on an image of this shape and dtype."""

    module: str
    mode: Mode
    dtype: str
    shape: Shape

    def __str__(self) -> str:
        return f"{self.module} {self.mode} {self.dtype} {list(self.shape)}"

    def cells(self) -> tuple[str, str, str, str]:
        """The values of `CELLS`."""
        return self.module, self.mode, self.dtype, "x".join(map(str, self.shape))

    def built(self, device: str) -> tuple[torch.nn.Module, torch.Tensor]:
        """The block and its image on a device."""
        kind = getattr(torch, self.dtype)
        with torch.device(device):
            module = registry.get(self.module).build(self.shape[1]).to(kind)
            return module, torch.randn(self.shape, dtype=kind)


@dataclass(frozen=True)
class Predicted:
    """The predicted peak, the operators that its marks name, or the sentence that refuses it."""

    peak_bytes: int | None
    marks: tuple[str, ...] = ()
    refused: str = ""


@dataclass(frozen=True)
class Peak:
    """Both peaks of a case in bytes; without one of them, why."""

    case: Case
    predicted: Predicted
    measured_bytes: int | None
    refused: str = ""

    @property
    def error(self) -> float | None:
        """Predicted over measured less one."""
        known = self.predicted.peak_bytes is not None and self.measured_bytes
        return self.predicted.peak_bytes / self.measured_bytes - 1 if known else None  # type: ignore[operator]  # known


def cases(shapes: Sequence[Shape], dtypes: Sequence[str]) -> list[Case]:
    """Every block of the registry in both modes."""
    return [
        Case(key, mode, dtype, shape)
        for shape in shapes
        for dtype in dtypes
        for key in registry.names()
        for mode in MODES
    ]


def predicted(case: Case) -> Predicted:
    """Predict for CUDA, in a process that has not used it."""
    torch.set_num_threads(1)
    try:
        profile = predict_peak(*case.built("meta"), mode=case.mode, device="cuda")
    except Exception as error:
        return Predicted(None, refused=_told(error))
    return Predicted(profile.peak_bytes, tuple(profile.marks))


def peaks(wanted: Sequence[Case], path: Path, deadline: float, device: str = "cuda") -> list[Peak]:
    """Both peaks of each case, until the time is up; each is written to `path` once it is known."""
    found = []
    workers = max(1, len(os.sched_getaffinity(0)) - 1)
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool, path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([*CELLS, "predicted_bytes", "measured_bytes", "marks", "refused"])
        futures = [pool.submit(predicted, case) for case in wanted]
        for case, future in zip(wanted, futures, strict=True):
            if time.monotonic() > deadline:
                pool.shutdown(cancel_futures=True)
                break
            peak = _peak(case, future.result(), device)
            known = peak.predicted
            told = known.peak_bytes, peak.measured_bytes, " ".join(known.marks), peak.refused
            writer.writerow([*case.cells(), *told])
            file.flush()
            found.append(peak)
    return found


def _peak(case: Case, known: Predicted, device: str) -> Peak:
    if known.refused:
        return Peak(case, known, None, known.refused)
    try:
        devices.device(device).set_flags(case.dtype, None, False)
        module, image = case.built(device)
        return Peak(case, known, measure_peak(module, image, mode=case.mode))
    except Exception as error:
        return Peak(case, known, None, _told(error))


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".split("\n")[0]


def unmatched(case: Case, device: str = "cuda") -> list[UnmatchedBlock]:
    """Differences between a case predicted anew, without cuDNN's attention as in a new process, and its traced run."""
    module, image = case.built(device)
    with sdpa_kernel([each for each in SDPBackend.__members__.values() if each not in NOT_PREDICTED]):
        profile = predict_peak(*case.built("meta"), mode=case.mode, device="cuda")
    with prepared(module, case.mode):
        run_pass(module, (image,), case.mode)
        module.zero_grad(set_to_none=True)
        made = made_blocks(lambda: run_pass(module, (image,), case.mode), image.device)
    return compare(profile, made)


def write_blocks(rows: Iterable[Peak], path: Path, deadline: float, device: str = "cuda") -> list[str]:
    """Write the blocks that differ, row by row until the time is up; what was found, in phrases."""
    done, notes = 0, []
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([*CELLS, "only_in", "bytes", "made_by", "where"])
        for row in rows:
            if time.monotonic() > deadline:
                break
            try:
                found = unmatched(row.case, device)
            except Exception as error:
                notes.append(f"no trace of {row.case}: {_told(error)}")
                continue
            done += 1
            for each in found[:LARGEST]:
                block = each.block
                writer.writerow([*row.case.cells(), each.only_in, block.bytes, block.made_by, block.where])
            if found and done == 1:
                first = found[0].block
                notes.append(f"largest block: {first.bytes / MIB:.1f} MiB, {found[0].only_in}, by {first.made_by}")
    return [f"blocks of {done} rows are in {path.name}", *notes][:4] if done or notes else []
