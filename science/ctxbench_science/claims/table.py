"""Findings of a run on its suite's claims: a table, and a line for each on the terminal."""

from textwrap import shorten

from ctxbench.report.run_data import RunData
from ctxbench.report.tables.caption import setup
from ctxbench.results.run_meta import StoredClaim
from ctxbench.table.table import Cell, Row, Table, TableColumn
from ctxbench_science.claims.findings import Rows, claims_of
from ctxbench_science.claims.own_claims import stored

PROXY = "proxy"
# Characters of what was found that a line on the terminal has room for.
MOST_FOUND = 160
COLUMNS = (
    TableColumn("claim", "", "Claim", "label"),
    TableColumn("verdict", "", "Verdict", "text", "claim"),
    TableColumn("criterion", "", "Criterion", "text", "claim"),
    TableColumn("found", "", "What was found", "text", "claim"),
)


def claim_table(run: RunData) -> Table | None:
    """Claim, verdict, criterion and what was found; None if the suite has no claims."""
    rows = Rows.of_run(run.rows)
    claims = claims_of(run.suite, str(run.definition.get("title", "")))
    judged = [stored(claim, rows) for claim in claims] or [
        StoredClaim.model_validate(each) for each in run.meta.get("claims", [])
    ]
    if not judged:
        return None
    texts = [
        (each.claim, f"{each.verdict} ({PROXY})" if each.proxy else each.verdict, each.criterion, each.found)
        for each in judged
    ]
    caption = [f"here: {setup(run)}."]
    if any(each.proxy for each in judged):
        caption.append(
            f"{PROXY}: the claim is about the accuracy of trained networks, the criterion about a reconstruction."
        )
    return Table(
        name=f"{run.suite}-claims",
        title=f"Claims of {run.suite}",
        columns=COLUMNS,
        rows=tuple(Row(tuple(map(Cell, row))) for row in texts),
        caption=tuple(caption),
    )


def claim_tables(run: RunData) -> list[Table]:
    """The table of claims, if the suite has any."""
    return [table] if (table := claim_table(run)) else []


def run_lines(run: RunData) -> list[str]:
    """A line for each claim of the suite: verdict, claim, and the beginning of what was found."""
    rows = [[cell.text for cell in row.cells] for table in claim_tables(run) for row in table.rows]
    return [
        f"{verdict}: {claim}: {shorten(found, MOST_FOUND, placeholder=' ...')}" for claim, verdict, _, found in rows
    ]
