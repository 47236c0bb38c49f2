"""Fits the rate of products in 16 bits on tensor cores from Ampere on to published times, and each card's factor.

The times are NVIDIA's, of `torch.nn.functional.linear` in bfloat16 on six cards: package aiconfigurator-core 0.12.0
(PyPI, Apache-2.0), tables `systems/data/CARD/gemm/vllm`. results/prediction/products.csv.gz has 500 a card of 0.02 ms
and more whose sides are 16,384 at most, those whose sizes have the first SHA-256 digests. Writes
ctxbench/plugins/predict/products.csv. The H200 is in no fit.
Run: python research/fit_products.py [FOLDER], with the unpacked package (which needs pyarrow) to draw the extract anew
"""

import hashlib
import math
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from fit_kernels import ROBUST, Array, robust
from prediction_data import PACKED, device
from scipy.optimize import least_squares

from ctxbench.base.number import CONFIDENCE_SDS
from ctxbench.plugins.predict.rates import calibration
from ctxbench.plugins.predict.work import Product, matrix_product

ROOT = Path(__file__).resolve().parents[1]
EXTRACT = ROOT / "results" / "prediction" / "products.csv.gz"
TARGET = ROOT / "ctxbench" / "plugins" / "predict" / "products.csv"
HEADER = "# Written by research/fit_products.py from results/prediction/products.csv.gz, without the H200.\n"
DTYPE, ROWS, LONGEST_SIDE, LEAST_MS = "bfloat16", 500, 16_384, 0.02
LEFT_OUT = "NVIDIA H200"
# Share of the peak, share of the bandwidth, microseconds of a call: where the fit begins.
START = (0.9, 0.8, 7.0)


def extract(folder: Path) -> pd.DataFrame:
    """`card,m,n,k,ms`: the rows of cards that have a data sheet."""
    found = []
    for file in sorted(folder.glob("aiconfigurator_core/systems/data/*/gemm/vllm/*/gemm_perf.parquet")):
        frame = pd.read_parquet(file).rename(columns={"device": "card", "latency": "ms"})
        sides = frame[["m", "n", "k"]]
        own = frame[(frame["gemm_dtype"] == DTYPE) & (sides.max(axis=1) <= LONGEST_SIDE) & (frame["ms"] >= LEAST_MS)]
        if len(own) and _has_sheet(str(own["card"].iloc[0])):
            digests = own[["m", "n", "k"]].astype(str).agg("x".join, axis=1).map(_digest)
            found.append(own.loc[digests.sort_values().index[:ROWS], ["card", "m", "n", "k", "ms"]])
    drawn = pd.concat(found).sort_values(["card", "m", "n", "k"])
    return drawn.assign(ms=drawn["ms"].map("{:.4g}".format))


def _has_sheet(card: str) -> bool:
    try:
        return bool(device(card))
    except ValueError:
        return False


def _digest(sizes: str) -> str:
    return hashlib.sha256(sizes.encode()).hexdigest()


def measured() -> pd.DataFrame:
    """The extract, with the seconds that a product's tiles and its bytes take at peak and at full bandwidth."""
    frame = pd.read_csv(EXTRACT)
    works = [matrix_product(Product(1, *sides), 2) for sides in frame[["m", "n", "k"]].itertuples(index=False)]
    sheets = [device(card) for card in frame["card"]]
    ways = np.array([next(work.ways(sheet, DTYPE)) for work, sheet in zip(works, sheets, strict=True)])
    return frame.assign(
        arithmetic_s=ways[:, 0] / [sheet.peak(DTYPE) for sheet in sheets],
        transfer_s=ways[:, 1] / [sheet.bandwidth for sheet in sheets],
    )


def fit(frame: pd.DataFrame) -> Array:
    """The logarithms of the shares of peak and bandwidth and of the microseconds of a call; each card counts alike."""
    weights = 1 / frame.groupby("card")["ms"].transform("size").to_numpy()
    return np.asarray(least_squares(lambda x: errors(frame, x), np.log(START), loss=robust(weights), f_scale=ROBUST).x)


def errors(frame: pd.DataFrame, x: Array) -> Array:
    """The logarithm of measured over predicted."""
    compute, bandwidth, call_us = np.exp(x)
    longer = np.maximum(frame["arithmetic_s"] / compute, frame["transfer_s"] / bandwidth)
    return np.asarray(np.log(frame["ms"] / 1e3 / (longer + call_us * 1e-6)))


def left_out() -> pd.DataFrame:
    """Each product as the fit without its card predicts it, with the 80 % band of an unknown card."""
    frame, known = measured(), calibration()
    factor = math.exp(CONFIDENCE_SDS * math.hypot(known.errors["unknown"], known.kernel_sd))
    parts = []
    for card, own in frame.groupby("card"):
        ms = own["ms"] / np.exp(errors(own, fit(frame[~frame["card"].isin((card, LEFT_OUT))])))
        parts.append(own.assign(predicted_ms=ms, low_ms=ms / factor, high_ms=ms * factor))
    return pd.concat(parts)


def rows() -> Iterator[dict[str, object]]:
    """The rate of any card, then the factor of each."""
    frame = measured()
    frame = frame[frame["card"] != LEFT_OUT]
    x = fit(frame)
    shares = dict(zip(("compute", "bandwidth", "call_us"), (f"{each:.4g}" for each in np.exp(x)), strict=True))
    yield {"card": "any", "products": len(frame), **shares, "factor": 1}
    for card, own in frame.groupby("card"):
        factor = float(np.exp(np.median(errors(own, x))))
        yield {"card": device(str(card)).title, "products": len(own), "factor": f"{factor:.3g}"}


def main() -> None:
    if sys.argv[1:]:
        extract(Path(sys.argv[1])).to_csv(EXTRACT, index=False, lineterminator="\n", compression=PACKED)
    TARGET.write_text(HEADER + pd.DataFrame(rows()).to_csv(index=False, lineterminator="\n"), encoding="utf-8")


if __name__ == "__main__":
    main()
