"""Predicted times: the devices that there are, and how far times are off that nothing was fitted to."""

import json
import math
import sys
from collections import defaultdict
from collections.abc import Mapping
from itertools import combinations
from typing import Any

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

sys.path.insert(0, str(ROOT / "research"))

from band_widths import CARDS

STORED = ROOT / "results" / "prediction"
# A prediction within this factor of a measured time is counted as near.
NEAR = 1.5
# What the passes are of that a source measured.
OF = {"NeuSight passes": "language models, float32", "timm": "vision networks, AMP in float16"}
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
    """Errors of whole passes that no fit has seen, for cards that are known and for others; and what was fitted."""
    rows = [
        (*map(str, key), str(part["device"].nunique()), *_agreement(part)[:2], *_agreement(part)[3:5])
        for key, part in whole_passes().groupby(["of", "card", "pass"])
    ]
    labels = dict.fromkeys(("whole passes of", "card", "mode"), "label")
    ratios = dict.fromkeys(("median error", "in the 80 % band", "rank"), "ratio")
    table = markdown({**labels, "cards": "counted", "passes": "counted", **ratios}, rows)
    return (
        f"{table}\n\nNo fit has seen the pass. Of a known card it has seen other kernels or networks, of an unknown "
        f"one none. The rates were fitted to measurements of {_measured_cards()} "
        f"({source('prediction')})."
    )


def whole_passes() -> pd.DataFrame:
    """The passes of whole networks that no fit has seen: of what, whether the card is known, train or infer."""
    frame = pd.concat([passes("networks"), passes()[lambda each: each["source"] == "NeuSight passes"]])
    frame["of"], frame["card"] = frame["source"].map(OF), frame["known"].map(CARDS)
    frame["pass"] = frame["mode"].replace("backward", "train")
    return frame.fillna({"layout": ""})


def passes(name: str = "validation") -> pd.DataFrame:
    """The measured passes that no prediction was fitted to, with ratio and whether the band holds; or `networks`."""
    return _with_ratio(pd.read_csv(STORED / f"{name}.csv"))


def _with_ratio(frame: pd.DataFrame) -> pd.DataFrame:
    frame["ratio"] = frame["predicted_ms"] / frame["measured_ms"]
    frame["in_band"] = frame["measured_ms"].between(frame["low_ms"], frame["high_ms"])
    return frame


def validation_summary() -> str:
    """By source, what was known of the device, and mode: errors, coverage and rank, but for those of `left_out`."""
    found = passes()
    groups = found[~found["source"].isin(OF)].groupby(["source", "known", "mode"], sort=False)
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
    """Ratios of two passes on one card: errors, how many orders the band supports, and how many of these hold."""
    found = []
    for (of, card, mode, _, _), own in whole_passes().groupby(["of", "card", "pass", "device", "layout"]):
        for one, two in combinations(rows_of(own), 2):
            told = ratio(*(_predicted(row) for row in (one, two)))
            measured = one["measured_ms"] / two["measured_ms"]
            right, safe = (told.value > 1) == (measured > 1), not told.low <= 1 <= told.high
            error, inside = abs(told.value / measured - 1), told.low <= measured <= told.high
            found.append((of, card, mode, error, inside, right, safe))
    pairs = pd.DataFrame(found, columns=["of", "card", "mode", "error", "inside", "right", "safe"])
    rows = []
    for key, own in pairs.groupby(["of", "card", "mode"]):
        shares = [own["error"].median(), *(own[name].mean() for name in ("inside", "right", "safe"))]
        shares.append(own[own["safe"]]["right"].mean())
        rows.append((*map(str, key), f"{len(own):,}", *(f"{share:.0%}" for share in shares)))
    labels = dict.fromkeys(("passes of", "card", "mode"), "label")
    names = ("median error", "in the band", "order right", "order supported", "of these right")
    table = markdown({**labels, "pairs": "counted", **dict.fromkeys(names, "ratio")}, rows)
    return f"{table}\n\n{source('prediction')}."


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


def _measured_cards() -> str:
    """`21 cards in float32, of 4 in float16`: the dtype with the most, and with the fewest."""
    cards: dict[str, set[str]] = defaultdict(set)
    for (title, _), classes in calibration().devices.items():
        for key in classes:
            cards[key.rpartition("|")[2]].add(title)
    most, *_, least = sorted(cards, key=lambda dtype: -len(cards[dtype]))
    return f"{len(cards[most])} cards in `{most}`, of {len(cards[least])} in `{least}`"
