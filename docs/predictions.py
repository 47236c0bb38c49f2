"""Predicted times: how far those are off that nothing was fitted to."""

import json
import math
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping
from functools import cache
from itertools import combinations
from typing import Any

import pandas as pd
from lists import ROOT, markdown
from scipy.stats import spearmanr

from ctxbench.base.mode import MODES
from ctxbench.base.number import Number, ratio, reason_unknown
from ctxbench.base.texts import listed
from ctxbench.plugins.predict.rates import calibration
from ctxbench.table.table import Origin

sys.path.insert(0, str(ROOT / "research"))

import fit_products
from band_widths import CARDS
from fit_hopper import in_half_a

STORED = ROOT / "results" / "prediction"
# A prediction within this factor of a measured time is counted as near.
NEAR = 1.5
# Ends of the classes of predicted ratios.
RATIOS = [1.0, 1.2, 1.5, 2.0, 3.0, math.inf]
# What the passes are of that a source measured.
OF = {"NeuSight passes": "language models, float32", "timm": "vision networks, AMP in float16"}
# Below this share in the 80 % band a card is named.
NAMED_BELOW = 0.7
# Groups with a larger median error, or a smaller share in the 80 % band, are named.
FAR, HELD = 0.2, 0.8
# How cells were obtained that are no ratio.
ORIGINS: dict[str, Origin] = dict.fromkeys(("cards", "passes"), "counted")
# What the table of whole passes has of an agreement, and how it calls that.
LEFT_OUT = {"median error": "median error", "in the band": "in the 80 % band", "rank": "rank"}
TIMES: dict[str, Origin] = {"predicted, ms": "predicted", "ratio": "ratio"}


def left_out() -> str:
    """Errors of whole passes that no fit has seen, for cards that are known and for others."""

    def cells(part: pd.DataFrame) -> dict[str, str]:
        found = _agreement(part)
        counts = {"cards": str(part["device"].nunique()), "passes": str(len(part))}
        return {**counts, **{own: found[name] for name, own in LEFT_OUT.items()}}

    return _grouped(whole_passes(), {"of": "whole passes of", "card": "card", "pass": "mode"}, cells)


def _grouped(frame: pd.DataFrame, labels: Mapping[str, str], cells: Callable[[pd.DataFrame], dict[str, str]]) -> str:
    """A row for each group of a frame: the columns that make it, by their headings, and the group's cells."""
    groups = frame.groupby([*labels])
    rows = [dict(zip(labels.values(), map(str, key), strict=True)) | cells(part) for key, part in groups]
    shown = {name: "label" if name in labels.values() else ORIGINS.get(name, "ratio") for name in rows[0]}
    return markdown(shown, [[*row.values()] for row in rows])


def whole_passes() -> pd.DataFrame:
    """The passes of whole networks that no fit has seen: of what, whether the card is known, train or infer."""
    frame = pd.concat([passes("networks"), passes()[lambda each: each["source"] == "NeuSight passes"]])
    frame["of"], frame["card"] = frame["source"].map(OF), frame["known"].map(CARDS)
    frame["pass"] = frame["mode"].replace("backward", "train")
    return frame[frame["card"].notna()].fillna({"layout": ""})


def block_passes() -> pd.DataFrame:
    """The times of blocks alone that a GPU has measured, of blocks to whose kernels nothing was fitted."""
    found = passes()[lambda each: each["source"].str.startswith("blocks, ")]
    return found[~found["what"].str.partition(" ")[0].map(in_half_a)]


def worst_blocks() -> tuple[str, str, float, float]:
    """Of those where the GPU decides, the dtype and the mode with the largest median error, that, and the coverage."""
    decided = block_passes()[lambda each: each["known"] == "half B"]
    groups = decided.assign(error=(decided["ratio"] - 1).abs()).groupby(["source", "mode"])
    (source, mode), own = max(groups, key=lambda item: item[1]["error"].median())
    return source.partition(", ")[2], mode, own["error"].median(), own["in_band"].mean()


def passes(name: str = "validation") -> pd.DataFrame:
    """The measured passes that no prediction was fitted to, with ratio and whether the band holds; or `networks`."""
    return _with_ratio(pd.read_csv(STORED / f"{name}.csv.gz"))


def block_orders() -> str:
    """Share of pairs of blocks whose predicted times are in the order of the measured ones, by the predicted ratio."""
    pairs = block_pairs()
    found = pairs.groupby(pd.cut(pairs["apart"], RATIOS, right=False), observed=True)
    rows = []
    for group, own in found:
        shares = [own[own["mode"] == mode]["right"].mean() for mode in MODES]
        rows.append((_bounds(group), f"{len(own):,}", *(f"{share:.0%}" for share in shares)))
    headings = [f"order right, {mode}" for mode in MODES]
    return markdown({"predicted ratio": "label", "pairs": "counted", **dict.fromkeys(headings, "ratio")}, rows)


def block_pairs() -> pd.DataFrame:
    """Pairs of blocks measured on a GPU in one mode, dtype and size: the larger predicted time over the smaller one,
    and whether the order is right.
    """
    found = block_passes()
    sizes = found["what"].str.rpartition(" ")[2]
    pairs = [
        (mode, ratio, (measured > 1) == (predicted > 1))
        for (mode, *_), own in found.groupby(["mode", "source", sizes])
        for one, two in combinations(own[["predicted_ms", "measured_ms"]].to_numpy(), 2)
        for predicted, measured in [one / two]
        for ratio in [max(predicted, 1 / predicted)]
    ]
    return pd.DataFrame(pairs, columns=["mode", "apart", "right"])


def _bounds(ratios: pd.Interval) -> str:
    return f"{ratios.left:g} to {ratios.right:g}" if math.isfinite(ratios.right) else f"{ratios.left:g} and more"


def _with_ratio(frame: pd.DataFrame) -> pd.DataFrame:
    frame["ratio"] = frame["predicted_ms"] / frame["measured_ms"]
    frame["in_band"] = frame["measured_ms"].between(frame["low_ms"], frame["high_ms"])
    return frame


def validation_summary() -> str:
    """Of the sources that are not in `left_out`, by what was known of the device and mode: the range, and the worst."""
    found = passes()
    groups = found[~found["source"].isin(OF)].groupby(["source", "known", "mode"], sort=False)
    errors, held = groups.apply(_median_error, include_groups=False), groups["in_band"].mean()
    far, seldom = (_named(each) for each in (errors[errors > FAR], held[held < HELD]))
    return (
        f"In {len(errors)} groups of other times, by source, mode and what was known of the device, the median error "
        f"is {errors.min():.0%} to {errors.max():.0%}. It is above {FAR:.0%} in {far}. Fewer than {HELD:.0%} of the "
        f"times lie in their 80 % band in {seldom}."
    )


def _named(groups: "pd.Series[float]") -> str:
    """`*Table 3* infer (model: 75%) and ...`."""
    return listed([f"*{source}* {mode} ({known}: {share:.0%})" for (source, known, mode), share in groups.items()])


def told_passes() -> str:
    """Groups of passes that nothing was fitted to of which not all times are told: how many, and how near they are."""
    labels = ["of", "card", "pass"]
    found = _with_told()
    some = found[~found.groupby(labels)["told"].transform("all")].groupby(labels)["told"]
    counts = zip(some.sum().items(), some.size(), strict=True)
    shares = [f"*{of}* {mode} (card {card}: {told} of {size})" for ((of, card, mode), told), size in counts]
    told = found[found["told"]].groupby(labels)
    errors, held = (each.loc[some.size().index] for each in (told["ratio"].agg(_off), told["in_band"].mean()))
    return (
        f"{listed(shares)}. Of the times that are told, the median error of a group is {errors.min():.0%} to "
        f"{errors.max():.0%}, and {held.min():.0%} to {held.max():.0%} lie in the 80 % band."
    )


def _with_told() -> pd.DataFrame:
    """Blocks and networks that nothing was fitted to, and whether a time is told of each."""
    blocks = block_passes().assign(of=lambda each: each["source"], card="known in part")
    found = pd.concat([whole_passes(), blocks.assign(**{"pass": blocks["mode"]})])
    return found.assign(told=[_is_told(row) for row in found.to_dict("records")])


def prediction_bars() -> str:
    """Table of what was asked of predicted times, and what they reach."""
    blocks, found = block_passes(), _with_told()
    decided = blocks[blocks["known"] == "half B"]
    held = found[found["told"]].groupby(["of", "card", "pass"])["in_band"].mean().min()
    products = max(_median_error(own) for _, own in _products().groupby("card"))
    rows = [
        ("half B where the GPU decides, median error", "15% at most", f"{_median_error(decided):.0%}"),
        ("the same, within a factor of 1.5", "89% or more", f"{decided['ratio'].between(1 / NEAR, NEAR).mean():.0%}"),
        ("all times of half B, median error", "17% at most", f"{_median_error(blocks):.0%}"),
        ("products in bfloat16, card left out, the worst card", "15% at most", f"{products:.0%}"),
        ("times that are told in their 80 % band, the worst group", "80% or more", f"{held:.0%}"),
    ]
    return markdown({"what": "label", "asked": "text", "today": "ratio"}, rows)


def _median_error(part: pd.DataFrame) -> float:
    return _off(part["ratio"])


def _off(ratios: "pd.Series[float]") -> float:
    return float((ratios - 1).abs().median())


def _is_told(row: Mapping[Any, Any]) -> bool:
    """Return whether a number is told of a stored pass; the share that nothing measured is known of blocks alone."""
    if isinstance(row.get("unknown"), str):
        return False
    return not reason_unknown(row["low_ms"], row["high_ms"], json.loads(row["errors"]))


def products_left_out() -> str:
    """Products in bfloat16, each predicted by the fit without its card: errors and coverage over the cards."""
    cards = _products().groupby("card")
    errors = cards.apply(_median_error, include_groups=False)
    held = cards["in_band"].mean()
    return (
        f"Of {len(_products()):,} products on {len(cards)} cards, the median error of a card is {errors.min():.0%} to "
        f"{errors.max():.0%}, and {held.min():.0%} ({held.idxmin()}) to {held.max():.0%} lie in the 80 % band."
    )


@cache
def _products() -> pd.DataFrame:
    return _with_ratio(fit_products.left_out().rename(columns={"ms": "measured_ms"}))


def _without_card() -> pd.DataFrame:
    return passes("networks")[lambda found: found["known"] == "card left out"]


def seldom_in_band() -> list[str]:
    """`convnet train nhwc`: the families of networks with fewer than NAMED_BELOW in their band, without their card."""
    groups = _without_card().groupby(["family", "mode", "layout"])
    return [" ".join(map(str, key)) for key, own in groups if own["in_band"].mean() < NAMED_BELOW]


def _agreement(part: pd.DataFrame) -> dict[str, str]:
    rank = spearmanr(part["predicted_ms"], part["measured_ms"])[0] if len(part) > 2 else math.nan
    return {
        "median error": f"{_median_error(part):.0%}",
        "in the band": f"{part['in_band'].mean():.0%}",
        "rank": "" if math.isnan(rank) else f"{rank:.2f}",
    }


def validation_ratios() -> str:
    """Ratios of two passes on one card: how many orders the band supports, and how many of these hold."""
    found = []
    for (of, card, mode, _, _), own in whole_passes().groupby(["of", "card", "pass", "device", "layout"]):
        for one, two in combinations(own.to_dict("records"), 2):
            told = ratio(*(_predicted(row) for row in (one, two)))
            measured = one["measured_ms"] / two["measured_ms"]
            right, safe = (told.value > 1) == (measured > 1), not told.low <= 1 <= told.high
            error, inside = abs(told.value / measured - 1), told.low <= measured <= told.high
            found.append((of, card, mode, error, inside, right, safe))
    pairs = pd.DataFrame(found, columns=["of", "card", "mode", "error", "inside", "right", "safe"])
    groups = pairs.groupby(["of", "card", "mode"])
    supported, right = groups["safe"].mean(), pairs[pairs["safe"]].groupby(["of", "card", "mode"])["right"].mean()
    return (
        f"In the {len(supported)} groups of the first table, {len(pairs):,} pairs, the order is supported in "
        f"{supported.min():.0%} to {supported.max():.0%} of the pairs, and right in {right.min():.0%} to "
        f"{right.max():.0%} of these. The ratio lies in its band in {groups['inside'].mean().min():.0%} to "
        f"{groups['inside'].mean().max():.0%}."
    )


def _predicted(row: Mapping[Any, Any]) -> Number:
    errors = json.loads(row["errors"])
    return Number(row["predicted_ms"], row["low_ms"], row["high_ms"], origin="predicted", errors=errors)


def measured_cards() -> str:
    """`21 cards in float32, of 4 in float16`: the dtype with the most, and with the fewest."""
    cards: dict[str, set[str]] = defaultdict(set)
    for title, dtype, _ in calibration().devices:
        cards[dtype].add(title)
    most, *_, least = sorted(cards, key=lambda dtype: -len(cards[dtype]))
    return f"{len(cards[most])} cards in `{most}`, of {len(cards[least])} in `{least}`"
