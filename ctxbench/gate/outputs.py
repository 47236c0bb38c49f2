"""A finding for people and for CI: the terminal's table, JUnit XML, JSON, and a summary and annotations for GitHub.

Names, notes and reasons come from outside: each form shows them as they are and is steered by none of them.
"""

import json
import math
import secrets
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from ctxbench.errors import UsageError
from ctxbench.gate.finding import ExactChange, Finding
from ctxbench.gate.rules import ExitCode, RowVerdict
from ctxbench.report.markdown import escape
from ctxbench.results import MODES

SCHEMA = 1
# What a row came to, the worst first, and how the terminal shows it.
STYLES = {
    "broken": "bold red",
    "regressed": "bold red",
    "not compared": "bold red",
    "inconclusive": "bold yellow",
    "ok": "green",
}
HEADLINES = {
    ExitCode.OK: "no regression",
    ExitCode.REGRESSED: "regressed",
    ExitCode.INCONCLUSIVE: "inconclusive",
    ExitCode.BROKEN: "newly broken or missing",
    ExitCode.NOTHING_COMPARED: "nothing was compared",
}
ADVISORY = "Advisory: changes decide nothing here; only what is newly broken or was not compared does."
# More rows than this that are ok are folded in the Markdown.
UNFOLDED = 10
# From here on a percentage is written as a power of ten.
LARGE = 1e5


def table(finding: Finding) -> RenderableType:
    """The finding for a terminal: a row a latency, the exact changes, why rows are not ok, and one sentence for all."""
    parts: list[RenderableType] = [Text(_title(finding), style="bold")]
    if finding.rows:
        parts += [Text(), _row_table(finding)]
    if finding.exact:
        parts += [Text(), _exact_table(finding)]
    parts.append(Text())
    parts += [
        Text.assemble((f"{_loud(word)} ", STYLES[word]), f"{', '.join(labels)}: {reason}")
        for (word, reason), labels in _reasons(finding).items()
    ]
    parts += [Text(line, style="bold yellow" if line == ADVISORY else "dim") for line in _remarks(finding)]
    parts.append(Text(summary(finding), style="bold"))
    return Group(*parts)


def as_json(finding: Finding) -> str:
    """The finding as strict JSON; docs/ci.md names its keys. A number that is not known is null."""
    content = {
        "schema": SCHEMA,
        "exit_code": int(finding.exit_code),
        "exit_name": exit_name(finding.exit_code),
        "advisory": finding.advisory,
        "baseline": finding.baseline,
        "candidate": finding.candidate,
        "margin": finding.margin,
        "conditions": finding.conditions,
        "notes": list(finding.notes),
        "elapsed_s": finding.elapsed_s,
        "counts": {word: _counts(finding)[word] for word in STYLES},
        "rows": [_row_content(finding, row) for row in finding.rows],
        "exact": {"compared": finding.compared, "changes": [_change_content(change) for change in finding.exact]},
    }
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
            suite, "testcase", classname=clean(_split(row.row)[0]), name=_label(finding, row.row)
        )
        _add_outcome(case, _row_outcome(finding, row), word_of(row), _story(row))
    for change in finding.exact:
        case = ElementTree.SubElement(suite, "testcase", classname=clean(change.case), name=clean(change.quantity))
        outcome = "failure" if change.worse and not finding.advisory else "system-out"
        _add_outcome(case, outcome, "changed", _exact_text(change))
    red = any(suite.find(f"testcase/{outcome}") is not None for outcome in ("failure", "error"))
    if finding.exit_code != ExitCode.OK and not red:
        case = ElementTree.SubElement(suite, "testcase", classname="ctxbench check", name="exit code")
        _add_outcome(case, "error", exit_name(finding.exit_code), summary(finding))
    suite.set("tests", str(len(suite.findall("testcase"))))
    for attribute, outcome in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(attribute, str(len(suite.findall(f"testcase/{outcome}"))))
    ElementTree.SubElement(suite, "system-out").text = "\n".join([*_remarks(finding), summary(finding)])
    ElementTree.indent(suites)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ElementTree.tostring(suites, encoding="unicode")}\n'


def markdown(finding: Finding) -> str:
    """The finding as GitHub-flavoured Markdown, the worst rows first and many that are ok folded away."""
    rows = _worst_first(finding.rows)
    fine = [row for row in rows if word_of(row) == "ok"]
    folded = fine if len(fine) > UNFOLDED else []
    parts = [f"## ctxbench check: {headline(finding)}", escape(_title(finding)), summary(finding)]
    parts += _markdown_rows(finding, rows[: len(rows) - len(folded)])
    if finding.exact:
        lines = [(_label(finding, change.case), *_exact_cells(change)) for change in finding.exact]
        parts.append(_markdown_table(("case", "quantity", "baseline", "candidate", "difference"), lines))
    if folded:
        heading = f"<details><summary>{len(folded)} rows that are ok</summary>"
        parts += [heading, *_markdown_rows(finding, folded), "</details>"]
    parts += [escape(line) for line in _remarks(finding)]
    return "\n\n".join(parts) + "\n"


def annotations(finding: Finding) -> list[str]:
    """A GitHub workflow command for each row that is not ok and each exact quantity that grew, the worst first."""
    lines = []
    for row in _worst_first(finding.rows):
        word = word_of(row)
        if word != "ok":
            error = word == "broken" or (word == "regressed" and not finding.advisory)
            lines.append(_annotation(error, f"{_label(finding, row.row)}: {word}", _story(row)))
    for change in finding.exact:
        if change.worse:
            title = f"{_label(finding, change.case)}: {clean(change.quantity)} changed"
            lines.append(_annotation(not finding.advisory, title, _exact_text(change)))
    return lines


def emit(
    finding: Finding,
    console: Console,
    junit_path: Path | None,
    json_path: Path | None,
    markdown_path: Path | None,
    environ: Mapping[str, str],
) -> None:
    """Print the table, write the files that are asked for, and tell GitHub Actions where `environ` says it runs there.

    UsageError, after all that could be written, if a file cannot be.
    """
    _show(finding, console, in_actions=environ.get("GITHUB_ACTIONS") == "true")
    files = [(junit_path, "w", junit), (json_path, "w", as_json), (markdown_path, "w", markdown)]
    if environ.get("GITHUB_STEP_SUMMARY"):
        files.append((Path(environ["GITHUB_STEP_SUMMARY"]), "a", markdown))
    failures = []
    for path, mode, render in files:
        if path is not None:
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                with path.open(mode, encoding="utf-8") as file:
                    file.write(render(finding))
            except OSError as error:
                failures.append(f"{path} ({error.strerror or error})")
    if failures:
        raise UsageError(f"cannot write {', '.join(failures)}; everything else was written")


def summary(finding: Finding) -> str:
    """The finding in one line: how many rows came to what, what changed exactly, and the exit code."""
    counts = _counts(finding)
    rows = ", ".join(f"{counts[word]} {word}" for word in STYLES if counts[word]) or "none measured"
    exact = f"{len(finding.exact)} changed" if finding.exact else "none changed"
    worse = sum(change.worse for change in finding.exact)
    exact += f" ({worse} for the worse)" if worse else ""
    exit_text = f"Exit code {int(finding.exit_code)}: {exit_name(finding.exit_code)}."
    return f"{_number(len(finding.rows), 'row')}: {rows}. {finding.compared:,} exact quantities: {exact}. {exit_text}"


def headline(finding: Finding) -> str:
    """The whole verdict in a few words."""
    if finding.advisory:
        return "advisory" if finding.exit_code == ExitCode.OK else f"advisory, {HEADLINES[finding.exit_code]}"
    doubtful = _counts(finding)["inconclusive"]
    if finding.exit_code == ExitCode.OK and doubtful:
        return f"no regression found, {doubtful} of {_number(len(finding.rows), 'row')} inconclusive"
    return HEADLINES[finding.exit_code]


def exit_name(code: ExitCode) -> str:
    """`ok`, `regressed`, `inconclusive`, `broken` or `nothing compared`."""
    return code.name.lower().replace("_", " ")


def word_of(row: RowVerdict) -> str:
    """What a row came to: its verdict, or its status if it was not measured."""
    return row.verdict or row.status


def clean(text: str) -> str:
    """One line without the control, format and surrogate characters that a terminal, XML or UTF-8 cannot take."""
    return " ".join("".join(c if c.isprintable() or c.isspace() else "?" for c in text).split())


def change_cells(row: RowVerdict) -> tuple[str, str]:
    """A row's change and interval, to two digits of the interval's half width (GUM, 7.2.6); a dash if unknown."""
    change, low, high = (100 * value for value in (row.change, row.low, row.high))
    if not math.isfinite(low) or not math.isfinite(high):
        return (f"{_signed(change, 1)} %" if math.isfinite(change) else "-"), "-"
    half = (high - low) / 2
    decimals = min(max(1 - math.floor(math.log10(half)), 0), 2) if half > 0 else 2
    return f"{_signed(change, decimals)} %", f"[{_signed(low, decimals)}, {_signed(high, decimals)}]"


def _signed(value: float, decimals: int) -> str:
    if abs(value) >= LARGE:
        return f"{value:+.0e}"
    return f"{round(value, decimals) + 0.0:+.{decimals}f}"  # -0.0 + 0.0 is 0.0


def _story(row: RowVerdict) -> str:
    """The change with its interval if there is one, and the reason."""
    change, interval = change_cells(row)
    measured = f"{change} {interval} in {_number(row.pairs, 'pair')}. " if interval != "-" else ""
    return measured + clean(row.reason)


def _exact_cells(change: ExactChange) -> tuple[str, str, str, str]:
    """The quantity with its unit, both values, and the difference."""
    name = clean(change.quantity).replace("_", " ")
    quantity = f"{name.removesuffix(' bytes')} (bytes)" if name.endswith(" bytes") else name
    before, after = ("-" if value is None else f"{value:,}" for value in (change.baseline, change.candidate))
    difference = _difference(change)
    if difference is None:
        return quantity, before, after, "no longer known" if change.candidate is None else "not known before"
    percent = round(100 * difference / change.baseline, 1) if change.baseline else 0
    return quantity, before, after, f"{difference:+,}" + (f" ({_signed(percent, 1)} %)" if percent else "")


def _difference(change: ExactChange) -> int | None:
    if change.baseline is None or change.candidate is None:
        return None
    return change.candidate - change.baseline


def _exact_text(change: ExactChange) -> str:
    quantity, before, after, difference = _exact_cells(change)
    return f"{quantity}: {before} -> {after}, {difference}"


def _number(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def _counts(finding: Finding) -> Counter[str]:
    return Counter(map(word_of, finding.rows))


def _worst_first(rows: Iterable[RowVerdict]) -> list[RowVerdict]:
    order = list(STYLES)
    return sorted(rows, key=lambda row: order.index(word_of(row)))


def _label(finding: Finding, name: str) -> str:
    """The short name of a row or a case."""
    return clean(finding.labels.get(name, name))


def _title(finding: Finding) -> str:
    return clean(finding.title) + (" (advisory)" if finding.advisory else "")


def _split(text: str) -> tuple[str, str]:
    """A row or its label as case and mode; the mode is empty where there is none."""
    case, _, mode = text.rpartition(" ")
    return (case, mode) if case and mode in MODES else (text, "")


def _loud(word: str) -> str:
    """Capitals for what must be seen without colour."""
    return word.upper() if "red" in STYLES[word] else word


def _reasons(finding: Finding) -> dict[tuple[str, str], list[str]]:
    """The labels of the rows that are not ok, by what they came to and why."""
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    for row in _worst_first(finding.rows):
        if word_of(row) != "ok":
            found[word_of(row), clean(row.reason)].append(_label(finding, row.row))
    return found


def _remarks(finding: Finding) -> list[str]:
    """What is to be read beside the verdicts."""
    lines = [ADVISORY] if finding.advisory else []
    lines += [f"Note: {clean(note)}" for note in finding.notes]
    measured = f"Margin {100 * finding.margin:g} %, measured in {finding.elapsed_s:.0f} s."
    return [*lines, f"{measured} Conditions: {clean(finding.conditions)}"]


def _row_table(finding: Finding) -> Table:
    """A row a latency; a case's name is shown once where its modes follow each other."""
    shown = _columns(("case", "mode", "change >", "interval >", "verdict", "pairs >"))
    last = None
    for row in finding.rows:
        case, word = _split(row.row)[0], word_of(row)
        name, mode = _split(_label(finding, row.row))
        verdict = Text(_loud(word), style=STYLES[word])
        change, interval = change_cells(row)
        shown.add_row(Text("" if case == last else name), mode, change, Text(interval), verdict, str(row.pairs))
        last = case
    return shown


def _exact_table(finding: Finding) -> Table:
    shown = _columns(("case", "quantity", "baseline >", "candidate >", "difference >"))
    for change in finding.exact:
        *cells, difference = (_label(finding, change.case), *_exact_cells(change))
        shown.add_row(*map(Text, cells), Text(difference, style="bold red" if change.worse else ""))
    return shown


def _columns(headers: Sequence[str]) -> Table:
    """An empty table; a column of numbers, which are never broken up, has a `>` behind its header."""
    shown = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for header in headers:
        name = header.removesuffix(" >")
        numeric = name != header
        shown.add_column(name, justify="right" if numeric else "left", overflow="fold", no_wrap=numeric)
    return shown


def _row_content(finding: Finding, row: RowVerdict) -> dict[str, Any]:
    case, mode = _split(row.row)
    bounds = {} if math.isfinite(row.low) and math.isfinite(row.high) else {"low": None, "high": None}
    names = {"label": finding.labels.get(row.row, row.row), "case": case, "mode": mode or None}
    return names | asdict(row) | bounds


def _change_content(change: ExactChange) -> dict[str, Any]:
    return asdict(change) | {"difference": _difference(change), "worse": change.worse}


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
    headers = ("row", "change", "interval", "verdict", "pairs", "reason")
    lines = [
        (_label(finding, row.row), *change_cells(row), _loud(word_of(row)), str(row.pairs), clean(row.reason))
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


def _show(finding: Finding, console: Console, *, in_actions: bool) -> None:
    """Print the table; GitHub obeys a line that begins with `::`, so its commands are off while names are printed."""
    token = secrets.token_hex(16)
    if in_actions:
        console.out(f"::stop-commands::{token}", highlight=False)
    console.print(table(finding))
    for line in [f"::{token}::", *annotations(finding)] if in_actions else []:
        console.out(line, highlight=False)
