"""Expectations of a run of gpu.py, from today's predictions and their bands.

Run: python benchmarks/expectations.py [FOLDER]   (about four minutes of one core; needs no GPU)

Writes `peaks.csv` (bytes, on any CUDA GPU), `times.csv` (milliseconds of Table 3's blocks, on each card of CARDS),
`convolutions.csv` (those of all blocks, to ask about) and `about.json` into `benchmarks/expected`. Commit them before a
GPU runs; a step compares with them alone.
"""

import csv
import json
import os
import sys
import tempfile
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from multiprocessing import get_context
from pathlib import Path

import cudnn_live
from gpu_step import DTYPES, LARGE, MEDIUM, Case, cases, read

from ctxbench.base.mode import MODES
from ctxbench.plugins.cudnn.library import CudnnConvolution

FOLDER = Path(__file__).parent / "expected"
# The data sheets by torch's names of the GPUs that a run is prepared for.
CARDS = {"NVIDIA H200": "h200", "NVIDIA H100 80GB HBM3": "h100-sxm"}
PEAK_COLUMNS = ("module", "mode", "dtype", "shape", "bytes", "high_bytes", "marks", "refused")
TIME_COLUMNS = ("gpu", "module", "mode", "ms", "low_ms", "high_ms")
# A peak that is predicted without a mark is met within this share.
PEAK_SHARE = 0.01


@dataclass(frozen=True)
class ExpectedPeak:
    """A predicted peak, up to `high_bytes` with the workspaces that cuDNN may take; without one, why."""

    bytes: int | None
    high_bytes: int | None
    marks: tuple[str, ...] = ()
    refused: str = ""

    def holds(self, measured: int) -> bool:
        """Return whether a measured peak is in the band. Above a marked one, which may be too low, anything is."""
        assert self.bytes is not None
        assert self.high_bytes is not None
        return self.bytes * (1 - PEAK_SHARE) <= measured and (
            bool(self.marks) or measured <= self.high_bytes * (1 + PEAK_SHARE)
        )


def main(folder: Path) -> None:
    import torch

    folder.mkdir(exist_ok=True)
    with ProcessPoolExecutor(len(os.sched_getaffinity(0)), get_context("spawn")) as pool:
        rows = [(*case.cells(), *cells) for case, cells in zip(ALL, pool.map(peak, ALL, chunksize=8), strict=True)]
        trained = [case for case in ALL if case.dtype == "float32" and case.mode == "train"]
        found = {each for some in pool.map(convolutions, trained, chunksize=4) for each in some}
    write(folder / "peaks.csv", PEAK_COLUMNS, rows)
    write(folder / cudnn_live.TABLE.name, cudnn_live.KEYS[:7], sorted(each.cells()[:7] for each in found))
    write(folder / "times.csv", TIME_COLUMNS, [row for gpu, sheet in CARDS.items() for row in times(gpu, sheet)])
    about = {"day": f"{datetime.now(UTC):%Y-%m-%d}", "torch": torch.__version__}
    (folder / "about.json").write_text(json.dumps(about) + "\n", encoding="utf-8")


# Of a block that the committed run of a GPU lacks, two of the twelve cases, so that the steps keep to their seconds:
# both modes and shapes between them, with the one whose convolutions are asked about.
RUN = {row["module"] for row in read(FOLDER.parents[1] / "results" / "gpu-h200-2" / "peaks.csv")}
OF_NEWER = [("train", "float32", LARGE), ("infer", "bfloat16", MEDIUM)]
ALL = [
    case
    for case in cases((LARGE, MEDIUM), DTYPES)
    if case.module in RUN or (case.mode, case.dtype, case.shape) in OF_NEWER
]


def peak(case: Case) -> tuple[object, ...]:
    """The cells of a predicted peak, for CUDA, in a process that has not used it."""
    import torch

    from ctxbench.plugins.memory.predict import predict_peak

    torch.set_num_threads(1)
    try:
        profile = predict_peak(*case.built("meta"), mode=case.mode, device="cuda")
    except Exception as error:
        return "", "", "", f"{type(error).__name__}: {error}".split("\n")[0]
    return profile.allocated_bytes, max(profile.allocated_bytes, profile.high_bytes), " ".join(profile.marks), ""


def convolutions(case: Case) -> set[CudnnConvolution]:
    """The convolutions of a block; none of one that does not train."""
    try:
        return cudnn_live.of_block(case)
    except Exception:
        return set()


def times(gpu: str, sheet: str) -> Iterable[tuple[object, ...]]:
    """The rows of Table 3's blocks as predicted from a card's data sheet."""
    import ctxbench

    with tempfile.TemporaryDirectory() as folder:
        frame = ctxbench.run(suite="table3", device=sheet, static=True, out=Path(folder) / "run").frame
    for _, row in frame.iterrows():
        for mode in MODES:
            yield (gpu, row["module"], mode, *(f"{row[f'latency_{mode}_{name}']:.4g}" for name in TIME_COLUMNS[3:]))


def write(path: Path, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(rows)


def expected_peaks(folder: Path = FOLDER) -> dict[tuple[str, ...], ExpectedPeak]:
    """The expected peaks by the cells of their cases."""
    with (folder / "peaks.csv").open(newline="", encoding="utf-8") as file:
        return {
            (row["module"], row["mode"], row["dtype"], row["shape"]): ExpectedPeak(
                int(row["bytes"]) if row["bytes"] else None,
                int(row["high_bytes"]) if row["high_bytes"] else None,
                tuple(row["marks"].split()),
                row["refused"],
            )
            for row in csv.DictReader(file)
        }


def expected_times(gpu: str, folder: Path = FOLDER) -> dict[tuple[str, str], tuple[float, float]]:
    """The bands in milliseconds, by module and mode, on a GPU of this name; empty for one that none are written for."""
    with (folder / "times.csv").open(newline="", encoding="utf-8") as file:
        return {
            (row["module"], row["mode"]): (float(row["low_ms"]), float(row["high_ms"]))
            for row in csv.DictReader(file)
            if row["gpu"] == gpu
        }


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else FOLDER)
