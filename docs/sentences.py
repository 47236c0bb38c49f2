"""Renders the sentences of sentences.toml with the numbers that the files beside this one take from stored runs."""

import re
import tomllib
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

import beside_rivals
import check_commits
import deployment
import findings as found_tables
import gate_on_this_machine as gate
import gpu_runs
import headlines
import lists
import predictions
import real_commits
import repeatability
import scans
from jinja2 import Environment, StrictUndefined
from orders import orders

from ctxbench.base.number import significant
from ctxbench.base.texts import listed
from ctxbench.model.metrics import metrics
from ctxbench.model.read_suite import available
from ctxbench.plugins.predict.listed import measured_dtypes
from ctxbench.plugins.predict.sheet import sheets
from ctxbench.report.tables.caption import setup
from ctxbench.report.tables.cells import heading
from ctxbench.table.markdown import escape
from ctxbench_science.claims.table import claim_table
from ctxbench_science.recall.metric import CHANCE, SEGMENT_BOUNDS, SOLVED
from ctxbench_science.twins.records import NAMES

TEXTS = tomllib.loads((Path(__file__).parent / "sentences.toml").read_text(encoding="utf-8"))
LINK = re.compile(r"\[([^]]*)\]\([^)]*\)")
# What stands behind a number to say how sure it is.
INTERVAL = re.compile(r" \[[\d., ]+\]| \(\d+ of \d+ seeds\)")


def block(name: str) -> str:
    """A sentence, or several, with the tables among them."""
    return rendered(TEXTS["sentences"][name])


def rendered(text: str, **names: Any) -> str:
    return ENVIRONMENT.from_string(text).render(names).strip()


def trust() -> list[tuple[str, ...]]:
    """The claims of the README, each with its evidence and what is to be said against it."""
    return [tuple(map(rendered, row.values())) for row in TEXTS["trust"]]


def finding(page: str) -> str:
    """Finding of a page, if the committed runs judge claims as its sentence needs; a text for each experiment."""
    return " ".join(text for text, _ in found_on(page))


@cache
def found_on(page: str) -> list[tuple[str, set[str]]]:
    """The texts of a page's finding, each with the committed runs that it was made from."""
    (each,) = (each for each in TEXTS["found"] if each["page"] == page)
    found = [judged(*claim) for claim in each.get("judged", ())]
    return [with_runs(text, found) for text in texts_of(each)]


def texts_of(found: dict[str, Any]) -> list[str]:
    """The texts of a finding, each of one experiment."""
    return [found["text"]] if isinstance(found["text"], str) else list(found["text"])


def experiments() -> Iterator[tuple[str, str, set[str]]]:
    """Of each claim of the README and each finding: which one, its text, and the committed runs that it is of.

    A finding has behind it how many of the blocks a run has that lacks some.
    """
    for row in TEXTS["trust"]:
        for part in ("evidence", "but"):
            made, runs = with_runs(row[part], [])
            yield row["claim"], made, runs
    for each in TEXTS["found"]:
        for made, runs in found_on(each["page"]):
            yield each["page"], "; ".join([made, *parts_of(runs)]), runs


def with_runs(text: str, found: list[str]) -> tuple[str, set[str]]:
    """A rendered text, and the committed runs that it was made from."""
    lists.opened.clear()
    return rendered(text, found=found), set(lists.opened)


def parts_of(runs: Iterable[str]) -> list[str]:
    """`55 of 57 blocks` of each run that lacks some."""
    return sorted({part for run in runs if (part := lists.part_of(lists.ROOT / "results" / run))})


def findings(folder: str = "", *, first: bool = False) -> list[str]:
    """Findings, a line each, without intervals and with the page; with `first` those of the README."""
    pages = [Path(each["page"]) for each in TEXTS["found"] if each.get("first") or not first]
    lines = []
    for page in pages:
        found = found_on(page.as_posix())
        behind = [
            f"[{page.stem}]({folder}{page.as_posix()})",
            *map("measured for {}".format, parts_of({run for _, runs in found for run in runs})),
        ]
        lines.append(f"- {INTERVAL.sub('', ' '.join(text for text, _ in found))} ({'; '.join(behind)})")
    return lines


def judged(run: str, verdict: str, claim: str) -> str:
    """Finding of a run on a claim; ends the command where its verdict is another one."""
    table = claim_table(lists.stored_run(run))
    assert table is not None
    for said, found_verdict, _, found in ([cell.text for cell in row.cells] for row in table.rows):
        if said == claim and found_verdict.partition(" (proxy")[0] == verdict:
            return found
    raise SystemExit(f"{run} does not say {verdict} of {claim!r}: its sentence in docs/sentences.toml is wrong")


def code(names: Iterable[str]) -> list[str]:
    return [f"`{name}`" for name in names]


FILTERS: dict[str, Callable[..., Any]] = {
    "cell": escape,
    "code": code,
    "every": lambda text, pattern: re.findall(pattern, text),
    "listed": lambda texts: listed([*texts]),
    "row_name": headlines.row_name,
    "twins": orders,
    "without_links": lambda text: LINK.sub(r"\1", text),
}
ENVIRONMENT = Environment(undefined=StrictUndefined, trim_blocks=True)
ENVIRONMENT.filters |= FILTERS
ENVIRONMENT.tests |= {"ending": str.endswith, "containing": str.__contains__, "starting": str.startswith}
for file in (lists, headlines, found_tables, gpu_runs, predictions, scans, deployment):
    ENVIRONMENT.globals |= vars(file)
ENVIRONMENT.globals |= {
    "CHANCE": CHANCE, "NAMES": NAMES, "SEGMENT_BOUNDS": SEGMENT_BOUNDS, "SOLVED": SOLVED, "available": available,
    "beside_rivals": beside_rivals, "block": block, "check_commits": check_commits, "finding": finding,
    "findings": findings, "gate": gate, "heading": heading, "judged": judged,
    "measured_dtypes": measured_dtypes, "median": median, "metrics": metrics, "real_commits": real_commits,
    "repeatability": repeatability, "setup": setup, "sheets": sheets, "significant": significant, "trust": trust,
    "zip": zip,
}  # fmt: skip
