"""The fit of products in 16 bits: cards left out, and the committed table."""

import sys
from pathlib import Path

import pandas as pd

sys.path.insert(0, str(Path(__file__).parents[1]))

from fit_products import HEADER, LEFT_OUT, ROWS, TARGET, left_out, rows

from ctxbench.plugins.predict.rates import calibration


def test_products_of_a_card_left_out_are_predicted_within_15_percent() -> None:
    found = left_out()
    assert found.groupby("card").size().to_dict() == dict.fromkeys(found["card"].unique(), ROWS)
    errors = (found["predicted_ms"] / found["ms"] - 1).abs().groupby(found["card"]).median()
    assert len(errors) == 6
    assert errors.max() < 0.15


def test_the_committed_rate_is_what_the_extract_gives_without_the_h200() -> None:
    assert TARGET.read_text(encoding="utf-8") == HEADER + pd.DataFrame(rows()).to_csv(index=False, lineterminator="\n")
    assert LEFT_OUT not in calibration().products
