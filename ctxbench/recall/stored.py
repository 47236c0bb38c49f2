"""What the stored run of the suite `recall` found: a module of the same code need not be trained again."""

import csv
import json
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

from ctxbench.recall import RECIPE

ROOT = Path(__file__).resolve().parents[2]
RUN = ROOT / "results" / "recall-cpu"
# What modules share.
SHARED = ":(glob)modules/_*.py"


@cache
def stored_run() -> dict[str, Any] | None:
    """The run's `run.json`; None where ctxbench is no clone with its results."""
    try:
        found: dict[str, Any] = json.loads((RUN / "run.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found


def stored_row(reference: str, hparams: str, file: str) -> dict[str, str] | None:
    """The record of this class with these hyper-parameters in JSON; None without one, or where code has changed since.

    `file` is the module's. What trains it is the same where RECIPE is.
    """
    run = stored_run()
    if not run or not _is_same(run["environment"]["commit"], file):
        return None
    with (RUN / "records.csv").open(encoding="utf-8", newline="") as records:
        for row in csv.DictReader(records):
            # the first recipe had no number
            found = (row["reference"], row["hparams"], int(row.get("recall_recipe") or 1))
            if found == (reference, hparams, RECIPE) and row["recall_curve"]:
                return row
    return None


@cache
def _is_same(commit: str, file: str) -> bool:
    """Whether git knows that neither the file nor what modules share differs from that commit, but for new files."""
    if not Path(file).resolve().is_relative_to(ROOT):
        return False
    command = ["git", "-C", str(ROOT), "diff", "--quiet", "--diff-filter=a", commit, "--", SHARED, file]
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        return False
