"""Predicts the peaks that a GPU has measured with cuDNN's workspaces on its card, and without.

Run: python research/cudnn_peaks.py results/gpu-NAME CARD   (with the extra cudnn, or a torch with CUDA)

It reads `peaks.csv` and writes `cudnn-peaks.csv` beside it, both compressed by `gzip -9n` once they are whole: the peak
without and with workspaces in bytes, as requested and as allocated, the operators that are marked in each, and the ends
of a peak whose convolutions may take other workspaces on a GPU (requested). float32 is without TF32, as it was
measured.
"""

import csv
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))

from gpu_step import CELLS, Case, read

from ctxbench.plugins.cudnn.ask import ask
from ctxbench.plugins.cudnn.on_card import asked_in, with_workspaces
from ctxbench.plugins.memory.predict import predict_peak
from ctxbench.plugins.memory.profile import MIB, MemoryProfile

COLUMNS = (
    "plain_bytes",
    "plain_allocated_bytes",
    "plain_marks",
    "bytes",
    "allocated_bytes",
    "marks",
    "low_bytes",
    "high_bytes",
)


def main(folder: Path, card: str) -> None:
    cases = [tuple(row[key] for key in CELLS) for row in read(folder / "peaks.csv") if not row["refused"]]
    plain = {case: profile(*case) for case in cases}
    # of all peaks at once, since the answers are kept
    ask(card, [*{each for found in plain.values() for some in asked_in(found, False).values() for each in some or ()}])
    with (folder / "cudnn-peaks.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([*CELLS, *COLUMNS])
        for case, found in plain.items():
            told = with_workspaces(found, card, tf32=False)
            both = [(each.peak_bytes, each.allocated_bytes, "; ".join(each.marks)) for each in (found, told)]
            ends = next((note.values for note in told.told if note.code == "cudnn_range"), {})
            low, high = (round(ends[end] * MIB) if ends else "" for end in ("low", "high"))
            writer.writerow([*case, *both[0], *both[1], low, high])


def profile(module: str, mode: str, dtype: str, shape: str) -> MemoryProfile:
    case = Case(module, mode, dtype, tuple(map(int, shape.split("x"))))  # type: ignore[arg-type]  # words of a table
    return predict_peak(*case.built("meta"), mode=case.mode)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
