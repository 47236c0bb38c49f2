"""Verdicts from rows worked by hand; what a run lacks makes a claim undecided; the report shows them."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from judge import findings, verdicts
from report_data import add, definition, new_run, record

import ctxbench
from ctxbench.base.number import Number
from ctxbench.model.read_suite import available, load
from ctxbench.model.record import columns
from ctxbench.report.write import write_report
from ctxbench.results.run_folder import RunFolder
from ctxbench_science.claims.findings import ClaimVerdict, Missing, Outcome, Rows, claims_of, faster, for_each, tally

pytestmark = pytest.mark.slow  # many small cases, which take seconds together

ROOT = Path(__file__).parents[3]
NAMES = available()
# Those with claims.
SUITES = [name for name in NAMES if claims_of(name, load(name).file.title)]
# The suite `steps` is of this plugin.
NUMERICS = pytest.mark.plugin("numerics")
# About each module of a run; the claims of the other suites are about particular modules.
OF_ANY = ("recall", "compile", "deploy", "precision", "scaling", "scaling-static")


@cache
def committed(suite: str) -> pd.DataFrame:
    return RunFolder.open(ROOT / "results" / f"{suite}-cpu").frame()


def outcome(**given: bool | None) -> Callable[[str], Outcome]:
    def judge(name: str) -> Outcome:
        if name not in given:
            raise Missing("no row")
        return given[name], "1" if given[name] else "2"

    return judge


@pytest.mark.parametrize(
    ("judge", "verdict", "text"),
    [
        (outcome(a=True, b=True), "supported", "a: 1; b: 1"),
        (outcome(a=True, b=False), "not supported", "a: 1; b: 2. Holds for a only"),
        (outcome(a=True), "undecided", "a: 1; b: no row. Holds for a"),
        (outcome(a=False), "not supported", "a: 2; b: no row"),
    ],
)
def test_a_claim_on_each_of_a_few(judge: Callable[[str], Outcome], verdict: str, text: str) -> None:
    assert for_each("ab", judge) == (verdict, text)


@pytest.mark.parametrize(
    ("judge", "verdict", "text"),
    [
        (outcome(a=True, b=True), "supported", "holds: 2 of 2 (a 1, b 1)"),
        (outcome(b=False), "not supported", "holds: 0 of 2; does not hold: 1 of 2 (b 2); undecided: 1 of 2 (a no row)"),
        (outcome(a=True), "undecided", "holds: 1 of 2 (a 1); undecided: 1 of 2 (b no row)"),
        (outcome(), "undecided", "holds: 0 of 2; undecided: 2 of 2 (no row)"),
    ],
)
def test_a_claim_on_each_of_many(judge: Callable[[str], Outcome], verdict: str, text: str) -> None:
    assert tally("ab", judge) == (verdict, text)


def test_two_times_are_told_apart_by_their_intervals() -> None:
    slow, fast, wide = Number(2.0, 1.8, 2.2), Number(1.0, 0.9, 1.1), Number(1.0, 0.5, 1.9)
    assert faster(fast, slow) == (True, "2.00")
    assert faster(slow, fast) == (False, "0.50")
    assert faster(wide, slow) == (None, "the intervals overlap")


def rows_of(*settings: str, **values: Any) -> Rows:
    found = [replace(record("ham_cd", **values), hparams=each) for each in settings]
    return Rows.of_run([{name: each.get(name) for name in columns()} for each in found])


def test_a_number_is_of_one_row_that_ended_ok() -> None:
    rows = rows_of('{"steps": 1}', '{"steps": 6}', macs=5)
    assert rows.number("macs", module="ham_cd", steps=6) == 5
    for wanted, reason in (
        ({"steps": 2}, "no row with steps=2"),
        ({"module": "sa"}, "no row with module=sa"),
        ({"depth": 2}, "no row with depth=2"),
        ({"module": "ham_cd"}, "2 rows with module=ham_cd, where a verdict is about one"),
    ):
        with pytest.raises(Missing, match=f"^{reason}$"):
            rows.number("macs", **wanted)
    with pytest.raises(Missing, match=r"^the row with steps=1 ended with oom$"):
        rows_of('{"steps": 1}', status="oom").number("macs", steps=1)
    with pytest.raises(Missing, match=r"^no macs with steps=1$"):
        rows_of('{"steps": 1}', macs=None).number("macs", steps=1)


def test_a_row_that_was_stopped_at_a_time_limit_is_no_failure_and_no_success() -> None:
    stopped, wrong = rows_of("", status="timeout"), rows_of("", status="error")
    assert [row["status"] for row in Rows([*stopped.rows, *wrong.rows]).failed()] == ["error"]
    with pytest.raises(Missing, match=r"^a row of ham_cd ended with timeout$"):
        Rows([*stopped.rows, *rows_of("").rows]).failed()
    assert rows_of("").failed() == []


@pytest.mark.parametrize("cell", ["", "no JSON", "[1]", '{"steps": [1, 2]}'])
def test_settings_that_cannot_be_read_are_none(cell: str) -> None:
    with pytest.raises(Missing, match="no row with steps=1"):
        rows_of(cell).number("macs", steps=1)


@pytest.mark.parametrize("suite", SUITES)
def test_the_committed_run_and_what_it_is_without_rows(suite: str) -> None:
    frame = committed(suite)
    whole = verdicts(suite, frame)
    assert set(whole) <= set(ClaimVerdict)
    assert set(whole) != {"undecided"}
    two = frame[frame["module"].isin(sorted(frame["module"].unique())[:2])]
    twice = pd.concat([frame, frame], ignore_index=True)
    for part in (two, frame.iloc[::2], frame.head(1), frame.assign(module="mine"), frame.assign(hparams="{}"), twice):
        for finding in findings(suite, part):
            assert finding.text


@pytest.mark.parametrize("suite", SUITES)
def test_ignorance_is_no_support(suite: str) -> None:
    frame = committed(suite)
    numbers = [name for name in frame.columns[frame.columns.get_loc("params") :] if name != "machine_state"]
    unknown = frame.assign(**{name: frame[name].array[:0].take([-1] * len(frame), allow_fill=True) for name in numbers})
    assert "supported" not in verdicts(suite, unknown)
    failed = unknown.assign(status="oom", message="out of memory")
    assert set(verdicts(suite, failed)) <= {"undecided", "not supported"}
    if suite not in OF_ANY:
        assert set(verdicts(suite, failed)) == {"undecided"}
        assert set(verdicts(suite, frame.assign(module="mine"))) == {"undecided"}


@pytest.mark.parametrize("suite", SUITES)
def test_times_without_intervals_support_nothing(suite: str) -> None:
    frame = committed(suite)
    cells = {f"latency_{mode}_{end}_ms": float("nan") for mode in ("train", "infer") for end in ("low", "high")}
    claims = claims_of(suite, load(suite).file.title)
    found = zip(claims, verdicts(suite, frame.assign(**cells)), strict=True)
    assert {verdict for claim, verdict in found if "processes" in claim.criterion} <= {"undecided"}


@NUMERICS
def test_a_users_own_suite_and_one_without_claims_have_none() -> None:
    title = load("steps").file.title
    assert claims_of("steps", title)
    for suite, other in (
        ("steps", "My own"),
        ("table3", load("table3").file.title),
        ("../steps", title),
        ("os", title),
    ):
        assert not claims_of(suite, other)


def steps_run(path: Path, modules: tuple[str, ...], failed: int | None = None) -> Path:
    """A run of the suite `steps` of these modules, whose error is 1 / K; one K may have failed."""
    folder = new_run(path, suite="steps", definition=definition(title=load("steps").file.title, published=None))
    for module in modules:
        for steps in (1, 6, 24):
            row = record(module, hparams=f'{{"steps": {steps}}}', reconstruction_error=1 / steps)
            if steps == failed:
                row.status, row.message = "oom", "out of memory"
            add(folder, row)
    return path


@NUMERICS
def test_the_report_shows_the_claims_of_a_users_run(tmp_path: Path) -> None:
    run = steps_run(tmp_path / "mine", ("ham_nmf", "ham_cd"), failed=24)
    report = write_report([run], tmp_path / "out", figures=[])
    time, enough, one, falling = report.lines
    assert time.startswith("undecided: The time of an inference grows with K: ham_nmf: no latency_infer_ms; ham_cd: ")
    assert enough == (
        "undecided (proxy): 3 to 6 steps are enough: ham_nmf: the row with module=ham_nmf, steps=24 ended with oom; "
        "ham_cd: the row with module=ham_cd, steps=24 ended with oom; ham_vq: no row with ..."
    )
    assert one == "undecided (proxy): K = 1 is acceptable for VQ: no row with module=ham_vq, steps=1"
    assert falling.startswith("undecided: More steps lower the reconstruction error")
    table = pd.read_csv(tmp_path / "out" / "tables" / "steps-claims.csv")
    assert list(table) == ["claim", "verdict", "criterion", "found"]
    assert table["found"][1].endswith("ended with oom; ham_vq: no row with module=ham_vq, steps=6")
    assert list(table["verdict"]) == ["undecided", "undecided (proxy)", "undecided (proxy)", "undecided"]
    page = report.page.read_text(encoding="utf-8")
    assert page.count('<td class="text">undecided (proxy)</td>') == 2
    assert page.count('<form class="filters"') == 1  # that of the table of modules
    latex = (tmp_path / "out" / "tables" / "steps-claims.tex").read_text(encoding="utf-8")
    assert latex.count(r"p{0.23\linewidth}") == 4


@NUMERICS
def test_of_several_runs_each_has_its_own_claims(tmp_path: Path) -> None:
    hams = ("ham_nmf", "ham_cd", "ham_vq")
    runs = [steps_run(tmp_path / name, hams) for name in ("one", "two")]
    report = write_report(runs, tmp_path / "out", figures=[])
    assert len(report.lines) == 8
    assert {path.name for path in report.files if "claims" in path.name and path.suffix == ".md"} == {
        "steps-claims-1.md", "steps-claims-2.md",
    }  # fmt: skip


@NUMERICS
def test_a_static_run_of_two_modules(tmp_path: Path) -> None:
    few = {name: {"steps": [1, 2, 3]} for name in ("ham_nmf", "ham_cd")}
    run = ctxbench.run("steps", modules=[*few], hparams=few, static=True, out=tmp_path / "run", in_process=True)
    assert set(verdicts("steps", run.folder.frame())) == {"undecided"}
