"""Finds the errors of predicted times with which their band holds 80 % of passes.

Reads the passes that no fit has seen, results/prediction/networks.csv.gz and validation.csv.gz: those of a known card,
whose kernels or other networks were fitted, and those of a card that was left out. Writes the error of each kind of
card and that of training, standard deviations of logarithms, to ctxbench/plugins/predict/errors.csv. The bands of both
files are written anew: a pass has the errors that the other cards give, or of networks on a known card the networks of
other kin. The error of training in 16 bits comes from networks of FOR_BAND, which are in no fit and in no table.

Run, after calibrate_time.py and validate_time.py: python research/band_widths.py
"""

import csv
import gzip
import io
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from pathlib import Path

from ctxbench.base.number import CONFIDENCE, CONFIDENCE_SDS, TRAINING
from ctxbench.plugins.predict.rates import TRAINING_HALF

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "results" / "prediction"
# What the columns `known` say of the card.
CARDS = {"networks left out": "known", "model": "known", "card left out": "unknown", "left out": "unknown"}
FOR_BAND = "for the band"
# Whole passes that others measured.
HALF = "timm"  # in 16 bits
SOURCES = (HALF, "NeuSight passes")
HEADER = "# Written by research/band_widths.py from results/prediction/networks.csv.gz and validation.csv.gz.\n"
# The source of error that all passes on a card share.
DEVICE = "device"
Row = dict[str, str]


def sd_of(source: str, rows: Sequence[Mapping[str, str]]) -> float:
    """The error of a source with which the band holds 80 % of passes; `errors` has the other parts.

    Of the device's each card counts the same, of training's, which few cards have, each pass.
    """
    counts = Counter(_counted_by(source, row) for row in rows)
    needed = []
    for row in rows:
        apart = math.log(float(row["measured_ms"]) / float(row["predicted_ms"])) / CONFIDENCE_SDS
        needed.append((math.sqrt(max(0.0, apart**2 - _rest(source, row) ** 2)), 1 / counts[_counted_by(source, row)]))
    needed.sort()
    held = accumulate(weight / len(counts) for _, weight in needed)
    return float(f"{next(sd for (sd, _), share in zip(needed, held, strict=True) if share >= CONFIDENCE):.3g}")


def _counted_by(source: str, row: Mapping[str, str]) -> str:
    return _card(row) if source == DEVICE else ""


def _rest(source: str, row: Mapping[str, str]) -> float:
    return math.hypot(*(sd for each, sd in json.loads(row["errors"]).items() if each != source))


def found_in(passes: Sequence[Row]) -> dict[str, float]:
    """The error of a card that is "known" or "unknown", by inference, and of training beside that of a known card."""
    infer = [row for row in passes if row["mode"] == "infer"]
    found = {
        card: sd_of(DEVICE, [row for row in infer if CARDS[row["known"]] == card]) for card in ("known", "unknown")
    }
    trained = [row for row in passes if row["mode"] != "infer"]
    bare = {**found, TRAINING: 0.0, TRAINING_HALF: 0.0}
    known = [banded(row, bare) for row in trained if CARDS.get(row["known"]) == "known"]
    half = [banded({**row, "known": "model"}, bare) for row in trained if row["known"] == FOR_BAND]
    return {**found, TRAINING: sd_of(TRAINING, known), **({TRAINING_HALF: sd_of(TRAINING, half)} if half else {})}


def banded(row: Row, sds: Mapping[str, float]) -> Row:
    """A row with the band that these errors give."""
    errors = {**json.loads(row["errors"]), DEVICE: sds[CARDS[row["known"]]]}
    if row["mode"] != "infer":
        errors[TRAINING] = sds[TRAINING_HALF if row["source"] == HALF else TRAINING]
    factor, value = math.exp(CONFIDENCE_SDS * math.hypot(*errors.values())), float(row["predicted_ms"])
    return {**row, "low_ms": f"{value / factor:.4g}", "high_ms": f"{value * factor:.4g}", "errors": json.dumps(errors)}


def _card(row: Mapping[str, str]) -> str:
    return row["device"]


def _kin(row: Mapping[str, str]) -> str:
    return re.split(r"[_\d]", row["what"])[0]


def widened(rows: Sequence[Row], passes: Sequence[Row]) -> list[Row]:
    """Rows with the band of their kind of card.

    Passes of a row's card tell nothing of its band; of a network on a known card, the networks of its kin.
    """
    found: list[Row] = []
    sds: dict[tuple[Callable[[Row], str], str], dict[str, float]] = {}
    for row in rows:
        if row["known"] in CARDS and DEVICE in json.loads(row["errors"]):
            alike = _kin if row["known"] == "networks left out" else _card
            out = (alike, alike(row))
            if out not in sds:
                others = [each for each in passes if each["known"] == FOR_BAND or alike(each) != alike(row)]
                sds[out] = found_in(others)
            row = banded(row, sds[out])
        found.append(row)
    return found


def main() -> None:
    files = {name: _read(RESULTS / name) for name in ("networks.csv.gz", "validation.csv.gz")}
    passes = [
        row
        for rows in files.values()
        for row in rows
        if row["source"] in SOURCES and row["known"] in (*CARDS, FOR_BAND)
    ]
    for name, rows in files.items():
        (RESULTS / name).write_bytes(gzip.compress(_text(widened(rows, passes)).encode(), 9, mtime=0))
    table = [{"of": name, "sd": str(sd)} for name, sd in found_in(passes).items()]
    (ROOT / "ctxbench" / "plugins" / "predict" / "errors.csv").write_text(HEADER + _text(table), encoding="utf-8")


def _read(path: Path) -> list[Row]:
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _text(rows: Sequence[Row]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, rows[0], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


if __name__ == "__main__":
    main()
