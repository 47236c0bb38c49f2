"""Finds how far predicted times of passes are off alike on a card: with that error the band holds 80 % of them.

Reads the passes that no fit has seen, results/prediction/networks.csv and validation.csv: those of a known card, whose
kernels or other networks were fitted, and those of a card that was left out. Writes the two errors, standard deviations
of logarithms, to ctxbench/plugins/predict/errors.csv. The bands of both files are written anew: a pass has the error
that the other cards give, or of networks on a known card the networks of other kin.

Run, after calibrate_time.py and validate_time.py: python research/band_widths.py
"""

import csv
import json
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import accumulate
from pathlib import Path

from ctxbench.base.number import CONFIDENCE, CONFIDENCE_SDS

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "results" / "prediction"
# What the columns `known` say of the card.
CARDS = {"networks left out": "known", "model": "known", "card left out": "unknown", "left out": "unknown"}
# Whole passes that others measured.
SOURCES = ("timm", "NeuSight passes")
HEADER = "# Written by research/band_widths.py from results/prediction/networks.csv and validation.csv.\n"
Row = dict[str, str]


def device_sd(rows: Sequence[Mapping[str, str]]) -> float:
    """The error with which the band holds 80 % of passes, each card counting the same; `errors` has the other parts."""
    counts = Counter(row["device"] for row in rows)
    needed = []
    for row in rows:
        apart = math.log(float(row["measured_ms"]) / float(row["predicted_ms"])) / CONFIDENCE_SDS
        needed.append((math.sqrt(max(0.0, apart**2 - _rest(row) ** 2)), 1 / counts[row["device"]]))
    needed.sort()
    held = accumulate(weight / len(counts) for _, weight in needed)
    return float(f"{next(sd for (sd, _), share in zip(needed, held, strict=True) if share >= CONFIDENCE):.3g}")


def _rest(row: Mapping[str, str]) -> float:
    return math.hypot(*(sd for source, sd in json.loads(row["errors"]).items() if source != "device"))


def banded(row: Row, sd: float) -> Row:
    """A row with the band that this error of the device gives."""
    factor, value = math.exp(CONFIDENCE_SDS * math.hypot(sd, _rest(row))), float(row["predicted_ms"])
    errors = json.dumps({**json.loads(row["errors"]), "device": sd})
    return {**row, "low_ms": f"{value / factor:.4g}", "high_ms": f"{value * factor:.4g}", "errors": errors}


def left_out_with(row: Mapping[str, str]) -> str:
    """The rows that are left out together with one: of a network on a known card its kin, else those of its card."""
    is_network = row["known"] == "networks left out"
    return re.split(r"[_\d]", row["what"])[0] if is_network else row["device"]


def widened(rows: Sequence[Row], passes: Sequence[Row]) -> list[Row]:
    """Rows with the band of their kind of card; those that are among `passes` tell nothing of their own."""
    found: list[Row] = []
    sds: dict[tuple[str, str], float] = {}
    for row in rows:
        card = CARDS.get(row["known"])
        if card and "device" in json.loads(row["errors"]):
            key = (card, left_out_with(row))
            if key not in sds:
                sds[key] = device_sd([e for e in passes if CARDS[e["known"]] == card and left_out_with(e) != key[1]])
            row = banded(row, sds[key])
        found.append(row)
    return found


def main() -> None:
    files = {name: _read(RESULTS / name) for name in ("networks.csv", "validation.csv")}
    passes = [row for rows in files.values() for row in rows if row["source"] in SOURCES and row["known"] in CARDS]
    for name, rows in files.items():
        _write(RESULTS / name, widened(rows, passes))
    own = {card: [row for row in passes if CARDS[row["known"]] == card] for card in ("known", "unknown")}
    table = [{"card": card, "sd": str(device_sd(rows)), "passes": str(len(rows))} for card, rows in own.items()]
    _write(ROOT / "ctxbench" / "plugins" / "predict" / "errors.csv", table, HEADER)


def _read(path: Path) -> list[Row]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _write(path: Path, rows: Sequence[Row], first: str = "") -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        file.write(first)
        writer = csv.DictWriter(file, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
