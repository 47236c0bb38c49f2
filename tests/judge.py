"""The claims of a suite judged from a frame of records, for the tests."""

import pandas as pd

from ctxbench.model.read_suite import load
from ctxbench.results.claims import Finding, Rows, claims_of
from ctxbench.results.rows import rows_of


def findings(suite: str, frame: pd.DataFrame) -> list[Finding]:
    """Findings of the rows on each claim, in order."""
    return [claim.judge(Rows.of_run(rows_of(frame))) for claim in claims_of(suite, load(suite).file.title)]


def verdicts(suite: str, frame: pd.DataFrame) -> list[str]:
    return [str(each.verdict) for each in findings(suite, frame)]
