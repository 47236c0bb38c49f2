"""A result for CI: JSON, JUnit XML, and a Markdown summary and annotations for GitHub.

Names, notes and reasons come from outside: each form shows them as they are and is steered by none of them.
"""

import json
import math
from dataclasses import asdict
from typing import Any
from xml.etree import ElementTree

from ctxbench.base.texts import one_line
from ctxbench.plugins.check.result import ExactChange, ExitCode, GateResult
from ctxbench.plugins.check.rows import PREDICTED, RowVerdict
from ctxbench.plugins.check.self_test import SelfTest
from ctxbench.plugins.check.tables import exact_table, row_table, spread_table
from ctxbench.plugins.check.texts import (
    TONES,
    accepting,
    case_label,
    exact_text,
    exit_name,
    explanation,
    headline,
    label_of,
    remarks,
    row_label,
    self_test_counts,
    self_test_summary,
    summary,
    title_of,
    word_counts,
    word_of,
    worst_first,
)
from ctxbench.table.markdown import paragraph, render_markdown

SCHEMA = 2
# What a job's page must show: a renamed class is new, and passes whatever it costs.
ANNOTATED = {*TONES} - {"ok", "ok (repaired)"}
# More rows than this that are ok are folded in the Markdown.
UNFOLDED = 10


def as_json(result: GateResult, tested: SelfTest | None = None) -> str:
    """The result, and the self-test that it comes from, as strict JSON; docs/plugins/check.md names its keys.

    A number that is not known is null.
    """
    content: dict[str, Any] = {
        "schema": SCHEMA,
        "exit_code": int(result.exit_code),
        "exit_name": exit_name(result.exit_code),
        "advisory": result.advisory,
        "baseline": result.baseline,
        "candidate": result.candidate,
        "margin": result.margin,
        "conditions": result.conditions,
        "evidence": result.evidence,
        "notes": list(result.notes),
        "elapsed_s": result.elapsed_s,
        "counts": {word: word_counts(result)[word] for word in TONES},
        "rows": [_row_content(result, row) for row in result.rows],
        "exact": {"compared": result.compared, "changes": [_change_content(change) for change in result.exact]},
        "outputs": {"must_match": result.must_match, "cases": [asdict(found) for found in result.outputs]},
    }
    if tested:
        spreads = [asdict(spread) | {"row": str(spread.row)} for spread in tested.spreads]
        content["self_test"] = {**self_test_counts(tested), "spreads": spreads}
    return json.dumps(_plain(content), indent=2, allow_nan=False) + "\n"


def junit(result: GateResult) -> str:
    """The result as JUnit XML: a test case a row and a changed exact quantity; red if the exit code is not 0."""
    suites = ElementTree.Element("testsuites")
    suite = ElementTree.SubElement(suites, "testsuite", name="ctxbench check", time=f"{result.elapsed_s:.3f}")
    properties = ElementTree.SubElement(suite, "properties")
    for name in ("baseline", "candidate", "conditions"):
        ElementTree.SubElement(properties, "property", name=name, value=one_line(getattr(result, name)))
    for row in result.rows:
        names = {"classname": one_line(row.row.case), "name": row_label(result, row.row)}
        case = ElementTree.SubElement(suite, "testcase", names)
        _add_outcome(case, _row_outcome(result, row), word_of(row), explanation(result, row))
    for change in result.exact:
        case = ElementTree.SubElement(
            suite, "testcase", classname=one_line(change.case), name=one_line(change.quantity)
        )
        outcome = "failure" if change.fails else "system-out"
        _add_outcome(case, outcome, "changed", exact_text(change))
    for found in result.outputs:
        case = ElementTree.SubElement(suite, "testcase", classname=one_line(found.case), name="outputs")
        failed = found.verdict == "changed" and result.must_match
        outcome = "failure" if failed else "skipped" if found.verdict == "not compared" else "system-out"
        _add_outcome(case, outcome, found.verdict, one_line(found.reason))
    red = any(suite.find(f"testcase/{outcome}") is not None for outcome in ("failure", "error"))
    if result.exit_code != ExitCode.OK and not red:
        case = ElementTree.SubElement(suite, "testcase", classname="ctxbench check", name="exit code")
        _add_outcome(case, "error", exit_name(result.exit_code), summary(result))
    suite.set("tests", str(len(suite.findall("testcase"))))
    for attribute, outcome in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(attribute, str(len(suite.findall(f"testcase/{outcome}"))))
    ElementTree.SubElement(suite, "system-out").text = "\n".join([*remarks(result), summary(result)])
    ElementTree.indent(suites)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ElementTree.tostring(suites, encoding="unicode")}\n'


def markdown(result: GateResult, tested: SelfTest | None = None) -> str:
    """The result as GitHub-flavoured Markdown, the worst rows first and many that are ok folded away.

    Below it stands what the self-test `tested` that it comes from says of the machine.
    """
    rows = worst_first(result.rows)
    fine = [row for row in rows if word_of(row) == "ok"]
    folded = fine if len(fine) > UNFOLDED else []
    parts = [f"## ctxbench check: {headline(result)}", paragraph(title_of(result)), summary(result)]
    if shown := rows[: len(rows) - len(folded)]:
        parts.append(render_markdown(row_table(result, shown, reasons=True)))
    if result.exact:
        parts.append(render_markdown(exact_table(result)))
    if folded:
        heading = f"<details><summary>{len(folded)} rows that are ok</summary>"
        parts += [heading, render_markdown(row_table(result, folded, reasons=True)), "</details>"]
    parts += [paragraph(line) for line in remarks(result)]
    if tested:
        parts += [render_markdown(spread_table(tested)), *self_test_summary(tested)]
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


def annotations(result: GateResult) -> list[str]:
    """A GitHub workflow command for each row that is not ok, quantity that grew and output that changed."""
    lines = []
    for row in worst_first(result.rows):
        word = word_of(row)
        if word in ANNOTATED and not (word == PREDICTED and row.change.value <= 0):
            error = word == "broken" or (word == "regressed" and not result.advisory)
            lines.append(_annotation(error, f"{row_label(result, row.row)}: {word}", explanation(result, row)))
    for change in result.exact:
        if change.fails:
            title = f"{case_label(result, change.case)}: {one_line(change.quantity)} changed"
            option = accepting([change]) if change.growth > 0 else ""
            lines.append(_annotation(True, title, exact_text(change) + f"; to accept this: {option}" * bool(option)))
    for found in result.outputs:
        if found.verdict == "changed":
            title = f"{case_label(result, found.case)}: outputs changed"
            lines.append(_annotation(result.must_match, title, one_line(found.reason)))
    return lines


def _row_content(result: GateResult, row: RowVerdict) -> dict[str, Any]:
    key = row.row
    names = {"row": str(key), "label": label_of(result, key), "case": key.case, "mode": key.mode or None}
    change = row.change
    ends = (change.low, change.high) if change.has_interval else (None, None)
    return vars(row) | names | {"change": change.value, "low": ends[0], "high": ends[1]}


def _change_content(change: ExactChange) -> dict[str, Any]:
    values = {name: getattr(change, name) for name in ("difference", "worse", "accepted")}
    return {name: value for name, value in asdict(change).items() if name != "limit"} | values


def _plain(value: Any) -> Any:
    """The same with null for numbers that are not finite and without lone surrogates, which JSON readers refuse."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list) else value


def _row_outcome(result: GateResult, row: RowVerdict) -> str:
    """The JUnit element for a row: what fails here is what the exit code calls a failure."""
    word = word_of(row)
    if word == "regressed" and not result.advisory:
        return "failure"
    if word == "inconclusive" and result.exit_code == ExitCode.INCONCLUSIVE:
        return "failure"
    return "system-out" if TONES[word] == "good" else "error" if word == "broken" else "skipped"


def _add_outcome(case: ElementTree.Element, outcome: str, kind: str, text: str) -> None:
    found = ElementTree.SubElement(case, outcome)
    if outcome == "system-out":
        found.text = text
    elif outcome == "skipped":
        found.set("message", f"{kind}: {text}")
    else:
        found.attrib.update(type=kind, message=text)


def _annotation(error: bool, title: str, text: str) -> str:
    """A workflow command; its texts are one line, so that only `%` and the delimiters are encoded."""
    title, text = (part.replace("%", "%25") for part in (f"ctxbench {title}", text))
    return f"::{'error' if error else 'warning'} title={title.replace(':', '%3A').replace(',', '%2C')}::{text}"
