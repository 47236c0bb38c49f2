"""Verdicts of a check on outputs and gradients: twelve commits of one module, and modules that are hard to compare."""

import json
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from forked import Forked
from test_gate_check import SUITE, FakePairs
from test_trees import OWN_GIT, new_repository

import ctxbench
from ctxbench.base.errors import UsageError
from ctxbench.model.case import Measure, one_case
from ctxbench.model.messages import Failure
from ctxbench.model.read_suite import load
from ctxbench.plugins.check import agreement
from ctxbench.plugins.check import check as flow
from ctxbench.plugins.check import check_against as check
from ctxbench.plugins.check.agreement import judge
from ctxbench.plugins.check.check_against import check_against
from ctxbench.plugins.check.predicted import predicted_rows
from ctxbench.plugins.check.request import Request, parse_outputs
from ctxbench.plugins.check.result import ExitCode, GateResult, OutputVerdict, exit_code
from ctxbench.plugins.check.texts import change_cells, remarks
from ctxbench.plugins.check.wire import Agreement, Difference, PredictedPass

sys.path.insert(0, str(Path(__file__).parents[3] / "research"))

import check_commits

pytestmark = pytest.mark.slow

MODULE = (Path(__file__).parents[3] / "examples" / "my_module.py").read_text(encoding="utf-8")
MINE = """
import torch
from torch import nn

class Mine(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 1)
        self.norm = nn.BatchNorm2d(channels)
        self.gate = nn.Parameter(torch.zeros(1))

    def forward(self, x):
        return x + self.gate * self.norm(self.first(x))
"""

Compare = Callable[..., GateResult]


@pytest.fixture(scope="module")
def environment() -> dict[str, Any]:
    return {"cpu": "a processor", "gpus": [], "packages": {"torch": "2"}, "torch_threads": 1, "driver": None}


@pytest.fixture
def compare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environment: dict[str, Any]) -> Compare:
    """Check a file of a repository whose commit has one text of it and whose working tree has another."""
    for name, value in OWN_GIT.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(check, "ForkServer", Forked)
    monkeypatch.setattr(check, "machine", lambda server: environment)
    monkeypatch.setattr(flow, "Pairs", FakePairs)
    monkeypatch.setattr(FakePairs, "asked", [])

    def run(
        before: str, now: str, name: str = "Mine", axes: str = "", costs: Sequence[str] = ("params",), **options: Any
    ) -> GateResult:
        root = new_repository(tmp_path / "repository", {"module.py": before})
        (root / "module.py").write_text(now)
        monkeypatch.chdir(root)
        text = SUITE.format(modules=f'"module.py:{name}"', metrics=json.dumps(costs)[1:-1], gate="")
        (tmp_path / "suite.toml").write_text(text.replace("[measure]", f"{axes}\n[measure]"))
        return check_against("HEAD", Request(load(str(tmp_path / "suite.toml")), **options))

    return run


TWELVE: dict[str, tuple[str, set[str], ExitCode]] = {
    "nothing": ("same", set(), ExitCode.OK),
    "a comment": ("same", set(), ExitCode.OK),
    "a renamed variable": ("same", set(), ExitCode.OK),
    "a sign": ("changed", set(), ExitCode.CHANGED),
    "a factor": ("changed", {"macs"}, ExitCode.REGRESSED),
    "another dtype": ("changed", set(), ExitCode.CHANGED),
    "5 % slower": ("same", set(), ExitCode.REGRESSED),
    "10 % slower": ("same", set(), ExitCode.REGRESSED),
    "20 % slower": ("same", set(), ExitCode.REGRESSED),
    "faster": ("same", set(), ExitCode.OK),
    "more memory": ("same", {"memory"}, ExitCode.REGRESSED),
    "an exception": ("broken", set(), ExitCode.BROKEN),
}
# What clocks would say, from a script.
LATENCY = {"5 % slower": 0.05, "10 % slower": 0.1, "20 % slower": 0.2, "faster": -0.2}


@pytest.mark.parametrize("name", check_commits.COMMITS)
def test_twelve_commits(compare: Compare, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(FakePairs, "changes", {"MyContext infer": LATENCY.get(name, 0.0)})
    old, new = check_commits.COMMITS[name]
    assert old in MODULE
    result = compare(MODULE, MODULE.replace(old, new), "MyContext", costs=("params", "macs", "memory", "latency"))
    outputs, grown, code = TWELVE[name]
    found: set[str] = {each.verdict for each in result.outputs} or {row.status for row in result.rows}
    assert found == {outputs}
    assert {change.metric for change in result.exact if change.worse} == grown
    assert result.exit_code == code


@pytest.mark.parametrize(
    ("old", "new", "verdict", "reason"),
    [
        ("self.gate * self.norm", "self.norm", "changed", "the output by"),
        ("self.first(x)", "self.first(x.detach())", "changed", "the gradient of the input by"),
        ("BatchNorm2d(channels)", "BatchNorm2d(channels, momentum=0.2)", "changed", "the buffers after training by"),
        ("torch.zeros(1)", "torch.ones(1)", "same", "one seed now draws other initial weights"),
        ("        return x +", "        return x + 0.0 * torch.rand_like(x) +", "same", ""),
        ("        return x +", "        return torch.rand_like(x) +", "changed", "the output by"),
        ("(self.first(x))", "(self.first(x)).bfloat16()", "changed", "the output by"),
    ],
)
def test_what_a_module_computes(compare: Compare, old: str, new: str, verdict: str, reason: str) -> None:
    (found,) = compare(MINE, MINE.replace(old, new)).outputs
    assert found.verdict == verdict
    assert reason in found.reason
    assert bool(found.reason) == bool(reason)


BOTH = "compared with the {} weights and buffers that both sides have; "
LOAD, LOAD_NOT = (f"; weights that the baseline saved {end}" for end in ("load with strict=False alone", "do not load"))
DRAWN = "one seed now draws other initial weights"
TWO = """
import torch
from torch import nn

class Mine(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.dead = nn.Conv2d(channels, 3, 1)
        self.k = nn.Conv2d(channels, channels, 1)
        self.q = nn.Conv2d(channels, channels, 1)
        self.norm = nn.BatchNorm2d(channels)
        self.register_buffer("scale", torch.tensor(2.0), persistent=False)
        self.register_buffer("noise", torch.rand(channels, 1, 1))

    def forward(self, x):
        return self.norm(self.q(x).relu() * self.k(x) * self.scale + self.noise)
"""
DEAD = "        self.dead = nn.Conv2d(channels, 3, 1)\n"
K, Q = (f"        self.{name} = nn.Conv2d(channels, channels, 1)\n" for name in "kq")
WRAPPED = TWO.replace(Q, "        self.q = nn.Sequential(nn.Conv2d(channels, channels, 1))\n")


@pytest.mark.parametrize(
    ("before", "now", "reason"),
    [
        (TWO, TWO.replace(DEAD, ""), BOTH.format(10) + "dead.weight and dead.bias are gone" + LOAD + f"; {DRAWN}"),
        (TWO.replace(DEAD, ""), TWO, BOTH.format(10) + "dead.weight and dead.bias are new" + LOAD + f"; {DRAWN}"),
        (TWO, TWO.replace("channels, 3, 1", "channels, 5, 1"),
         BOTH.format(10) + "dead.weight and dead.bias are of another shape" + LOAD_NOT + f"; {DRAWN}"),
        (MINE, MINE.replace("self.gate", "self.scale"), BOTH.format(8) + "gate is now scale" + LOAD_NOT),
        (TWO, TWO.replace(K + Q, Q + K), DRAWN),
        (TWO, WRAPPED, BOTH.format(12) + "q.weight is now q.0.weight and q.bias is now q.0.bias" + LOAD_NOT),
        (TWO, WRAPPED.replace(DEAD, ""),
         BOTH.format(10) + "q.weight is now q.0.weight and q.bias is now q.0.bias; dead.weight and dead.bias are gone"
         + LOAD_NOT + f"; {DRAWN}"),
        (TWO, TWO.replace("self.k", "self.key").replace("self.q", "self.query"),
         BOTH.format(12) + "k.weight is now key.weight, k.bias is now key.bias, q.weight is now query.weight and 1 more"
         + LOAD_NOT),
        (TWO, TWO.replace(Q, Q + "        nn.init.orthogonal_(self.q.weight)\n"), DRAWN),
    ],
)  # fmt: skip
def test_a_refactor_changes_nothing(compare: Compare, before: str, now: str, reason: str) -> None:
    result = compare(before, now)
    (found,) = result.outputs
    assert (found.verdict, found.reason) == ("same", reason)
    assert result.exit_code == (ExitCode.REGRESSED if result.exact and result.exact[0].worse else ExitCode.OK)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("torch.tensor(2.0)", "torch.tensor(3.0)", "the gradients of the parameters by"),
        ("torch.tensor(2.0)", "torch.rand(())", "the gradients of the parameters by"),
        ("torch.rand(channels, 1, 1)", "torch.ones(channels, 1, 1)", "the buffers after training by"),
        ("self.q(x).relu()", "self.k(x).relu()", "the output by"),
        (Q, Q + "        self.q.weight.requires_grad_(False)\n", "other gradients of the parameters: q.weight"),
    ],
)
def test_a_constant_and_what_is_trained_are_of_the_function(compare: Compare, old: str, new: str, reason: str) -> None:
    (found,) = compare(TWO, TWO.replace(old, new)).outputs
    assert found.verdict == "changed"
    assert reason in found.reason


def test_weights_that_have_several_counterparts_are_drawn(compare: Compare) -> None:
    three = (
        TWO.replace("self.k", "self.key")
        .replace("self.q", "self.query")
        .replace("dead = nn.Conv2d(channels, 3", "more = nn.Conv2d(channels, channels")
    )
    (found,) = compare(TWO, three).outputs
    assert found.verdict == "changed"
    assert (
        "dead.weight, dead.bias, k.weight and 3 more are gone; more.weight, more.bias, key.weight and 3 more are new"
        in found.reason
    )


KINK = MINE.replace("self.gate * self.norm(self.first(x))", "(x - x).sqrt()")
SMOOTH = KINK.replace("(x - x).sqrt()", "(x - x)")
ENDLESS = KINK.replace("(x - x).sqrt()", "1 / (x - x)")


@pytest.mark.parametrize(
    ("before", "parts"),
    [(KINK, "gradient of the input holds"), (ENDLESS, "output, output in training and gradient of the input hold")],
)
def test_a_repaired_infinity_is_told_of_the_baseline(compare: Compare, before: str, parts: str) -> None:
    result = compare(before, SMOOTH)
    (row,) = result.rows
    assert (row.status, result.exit_code) == ("ok (repaired)", ExitCode.OK)
    assert re.match(rf"HEAD \(\w+\) fails: nan: the {parts} NaN or infinity, and is finite now; now", row.reason)


def test_an_infinity_of_both_sides_is_told_of_both(compare: Compare) -> None:
    (found,) = compare(ENDLESS, ENDLESS + "TIMES = 1\n").outputs
    assert (found.verdict, found.reason) == (
        "not compared",
        "the output, output in training and gradient of the input hold NaN or infinity, before and now",
    )


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (
            "(self.first(x))",
            "(self.first(x))[:, :, 1:]",
            "the output has the shape [1, 16, 7, 8]; before, [1, 16, 8, 8]",
        ),
        ("(self.first(x))", "(self.first(x)).log()", "the output holds NaN or infinity in float64"),
        (
            "        return",
            "        if not x.is_meta:\n            raise ValueError('no data')\n        return",
            "no data",
        ),
    ],
)
def test_a_module_without_a_result_is_broken(compare: Compare, old: str, new: str, reason: str) -> None:
    plain = MINE.replace("x + self", "self")
    result = compare(plain, plain.replace(old, new))
    (row,) = result.rows
    assert (row.status, result.outputs, result.exit_code) == ("broken", (), ExitCode.BROKEN)
    assert reason in row.reason


def test_a_case_in_another_dtype_is_also_compared_in_that(compare: Compare) -> None:
    doubled = MINE.replace("return x +", "return (1 + (x.dtype == torch.bfloat16)) * x +")
    (found,) = compare(MINE, doubled, axes='dtype = ["bfloat16"]').outputs
    assert (found.verdict, "(in bfloat16;" in found.reason) == ("changed", True)


def test_a_module_that_fixes_a_dtype_is_compared_in_its_own(compare: Compare) -> None:
    fixed = MINE.replace("self.first(x)", "self.first(x) @ torch.ones(8, 8)")
    (same,) = compare(fixed, fixed + "# a comment\n").outputs
    assert same.verdict == "same"


def test_of_a_device_that_is_not_here_nothing_is_compared(compare: Compare) -> None:
    (found,) = compare(MINE, MINE, axes='device = ["cuda"]').outputs
    assert found == OutputVerdict("Mine 1x16x8x8 float32 cuda", "not compared", "cuda is not here")


TWO_MORE = MINE.replace("return x + ", "x = x.abs() + 1\n        return x + ")
HERE, ON_T4 = "Mine 1x16x8x8 float32 cpu", "Mine 1x16x8x8 float32 t4"


@pytest.mark.parametrize(
    ("options", "verdict", "code"),
    [
        ({}, None, ExitCode.REGRESSED),
        ({"accepted": {"launches_infer": 1.0, "launches_train": 1.0}}, None, ExitCode.OK),
        ({"accepted": {"launches_infer": 1.0, "launches_train": 1.0}, "predicted_margin": 0.05}, "regressed", 1),
        ({"accepted": {"launches_infer": 1.0, "launches_train": 1.0}, "predicted_margin": 9.0}, "ok", ExitCode.OK),
    ],
)
def test_launches_are_compared_exactly_and_predicted_times_decide_only_if_asked(
    compare: Compare, options: dict[str, Any], verdict: str | None, code: ExitCode
) -> None:
    result = compare(MINE, TWO_MORE, axes='device = ["cpu", "t4"]', must_match=False, **options)
    infer, train = sorted((row for row in result.rows if row.row.case == ON_T4), key=lambda row: row.row.mode)
    launches = {each.quantity: each.difference for each in result.exact}
    assert launches == {"launches_infer": 2, "launches_train": 2}
    assert {each.case for each in result.exact} == {ON_T4}
    assert [each.case for each in result.outputs] == [HERE]
    assert (infer.status, infer.verdict, result.exit_code) == ("predicted", verdict, code)
    assert 0.05 < infer.change.low < infer.change.value < infer.change.high < 2
    assert train.change.value < infer.change.value
    assert infer.reason.startswith("predicted for Tesla T4, not measured; only the change is shown, not the times: ")
    assert not re.search(r"\d ms", infer.reason)
    assert result.compared == 3  # parameters once, the launches of both modes


def test_the_same_kernels_are_ok_and_outputs_are_computed_here(compare: Compare) -> None:
    result = compare(MINE, f"{MINE}\nTIMES = 1\n", axes='device = ["t4"]')
    assert [(row.status, row.verdict, row.change.value) for row in result.rows] == [("predicted", "ok", 0.0)] * 2
    assert (result.outputs[0].verdict, result.exact, result.exit_code) == ("same", (), ExitCode.OK)


@pytest.mark.parametrize(
    ("high", "margin", "verdict", "cells"),
    [
        (2.9, None, None, ("+90 %", "[+0, +190]")),
        (3.2, None, None, ("-", "-")),
        (3.2, 0.05, "inconclusive", ("+90 %", "[+0, +220]")),
    ],
)
def test_a_predicted_change_of_which_too_little_is_known_is_shown_only_if_it_decides(
    high: float, margin: float | None, verdict: str | None, cells: tuple[str, str]
) -> None:
    """The ends of its band are more than a factor of 3 apart."""
    passes = [PredictedPass("infer", (1, 3), ("1 ms", "2 ms"), (1.9, 1.0, high))]
    (row,) = predicted_rows("Mine", one_case("se", {"device": "t4"}, {}), passes, margin)
    assert (row.status, row.verdict, change_cells(row)) == ("predicted", verdict, cells)
    if cells == ("-", "-"):
        why = "the change is not known: its band is a factor of 3.2 wide"
        assert row.reason == f"predicted for Tesla T4, not measured; {why}"


def test_a_pass_that_cannot_be_predicted_says_on_which_side(compare: Compare) -> None:
    reads = MINE.replace("        return", "        assert x.abs().max().item() < 1e6\n        return")
    result = compare(reads, MINE, axes='device = ["t4"]')
    assert {row.status for row in result.rows} == {"not compared"}
    assert all(row.reason.startswith("no time is predicted: in the baseline, ") for row in result.rows)


def test_what_the_budget_did_not_reach_is_named(compare: Compare) -> None:
    result = compare(MINE, MINE.replace("x + self", "self.gate + x + self"), costs=("params", "latency"), budget_s=0.0)
    assert result.outputs == (OutputVerdict("Mine 1x16x8x8 float32 cpu", "not compared", "the budget was spent"),)
    assert [row.verdict for row in result.rows] == ["inconclusive", "inconclusive"]
    assert (result.compared, result.exit_code) == (0, ExitCode.NOTHING_COMPARED)
    told = " ".join(remarks(result))
    assert "the budget was spent before the outputs of Mine were compared" in told
    assert "s of a budget of 0 s" in told


# Seconds that each stage of a check takes on a machine at a load of ten; the processes of both sides start at once.
START_S, LISTING_S, COUNT_S, PREDICT_S, OUTPUTS_S, PAIR_S = 30.0, 10.0, 6.0, 8.0, 30.0, 20.0

LATE = Failure("timeout", "it was stopped")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch, environment: dict[str, Any]) -> list[float]:
    """Seconds of a clock that moves where a check works."""
    now = [0.0]
    monkeypatch.setattr("ctxbench.base.clocks.here", SimpleNamespace(wall_s=lambda: now[0], busy_cores=lambda: 2.0))

    def taking(seconds: float, function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any, **options: Any) -> Any:
            now[0] += seconds
            return function(*arguments, **options)

        return run

    monkeypatch.setattr(check, "machine", taking(START_S, lambda server: environment))
    for seconds, name in ((LISTING_S, "list_cases"), (COUNT_S, "count_exact"), (PREDICT_S, "predicted_passes")):
        monkeypatch.setattr(check, name, taking(seconds, getattr(check, name)))
    computed = agreement._taken

    def outputs(server: Any, case: Any, measure: Measure, path: str, compare: bool) -> Any:
        now[0] += min(measure.timeout_s, OUTPUTS_S)
        return computed(server, case, measure, path, compare) if measure.timeout_s >= OUTPUTS_S else LATE

    monkeypatch.setattr(agreement, "_taken", outputs)
    measure = taking(PAIR_S, FakePairs.__call__)

    def pair(self: FakePairs, rows: Any) -> Any:
        found = measure(self, rows)
        self.seconds[-1] = PAIR_S
        return found

    monkeypatch.setattr(FakePairs, "__call__", pair)
    return now


@pytest.mark.parametrize(
    ("budget_s", "elapsed_s", "told"),
    [
        (60.0, 70.0, "in 70 s of a budget of 60 s: listing the cases took 50 s, exact costs took 12 s and launches"),
        (100.0, 125.0, "in 125 s of a budget of 100 s: listing the cases took 50 s, exact costs took 12 s, launches"),
        (179.0, 130.0, "measured in 130 s."),  # a first pair would take as long as the listing
        (200.0, 190.0, "measured in 190 s."),  # and the next as long as the last
    ],
)
def test_beside_heavy_load_launches_decide_and_the_budget_binds_or_is_told(
    compare: Compare, clock: list[float], budget_s: float, elapsed_s: float, told: str
) -> None:
    asked = {"axes": 'device = ["cpu", "t4"]', "costs": ("params", "latency"), "must_match": False}
    result = compare(MINE, TWO_MORE, budget_s=budget_s, **asked)
    assert (clock[0], result.exit_code) == (elapsed_s, ExitCode.REGRESSED)
    assert {each.quantity for each in result.exact} == {"launches_infer", "launches_train"}
    assert any(told in line for line in remarks(result))
    timed = [row.verdict for row in result.rows if row.status == "measured"]
    assert timed == ["inconclusive"] * 2


def test_where_listing_takes_more_than_the_budget_allows_nothing_begins(compare: Compare, clock: list[float]) -> None:
    result = compare(MINE, TWO_MORE, axes='device = ["cpu", "t4"]', budget_s=30.0, begun_s=-10.0)
    assert (clock[0], result.exit_code) == (50.0, ExitCode.NOTHING_COMPARED)
    told = " ".join(remarks(result))
    assert "in 60 s of a budget of 30 s: reading the suite took 10 s and listing the cases took 50 s" in told
    assert "the budget was spent before the exact costs of Mine" in told


@pytest.mark.parametrize(("inconclusive_is", "code"), [("ok", 0), ("fail", 3), ("skip", 125)])
def test_what_the_budget_did_not_reach_is_inconclusive(
    compare: Compare, clock: list[float], inconclusive_is: Any, code: int
) -> None:
    result = compare(MINE, MINE, axes='dtype = ["float32", "bfloat16"]', budget_s=70.0, inconclusive_is=inconclusive_is)
    assert (clock[0], result.compared, result.exit_code) == (62.0, 1, code)
    assert any("before the exact costs of Mine 1x16x8x8 bfloat16" in note for note in result.notes)


def test_why_a_count_is_no_longer_known_is_told_with_its_line(compare: Compare) -> None:
    reads = MINE.replace("        return", "        assert x.abs().max().item() < 1e6\n        return")
    result = compare(MINE, reads, costs=("params", "macs"))
    assert {change.candidate for change in result.exact} == {None}
    assert any("module.py:13 reads the values of a tensor" in note for note in result.notes)


HEIR = """
import no_such_package
from torch import nn

class Base(nn.Module):
    def __init__(self, channels): ...

class Mine(Base):
    pass
"""


@pytest.mark.parametrize("broken", [f"import no_such_package\n{MINE}", HEIR, HEIR.replace("import", "raise OSError #")])
@pytest.mark.parametrize(("inconclusive_is", "code"), [("ok", 5), ("fail", 5), ("skip", 125)])
def test_a_module_that_neither_side_can_load_is_not_compared(
    compare: Compare, broken: str, inconclusive_is: Any, code: int
) -> None:
    """The constructor is its own, which is read without loading it, or that of another class."""
    result = compare(broken, broken + "TIMES = 1\n", inconclusive_is=inconclusive_is)
    assert (result.compared, result.exit_code) == (0, code)
    said = " ".join([*result.notes, *(row.reason for row in result.rows), *(each.reason for each in result.outputs)])
    assert ("OSError" if "OSError" in broken else "No module named 'no_such_package'") in said
    assert result.rows or "neither side can load module.py:Mine: " in said


@pytest.mark.parametrize("name", ["Mime", "Mine"])
def test_a_name_that_neither_side_has_is_a_wrong_input(compare: Compare, name: str) -> None:
    with pytest.raises(UsageError, match=f"no_such|{name}"):
        compare(MINE, MINE, "Mime") if name == "Mime" else compare(MINE, MINE, axes="[hparams.Mine]\nno_such = 1")


CHANGED = OutputVerdict("a", "changed", "the output by 50 %", 0.5)
UNKNOWN = OutputVerdict("a", "not compared", "t4 is not here")


SCALED = """
import torch
from torch import nn

class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return x * weight

    @staticmethod
    def backward(ctx, gradient):
        x, weight = ctx.saved_tensors
        return 0.9 * gradient * weight, (gradient * x).sum((0, 2, 3), keepdim=True)

class Mine(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.first, self.weight = nn.Conv2d(channels, channels, 1), nn.Parameter(torch.ones(1, channels, 1, 1))

    def forward(self, x):
        return Scale.apply(self.first(x), self.weight)
"""
RIGHT = SCALED.replace("0.9 * ", "1.0 * ")


@pytest.mark.parametrize(
    ("before", "now", "sentence"),
    [
        (SCALED, RIGHT, "by central differences, the gradients are right now and were wrong in the baseline"),
        (RIGHT, SCALED, "by central differences, the gradients were right in the baseline and are wrong now"),
    ],
)
def test_whose_gradients_are_right_is_told(compare: Compare, before: str, now: str, sentence: str) -> None:
    result = compare(before, now)
    (found,) = result.outputs
    assert (found.verdict, result.exit_code) == ("changed", ExitCode.CHANGED)
    assert found.reason.endswith(sentence)
    assert sentence in " ".join(remarks(result))


def test_of_other_outputs_no_gradient_is_called_right(compare: Compare) -> None:
    (found,) = compare(RIGHT, RIGHT.replace("x * weight", "x * weight * 2")).outputs
    assert "central differences" not in found.reason


def test_outputs_decide_only_if_they_must_match(compare: Compare) -> None:
    changed = MINE.replace("(channels)\n        self.gate", "(channels, momentum=0.2)\n        self.gate")
    result = compare(MINE, changed)
    assert (result.exact, result.exit_code) == ((), ExitCode.CHANGED)
    assert "--outputs may-change accepts it" in " ".join(remarks(result))
    assert exit_code([], [], 4, outputs=[UNKNOWN], inconclusive_is="fail") == ExitCode.INCONCLUSIVE
    assert exit_code([], [], 4, outputs=[UNKNOWN]) == ExitCode.OK
    assert exit_code([], [], 4, outputs=[UNKNOWN], inconclusive_is="skip") == ExitCode.CANNOT_TELL
    assert exit_code([], [], 0, inconclusive_is="skip") == ExitCode.CANNOT_TELL
    assert exit_code([], [], 4, outputs=[CHANGED], inconclusive_is="skip") == ExitCode.CHANGED


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        (Difference("output", "float64", 1e-9, 1e-9, 0.0), OutputVerdict("a", "same", "", 1e-9)),
        (
            Difference("output", "float64", 2e-9, 1e-9, 0.0),
            OutputVerdict("a", "changed", "the output by 2.0e-7 % (in float64; less than 1.0e-7 % is rounding)", 2e-9),
        ),
        (
            Difference("output", "float64", 0.2, 1e-9, 0.3),
            OutputVerdict("a", "not compared", "two passes of the baseline differ by 30 % in the output"),
        ),
        (
            Difference("output", "float64", 0.7, 1e-9, 0.3),
            OutputVerdict("a", "changed", "the output by 70 % (in float64; less than 1.0e-7 % is rounding)", 0.7),
        ),
    ],
)
def test_what_is_rounding_and_what_is_chance(found: Difference, verdict: OutputVerdict) -> None:
    assert judge("a", Agreement([found], [], [])) == verdict


def test_of_numbers_that_are_none_nothing_is_told() -> None:
    assert judge("a", Agreement([], [], [], infinite=["output"])).verdict == "not compared"


def test_options() -> None:
    assert [parse_outputs(text) for text in ("may-change", "must-match")] == [False, True]
    with pytest.raises(UsageError, match="unknown value of --outputs 'same'"):
        parse_outputs("same")


def test_from_python(compare: Compare, tmp_path: Path) -> None:
    compare(MINE, MINE.replace("BatchNorm2d(channels)", "BatchNorm2d(channels, momentum=0.2)"))
    suite = str(tmp_path / "suite.toml")
    assert ctxbench.check("HEAD", suite=suite, outputs="may-change").value.exit_code == ExitCode.OK
    found = ctxbench.check("HEAD", suite=suite, shape=(1, 16, 4, 4))
    assert found.value.exit_code == ExitCode.CHANGED
    assert found.frame.empty
    assert any("Outputs of Mine changed" in line for line in found.lines)
    assert "<p>Outputs of Mine changed" in found._repr_html_()
    assert "1x16x4x4" in found.value.outputs[0].case
    with pytest.raises(UsageError, match="check takes one of against and baseline"):
        ctxbench.check()
