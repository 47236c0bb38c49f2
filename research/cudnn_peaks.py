"""Predicts the peaks that a GPU has measured with cuDNN's workspaces on its card, and without.

Run: python research/cudnn_peaks.py results/gpu-NAME CARD   (with the extra cudnn, or a torch with CUDA)

It reads `peaks.csv` and writes `cudnn-peaks.csv` beside it, both compressed by `gzip -9n` once they are whole: the peak
without and with workspaces in bytes, as requested and as allocated, and the operators that are marked in each. float32
is without TF32, as it was measured.
"""

import csv
import sys
from collections.abc import Sequence
from pathlib import Path
from unittest.mock import patch

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))

from gpu_step import CELLS, Case, read

from ctxbench.plugins.cudnn import on_card
from ctxbench.plugins.cudnn.ask import Answers, ask
from ctxbench.plugins.cudnn.choice import CALLS, convolutions
from ctxbench.plugins.cudnn.library import CudnnConvolution
from ctxbench.plugins.memory.predict import predict_peak
from ctxbench.plugins.memory.profile import MemoryProfile

COLUMNS = ("plain_bytes", "plain_allocated_bytes", "plain_marks", "bytes", "allocated_bytes", "marks")


def main(folder: Path, card: str) -> None:
    cases = [tuple(row[key] for key in CELLS) for row in read(folder / "peaks.csv") if not row["refused"]]
    plain = {case: profile(*case) for case in cases}
    asked = dict.fromkeys(
        each
        for found in plain.values()
        for step in found.timeline
        if step.call.packet in CALLS
        for each in convolutions(step.call, tf32=False) or ()
    )
    answers, *_ = ask(card, [*asked])  # of all peaks at once

    def kept(card: str, some: Sequence[CudnnConvolution]) -> list[Answers]:
        return [Answers(answers.version, {each: answers.choices[each] for each in some})]

    path = folder / "cudnn-peaks.csv"
    with patch.object(on_card, "ask", kept), path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([*CELLS, *COLUMNS])
        for case, found in plain.items():
            told = on_card.with_workspaces(found, card, tf32=False)
            both = [(each.peak_bytes, each.allocated_bytes, " ".join(each.marks)) for each in (found, told)]
            writer.writerow([*case, *both[0], *both[1]])


def profile(module: str, mode: str, dtype: str, shape: str) -> MemoryProfile:
    case = Case(module, mode, dtype, tuple(map(int, shape.split("x"))))  # type: ignore[arg-type]  # words of a table
    return predict_peak(*case.built("meta"), mode=case.mode)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
