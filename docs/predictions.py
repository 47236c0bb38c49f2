"""Predicted times: the devices that there are, and how far times are off that nothing was fitted to."""

import json
import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from evidence import source
from lists import ROOT, markdown
from scipy.stats import spearmanr

from ctxbench.base.number import Number, ratio
from ctxbench.plugins.predict.rates import calibration
from ctxbench.plugins.predict.sheet import sheets
from ctxbench.results.rows import rows_of
from ctxbench.table.table import Origin

# A prediction within this factor of a measured time is counted as near.
NEAR = 1.5
# Below this share in the 80 % band a card is named.
NAMED_BELOW = 0.7
# So many cards of a dtype are named.
FEW = 4
AGREEMENT: dict[str, Origin] = dict.fromkeys(
    ("median error", "within 1.5", "in the band", "rank", "high / low"), "ratio"
)
TIMES: dict[str, Origin] = {"predicted, ms": "predicted", "ratio": "ratio", "in the band": "text"}


def device_list() -> str:
    """The devices that times are predicted for, with the figures of their data sheets."""
    calibrated: dict[str, set[str]] = defaultdict(set)
    for (title, era), classes in calibration().devices.items():
        calibrated[title] |= {f"{len(classes)} ({era})"}
    rows = [
        (
            f"`{name}`",
            each.title,
            ", ".join(f"{dtype} {peak:g}" for dtype, peak in each.peak_tflops.items()),
            *(f"{figure:g}" for figure in (each.bandwidth_gb_s, each.l2_mib, each.power_w, each.processors)),
            ", ".join(sorted(calibrated[each.title])) or "none",
        )
        for name, each in sheets().items()
    ]
    figures = dict.fromkeys(("GB/s", "L2, MiB", "W", "processors"), "published")
    words = {"name": "label", "product": "text", "peak, TFLOP/s": "text"}
    return markdown({**words, **figures, "classes measured": "text"}, rows)


def left_out_list() -> str:
    """By class: how well kernels of a device are predicted from the other devices alone."""
    rows = []
    for (dtype, kind), part in _left_out().groupby(["dtype", "class"], sort=True):
        errors = part["median_error"]
        covered = np.average(part["covered"], weights=part["kernels"])
        spread = f"{errors.median():.0%} ({errors.min():.0%} to {errors.max():.0%})"
        band = f"/{part['band'].median():.2f} to x{part['band'].median():.2f}"
        rows.append((kind, dtype, str(len(part)), f"{part['kernels'].sum():,}", spread, f"{covered:.0%}", band))
    labels, counts = dict.fromkeys(("class", "dtype"), "label"), dict.fromkeys(("devices", "kernels"), "counted")
    ratios = ("median error of a device: median (range)", "kernels in their band", "band")
    return markdown({**labels, **counts, **dict.fromkeys(ratios, "ratio")}, rows)


def coverage_list() -> str:
    """For each class and device: how many of the kernels the band of the other devices holds."""
    names = {each.title: name for name, each in sheets().items()}
    rows = []
    for kind, part in _left_out("float32").groupby("class", sort=True):
        cells = [
            f"{names[device]} {covered:.0%} of {kernels}"
            for device, covered, kernels in zip(part["device"], part["covered"], part["kernels"], strict=True)
        ]
        rows.append((str(kind), "; ".join(cells)))
    return markdown({"class, float32": "label", "kernels in the band, device left out": "text"}, rows)


def _left_out(dtype: str = "") -> pd.DataFrame:
    frame = pd.read_csv(ROOT / "results" / "prediction" / "left-out.csv")
    return frame[frame["dtype"] == dtype] if dtype else frame


def validation(name: str = "validation") -> pd.DataFrame:
    """The measured passes that no prediction was fitted to, with ratio and whether the band holds; or `networks`."""
    frame = pd.read_csv(ROOT / "results" / "prediction" / f"{name}.csv")
    frame["ratio"] = frame["predicted_ms"] / frame["measured_ms"]
    frame["in_band"] = frame["measured_ms"].between(frame["low_ms"], frame["high_ms"])
    return frame


def validation_summary() -> str:
    """By source, what was known of the device, mode and device: errors, coverage and rank."""
    rows = []
    for key, part in validation().groupby(["source", "known", "mode"], sort=False):
        rows.append((*map(str, key), "all", *_agreement(part)))
        if part["device"].nunique() > 1:
            rows += [(*map(str, key), str(device), *_agreement(own)) for device, own in part.groupby("device")]
    labels = dict.fromkeys(("source", "device is", "mode", "device"), "label")
    return markdown({**labels, "rows": "counted", **AGREEMENT}, rows)


def network_summary(*by: str) -> str:
    """timm's networks under AMP by what was left out and `by`: errors, coverage and rank."""
    rows = [(*map(str, key), *_agreement(part)) for key, part in validation("networks").groupby(["known", *by])]
    labels = dict.fromkeys(("left out", *by), "label")
    return markdown({**labels, "passes": "counted", **AGREEMENT}, rows)


def _agreement(part: pd.DataFrame) -> tuple[str, ...]:
    error = (part["ratio"] - 1).abs().median()
    near = part["ratio"].between(1 / NEAR, NEAR).mean()
    rank = spearmanr(part["predicted_ms"], part["measured_ms"])[0] if len(part) > 2 else math.nan
    wide = (part["high_ms"] / part["low_ms"]).median()
    texts = (f"{error:.0%}", f"{near:.0%}", f"{part['in_band'].mean():.0%}", "" if math.isnan(rank) else f"{rank:.2f}")
    return (str(len(part)), *texts, f"{wide:.2f}")


def validation_ratios() -> str:
    """Ratios of two passes on a device that was left out, by device: errors, and how many their band holds."""
    frame = validation()
    part = frame[(frame["source"] == "NeuSight passes") & (frame["known"] == "left out")]
    found = []
    for (device, mode), own in part.groupby(["device", "mode"]):
        for one, two in combinations(rows_of(own), 2):
            told = ratio(*(_predicted(row) for row in (one, two)))
            measured = one["measured_ms"] / two["measured_ms"]
            inside = told.low <= measured <= told.high
            right = (told.value > 1) == (measured > 1)
            found.append((str(device), str(mode), abs(told.value / measured - 1), inside, right, told.high / told.low))
    pairs = pd.DataFrame(found, columns=["device", "mode", "error", "inside", "right", "wide"])
    parts = [(("all", "both"), pairs), *pairs.groupby(["device", "mode"])]
    rows = []
    for key, own in parts:
        shares = (f"{own['error'].median():.0%}", f"{own['inside'].mean():.0%}", f"{own['right'].mean():.0%}")
        rows.append((*map(str, key), str(len(own)), *shares, f"{own['wide'].median():.2f}"))
    ratios = dict.fromkeys(("median error", "in the band", "order right", "high / low"), "ratio")
    return markdown({"device": "label", "mode": "label", "pairs": "counted", **ratios}, rows)


def _predicted(row: Mapping[Any, Any]) -> Number:
    errors = json.loads(row["errors"])
    return Number(row["predicted_ms"], row["low_ms"], row["high_ms"], origin="predicted", errors=errors)


def validation_rows(of: str, known: str) -> str:
    """Each row of a source: measured, predicted, band, ratio."""
    frame = validation()
    part = frame[(frame["source"] == of) & (frame["known"] == known)]
    rows = [
        (*(str(row[name]) for name in ("what", "mode", "device")), f"{row['measured_ms']:.4g}", *_beside(row))
        for row in rows_of(part)
    ]
    labels = dict.fromkeys(("what", "mode", "device"), "label")
    return markdown({**labels, "measured, ms": "measured", **TIMES}, rows)


def _beside(row: Mapping[str, Any]) -> Sequence[str]:
    """A prediction, its ratio to the measured time, and whether its band holds that."""
    return _predicted(row).text(), f"{row['ratio']:.2f}", "yes" if row["in_band"] else "no"


def table3_predictions() -> str:
    """Predicted beside published times of Table 3, and how close they are.

    On the device that the paper measured on; a time that a footnote of the suite calls into question is left out.
    """
    frame = validation()
    part = frame[frame["source"] == "Table 3"]
    rows = [
        (f"`{module}`", row["mode"], f"{row['measured_ms']:g}", *_beside(row))
        for module, own in part.groupby("what", sort=False)
        for row in reversed(rows_of(own))
    ]
    table = markdown({"module": "label", "mode": "label", "paper, ms": "published", **TIMES}, rows)
    near = int(part["ratio"].between(1 / NEAR, NEAR).sum())
    correlation = spearmanr(part["predicted_ms"], part["measured_ms"])[0]
    return (
        f"{table}\n\nMedian error {(part['ratio'] - 1).abs().median():.0%}; {near} of {len(part)} within a factor of "
        f"{NEAR:g}; rank correlation {correlation:.2f}; the band holds {part['in_band'].sum()} of {len(part)}."
    )


def prediction_fact() -> str:
    """Error of predicted times of whole passes where the card or the network's kin was left out of the fit."""
    passes = validation()
    own = passes[(passes["source"] == "NeuSight passes") & (passes["known"] == "left out")]
    models = ", ".join(sorted({str(what).split("-")[0].split(" ")[0] for what in own["what"]}))
    rows = [
        (f"language models ({models})", "float32", f"each of {own['device'].nunique()} cards", mode, *_within(part))
        for mode, part in own.groupby("mode", sort=False)
    ]
    networks = validation("networks")
    kinds = ", ".join(sorted(set(networks["family"])))
    rows += [
        (
            f"timm's networks ({kinds}) on {card}",
            "AMP, float16",
            known.removesuffix(" left out"),
            "both",
            *_within(part),
        )
        for (card, known), part in networks.groupby(["device", "known"], sort=True)
    ]
    labels = dict.fromkeys(("whole passes of", "dtype", "left out of the fit", "mode"), "label")
    table = markdown(
        {**labels, "times": "counted", **dict.fromkeys(("half are within", "in the 80 % band"), "ratio")}, rows
    )
    shares = own.groupby("device")["in_band"].mean().sort_values()
    low = ", ".join(f"{card} {share:.0%}" for card, share in shares[shares < NAMED_BELOW].items())
    return (
        f"**Predicted times** beside those that others published:\n\n{table}\n\nThe language models have no "
        f"convolution; least in their band are {low}. Kernels or networks were measured on so many cards: "
        f"{_measured_cards()} ({source('prediction')})."
    )


def _within(part: pd.DataFrame) -> tuple[str, str, str]:
    count, error, _, inside, *_ = _agreement(part)
    return count, error, inside


def _measured_cards() -> str:
    """By dtype, how many cards kernels or networks were fitted to, and which if they are few."""
    names = {each.title: name for name, each in sheets().items()}
    cards: dict[str, set[str]] = {}
    for (title, _), classes in calibration().devices.items():
        for key in classes:
            cards.setdefault(key.rpartition("|")[2], set()).add(names[title])
    return ", ".join(
        f"{dtype} {len(own)}" + (f" ({', '.join(sorted(own))})" if len(own) <= FEW else "")
        for dtype, own in sorted(cards.items())
    )


PREDICTIONS: dict[str, Callable[[], str]] = {
    "devices": device_list,
    "prediction-fact": prediction_fact,
    "left-out": left_out_list,
    "left-out-coverage": coverage_list,
    "validation": validation_summary,
    "validation-ratios": validation_ratios,
    "networks-cards": partial(network_summary, "device", "mode", "layout"),
    "networks-families": partial(network_summary, "family", "mode", "layout"),
    "validation-passes": partial(validation_rows, "NeuSight passes", "left out"),
    "validation-cpu": partial(validation_rows, "suite field", "calibrated"),
    "validation-operators": partial(validation_rows, "KernelBench", "left out"),
    "table3-predictions": table3_predictions,
}
