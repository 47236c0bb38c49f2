"""`ctxbench check --self-test` on scripted pairs: verdicts, what a machine can see; wrong options of the command."""

import math
import statistics
import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from test_trees import OWN_GIT

from ctxbench.base.errors import UsageError
from ctxbench.base.number import Number
from ctxbench.base.statistics import t_quantile
from ctxbench.cli.options import seconds as parse_seconds
from ctxbench.model.case import Case, Measure
from ctxbench.model.grid import Suite
from ctxbench.model.suite_file import SuiteFile
from ctxbench.plugins.check import check as flow
from ctxbench.plugins.check import self_test as tested
from ctxbench.plugins.check.evidence import PairFailure, PairRatios, PairResult
from ctxbench.plugins.check.pairs import Source
from ctxbench.plugins.check.power import Spread, sentence, smallest_visible
from ctxbench.plugins.check.request import Deadline, Request, parse_share
from ctxbench.plugins.check.result import ExitCode, InconclusiveIs, exit_code
from ctxbench.plugins.check.rows import RowKey, RowVerdict
from ctxbench.plugins.check.rules import GateRule
from ctxbench.plugins.check.self_test import SelfTest, self_test
from ctxbench.plugins.check.texts import self_test_counts
from ctxbench.plugins.trees.tree_cases import TreeCases
from ctxbench.plugins.trees.trees import Modules

pytestmark = pytest.mark.slow  # many small cases, which take seconds together

ROWS = ["one infer", "one train", "two infer", "two train"]
# `_chosen`: the infer row of one case, the train row of the next.
SLOWED = ["one infer", "two train"]
WOBBLE = 0.002
INSTALLED = Modules(None, "the installed modules")


class ScriptedPairs:
    """Stands in for `Pairs`: a row's change is what was injected, or what `script` says, with a wobble."""

    script: Mapping[str, float | PairFailure] = {}
    pair_s = 1.0

    def __init__(self, baseline: Source, candidate: Source, measure: Measure, **of_flow: Any) -> None:
        assert all(row.inject == 0.0 for row in baseline.rows.values())
        self.candidate = candidate
        self.seconds: list[float] = []

    def __call__(self, rows: Sequence[RowKey]) -> dict[RowKey, PairResult]:
        sign = (-1) ** len(self.seconds)
        self.seconds.append(self.pair_s)
        return {row: self._result(row, sign) for row in rows}

    def _result(self, row: RowKey, sign: int) -> PairResult:
        change = self.script.get(short(row), self.candidate.rows[row].inject)
        if isinstance(change, PairFailure):
            return change
        return PairRatios(0.3 * sign if math.isnan(change) else math.log1p(change) + sign * WOBBLE)


def short(row: RowKey) -> str:
    """Module and mode of a row."""
    return f"{row.case.split()[0]} {row.mode}"


@pytest.fixture(autouse=True)
def _no_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    cases = [Case(name, f"{name}.py:{name}", {}, (1, 16, 8, 8)) for name in ("one", "two")]
    found = TreeCases(INSTALLED, {case.id: case for case in cases})
    environment = {"cpu": "a processor", "gpus": [], "packages": {"torch": "2"}, "torch_threads": 1}
    monkeypatch.setattr(tested, "modules_here", lambda: INSTALLED)
    monkeypatch.setattr(tested, "ForkServer", lambda tree: nullcontext())
    monkeypatch.setattr(tested, "machine", lambda server: environment)
    monkeypatch.setattr(tested, "list_cases", lambda *arguments: found)
    monkeypatch.setattr(flow, "Pairs", ScriptedPairs)
    monkeypatch.setattr(ScriptedPairs, "script", {})


def request(margin: float | None = None, inconclusive_is: InconclusiveIs = "ok", budget_s: float = 300.0) -> Request:
    definition = {"title": "t", "modules": ["one", "two"], "axes": {"shape": [1, 16, 8, 8]}}
    suite = Suite("t", Path("t.toml"), SuiteFile.model_validate(definition))
    return Request(suite, margin, budget_s, inconclusive_is)


def verdicts(test: SelfTest) -> dict[str, str | None]:
    return {short(row.row): row.verdict for row in test.result.rows}


def alarms(test: SelfTest) -> int:
    return self_test_counts(test)["false_alarms"]


def test_nothing_injected_and_nothing_found() -> None:
    test = self_test(request())
    assert verdicts(test) == dict.fromkeys(ROWS, "ok")
    assert (alarms(test), test.result.exit_code) == (0, ExitCode.OK)
    assert (test.result.baseline, test.result.candidate) == ("itself", "the installed modules")
    assert [spread.injected for spread in test.spreads] == [0.0] * 4
    for spread in test.spreads:
        assert spread.deviation == pytest.approx(statistics.stdev([WOBBLE, -WOBBLE] * 2))


def test_what_is_injected_is_found_on_half_of_the_rows() -> None:
    test = self_test(request(), 0.1)
    assert verdicts(test) == {row: "regressed" if row in SLOWED else "ok" for row in ROWS}
    assert (alarms(test), test.result.exit_code) == (0, ExitCode.OK)
    assert [spread.injected for spread in test.spreads] == [0.1, 0.0, 0.0, 0.1]
    assert "slowed by 0.1 on purpose: one infer, two train" in test.result.notes
    found = next(row for row in test.result.rows if short(row.row) == "one infer")
    assert found.change.value == pytest.approx(0.1, abs=1e-6)
    assert test.spreads[0].deviation == pytest.approx(statistics.stdev([WOBBLE, -WOBBLE] * 2))


WIDE = math.nan  # pairs far apart, which decide nothing
OUTCOMES: dict[str, tuple[dict[str, float | PairFailure], InconclusiveIs, int, ExitCode]] = {
    "a false alarm": ({"one train": 0.2}, "fail", 1, ExitCode.REGRESSED),
    "two false alarms": ({"one train": 0.2, "two infer": 0.2}, "ok", 2, ExitCode.REGRESSED),
    "a slowdown called ok": ({"one infer": 0.0}, "fail", 0, ExitCode.REGRESSED),
    "undecided": ({"one train": WIDE}, "fail", 0, ExitCode.INCONCLUSIVE),
    "undecided, and that is ok": ({"one train": WIDE}, "ok", 0, ExitCode.OK),
    "a slowdown not found": ({"one infer": WIDE}, "ok", 0, ExitCode.INCONCLUSIVE),
    "broken": ({"one train": PairFailure("candidate", "error: x")}, "fail", 0, ExitCode.BROKEN),
    "nothing": ({row: PairFailure("both", "error: x") for row in ROWS}, "fail", 0, ExitCode.NOTHING_COMPARED),
    "one row that never ran": ({"one train": PairFailure("both", "error: x")}, "fail", 0, ExitCode.OK),
}


@pytest.mark.parametrize(("script", "inconclusive_is", "expected", "code"), OUTCOMES.values(), ids=OUTCOMES)
def test_exit_codes_and_false_alarms(
    monkeypatch: pytest.MonkeyPatch,
    script: dict[str, float | PairFailure],
    inconclusive_is: InconclusiveIs,
    expected: int,
    code: ExitCode,
) -> None:
    monkeypatch.setattr(ScriptedPairs, "script", script)
    test = self_test(request(inconclusive_is=inconclusive_is), 0.1)
    assert (alarms(test), test.result.exit_code) == (expected, code)


def test_exit_code_of_a_wrong_verdict_outweighs_one_that_is_missing() -> None:
    def row(name: str, verdict: Any) -> RowVerdict:
        return RowVerdict(RowKey(name), "measured", verdict, Number(0.0), 0.0, 4, "")

    rows = (row("slow", "ok"), row("plain", "inconclusive"))
    assert exit_code(rows, slowed={RowKey("slow")}) == ExitCode.REGRESSED
    assert exit_code(rows, inconclusive_is="fail") == ExitCode.INCONCLUSIVE
    assert exit_code((row("slow", "regressed"),), slowed={RowKey("slow")}) == ExitCode.OK


@pytest.mark.parametrize(("inject", "margin"), [(0.05, None), (0.03, None), (0.1, 0.1)])
def test_an_injection_within_the_margin_is_refused_before_anything_is_measured(
    monkeypatch: pytest.MonkeyPatch, inject: float, margin: float | None
) -> None:
    monkeypatch.setattr(flow, "judge", None)
    with pytest.raises(UsageError, match=rf"an injected {inject:.3g} is within the margin of one .* infer"):
        self_test(request(margin), inject)


def test_a_module_that_cannot_be_had_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        tested, "list_cases", lambda *arguments: TreeCases(INSTALLED, missing={"one": "there is no file one.py"})
    )
    with pytest.raises(UsageError, match=r"there is no file one\.py"):
        self_test(request())


@pytest.mark.parametrize("look", GateRule().looks)
def test_smallest_visible_is_found_in_95_of_100_gates(look: int) -> None:
    """20,000 gates by Student's interval, seed 0: normal log ratios of the given deviation.

    With p = 0.95 the count's standard error is 0.0015; half of the distance to the tolerance is found in under half.
    """
    rule, deviation, tolerance = GateRule(), 0.05, math.log1p(0.015)
    random = np.random.default_rng(0)
    alpha = rule.look_alpha(look) / 4
    visible = math.log1p(smallest_visible(deviation, look, tolerance, 0.0, alpha))
    reach = t_quantile(1 - alpha, look) / math.sqrt(look)

    def found(effect: float) -> float:
        ratios = random.normal(effect, deviation, (20_000, look))
        low = ratios.mean(axis=-1) - reach * ratios.std(axis=-1, ddof=1)
        return float((low > tolerance).mean())

    assert found(visible) == pytest.approx(0.95, abs=0.006)
    assert found((visible + tolerance) / 2) < 0.5


def test_smallest_visible_by_hand() -> None:
    # Without spread, the margin, below which a change is ok; each quantity is linear in the deviation on the log scale.
    assert smallest_visible(0.0, 8, math.log1p(0.015), math.log1p(0.05), 0.01) == pytest.approx(0.05)
    one, two = (math.log1p(smallest_visible(each, 8, 0.0, 0.0, 0.01)) for each in (0.01, 0.02))
    assert two == pytest.approx(2 * one)
    # From many pairs t is normal: d = (2.5758 + 1.6449) s / sqrt(n).
    assert math.log1p(smallest_visible(0.1, 10_000, 0.0, 0.0, 0.01)) == pytest.approx(4.2207e-3, rel=1e-3)
    # From two pairs, one degree of freedom: finite, however far.
    assert 0 < math.log1p(smallest_visible(0.01, 2, 0.0, 0.0, 0.05)) < 10


@pytest.mark.parametrize(
    ("budget_s", "pair_s", "look"),
    [(300.0, 1.0, 28), (28.0, 1.0, 28), (27.9, 1.0, 19), (13.0, 1.0, 13), (4.0, 1.0, 4), (3.9, 1.0, None)],
)
def test_the_spreads_are_those_of_the_latest_look_that_the_budget_holds(
    monkeypatch: pytest.MonkeyPatch, budget_s: float, pair_s: float, look: int | None
) -> None:
    monkeypatch.setattr(ScriptedPairs, "pair_s", pair_s)
    monkeypatch.setattr(Deadline, "has_time", lambda self: True)
    rule = GateRule()
    for spread in self_test(request(budget_s=budget_s)).spreads:
        if look is None:
            assert spread.visible is None
        else:
            assert spread.deviation is not None
            lines = math.log1p(0.015), math.log1p(0.05)
            expected = smallest_visible(spread.deviation, look, *lines, rule.look_alpha(look) / len(ROWS))
            assert spread.visible == pytest.approx(expected)


def test_what_a_check_finds_is_said_in_a_sentence() -> None:
    rows = [Spread(RowKey(name), 0.0, 0.01, visible) for name, visible in (("a", 0.08), ("b", 0.12), ("c", None))]
    told = "this budget finds slowdowns of {} and more in 95 of 100 checks on this machine"
    assert sentence(rows) == told.format("10 %") + " (in its noisiest row, of 12 %)"
    assert sentence(rows[:1]) == told.format("8 %")
    assert sentence(rows[2:]) == ""


def test_open_rows_say_how_much_more_time_would_decide_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ScriptedPairs, "pair_s", 10.0)
    monkeypatch.setattr("test_gate_self_test.WOBBLE", 0.02)
    left = iter([True] * 4)
    monkeypatch.setattr(Deadline, "has_time", lambda self: next(left, False))
    test = self_test(request())
    assert {row.verdict for row in test.result.rows} == {"inconclusive"}
    # The spread is 0.0231; with 19 pairs half the interval is 0.0158, with 28 it is 0.0123.
    assert "150 s more of --budget would decide every inconclusive row" in test.result.notes


def test_without_a_pair_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Deadline, "has_time", lambda self: False)
    test = self_test(request())
    assert [(spread.deviation, spread.visible) for spread in test.spreads] == [(None, None)] * 4
    assert test.result.exit_code == ExitCode.NOTHING_COMPARED


@pytest.mark.parametrize(
    ("text", "share"),
    [("5%", 0.05), ("0.05", 0.05), (" 12.5 % ", 0.125), ("300%", 3.0), ("9.99", 9.99), ("1e-3", 1e-3)],
)
def test_shares(text: str, share: float) -> None:
    assert parse_share(text, "--margin") == pytest.approx(share)


@pytest.mark.parametrize("text", ["10", "1000%", "1e9"])
def test_too_large_a_share(text: str) -> None:
    with pytest.raises(UsageError, match=r"^--margin .*: it must be more than 0 and less than 10, which is 1000 %$"):
        parse_share(text, "--margin")


@pytest.mark.parametrize("text", ["", "%", "five", "0", "0%", "-5%", "nan", "inf", "5%%", "5 percent"])
def test_no_shares(text: str) -> None:
    with pytest.raises(UsageError, match=r"^--margin '.*' is not a positive share, such as 5% or 0\.05$"):
        parse_share(text, "--margin")


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("10m", 600), ("1h", 3600), ("45", 45), (" 1.5 m ", 90), ("0.5s", 0.5)]
)
def test_times(text: str, seconds: float) -> None:
    assert parse_seconds(text, "--budget") == seconds


@pytest.mark.parametrize("text", ["", "0", "0s", "0.0m", "-1m", "m", "10 minutes", "1e3", "nan", "1.m", "1m30s"])
def test_no_times(text: str) -> None:
    with pytest.raises(UsageError, match=r"^--budget '.*' is not a time, such as 90s or 10m$"):
        parse_seconds(text, "--budget")


def test_a_deadline_leaves_room_for_one_more(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [50.0]
    monkeypatch.setattr("ctxbench.base.clocks.here", SimpleNamespace(wall_s=lambda: now[0]))
    deadline = Deadline(10.0)
    assert deadline.has_time()
    deadline.seconds = [9.0, 4.0]
    now[0] = 56.0
    assert (deadline.elapsed_s, deadline.has_time()) == (6.0, True)
    now[0] = 56.1
    assert not deadline.has_time()


# The command line

ONE_OF = "check takes one of --against GIT_REF, --baseline PATH and --self-test"
REFUSED = {
    "none of the three": ([], ONE_OF),
    "two of them": (["--against", "HEAD", "--self-test"], ONE_OF),
    "two others": (["--against", "HEAD", "--baseline", "run"], ONE_OF),
    "an injection without a self-test": (["--against", "HEAD", "--inject", "10%"], "--inject goes with --self-test"),
    "a margin": (["--against", "HEAD", "--margin", "much"], "--margin 'much' is not a positive share"),
    "an injection": (["--self-test", "--inject", "0"], "--inject '0' is not a positive share"),
    "a budget": (["--against", "HEAD", "--budget", "soon"], "--budget 'soon' is not a time"),
    "strict, and for bisect": (["--self-test", "--strict", "--bisect"], "check takes one of --strict and --bisect"),
    "outputs": (["--against", "HEAD", "--outputs", "tell"], "unknown value of --outputs 'tell'"),
    "outputs of itself": (["--self-test", "--outputs", "may-change"], "--outputs goes with --against"),
    "a suite": (["--against", "HEAD", "--suite", "cii"], "unknown suite 'cii'; did you mean 'ci'"),
    "no repository": (["--against", "HEAD"], "is not in a git repository"),
    "no modules": (["--against", "HEAD", "--modules", ","], "modules []: "),
}


@pytest.mark.parametrize(("arguments", "sentence"), REFUSED.values(), ids=REFUSED)
def test_a_wrong_command_is_one_sentence_and_exit_code_2(
    arguments: list[str],
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from ctxbench.cli import main

    for name, value in OWN_GIT.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["ctxbench", "check", *arguments])
    with pytest.raises(SystemExit) as stopped:
        main()
    shown = capsys.readouterr()
    assert stopped.value.code == 2
    assert shown.out == ""
    assert shown.err.startswith("ctxbench: ")
    assert sentence in shown.err
    assert shown.err.count("\n") == 1
