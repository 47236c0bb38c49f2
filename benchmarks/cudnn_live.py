"""A step of gpu.py: is cuDNN that is asked without a device the cuDNN that a GPU has? For the blocks' convolutions.

Each convolution is asked about with a handle of this GPU, and without one by the GPU's own properties as cuDNN writes
them. A row has both choices, and what PyTorch then requests beside the output, in bytes, and the milliseconds it takes.
"""

import csv
import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from gpu_step import DTYPES, REFUSED, CannotRun, Case, Verdict, go_through, read

from ctxbench.plugins.cudnn.library import Cudnn, CudnnConvolution, CudnnError, load

TABLE = Path(__file__).parent / "expected" / "convolutions.csv"
KEYS = ("turn", "image", "weight", "output", "padding", "stride", "dilation", "dtype", "tf32")
COLUMNS = ("live_engine", "live_bytes", "deviceless_engine", "deviceless_bytes", "requested_bytes", "ms")
# The share of convolutions for which both choices are expected to be the same.
SAME_SHARE = 0.95


@cache
def both_sides() -> tuple[Cudnn, Cudnn]:
    import torch

    torch.backends.cudnn.version()  # loads it
    library = load()
    live = Cudnn(library)
    return live, Cudnn(library, live.properties())


def measure(out: Path, deadline: float) -> None:
    properties = out / "cudnn-properties.json"
    if not properties.exists():
        properties.write_text(both_sides()[0].properties() + "\n", encoding="utf-8")
    go_through(convolutions(), out / "cudnn.csv", KEYS, COLUMNS, asked, deadline)


def asked(convolution: CudnnConvolution) -> list[tuple[object, ...]]:
    """Both choices, and what PyTorch requests and takes."""
    cells: list[object] = []
    for side in both_sides():
        try:
            choice = side.chosen(convolution)
            cells += [choice.engine, choice.bytes]
        except CudnnError as error:
            cells += [str(error), ""]
    return [(*cells, *requested(convolution))]


def requested(asked: CudnnConvolution) -> tuple[int, str]:
    """Bytes that PyTorch requests during the second call, less its output's; milliseconds of the third."""
    import torch

    torch.backends.cudnn.set_flags(_allow_tf32=asked.tf32, _benchmark=False, _fp32_precision=None)
    kind = getattr(torch, asked.dtype)
    image, weight, grad = (
        torch.randn(shape, device="cuda", dtype=kind) for shape in (asked.image, asked.weight, asked.output)
    )
    groups, sides = asked.image[1] // asked.weight[1], (asked.stride, asked.padding, asked.dilation)
    mask = [asked.turn == "image", asked.turn == "weight", False]

    def call() -> Any:
        if asked.turn == "forward":
            return torch.ops.aten.convolution(image, weight, None, *sides, False, [0, 0], groups)
        return torch.ops.aten.convolution_backward(grad, image, weight, None, *sides, False, [0, 0], groups, mask)

    call()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_stats()["requested_bytes.all.current"]
    found = call()
    torch.cuda.synchronize()
    peak = torch.cuda.memory_stats()["requested_bytes.all.peak"] - before
    made = found if isinstance(found, tuple) else (found,)
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    call()
    end.record()
    torch.cuda.synchronize()
    return peak - sum(each.nbytes for each in made if each is not None), f"{start.elapsed_time(end):.4f}"


def judge(out: Path) -> Verdict:
    rows = read(out / "cudnn.csv")
    if not rows:
        raise CannotRun("no convolution was asked about")
    same = [
        row["live_engine"] == row["deviceless_engine"] and row["live_bytes"] == row["deviceless_bytes"] for row in rows
    ]
    taken = [row for row in rows if row["live_bytes"] and row["requested_bytes"]]
    met = sum(row["live_bytes"] == row["requested_bytes"] for row in taken)
    failed = [row[REFUSED] for row in rows if row[REFUSED]]
    seen = f"{sum(same)} of {len(rows)} choices are the same; PyTorch requests the workspace in {met} of {len(taken)}"
    seen += f"; {len(failed)} failed, the first: {failed[0]}" if failed else ""
    left = len(convolutions()) - len(rows)
    return Verdict(sum(same) >= SAME_SHARE * len(same), seen, f"{left} convolutions" if left else "")


def convolutions() -> list[CudnnConvolution]:
    """The convolutions of all blocks that were written before, in each dtype, in float32 with TF32 and without."""
    with TABLE.open(newline="", encoding="utf-8") as file:
        rows = [
            [row["turn"], *(tuple(map(int, row[key].split("x"))) for key in KEYS[1:7])] for row in csv.DictReader(file)
        ]
    known = [CudnnConvolution(*row) for row in rows]  # type: ignore[arg-type]  # a name, then tuples of whole numbers
    kinds = [("float32", False), *((dtype, True) for dtype in DTYPES)]
    return [replace(each, dtype=dtype, tf32=tf32) for dtype, tf32 in kinds for each in known]


def of_block(case: Case) -> set[CudnnConvolution]:
    """The convolutions of a training pass of a block, without data."""
    from ctxbench.plugins.cudnn.choice import CALLS, convolutions
    from ctxbench.plugins.memory.predict import predict_peak

    steps = predict_peak(*case.built("meta"), mode=case.mode).timeline
    return {each for step in steps if step.call.packet in CALLS for each in convolutions(step.call, False) or ()}


if __name__ == "__main__":
    print(json.dumps(json.loads(both_sides()[0].properties()), indent=2))
