"""The claims of a suite judged from a frame of records, for the tests."""

from typing import Any

import pandas as pd

from ctxbench.model.read_suite import load
from ctxbench.results.rows import rows_in
from ctxbench_science.claims.findings import Finding, Rows, claims_of


def rows_of(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows of a data frame, with None for what is missing."""
    columns = {name: frame[name].astype("object").where(frame[name].notna(), None).tolist() for name in frame}
    return rows_in(columns)


def findings(suite: str, frame: pd.DataFrame) -> list[Finding]:
    """Findings of the rows on each claim, in order."""
    rows = Rows.of_run(rows_of(frame))
    return [claim.judge(rows) for claim in claims_of(suite, load(suite).file.title)]


def verdicts(suite: str, frame: pd.DataFrame) -> list[str]:
    return [str(each.verdict) for each in findings(suite, frame)]
