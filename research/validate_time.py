"""Compares predicted times with measurements that they were not fitted to.

Writes results/prediction/validation.csv.gz. What is compared is in prediction_splits.toml. `known` says what the
prediction knew of the device: `left out`: nothing was fitted to any of its kernels; `model`: kernels of cards of its
model; `half A`: kernels of these blocks on the device; `half B`: those of the blocks of half A; `calibrated`: kernels
measured on the device itself.

Run: python research/validate_time.py DATA
"""

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from calibrate_time import ROOT, arguments, read
from fit_hopper import in_half_a
from fit_kernels import Group, Kernels, kernels_of
from prediction_data import PACKED, SPLITS, device, kernelbench
from prediction_model import Row, model, row_of, use
from stamp import stamp, write_stamp
from transformers import Transformer

from ctxbench import registry
from ctxbench.base.call_sites import CallSite
from ctxbench.base.mode import MODES
from ctxbench.model.case import Case
from ctxbench.model.conditions import SHAPE, parse_shape
from ctxbench.model.metrics import quantity, read_number
from ctxbench.plugins.predict import rates
from ctxbench.plugins.predict.operators import Operator, operators_of
from ctxbench.plugins.predict.passes import time_of
from ctxbench.plugins.predict.sheet import sheet
from ctxbench.plugins.predict.work import Product, Work, matrix_product
from ctxbench.report.published import with_published
from ctxbench.report.run_data import open_run

RESULTS = ROOT / "results" / "prediction"
# Shorter operators of NeuSight show the host: forward, in milliseconds.
LEAST_FORWARD = 0.2


@cache
def transformer(mode: str, length: int, batch: int, *sizes: Any) -> list[Operator]:
    """The operators of a pass; of training those of the backward pass, which the source times from the loss on."""
    with torch.device("meta"):
        model, tokens = Transformer(*sizes), torch.zeros(batch, length, dtype=torch.long)
    found = operators_of(model, tokens, mode="train" if mode == "training" else "infer")
    return [each for each in found if mode != "training" or each.phase.startswith("back")]


def passes(data: Path, title: str, known: str) -> Iterator[Row]:
    """Whole passes on one device."""
    frame = pd.read_csv(data / "network_passes.csv")
    for row in frame[frame["device"] == title].itertuples(index=False):
        sizes = (row.network, row.layers, row.hidden, row.heads, row.feed_forward, row.vocabulary, row.output_head)
        found = time_of(transformer(row.mode, row.sequence_length, row.batch, *sizes), device(title))
        ms = row.backward_ms if row.mode == "training" else row.forward_ms
        what = f"{row.network} {row.sequence_length} x {row.batch}"
        mode = "backward" if row.mode == "training" else "infer"
        yield row_of("NeuSight passes", what, mode, title, known, ms, found)


def products(data: Path, title: str) -> Iterator[Row]:
    """Both gradients of a product."""
    frame = pd.read_csv(data / "neusight_backward.csv")
    long = (frame["forward_ms"] > LEAST_FORWARD) & frame["operator"].isin(["linear", "matmul"])
    for row in frame[long & (frame["device"] == title)].drop_duplicates(["matmul_batch", "m", "n", "k"]).itertuples():
        batch, m, n, k = (int(side) for side in (row.matmul_batch, row.m, row.n, row.k))
        sides = (Product(batch, m, k, n), Product(batch, k, n, m))
        found = time_of([alone(matrix_product(each)) for each in sides], device(title))
        what = f"{row.operator} {batch} x {m} x {n} x {k}"
        yield row_of("NeuSight products", what, "backward", title, "left out", row.backward_ms, found)


def operators(data: Path) -> Iterator[Row]:
    """Single operators of the cards of KernelBench that calibrate nothing."""
    for each in kernelbench(data / "kernelbench_operators.csv"):
        if each.sheet.title in SPLITS["validation"]["kernelbench_operators.csv"] and each.dtype == "float32":
            found = time_of([alone(each.work)], each.sheet)
            sides = each.work.product
            what = f"{each.work.group} {sides.batch} x {sides.m} x {sides.n} x {sides.k}" if sides else each.work.group
            yield row_of("KernelBench", what, "infer", each.sheet.title, "left out", each.seconds * 1e3, found)


def alone(work: Work) -> Operator:
    return Operator("", "forward", CallSite(), (work,))


def own_cpu() -> Iterator[Row]:
    """The suite `field` on a processor that `ctxbench calibrate` measured in the same hour."""
    calibrated = sheet(str(RESULTS / "cpu.toml"))
    for row in open_run(RESULTS / "field").rows:
        shape = parse_shape([int(row[name]) for name in SHAPE.columns])
        model, x = Case(row["module"], row["reference"], {}, shape).on_meta()
        for mode in MODES:
            found = time_of(operators_of(model, x, mode=mode, device="cpu"), calibrated)
            what = f"{row['module']} {' x '.join(map(str, shape))}"
            yield row_of("suite field", what, mode, calibrated.title, "calibrated", row[f"latency_{mode}_ms"], found)


def blocks() -> Iterator[Row]:
    """All blocks on an H200. Rates of its architecture are fitted to kernels of half A (research/fit_hopper.py).

    Of half B no rule and no rate has seen a time, but those of launch-bound training steps, which show what a gradient
    takes the host.
    """
    card = sheet("h200")
    for row in pd.read_csv(ROOT / "results" / "gpu-h200" / "times.csv").dropna(subset="ms").itertuples(index=False):
        shape, kind = tuple(map(int, str(row.shape).split("x"))), getattr(torch, row.dtype)
        with torch.device("meta"):
            model, x = registry.get(row.module).build(shape[1]).to(kind), torch.empty(shape, dtype=kind)
        found = time_of(operators_of(model, x, mode=row.mode), card, row.dtype)
        source, what = f"blocks, {row.dtype}", f"{row.module} {row.shape}"
        known = "half A" if in_half_a(row.module) else "half B"
        known = "fitted host" if row.mode == "train" and found.is_launch_bound else known
        yield row_of(source, what, row.mode, card.title, known, row.ms, found)


def table3() -> Iterator[Row]:
    """The paper's table, on the card that it names, with the software of its year."""
    run = open_run(RESULTS / "table3")
    assert run.published is not None
    doubtful = {(name, key) for name, own in run.published.rows.items() for key in own.notes}
    for row in with_published(run):
        for mode in MODES:
            key = f"latency_{mode}"
            if (
                (row["published_row"], key) in doubtful
                or row["device"] != "titan-xp"
                or row[f"{key}_published"] is None
            ):
                continue
            told = read_number(row, quantity(key))
            assert told is not None
            times = [float(row[f"{key}_{name}"]) for name in ("published", "ms", "low_ms", "high_ms")]
            names = ("measured_ms", "predicted_ms", "low_ms", "high_ms")
            about = {"source": "Table 3", "what": row["module"], "mode": mode, "device": "NVIDIA TITAN Xp"}
            yield {**about, "known": "model", **{name: f"{ms:.4g}" for name, ms in zip(names, times, strict=True)},
                   "errors": row[f"{key}_errors"], "unknown": told.unknown}  # fmt: skip


def all_rows(classes: Mapping[Group, Kernels], data: Path) -> Iterator[Row]:
    shipped = rates.calibration()
    titles = sorted(set(pd.read_csv(data / "network_passes.csv")["device"]))
    for title in titles:
        yield from passes(data, title, "model")
    yield from [*operators(data), *table3(), *own_cpu(), *blocks()]
    for title in titles:
        use(model(classes, title).calibration())
        yield from [*passes(data, title, "left out"), *products(data, title)]
    use(shipped)


def main() -> None:
    data: Path = arguments(__doc__ or "").data
    evidence, target = stamp(), RESULTS / "validation.csv.gz"
    frame = pd.DataFrame(all_rows(kernels_of(read(data)), data))
    frame.to_csv(target, index=False, lineterminator="\n", compression=PACKED)
    write_stamp(RESULTS, evidence)
    print(f"wrote {target.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
