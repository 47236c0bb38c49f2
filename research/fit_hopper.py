"""Fits rates of NVIDIA's Hopper cards to kernels that an H200 ran by name, in blocks of half A.

Reads results/gpu-h200-2/kernels.csv.gz, and writes ctxbench/plugins/predict/hopper.csv: of convolutions and batch norm,
which public kernels of these cards tell in part or not at all. What half A is: prediction_splits.toml.
Run: python research/fit_hopper.py
"""

import csv
import hashlib
import io
import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from prediction_model import use

from ctxbench import registry
from ctxbench.plugins.predict.operators import Operator, operators_of
from ctxbench.plugins.predict.passes import PredictedKernel, time_of
from ctxbench.plugins.predict.rates import calibration, hopper_class
from ctxbench.plugins.predict.sheet import sheet

ROOT = Path(__file__).resolve().parents[1]
KERNELS = ROOT / "results" / "gpu-h200-2" / "kernels.csv.gz"
TARGET = ROOT / "ctxbench" / "plugins" / "predict" / "hopper.csv"
HEADER = "# Written by research/fit_hopper.py from half A of results/gpu-h200-2/kernels.csv.gz.\n"
CARD = "h200"
CASE = ["module", "mode", "dtype", "shape"]
# Shorter kernels show what a kernel takes at least, microseconds.
LEAST_US = 8.0
# A class needs so many blocks, whose factors differ by less, as a standard deviation of logarithms: by two at most. It
# tells its factor where it has this share of what an operator is predicted to take.
FEWEST_BLOCKS, MOST_SD, DOMINANT = 3, math.log(2), 0.85
# PyTorch's scan over positions: thousands of kernels, most of them short.
WITHOUT = ("vim",)
# What the profiler calls the operator of the first kernel.
FIRST = "Activity Buffer Request"
# Of which operator a kernel is, by the operator and the kernel's name; gradients of convolutions have one operator.
KINDS = (
    (r"depthwise.*(grad_weight|wgrad)", "depthwise, weight gradient"),
    (r"depthwise.*(backward|dgrad)", "depthwise, input gradient"),
    (r"depthwise", "depthwise"),
    (r"aten::convolution_backward .*reduce_kernel", "bias"),
    (r"aten::convolution_backward .*(wgrad|nvjet_sm90_tss)", "convolution, weight gradient"),
    (r"aten::convolution_backward", "convolution, input gradient"),
    (r"aten::cudnn_convolution", "convolution"),
    (r"attention_backward", "attention, input gradient"),
    (r"attention_forward", "attention"),
    (r"aten::index ", "irregular"),
    (r"batch_norm_backward", "batch norm, input gradient"),
    (r"batch_norm", "batch norm"),
)
Record = Callable[[str, str, str, str], Sequence[Operator]]


def in_half_a(name: str) -> bool:
    return hashlib.sha256(name.encode()).hexdigest()[0] in "01234567"


def kind_of(operator: str, kernel: str) -> str:
    """The kind of work of a measured kernel; "" if nothing is fitted to it."""
    return next((kind for pattern, kind in KINDS if re.search(pattern, f"{operator} {kernel}")), "")


def predicted_kind(kernel: PredictedKernel) -> str:
    """The same of a predicted kernel."""
    work, name = kernel.work, kernel.operator.name.rstrip("_")
    turn = f", {work.turn}" if work.turn != "forward" else ""
    if "convolution" in work.kind:
        return ("depthwise" if work.kind.startswith("depthwise") else "convolution") + turn
    if "convolution" in name:
        return "bias" if work.kind == "row reduction" else ""
    if work.kind == "fused attention":
        return "attention, input gradient" if name.endswith("backward") else "attention"
    if name == "index":
        return "irregular"
    if work.kind == "batch norm":
        return f"batch norm{turn}"
    return ""


def told(frame: pd.DataFrame, record: Record) -> Iterator[tuple[str, str, float, float]]:
    """By case and class: block, class, microseconds measured, and the logarithm of these over predicted ones."""
    for (module, mode, dtype, shape), own in frame.groupby(CASE):
        kernels = time_of(record(module, mode, dtype, shape), sheet(CARD), dtype).kernels
        predicted: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
        for kernel in kernels:
            predicted[predicted_kind(kernel)][hopper_class(kernel.work, kernel.dtype)] += kernel.ms * 1e3
        measured, calls = defaultdict[str, float](float), defaultdict[str, int](int)
        for row in own.itertuples():
            first = row.operator == FIRST
            kind = predicted_kind(kernels[0]) if first else kind_of(str(row.operator), row.kernel)
            measured[kind] += row.us
            calls[kind] += row.calls
        for kind, groups in predicted.items():
            total, group = math.fsum(groups.values()), max(groups, key=groups.__getitem__)
            if kind and measured[kind] >= LEAST_US * calls[kind] > 0 and groups[group] >= DOMINANT * total:
                yield module, group, measured[kind], math.log(measured[kind] / total)


def fitted(rows: pd.DataFrame) -> Iterator[dict[str, object]]:
    """A row a class: measured over predicted times, the median by time, and the spread of their logarithms."""
    for name, own in rows.groupby("class"):
        order, blocks = own.sort_values("log"), own["block"].nunique()
        weight = order["us"].cumsum() - order["us"] / 2
        log = float(np.interp(order["us"].sum() / 2, weight, order["log"]))
        sd = math.sqrt(float(np.average((own["log"] - log) ** 2, weights=np.sqrt(own["us"]))))
        if blocks >= FEWEST_BLOCKS and sd < MOST_SD:
            kind, _, dtype = str(name).partition("|")
            about = {"class": kind, "dtype": dtype, "blocks": blocks, "cases": len(own)}
            yield {**about, "factor": f"{math.exp(log):.3g}", "sd": f"{sd:.2g}"}


def recorded(module: str, mode: str, dtype: str, shape: str) -> list[Operator]:
    sizes, kind = tuple(map(int, shape.split("x"))), getattr(torch, dtype)
    with torch.device("meta"):
        model, x = registry.get(module).build(sizes[1]).to(kind), torch.empty(sizes, dtype=kind)
    return operators_of(model, x, mode=mode)


def kernels_of_half_a() -> pd.DataFrame:
    frame = pd.read_csv(KERNELS).dropna(subset="us")
    return frame[frame["module"].map(in_half_a) & ~frame["module"].isin(WITHOUT)]


def written(record: Record = recorded) -> str:
    """The table as text, of predictions without these factors."""
    use(replace(calibration(), hopper={}))
    rows = pd.DataFrame(told(kernels_of_half_a(), record), columns=["block", "class", "us", "log"])
    text = io.StringIO()
    found = list(fitted(rows))
    writer = csv.DictWriter(text, found[0], lineterminator="\n")
    writer.writeheader()
    writer.writerows(found)
    return HEADER + text.getvalue()


def main() -> None:
    TARGET.write_text(written(), encoding="utf-8")


if __name__ == "__main__":
    main()
