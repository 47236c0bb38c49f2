"""Operators of PyTorch's own list: each prediction is equal to the byte, marked or refused, as results/ has counted."""

import importlib
import os
import random
from datetime import UTC, datetime
from pathlib import Path

import pandas as pd
import pytest
import torch

ROOT = Path(__file__).resolve().parents[3]
COUNTED = ROOT / "results" / "operators.csv.gz"
# As in tests/test_committed_counts.py.
SEED = os.environ.get("CTXBENCH_TEST_SAMPLE") or datetime.now(UTC).date().isoformat()
DRAWN = 20


def test_no_operator_is_wrong_without_a_mark() -> None:
    counted = pd.read_csv(COUNTED)
    assert not counted["wrong"].any()
    assert counted["operator"].nunique() > 500
    assert counted["right"].sum() > counted["marked"].sum() + counted["refused"].sum()


@pytest.mark.long
@pytest.mark.processor
@pytest.mark.usefixtures("plain_kernels")
@pytest.mark.filterwarnings("ignore")
def test_operators_drawn_by_the_day_are_as_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "research"))
    sweep = importlib.import_module("operator_sweep")  # here, as PyTorch's list takes seconds
    counted = pd.read_csv(COUNTED).set_index(["operator", "dtype"])
    for entry in random.Random(SEED).sample(sweep.operators(), DRAWN):
        for dtype in sweep.DTYPES:
            found = list(sweep.swept(entry, dtype))
            assert [str(each) for each in found if each.verdict == "wrong"] == []
            row = {"operator": sweep.title(entry), "dtype": dtype, **counted.loc[(sweep.title(entry), dtype)]}
            # With several threads more is marked.
            assert torch.get_num_threads() > 1 or sweep.row(entry, dtype, found) == row
