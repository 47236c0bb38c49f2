"""A result in JSON, JUnit, Markdown and annotations, read back exactly; names from outside steer none of them."""

import io
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
from gate_results import (
    ABSENT,
    BROKEN,
    DOUBTFUL,
    EVERYTHING,
    GROWN,
    HAM,
    LATE,
    OK,
    REGRESSED,
    SA,
    TESTED,
    drawn,
    parsed,
    result,
)
from hypothesis import example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from rich.console import Console

from ctxbench.base.errors import UsageError
from ctxbench.base.texts import one_line
from ctxbench.plugins.check import ci_files, outputs, texts
from ctxbench.plugins.check.result import ExactChange, ExitCode, GateResult, OutputVerdict
from ctxbench.plugins.check.rows import RowKey
from ctxbench.plugins.check.tables import exact_table, row_table
from ctxbench.table.markdown import render_markdown

pytestmark = pytest.mark.slow  # many small cases, which take seconds together

ROOT = Path(__file__).resolve().parents[3]
HOSTILE = "<script>|]`[red]*_&]]>\n::error::x\r\x1b[31m\x00\u202e\ud800 %0A"


def suite_of(found: GateResult) -> ElementTree.Element:
    suite = ElementTree.fromstring(ci_files.junit(found).encode("utf-8")).find("testsuite")
    assert suite is not None
    return suite


def outcomes(found: GateResult) -> dict[str, str]:
    """The JUnit outcome of each test case, by its name."""
    return {case.attrib["name"]: case[0].tag for case in suite_of(found).iter("testcase")}


class Page(HTMLParser):
    """The tags, the cells of the tables and the text of rendered Markdown."""

    def __init__(self, markdown: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.cells: list[str] = []
        self.open = False
        self.feed(MarkdownIt("commonmark", {"html": True}).enable("table").render(markdown))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag in ("td", "th"):
            self.cells.append("")
            self.open = True

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th"):
            self.open = False

    def handle_data(self, data: str) -> None:
        if self.open:
            self.cells[-1] += data


def test_an_advisory_finding_says_so_in_every_form() -> None:
    found = result(REGRESSED, advisory=True, exact=(GROWN,))
    assert drawn(found).startswith("the working tree against main (1a2b3c4d5e) (advisory)")
    assert texts.ADVISORY in drawn(found, 120)
    assert texts.ADVISORY in ci_files.markdown(found)
    assert ci_files.markdown(found).startswith("## ctxbench check: advisory\n")
    assert parsed(found)["advisory"] is True
    assert outcomes(found) == {"sa infer": "skipped", "params": "failure"}
    assert [line.partition(" ")[0] for line in ci_files.annotations(found)] == ["::warning", "::error"]


def test_json_has_every_documented_key_and_no_number_that_is_none() -> None:
    content = parsed(EVERYTHING)
    assert list(content) == [
        *("schema", "exit_code", "exit_name", "advisory", "baseline", "candidate", "margin", "conditions", "evidence"),
        *("notes", "elapsed_s", "counts", "rows", "exact", "outputs"),
    ]
    assert (content["schema"], content["exit_code"], content["exit_name"]) == (2, 4, "broken")
    counts = {"broken": 1, "regressed": 1, "not compared": 1, "inconclusive": 2, "ok": 1}
    assert content["counts"] == counts | dict.fromkeys(("predicted", "ok (new)", "ok (repaired)"), 0)
    assert content["rows"][0] == {
        "label": "sa infer", "case": SA, "mode": "infer", "row": f"{SA} infer", "status": "measured",
        "verdict": "regressed", "change": 0.0912, "low": 0.0641, "high": 0.1234, "control": 0.002, "replicates": 16,
        "reason": "Above the margin.", "clock": "cpu", "wall": 0.1,
    }  # fmt: skip
    assert [content["rows"][3][name] for name in ("change", "low", "high")] == [0.2, None, None]
    assert [content["rows"][4][name] for name in ("verdict", "change", "low", "high", "control")] == [None] * 5
    assert content["exact"] == {
        "compared": 130,
        "changes": [
            {"case": SA, "quantity": "params", "baseline": 1_048_576, "candidate": 1_310_720,
             "accepted": False, "difference": 262_144, "worse": True},
            {"case": HAM, "quantity": "memory_train_predicted_bytes", "baseline": 2000, "candidate": 1500,
             "accepted": False, "difference": -500, "worse": False},
        ],
    }  # fmt: skip
    assert content["outputs"] == {
        "must_match": False,
        "cases": [
            {"case": SA, "verdict": "changed", "reason": "the output by 50 %", "change": 0.5},
            {"case": HAM, "verdict": "same", "reason": "", "change": 1e-16},
        ],
    }


@pytest.mark.parametrize(
    ("code", "name"),
    [
        *((0, "ok"), (1, "regressed"), (3, "inconclusive"), (4, "broken"), (5, "nothing compared")),
        *((6, "changed"), (125, "cannot tell")),
    ],
)
def test_exit_codes_have_names(code: int, name: str) -> None:
    assert texts.exit_name(ExitCode(code)) == parsed(result(OK, exit_code=ExitCode(code)))["exit_name"] == name


def test_the_json_of_a_self_test_holds_its_figures() -> None:
    content = parsed(TESTED.result, TESTED)
    assert content["self_test"] == {
        "unchanged": 2,
        "false_alarms": 0,
        "undecided": 1,
        "injected": 1,
        "found": 1,
        "spreads": [
            {"row": f"{SA} infer", "injected": 0.1, "deviation": 0.0123, "visible": 0.0801},
            {"row": f"{SA} train", "injected": 0.0, "deviation": 0.0049, "visible": 0.0604},
            {"row": f"{HAM} train", "injected": 0.0, "deviation": None, "visible": None},
        ],
    }
    assert {key: value for key, value in content.items() if key != "self_test"} == parsed(TESTED.result)


def test_junit_has_a_case_a_row_and_a_changed_quantity() -> None:
    suite = suite_of(EVERYTHING)
    counts = {"tests": "10", "failures": "2", "errors": "1", "skipped": "3"}
    assert suite.attrib == {"name": "ctxbench check", "time": "187.300", **counts}
    assert outcomes(EVERYTHING) == {
        "sa infer": "failure", "sa train": "system-out", "ham infer": "skipped", "ham train": "skipped",
        "mine infer": "error", "dm infer": "skipped", "params": "failure", "outputs": "system-out",
        "memory_train_predicted_bytes": "system-out",
    }  # fmt: skip
    first = suite.find("testcase")
    assert first is not None
    assert first.attrib == {"classname": SA, "name": "sa infer"}
    assert first[0].attrib == {"type": "regressed", "message": texts.explanation(EVERYTHING, REGRESSED)}


def test_inconclusive_rows_fail_where_the_exit_code_says_so() -> None:
    assert outcomes(result(OK, DOUBTFUL, exit_code=ExitCode.INCONCLUSIVE))["ham infer"] == "failure"
    assert outcomes(result(OK, DOUBTFUL))["ham infer"] == "skipped"


@pytest.mark.parametrize("code", [code for code in ExitCode if code != ExitCode.OK])
def test_junit_is_never_green_where_the_exit_code_is_not_0(code: ExitCode) -> None:
    suite = suite_of(result(OK, ABSENT, exit_code=code))
    assert (suite.attrib["tests"], suite.attrib["errors"]) == ("3", "1")
    (error,) = suite.findall("testcase/error")
    assert error.attrib["type"] == texts.exit_name(code)
    assert f"Exit code {int(code)}" in error.attrib["message"]


def test_the_summary_for_github() -> None:
    text = ci_files.markdown(EVERYTHING)
    rows = [BROKEN, REGRESSED, ABSENT, DOUBTFUL, LATE, OK]
    assert text.splitlines() == [
        "## ctxbench check: newly broken or missing",
        *("", EVERYTHING.title, "", texts.summary(EVERYTHING), ""),
        *render_markdown(row_table(EVERYTHING, rows, reasons=True)).splitlines(),
        *("", *render_markdown(exact_table(EVERYTHING)).splitlines()),
        *(line for remark in texts.remarks(EVERYTHING) for line in ("", remark)),
    ]
    assert "| sa | infer | +9.1 % | [+6.4, +12.3] | REGRESSED | 16 | Above the margin. |" in text


def test_many_rows_that_are_ok_are_folded_behind_the_others() -> None:
    rows = [replace(OK, row=RowKey(f"m{number}", "infer")) for number in range(11)]
    text = ci_files.markdown(result(*rows, DOUBTFUL))
    visible, folded = text.split("<details><summary>11 rows that are ok</summary>")
    assert text.startswith("## ctxbench check: no regression found, 1 of 12 rows inconclusive\n")
    assert "| ham | infer |" in visible
    assert [f"| m{number} | infer |" in folded for number in range(11)] == [True] * 11
    assert not re.search(r"\| m\d", visible)
    assert Page(text).tags >= {"details", "summary", "table"}


def test_annotations_are_the_worst_first() -> None:
    assert ci_files.annotations(EVERYTHING) == [
        "::error title=ctxbench mine infer%3A broken::error: RuntimeError: sizes differ",
        "::error title=ctxbench sa infer%3A regressed::+9.1 %25 [+6.4, +12.3] in 16 pairs. Above the margin.",
        "::warning title=ctxbench dm infer%3A not compared::unsupported: no complex numbers",
        "::warning title=ctxbench ham infer%3A inconclusive::+3.0 %25 [-2.1, +9.1] in 24 pairs. Around the margin.",
        "::warning title=ctxbench ham train%3A inconclusive::No time was left.",
        "::error title=ctxbench sa%3A params changed::params: 1,048,576 -> 1,310,720, +262,144 (+25.0 %25); "
        "to accept this: --accept params=25%25",
        "::warning title=ctxbench sa%3A outputs changed::the output by 50 %25",
    ]


@settings(deadline=None)
@given(st.text(st.characters(exclude_categories=[])))
@example(HOSTILE)
@example("a\\|b\\")
@example("-")
@example("1.")
@example("# a")
@example("::stop-commands::x")
@example("$(reboot) ${{ github.token }} https://x.org ![i](j) [a](b) <!-- ")
def test_hostile_texts_are_shown_and_obeyed_by_nothing(text: str) -> None:
    row = replace(BROKEN, row=RowKey(text, "infer"), reason=text)
    found = result(
        row, exit_code=ExitCode.BROKEN, baseline=text, conditions=text, notes=(text,),
        exact=(ExactChange(text, "params", 1, 2),), outputs=(OutputVerdict(text, "changed", text, 1.0),),
    )  # fmt: skip
    name = one_line(f"{text} infer")
    for output in (
        ci_files.as_json(found),
        ci_files.junit(found),
        ci_files.markdown(found),
        *ci_files.annotations(found),
    ):
        output.encode("utf-8")
    assert parsed(found)["rows"][0]["reason"] == text.encode("utf-8", "replace").decode("utf-8")
    cases = list(suite_of(found).iter("testcase"))
    assert [case.attrib["name"] for case in cases] == [name, "params", "outputs"]
    assert cases[0][0].attrib["message"] == one_line(text)
    page = Page(ci_files.markdown(found))
    assert page.tags <= {"h2", "p", "table", "thead", "tbody", "tr", "th", "td"}
    assert page.cells[7:14] == [one_line(text), "infer", "-", "-", "BROKEN", "0", one_line(text)]
    for line in ci_files.annotations(found):
        assert re.fullmatch(r"::(error|warning) title=[^:,\r\n]*::[^\r\n]*", line)
    lines = drawn(found, 10_000).splitlines()
    assert f"BROKEN {name}: {one_line(text)}".strip() in [line.rstrip() for line in lines]
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f\ud800-\udfff\u202a-\u202e]", "".join(lines))


def test_a_percent_sign_and_delimiters_in_an_annotation_are_encoded() -> None:
    found = result(replace(BROKEN, row=RowKey("a:b,c%0A\nd"), reason="50 %\r\n::error::x"))
    assert ci_files.annotations(found) == ["::error title=ctxbench a%3Ab%2Cc%250A d%3A broken::50 %25 ::error::x"]


def emit(found: GateResult, folder: Path, environ: dict[str, str]) -> str:
    console = Console(file=io.StringIO(), width=200)
    outputs.emit(found, console, folder / "a" / "j.xml", folder / "b" / "r.json", folder / "c" / "s.md", environ)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_emit_writes_what_is_asked_for_and_makes_folders(tmp_path: Path) -> None:
    assert emit(EVERYTHING, tmp_path, {}) == drawn(EVERYTHING, 200)
    assert (tmp_path / "a" / "j.xml").read_text(encoding="utf-8") == ci_files.junit(EVERYTHING)
    assert (tmp_path / "b" / "r.json").read_text(encoding="utf-8") == ci_files.as_json(EVERYTHING)
    assert (tmp_path / "c" / "s.md").read_text(encoding="utf-8") == ci_files.markdown(EVERYTHING)


def test_in_actions_the_table_is_fenced_and_the_summary_appended(tmp_path: Path) -> None:
    summary = tmp_path / "summary.md"
    summary.write_text("before\n", encoding="utf-8")
    found = result(replace(BROKEN, reason="x\n::error::fake"), exit_code=ExitCode.BROKEN)
    lines = emit(found, tmp_path, {"GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": str(summary)}).splitlines()
    stop = re.fullmatch(r"::stop-commands::([0-9a-f]{32})", lines[0])
    assert stop is not None
    resume = lines.index(f"::{stop[1]}::")
    assert lines[resume + 1 :] == ci_files.annotations(found)
    assert "\n".join(lines[1:resume]) + "\n" == drawn(found, 200)
    assert summary.read_text(encoding="utf-8") == "before\n" + ci_files.markdown(found)


def test_emit_writes_the_self_test_into_the_json_alone(tmp_path: Path) -> None:
    console, path = Console(file=io.StringIO(), width=80), tmp_path / "r.json"
    outputs.emit(TESTED.result, console, None, path, None, {}, TESTED)
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue() == drawn(TESTED.result)
    assert path.read_text(encoding="utf-8") == ci_files.as_json(TESTED.result, TESTED)


def test_a_file_that_cannot_be_written_loses_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a file, not a folder", encoding="utf-8")
    console = Console(file=io.StringIO(), width=200)
    paths = (tmp_path / "a" / "j.xml", tmp_path / "r.json", tmp_path)
    with pytest.raises(
        UsageError, match=r"cannot write to .*/a: it is a file, not a folder; .*: it is a folder; everything"
    ):
        outputs.emit(EVERYTHING, console, *paths, {"GITHUB_STEP_SUMMARY": str(tmp_path / "s.md")})
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue() == drawn(EVERYTHING, 200)
    assert (tmp_path / "r.json").read_text(encoding="utf-8") == ci_files.as_json(EVERYTHING)
    assert (tmp_path / "s.md").read_text(encoding="utf-8") == ci_files.markdown(EVERYTHING)


def commands(text: str) -> list[str]:
    """The `ctxbench check` commands of a page, each with its folded lines."""
    return re.findall(r"ctxbench check (--[^#`\n]*(?:\n +--[^#`\n]*)*)", text)


@pytest.mark.parametrize("path", ["docs/plugins/check.md", "examples/gate-github.yml", ".github/workflows/ci.yml"])
def test_the_options_that_the_docs_name_exist(path: str) -> None:
    from ctxbench.cli import imported

    check = imported("check")
    known = {option for parameter in check.params for option in parameter.opts}
    text = (ROOT / path).read_text(encoding="utf-8")
    named = {option for command in commands(text) for option in re.findall(r"--[a-z-]+", command)}
    named |= {
        option for line in text.splitlines() if line.startswith("| `--") for option in re.findall(r"`(--[a-z-]+)", line)
    }
    assert {"--against", "--budget", "--junit", "--json"} <= named
    assert named <= known


def test_the_page_names_every_key_of_the_json_and_every_exit_code() -> None:
    text = (ROOT / "docs" / "plugins" / "check.md").read_text(encoding="utf-8")
    content, tested = parsed(EVERYTHING), parsed(TESTED.result, TESTED)["self_test"]
    names = [*content, *content["rows"][0], *content["exact"], *content["exact"]["changes"][0]]
    for name in [*names, "self_test", *tested, *tested["spreads"][0]]:
        assert re.search(rf"`(self_test\.)?{name}`", text)
    for code in ExitCode:
        assert f"| {int(code)} | `{texts.exit_name(code)}` |" in text


def test_no_expression_of_github_is_pasted_into_a_script() -> None:
    for name in ("examples/gate-github.yml", "examples/gate-gitlab.yml", ".github/workflows/ci.yml"):
        text = (ROOT / name).read_text(encoding="utf-8")
        assert "${{" not in text
        assert 'ctxbench check --against "origin/$' in text
