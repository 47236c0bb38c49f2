"""A finding for CI: JSON, JUnit XML, and a Markdown summary and annotations for GitHub.

Names, notes and reasons come from outside: each form shows them as they are and is steered by none of them.
"""

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any
from xml.etree import ElementTree

from ctxbench.gate.finding import ExactChange, Finding
from ctxbench.gate.rules import ExitCode, RowVerdict
from ctxbench.gate.self_test import SelfTest
from ctxbench.gate.texts import (
    PLURAL,
    STYLES,
    change_cells,
    clean,
    difference_of,
    exact_cells,
    exact_text,
    exit_name,
    headline,
    label_of,
    loud,
    remarks,
    self_test_counts,
    split_mode,
    story,
    summary,
    title_of,
    word_counts,
    word_of,
    worst_first,
)
from ctxbench.report.markdown import escape

SCHEMA = 1
# More rows than this that are ok are folded in the Markdown.
UNFOLDED = 10


def as_json(finding: Finding, tested: SelfTest | None = None) -> str:
    """The finding, and the self-test that it comes from, as strict JSON; docs/ci.md names its keys.

    A number that is not known is null.
    """
    content: dict[str, Any] = {
        "schema": SCHEMA,
        "exit_code": int(finding.exit_code),
        "exit_name": exit_name(finding.exit_code),
        "advisory": finding.advisory,
        "baseline": finding.baseline,
        "candidate": finding.candidate,
        "margin": finding.margin,
        "conditions": finding.conditions,
        "evidence": finding.evidence,
        "notes": list(finding.notes),
        "elapsed_s": finding.elapsed_s,
        "counts": {word: word_counts(finding)[word] for word in STYLES},
        "rows": [_row_content(finding, row) for row in finding.rows],
        "exact": {"compared": finding.compared, "changes": [_change_content(change) for change in finding.exact]},
    }
    if tested:
        content["self_test"] = {**self_test_counts(tested), "spreads": [asdict(spread) for spread in tested.spreads]}
    return json.dumps(_plain(content), indent=2, allow_nan=False) + "\n"


def junit(finding: Finding) -> str:
    """The finding as JUnit XML: a test case a row and a changed exact quantity; red if the exit code is not 0."""
    suites = ElementTree.Element("testsuites")
    suite = ElementTree.SubElement(suites, "testsuite", name="ctxbench check", time=f"{finding.elapsed_s:.3f}")
    properties = ElementTree.SubElement(suite, "properties")
    for name in ("baseline", "candidate", "conditions"):
        ElementTree.SubElement(properties, "property", name=name, value=clean(getattr(finding, name)))
    for row in finding.rows:
        case = ElementTree.SubElement(
            suite, "testcase", classname=clean(split_mode(row.row)[0]), name=label_of(finding, row.row)
        )
        _add_outcome(case, _row_outcome(finding, row), word_of(row), story(finding, row))
    for change in finding.exact:
        case = ElementTree.SubElement(suite, "testcase", classname=clean(change.case), name=clean(change.quantity))
        outcome = "failure" if change.worse else "system-out"
        _add_outcome(case, outcome, "changed", exact_text(change))
    red = any(suite.find(f"testcase/{outcome}") is not None for outcome in ("failure", "error"))
    if finding.exit_code != ExitCode.OK and not red:
        case = ElementTree.SubElement(suite, "testcase", classname="ctxbench check", name="exit code")
        _add_outcome(case, "error", exit_name(finding.exit_code), summary(finding))
    suite.set("tests", str(len(suite.findall("testcase"))))
    for attribute, outcome in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(attribute, str(len(suite.findall(f"testcase/{outcome}"))))
    ElementTree.SubElement(suite, "system-out").text = "\n".join([*remarks(finding), summary(finding)])
    ElementTree.indent(suites)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ElementTree.tostring(suites, encoding="unicode")}\n'


def markdown(finding: Finding) -> str:
    """The finding as GitHub-flavoured Markdown, the worst rows first and many that are ok folded away."""
    rows = worst_first(finding.rows)
    fine = [row for row in rows if word_of(row) == "ok"]
    folded = fine if len(fine) > UNFOLDED else []
    parts = [f"## ctxbench check: {headline(finding)}", escape(title_of(finding)), summary(finding)]
    parts += _markdown_rows(finding, rows[: len(rows) - len(folded)])
    if finding.exact:
        lines = [(label_of(finding, change.case), *exact_cells(change)) for change in finding.exact]
        parts.append(_markdown_table(("case", "quantity", "baseline", "candidate", "difference"), lines))
    if folded:
        heading = f"<details><summary>{len(folded)} rows that are ok</summary>"
        parts += [heading, *_markdown_rows(finding, folded), "</details>"]
    parts += [escape(line) for line in remarks(finding)]
    return "\n\n".join(parts) + "\n"


def annotations(finding: Finding) -> list[str]:
    """A GitHub workflow command for each row that is not ok and each exact quantity that grew, the worst first."""
    lines = []
    for row in worst_first(finding.rows):
        word = word_of(row)
        if word != "ok":
            error = word == "broken" or (word == "regressed" and not finding.advisory)
            lines.append(_annotation(error, f"{label_of(finding, row.row)}: {word}", story(finding, row)))
    for change in finding.exact:
        if change.worse:
            title = f"{label_of(finding, change.case)}: {clean(change.quantity)} changed"
            lines.append(_annotation(True, title, exact_text(change)))
    return lines


def _row_content(finding: Finding, row: RowVerdict) -> dict[str, Any]:
    case, mode = split_mode(row.row)
    bounds = {} if math.isfinite(row.low) and math.isfinite(row.high) else {"low": None, "high": None}
    names = {"label": finding.labels.get(row.row, row.row), "case": case, "mode": mode or None}
    return names | asdict(row) | bounds


def _change_content(change: ExactChange) -> dict[str, Any]:
    return asdict(change) | {"difference": difference_of(change), "worse": change.worse}


def _plain(value: Any) -> Any:
    """The same with null for numbers that are not finite and without lone surrogates, which JSON readers refuse."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list) else value


def _row_outcome(finding: Finding, row: RowVerdict) -> str:
    """The JUnit element for a row: what fails here is what the exit code calls a failure."""
    word = word_of(row)
    if word == "regressed" and not finding.advisory:
        return "failure"
    if word == "inconclusive" and finding.exit_code == ExitCode.INCONCLUSIVE:
        return "failure"
    return {"broken": "error", "ok": "system-out"}.get(word, "skipped")


def _add_outcome(case: ElementTree.Element, outcome: str, kind: str, text: str) -> None:
    found = ElementTree.SubElement(case, outcome)
    if outcome == "system-out":
        found.text = text
    elif outcome == "skipped":
        found.set("message", f"{kind}: {text}")
    else:
        found.attrib.update(type=kind, message=text)


def _markdown_rows(finding: Finding, rows: Sequence[RowVerdict]) -> list[str]:
    """The rows as a table, in a list; empty if there are none."""
    headers = ("row", "change", "interval", "verdict", PLURAL[finding.evidence], "reason")
    lines = [
        (label_of(finding, row.row), *change_cells(row), loud(word_of(row)), str(row.pairs), clean(row.reason))
        for row in rows
    ]
    return [_markdown_table(headers, lines)] if lines else []


def _markdown_table(headers: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    rows = [headers, *([escape(clean(cell)) for cell in line] for line in lines)]
    texts = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([texts[0], "|" + "---|" * len(headers), *texts[1:]])


def _annotation(error: bool, title: str, text: str) -> str:
    """A workflow command; its texts are one line, so that only `%` and the delimiters are encoded."""
    title, text = (part.replace("%", "%25") for part in (f"ctxbench {title}", text))
    return f"::{'error' if error else 'warning'} title={title.replace(':', '%3A').replace(',', '%2C')}::{text}"
