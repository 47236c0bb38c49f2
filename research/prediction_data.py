"""Public measurements of kernels on GPUs, read as the work that predicted times know: see docs/plugins/predict.md.

Each reader yields the measurements of one file that are fit to be used; what it leaves out, and why, is beside it.
Which of them calibrate and which validate is in prediction_splits.toml.
"""

import math
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from ctxbench.plugins.predict.sheet import DeviceSpec, by_title
from ctxbench.plugins.predict.work import Convolution, Product, Turn, Work, matrix_product

# How pandas writes a table that git keeps compressed: the same bytes each time.
PACKED = {"method": "gzip", "compresslevel": 9, "mtime": 0}
SPLITS = tomllib.loads((Path(__file__).parent / "prediction_splits.toml").read_text(encoding="utf-8"))
# What the sources call a card, by the title of its data sheet.
TITLES = {
    "NVIDIA T4": "Tesla T4",
    "NVIDIA Tesla P100 PCIe": "Tesla P100-PCIE-16GB",
    "NVIDIA Tesla V100 SXM2": "Tesla V100-SXM2-16GB",
    "NVIDIA Tesla M40": "Tesla M40 24GB",
    "NVIDIA GeForce GTX TITAN X (Maxwell)": "NVIDIA GeForce GTX TITAN X",
    # the same chip, memory and power
    "NVIDIA RTX PRO 6000 Blackwell Server Edition": "NVIDIA RTX PRO 6000 Blackwell Workstation Edition",
}
# Shorter calls show the host or the rounding: milliseconds.
LEAST_DEEPBENCH, LEAST_KERNELBENCH, LEAST_BACKWARD = 0.05, 0.3, 0.1
_TWO_IN = {"add", "mul", "div", "pow"}


@dataclass(frozen=True)
class Measured:
    """One measured kernel: seconds of a call, on a device, in a dtype, with the software of an era.

    `alone`: the call was timed by itself, with a fixed cost that calls in a queue do not have.
    """

    source: str
    sheet: DeviceSpec
    work: Work
    dtype: str
    seconds: float
    era: str
    alone: bool = False


def device(name: str) -> DeviceSpec:
    """The data sheet of a card under the name that a source gives it. ValueError if there is none."""
    found = by_title(TITLES.get(name, name))
    if found is None:
        raise ValueError(f"there is no data sheet with the title {name!r}")
    return found


def neusight(path: Path) -> Iterator[Measured]:
    """`device,operator,d1,...,d7,ms`: forward, float32 without TF32, PyTorch 2.1.0, CUDA 12.1, cuDNN 8.9.2."""
    for name, operator, *sizes, ms in pd.read_csv(path).itertuples(index=False):
        work = work_of(operator, [int(size) for size in sizes if not pd.isna(size)])
        yield Measured("NeuSight", device(name), work, "float32", ms / 1e3, "cuda", alone=True)


def work_of(operator: str, d: Sequence[int]) -> Work:
    """Work of a kernel of NeuSight."""
    if operator in ("bmm", "linear"):
        return matrix_product(Product(*d[:4]))
    if operator == "conv":
        images, inputs, outputs, kernel, size, stride, padding = d
        out = (size + 2 * padding - kernel) // stride + 1
        return Convolution(
            images, inputs, outputs, (size, size), (out, out), (kernel, kernel), (stride, stride), (1, 1)
        ).work()
    rows, columns = d
    size = 4 * rows * columns
    if operator == "softmax":
        return Work("softmax", 2 * size, row_bytes=4 * columns, again_bytes=size)
    return Work("norm" if operator == "ln" else "elementwise", (3 if operator in _TWO_IN else 2) * size)


def deepbench(path: Path) -> Iterator[Measured]:
    """Products and convolutions with both gradients, CUDA 7.5 to 10.1, cuDNN 5 to 7.6, calls in a queue.

    Left out: shorter calls, whose time is rounded to microseconds; 1x1 convolutions with padding; float16 convolutions
    with channels that are padded to a multiple of 8.
    """
    for row in pd.read_csv(path).itertuples(index=False):
        sheet, dtype = device(row.device), str(row.dtype).removesuffix("_mixed")
        item = 4 if dtype == "float32" else 2
        for turn, ms in _turns(row):
            if not ms >= LEAST_DEEPBENCH:
                continue
            if row.operator == "gemm":
                # Column-major C[m,n] is row-major [n,k] x [k,m]; C is read as well.
                sides = Product(1, int(row.n), int(row.m), int(row.k))
                work = matrix_product(sides, item, more=item * sides.m * sides.n)
            else:
                kernel, stride = (int(row.kernel_h), int(row.kernel_w)), (int(row.stride_h), int(row.stride_w))
                pad, size = (int(row.pad_h), int(row.pad_w)), (int(row.height), int(row.width))
                images, inputs, outputs = int(row.batch), int(row.in_channels), int(row.out_channels)
                if (kernel == (1, 1) and any(pad)) or (dtype == "float16" and (inputs % 8 or outputs % 8)):
                    continue
                out = _out(size, kernel, stride, pad)
                shape = (images, inputs, outputs, size, out, kernel, stride, (1, 1))
                work = Convolution(*shape, channels_last=dtype == "float16").work(turn, item)
            yield Measured("DeepBench", sheet, work, dtype, ms / 1e3, "cuda-2020")


def _turns(row: Any) -> list[tuple[Turn, float]]:
    return [
        ("forward", row.forward_ms),
        ("input gradient", row.backward_input_ms),
        ("weight gradient", row.backward_weight_ms),
    ]


def _out(size: tuple[int, int], kernel: tuple[int, int], stride: tuple[int, int], pad: tuple[int, int]) -> Any:
    return tuple((s + 2 * p - k) // t + 1 for s, k, t, p in zip(size, kernel, stride, pad, strict=True))


def kernelbench(path: Path) -> Iterator[Measured]:
    """Single operators of PyTorch 2.5 to 2.9, the median of a device's repeats of a shape.

    Left out: shorter calls; operators that start several kernels of different classes, as group norm does; layer norm
    over 4 million numbers, which every card computes in one block a row; attention with a head of 1024.
    """
    frame = pd.read_csv(path)
    same = ["device", "problem", "input_shapes", "output_shape", "dtype", "tf32_possible"]
    frame["mean_ms"] = frame.groupby(same, dropna=False)["mean_ms"].transform("median")
    frame = frame.drop_duplicates(same)
    for row in frame[frame["mean_ms"] >= LEAST_KERNELBENCH].itertuples(index=False):
        work = _kernelbench_work(row)
        if work is not None:
            dtype = "tf32" if row.tf32_possible else str(row.dtype)
            yield Measured("KernelBench", device(row.device), work, dtype, row.mean_ms / 1e3, "cuda")


def _kernelbench_work(row: Any) -> Work | None:
    item = 2 if row.dtype == "float16" else 4
    inputs, output = [_numbers(text) for text in row.input_shapes.split()], _numbers(row.output_shape)
    moved = item * (sum(map(math.prod, inputs)) + math.prod(output))
    if row.kind == "matmul":
        return matrix_product(Product(*(int(side) for side in (row.matmul_batch, row.m, row.n, row.k))), item)
    if row.kind in ("conv2d", "pointwise_conv2d", "depthwise_conv2d", "conv_transpose2d"):
        return Convolution(
            images=inputs[0][0],
            inputs=inputs[0][1],
            outputs=output[1],
            size=inputs[0][2:],
            out=output[2:],
            kernel=(int(row.kernel_h), int(row.kernel_w)),
            stride=(int(row.stride_h), int(row.stride_w)),
            dilation=(int(row.dilation_h), int(row.dilation_w)),
            groups=int(row.groups),
            transposed=row.kind == "conv_transpose2d",
        ).work(itemsize=item)
    if row.kind == "elementwise" and " " not in row.calls:
        return Work("elementwise", moved)
    if row.calls in ("sum", "mean", "max", "min", "argmax", "argmin"):
        return Work("row reduction", moved)
    if row.calls in ("_softmax", "_log_softmax"):
        return Work("softmax", moved, row_bytes=item * inputs[0][-1], again_bytes=moved // 2)
    if row.calls.endswith("native_batch_norm"):
        return Work("batch norm", moved + moved // 2, blocks=inputs[0][1])
    if row.kind == "pooling":
        positions = 8 * math.prod(output) if row.calls.endswith("with_indices") else 0
        return Work("pooling", moved + positions, flops=2.0 * row.kernel_h * row.kernel_w * math.prod(output))
    return None


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(size) for size in text.split("x"))


def backward(path: Path) -> Iterator[Measured]:
    """The backward pass of one operator, without the accumulation of gradients; software as in `neusight`.

    Left out: short calls, all of layer norm among them; dropout, which takes other kernels there than in a training
    step; embeddings.
    """
    for row in pd.read_csv(path).itertuples(index=False):
        if row.backward_ms < LEAST_BACKWARD:
            continue
        work = _backward_work(row)
        if work is not None:
            yield Measured("NeuSight backward", device(row.device), work, "float32", row.backward_ms / 1e3, "cuda")


def _backward_work(row: Any) -> Work | None:
    size = 4 * math.prod(_numbers(row.output_shape))
    if row.operator == "softmax":
        # A product of gradient and output in a kernel of its own: three maps; then three more.
        return Work("softmax", 6 * size, turn="input gradient")
    if row.operator in ("div_scalar", "mul_scalar"):
        return Work("elementwise", 2 * size)
    if row.operator in ("gelu", "relu", "tanh"):
        return Work("elementwise", 3 * size)
    return None


def threads(path: Path) -> Iterator[Measured]:
    """Convolutions of threads that name a device, calls in a queue. Left out: upper bounds, inverses."""
    for row in pd.read_csv(path).itertuples(index=False):
        if pd.isna(row.device) or row.operator not in ("conv2d", "depthwise_conv2d") or "upper bound" in row.note:
            continue
        size, kernel, stride = (int(row.height), int(row.width)), (int(row.kernel),) * 2, (int(row.stride),) * 2
        out = _out(size, kernel, stride, (int(row.padding),) * 2)
        images, inputs, outputs = int(row.batch), int(row.in_channels), int(row.out_channels)
        work = Convolution(images, inputs, outputs, size, out, kernel, stride, (1, 1), int(row.groups)).work()
        yield Measured("PyTorch threads", device(row.device), work, row.dtype, row.ms / 1e3, "cuda-2020")


READERS: dict[str, Callable[[Path], Iterator[Measured]]] = {
    "gpu_kernel_times.csv": neusight,
    "deepbench_kernels.csv": deepbench,
    "kernelbench_operators.csv": kernelbench,
    "neusight_backward.csv": backward,
    "issue_depthwise.csv": threads,
}
