"""The generated tables of what ctxbench declares and has stored: metrics, devices, modules, suites, committed runs."""

import json
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import pandas as pd

from ctxbench import registry
from ctxbench.base.mode import Mode
from ctxbench.model.case import Case
from ctxbench.model.read_suite import load
from ctxbench.plugins.macs.counter import count_macs
from ctxbench.plugins.memory.predict import predict_peak
from ctxbench.registry.entry import Entry
from ctxbench.report.run_data import RunData, open_run
from ctxbench.results.run_folder import RunFolder
from ctxbench.table.markdown import render_markdown
from ctxbench.table.table import Origin, plain_table
from ctxbench_science.claims.findings import ClaimVerdict, Rows, claims_of

ROOT = Path(__file__).resolve().parents[1]
SHAPE = (1, 512, 128, 128)  # that of Table 3
POSITIONS = SHAPE[2] * SHAPE[3]


def source(name: str) -> str:
    """`results/gate-cpu, as of commit 1dc83de, 2026-11-21`: the evidence of a sentence.

    What a run has counted is what today's code counts, as tests/test_committed_counts.py holds.
    """
    folder = ROOT / "results" / name
    if (folder / "run.json").exists():
        environment = stored_run(name).environment
        return f"`results/{name}`, commit {environment['commit'][:7]}, {environment['time'][:10]}"
    stored = json.loads((folder / "evidence.json").read_text(encoding="utf-8"))
    return f"`results/{name}`, as of commit {stored['commit'][:7]}, {stored['date']}"


# The names of the committed runs that were asked for, in order.
opened: list[str] = []


def stored_run(name: str) -> RunData:
    """A committed run by the name of its folder."""
    opened.append(name)
    return _opened(name)


@cache
def _opened(name: str) -> RunData:
    return open_run(ROOT / "results" / name)


def scan_macs(states: int) -> float:
    """MACs in M that ctxbench counts of one selective scan at SHAPE."""
    module, image = replace(_case(registry.get("ss2d")), hparams={"d_state": states}).on_meta()
    return count_macs(module, image).by_operator["ctxbench::selective_scan"] / 1e6


@cache
def reaches() -> dict[str, int | None]:
    """Number of positions at SHAPE that the one in the centre reaches, as declared; None where the input decides it."""
    return {entry.key: entry.closed_form("reach", SHAPE) for entry in built_in()}


def built_in() -> list[Entry]:
    """The modules of ctxbench itself."""
    return [each for each in registry.entries() if each.reference.startswith(f"{registry.BUILT_IN}.")]


def unmeasured() -> list[str]:
    """The keys of the blocks that are newer than the run of all blocks."""
    run = {row["module"] for row in stored_run("field-cpu").rows}
    return sorted(each.key for each in built_in() if each.key not in run)


def _case(entry: Entry) -> Case:
    return Case(entry.key, entry.reference, {}, SHAPE)


@cache
def peaks(mode: Mode) -> dict[str, float]:
    """The predicted peak of each module at SHAPE in MiB, without a device."""
    cases = {entry.key: _case(entry).on_meta() for entry in built_in()}
    return {key: predict_peak(*case, mode=mode).allocated_bytes / 2**20 for key, case in cases.items()}


def held(suite: str) -> str:
    """`2 of 6; 29 of 55 blocks`: the claims that the committed run of a suite supports."""
    run = ROOT / "results" / f"{suite}-cpu"
    if not (run / "run.json").exists():
        return ""
    claims = {verdict: len(own) for verdict, own in judged(run).items() if verdict is not ClaimVerdict.MEASURED}
    text = f"{claims.get(ClaimVerdict.SUPPORTED, 0)} of {sum(claims.values())}" if claims else ""
    return "; ".join(filter(None, [text, part_of(run)]))


def page_of(suite: str) -> str:
    """The page of the docs that shows the verdicts on the claims of a suite's run; "" if none does."""
    found = pages_with(f"<!-- table: results/{suite}-cpu verdicts")
    return found[0].relative_to(ROOT / "docs").as_posix() if found else ""


def pages_with(text: str) -> list[Path]:
    return [page for page in doc_pages() if re.search(rf"{text}\b", page.read_text(encoding="utf-8"))]


def judged(path: Path) -> dict[ClaimVerdict, list[str]]:
    """The claims of a committed run by their verdict."""
    run = open_run(path)
    rows = Rows.of_run(run.rows)
    found: dict[ClaimVerdict, list[str]] = {verdict: [] for verdict in ClaimVerdict}
    for claim in claims_of(run.suite, str(run.definition.get("title", ""))):
        found[claim.judge(rows).verdict].append(claim.text + (" (proxy)" if claim.proxy else ""))
    return {verdict: claims for verdict, claims in found.items() if claims}


@cache
def part_of(path: Path) -> str:
    """`29 of 42 blocks` of a committed run without all that its suite has today; "" of one with all."""
    run, here = open_run(path), {entry.key for entry in built_in()}
    today = here & {case.module for case in load(run.suite).cases()}
    own = today & {row["module"] for row in run.rows}
    return f"{len(own)} of {len(today)} blocks" if own < today else ""


def verdict_list(path: Path) -> str:
    """A line for each verdict, with the claims that a committed run gives it, and the run; measured ones are none."""
    part = part_of(path)
    lines = [
        f"- **{str(verdict).capitalize()}**: {'; '.join(claims)}."
        for verdict, claims in judged(path).items()
        if verdict is not ClaimVerdict.MEASURED
    ]
    return (part and f"For {part}:\n\n") + "\n".join([*lines, "", f"{source(path.name)}."])


def commands() -> dict[str, str]:
    """The committed runs, and the command that makes each again."""
    folders = sorted(path.parent for path in (ROOT / "results").glob("*/run.json"))
    return {folder.name: str(RunFolder.open(folder).meta["command"]) for folder in folders}


def doc_pages() -> list[Path]:
    """The pages of the documentation."""
    docs = ROOT / "docs"
    return [page for folder in (docs, docs / "suites", docs / "plugins") for page in sorted(folder.glob("*.md"))]


def families() -> dict[str, list[str]]:
    """The modules of the registry by family."""
    found: dict[str, list[Entry]] = {}
    for each in sorted(built_in(), key=lambda each: (each.year or 0, each.key)):
        found.setdefault(each.family, []).append(each)
    first = sorted(found, key=lambda family: (found[family][0].year or 0, family))
    return {family: [each.key for each in found[family]] for family in first}


def markdown(headings: Mapping[str, Origin], rows: Sequence[Sequence[str]]) -> str:
    """A table whose texts are Markdown: what stands over each column, and how its cells were obtained."""
    return render_markdown(plain_table(headings, rows), trusted=True).rstrip("\n")


def table(name: str) -> pd.DataFrame:
    """A committed table that is no run's."""
    return pd.read_csv(ROOT / "results" / name)


def output(lines: str, *words: str) -> str:
    """A command as a person types it, and so many lines of what it prints; progress is left out."""
    command, environment = [sys.executable, "-m", "ctxbench", *words], {**os.environ, "COLUMNS": "80"}
    done = subprocess.run(command, cwd=ROOT, env=environment, check=True, text=True, capture_output=True)
    told = done.stdout.splitlines()
    shown = [part for line in told[: int(lines)] for part in textwrap.wrap(line, 80) or [""]]
    return "\n".join(["```", f"$ ctxbench {' '.join(words)}", *shown, *["[...]"][: len(told) > int(lines)], "```"])


def whole(frame: pd.DataFrame) -> str:
    """A data frame as a table of texts."""
    return render_markdown(plain_table(dict.fromkeys(frame.columns, "text"), frame.astype(str).to_numpy()))
