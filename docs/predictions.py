"""Predicted times: the devices that there are, and how far times are off that nothing was fitted to."""

import json
import math
from collections import defaultdict
from collections.abc import Mapping
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from lists import ROOT, markdown, source, stored_run
from scipy.stats import spearmanr

from ctxbench.base.mode import MODES
from ctxbench.base.number import Number, ratio
from ctxbench.base.texts import listed
from ctxbench.model.metrics import quantity, read_number
from ctxbench.plugins.crossover.table import crossover_tables
from ctxbench.plugins.predict.listed import measured_classes
from ctxbench.plugins.predict.rates import calibration
from ctxbench.plugins.predict.sheet import sheets
from ctxbench.report.published import with_published
from ctxbench.report.tables.caption import setup
from ctxbench.results.rows import rows_of
from ctxbench.table.markdown import escape
from ctxbench.table.table import Origin

STORED = ROOT / "results" / "prediction"
# A prediction within this factor of a measured time is counted as near.
NEAR = 1.5
# So many of a list of classes are shown.
MOST_SHOWN = 10
# Below this share in the 80 % band a card is named.
NAMED_BELOW = 0.7
AGREEMENT: dict[str, Origin] = dict.fromkeys(
    ("median error", "within 1.5", "in the band", "rank", "high / low"), "ratio"
)
TIMES: dict[str, Origin] = {"predicted, ms": "predicted", "ratio": "ratio"}


def devices() -> str:
    """The devices that times are predicted for, and those without a measured kernel."""
    measured = measured_classes()
    every, bare = (
        listed([f"`{name}`" for name, each in sheets().items() if each.title not in known]) for known in ((), measured)
    )
    return (
        f"Times are predicted for {len(sheets())} devices: {every}. No kernel was measured on {bare}: their times rest "
        "on the other devices alone."
    )


def left_out() -> str:
    """The classes with the most kernels: how well those of a device are predicted from the other devices alone."""
    rows = []
    frame = pd.read_csv(STORED / "left-out.csv")
    groups = sorted(frame.groupby(["dtype", "class"]), key=lambda each: -each[1]["kernels"].sum())
    for (dtype, kind), part in groups[:MOST_SHOWN]:
        errors = part["median_error"]
        covered = np.average(part["covered"], weights=part["kernels"])
        spread = f"{errors.median():.0%} ({errors.min():.0%} to {errors.max():.0%})"
        rows.append((kind, dtype, str(len(part)), f"{part['kernels'].sum():,}", spread, f"{covered:.0%}"))
    labels, counts = dict.fromkeys(("class", "dtype"), "label"), dict.fromkeys(("devices", "kernels"), "counted")
    ratios = ("median error of a device: median (range)", "kernels in their band")
    table = markdown({**labels, **counts, **dict.fromkeys(ratios, "ratio")}, rows)
    errors = sorted(part["median_error"].median() for _, part in groups)
    return (
        f"{table}\n\nThese are the {len(rows)} of {len(groups)} classes with the most kernels. Over all classes this "
        f"error is {errors[0]:.0%} to {errors[-1]:.0%}. {source('prediction')}."
    )


def passes(name: str = "validation") -> pd.DataFrame:
    """The measured passes that no prediction was fitted to, with ratio and whether the band holds; or `networks`."""
    return _with_ratio(pd.read_csv(STORED / f"{name}.csv"))


def _with_ratio(frame: pd.DataFrame) -> pd.DataFrame:
    frame["ratio"] = frame["predicted_ms"] / frame["measured_ms"]
    frame["in_band"] = frame["measured_ms"].between(frame["low_ms"], frame["high_ms"])
    return frame


def validation_summary() -> str:
    """By source, what was known of the device, and mode: errors, coverage and rank."""
    groups = passes().groupby(["source", "known", "mode"], sort=False)
    rows = [(*map(str, key), *_agreement(part)) for key, part in groups]
    labels = dict.fromkeys(("source", "device is", "mode"), "label")
    table = markdown({**labels, "rows": "counted", **AGREEMENT}, rows)
    return f"{table}\n\n{source('prediction')}."


def network_summary() -> str:
    """timm's networks under AMP without their card: errors, coverage, rank, and the families with few in the band."""
    found, by = passes("networks"), ["device", "mode", "layout"]
    found = found[found["known"] == "card left out"]
    rows = [(*map(str, key), *_agreement(part)) for key, part in found.groupby(by)]
    table = markdown({**dict.fromkeys(by, "label"), "passes": "counted", **AGREEMENT}, rows)
    low = _below(found, ["family", "mode", "layout"])
    return (
        f"{table}\n\nWith the card left out, fewer than {NAMED_BELOW:.0%} are in the band of these families: {low}. "
        f"{source('prediction')}."
    )


def _below(part: pd.DataFrame, by: list[str]) -> str:
    """`Tesla P4 infer, Tesla T4 infer`: the groups with fewer than NAMED_BELOW in their band."""
    groups = part.groupby(by)
    return ", ".join(" ".join(map(str, key)) for key, own in groups if own["in_band"].mean() < NAMED_BELOW)


def _agreement(part: pd.DataFrame) -> tuple[str, ...]:
    error = (part["ratio"] - 1).abs().median()
    near = part["ratio"].between(1 / NEAR, NEAR).mean()
    rank = spearmanr(part["predicted_ms"], part["measured_ms"])[0] if len(part) > 2 else math.nan
    wide = (part["high_ms"] / part["low_ms"]).median()
    texts = (f"{error:.0%}", f"{near:.0%}", f"{part['in_band'].mean():.0%}", "" if math.isnan(rank) else f"{rank:.2f}")
    return (str(len(part)), *texts, f"{wide:.2f}")


def validation_ratios() -> str:
    """Ratios of two passes on a device that was left out, by mode: errors, and how many their band holds."""
    found = []
    for (device, mode), own in _language_models().groupby(["device", "mode"]):
        for one, two in combinations(rows_of(own), 2):
            told = ratio(*(_predicted(row) for row in (one, two)))
            measured = one["measured_ms"] / two["measured_ms"]
            inside = told.low <= measured <= told.high
            right = (told.value > 1) == (measured > 1)
            found.append((str(device), str(mode), abs(told.value / measured - 1), inside, right, told.high / told.low))
    pairs = pd.DataFrame(found, columns=["device", "mode", "error", "inside", "right", "wide"])
    rows = []
    for mode, own in pairs.groupby("mode"):
        shares = (f"{own['error'].median():.0%}", f"{own['inside'].mean():.0%}", f"{own['right'].mean():.0%}")
        rows.append((str(mode), str(len(own)), *shares, f"{own['wide'].median():.2f}"))
    ratios = dict.fromkeys(("median error", "in the band", "order right", "high / low"), "ratio")
    table = markdown({"mode": "label", "pairs": "counted", **ratios}, rows)
    low = _below(pairs.rename(columns={"inside": "in_band"}), ["device", "mode"])
    return f"{table}\n\nFewer than {NAMED_BELOW:.0%} of the pairs are in the band on {low}. {source('prediction')}."


def predicted_crossovers() -> str:
    """From which n on one module is predicted to be faster than another, by device and pair."""
    run = stored_run("prediction/crossover")
    (found,) = crossover_tables(run)
    shown = [
        i for i, column in enumerate(found.columns) if column.origin == "label" or column.key.startswith("latency")
    ]
    rows = [[escape(row.cells[i].text) for i in shown] for row in found.rows]
    table = markdown({found.columns[i].name: found.columns[i].origin for i in shown}, rows)
    return f"{table}\n\nhere: {setup(run)}."


def _predicted(row: Mapping[Any, Any]) -> Number:
    errors = json.loads(row["errors"])
    return Number(row["predicted_ms"], row["low_ms"], row["high_ms"], origin="predicted", errors=errors)


def table3_predictions() -> str:
    """The published times of Table 3 on the card of the paper that are not in the band of the predicted ones.

    A time that a footnote of the suite calls into question is left out.
    """
    run = stored_run("prediction/table3")
    assert run.published is not None
    found = []
    for row in rows_of(with_published(run)):
        for mode in reversed(MODES):
            time = quantity(f"latency_{mode}")
            told, paper = read_number(row, time), row[f"{time.key}_published"]
            doubtful = paper and time.key in run.published.rows[row["published_row"]].notes
            if told and paper and not doubtful and row["device"] == "titan-xp":
                found.append((row["module"], mode, float(paper), told.value, told.low, told.high, told.text()))
    columns = ("module", "mode", "measured_ms", "predicted_ms", "low_ms", "high_ms", "text")
    frame = _with_ratio(pd.DataFrame(found, columns=columns))
    rows = [
        (f"`{row['module']}`", row["mode"], f"{row['measured_ms']:g}", row["text"], f"{row['ratio']:.2f}")
        for row in rows_of(frame[~frame["in_band"]])
    ]
    table = markdown({**dict.fromkeys(("module", "mode"), "label"), "paper, ms": "published", **TIMES}, rows)
    return f"Of {len(frame)} times, {frame['in_band'].sum()} are in their band. The others:\n\n{table}"


def prediction_fact() -> str:
    """Error of predicted times of whole passes where the card or the network's kin was left out of the fit."""
    models, networks = _language_models(), passes("networks")
    kinds = ", ".join(sorted({str(what).split("-")[0].split(" ")[0] for what in models["what"]}))
    rows = [
        ("language models, float32", f"the card, each of {part['device'].nunique()}", mode, *_within(part))
        for mode, part in models.groupby("mode", sort=False)
    ]
    for (card, known, mode), part in networks.groupby(["device", "known", "mode"]):
        what = f"timm's networks, {str(card).removeprefix('NVIDIA GeForce ')}, AMP in float16"
        rows.append((what, f"the {str(known).removesuffix(' left out')}", mode, *_within(part)))
    labels = dict.fromkeys(("whole passes of", "left out of the fit", "mode"), "label")
    table = markdown({**labels, **dict.fromkeys(("half are within", "in the 80 % band"), "ratio")}, rows)
    low = _below(models, ["device", "mode"])
    return (
        f"**Predicted times** beside those that others published:\n\n{table}\n\nThe language models ({kinds}) have no "
        f"convolution. Fewer than {NAMED_BELOW:.0%} of their passes are in the band on {low}. The rates "
        f"were fitted to measurements of {_measured_cards()} ({source('prediction')})."
    )


def _language_models() -> pd.DataFrame:
    """The whole passes of language models, each predicted by a fit without its card."""
    frame = passes()
    return frame[(frame["source"] == "NeuSight passes") & (frame["known"] == "left out")]


def _within(part: pd.DataFrame) -> tuple[str, str]:
    count, error, _, inside, *_ = _agreement(part)
    return error, f"{inside} of {count}"


def _measured_cards() -> str:
    """`21 cards in float32, 9 in tf32`."""
    cards: dict[str, set[str]] = defaultdict(set)
    for (title, _), classes in calibration().devices.items():
        for key in classes:
            cards[key.rpartition("|")[2]].add(title)
    (most, own), *others = sorted(cards.items(), key=lambda each: -len(each[1]))
    return ", ".join([f"{len(own)} cards in {most}", *(f"{len(each)} in {dtype}" for dtype, each in others)])
