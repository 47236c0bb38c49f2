"""Times of a profile add up, on a quiet clock and beside other work; what is in Python is told by line."""

import random
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from types import FrameType
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ctxbench.base.call_sites import CallSite, CallSites, Line
from ctxbench.plugins.profile.costs import Cost, Roof
from ctxbench.plugins.profile.profile import QUIET, Pass, Profile, PythonLine
from ctxbench.plugins.profile.python import Looks, outside
from ctxbench.plugins.profile.tables import table
from ctxbench.plugins.profile.texts import sentences

ROOF = Roof(1e12, 1e11, 1e-6)


def cost(name: str, ms: list[float], **known: float) -> Cost:
    return Cost("forward", CallSite(own=Line(f"{name}.py", 1)), name, ms=ms, **known)  # type: ignore[arg-type]  # of several types


def written(taken: Pass, by: str = "operator") -> dict[str, list[str]]:
    """The cells of each row of a table by its first."""
    shown = table(Profile("", "", {"infer": taken}), "infer", by, "own")  # type: ignore[arg-type]  # a parameter's text
    return {row.cells[0].text: [cell.text for cell in row.cells[1:]] for row in shown.rows}


def number(text: str) -> float:
    return float(text.split(" ")[0])


@pytest.mark.parametrize("seed", range(5))
def test_rows_sum_and_pass_agree_to_the_digit(seed: int) -> None:
    draw = random.Random(seed)
    rows = [[draw.expovariate(1 / 10 ** draw.uniform(-4, 1)) for _ in range(12)] for _ in range(30)]
    passes = [sum(each) * 1.25 for each in zip(*rows, strict=True)]
    taken = Pass("infer", [cost(f"row{n}", ms) for n, ms in enumerate(rows)], ROOF, passes, passes)
    cells = written(taken)
    whole = cells["sum of rows"][0]
    ends = {name: number(cells.pop(name)[0]) for name in ("sum of rows", "between operators", "pass, profiled")}
    decimals = len(whole.partition(".")[2])
    assert round(sum(number(each[0]) for each in cells.values()), decimals) == ends["sum of rows"]
    assert round(ends["sum of rows"] + ends["between operators"], decimals) == ends["pass, profiled"]
    assert len(cells) == 13
    assert "18 others" in cells
    times = [part.ms.value for part in taken.parts("operator")]
    assert sum(times) == pytest.approx(taken.sum_ms.value)
    assert taken.sum_ms.value + taken.between_ms.value == pytest.approx(taken.whole_ms)
    assert sum(part.share for part in taken.parts("operator")) == pytest.approx(1)
    # the order is that of the column by which rows are cut
    assert all(one >= other for one, other in pairwise(times))
    last = min(number(each[0]) for name, each in cells.items() if not name.endswith("others"))
    assert last >= times[12] - 10**-decimals


def test_all_rows_are_of_the_same_quiet_passes() -> None:
    """Each row is interrupted in a pass of its own: medians of rows would hide it, and the quiet passes do not."""
    rows = [[1.0 + 50 * (at == row) for at in range(16)] for row in range(8)]
    passes = [sum(each) + 2 for each in zip(*rows, strict=True)]
    taken = Pass("infer", [cost(f"row{n}", ms) for n, ms in enumerate(rows)], ROOF, passes, passes)
    assert len(taken.quiet) == 8
    assert min(taken.quiet) >= 8
    assert (taken.sum_ms.value, taken.between_ms.value, taken.whole_ms) == (8, 2, 10)
    assert {part.share for part in taken.parts("operator")} == {0.125}
    few = Pass("infer", [], ROOF, passes[:4], passes[:4])
    assert len(few.quiet) == QUIET


def test_a_row_that_differs_by_more_than_itself_has_no_share() -> None:
    costs = [cost("long", [70.0, 72.0, 74.0]), cost("wild", [1.0, 30.0, 0.9]), cost("low", [0.2, 0.2, 0.2])]
    passes = [100.0, 120.0, 130.0]
    taken = Pass("infer", costs, ROOF, passes, passes)
    cells = written(taken)
    assert [*cells][:3] == ["long", "wild", "low"]
    assert [cells[name][1] for name in ("long", "wild", "low")] == ["98.4%", "?", "0.3%"]
    assert "±>100%" in cells["wild"][0]
    assert sentences(taken)[1].startswith("?: the row's time differs between these passes by more than itself")


def interrupted(rows: list[float], draw: random.Random, slice_ms: float = 3.0) -> list[float]:
    """Rows of a pass on a core that is given to another process after each slice, for as long."""
    left, found = draw.uniform(0, slice_ms), []
    for ms in rows:
        waited, rest = 0.0, ms * draw.uniform(0.98, 1.02)
        busy = rest
        while rest > left:
            rest, left, waited = rest - left, slice_ms, waited + slice_ms * draw.uniform(0.5, 1.5)
        left -= rest
        found.append(busy + waited)
    return found


@pytest.mark.parametrize("scale", [0.1, 1.0, 20.0])
def test_beside_other_work_the_first_three_rows_are_those_of_a_quiet_machine(scale: float) -> None:
    quiet = [scale * each for each in (1.0, 0.75, 0.55, 0.4, 0.3, *[0.05] * 10)]
    right = 0
    for seed in range(10):
        draw = random.Random(seed)
        passes = [interrupted(quiet, draw) for _ in range(40)]
        costs = [cost(f"row{row:02}", [each[row] for each in passes]) for row in range(len(quiet))]
        taken = Pass("infer", costs, ROOF, [*map(sum, passes)], [*map(sum, passes)])
        right += [part.name for part in taken.parts("operator")][:3] == ["row00", "row01", "row02"]
    assert right >= 9


class Sums(nn.Module):
    look: Callable[[str], None]

    def forward(self, x: Tensor) -> Tensor:
        self.seen = sys._getframe()
        self.look("first")
        self.look("second")
        return x


def test_looks_stand_for_the_time_since_the_one_before() -> None:
    module = Sums()
    looks, now = Looks(CallSites(module), 10.0), iter((10.5, 12.5))
    module.look = lambda step: looks.take(module.seen, next(now))
    module(torch.ones(1))
    looks.take(sys._getframe(), 20.0)  # outside of the module
    looks.take(None, 21.0)
    lines = sorted((line for _, line in looks.seconds), key=lambda line: line.number)
    assert [looks.seconds["forward", line] for line in lines] == [0.5, 2.0]
    assert {looks.functions[line] for line in lines} == {"Sums.forward"}
    assert lines[1].number == lines[0].number + 1
    inside = [Cost("forward", CallSite(own=lines[1]), "add", ms=[100.0] * 3)]
    taken = Pass("infer", inside, ROOF, [1300.0] * 3, [1300.0] * 3)
    python = outside(looks, 2, taken)
    assert [(each.line, each.ms) for each in python] == [(lines[1], 900.0), (lines[0], 250.0)]


def in_backward() -> bool:
    return torch._C._current_graph_task_id() >= 0


class Doubled(torch.autograd.Function):
    """Looks at itself in the backward pass."""

    look: Callable[[FrameType], None]

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        Doubled.look(sys._getframe())
        return gradient * 2


@pytest.mark.parametrize("again", [False, True])
def test_a_line_that_the_backward_pass_runs_is_told_with_its_operators(again: bool) -> None:
    module = Sums()
    looks = Looks(CallSites(nn.Sequential(module)), 10.0)
    if again:
        module.look = lambda step: looks.take(module.seen, 12.0) if step == "first" and in_backward() else None
        checkpoint(module, torch.ones(1, requires_grad=True), use_reentrant=True).sum().backward()
    else:
        Doubled.look = lambda frame: looks.take(frame, 12.0)
        Doubled.apply(torch.ones(1, requires_grad=True)).sum().backward()  # type: ignore[no-untyped-call]  # as torch has it
    ((phase, line),) = looks.seconds
    assert (phase, looks.seconds[phase, line]) == ("backward", 2.0)
    name = "Sums.forward" if again else "Doubled.backward"
    costs = [Cost("forward", CallSite(own=line), "mul", ms=[1500.0] * 3)]
    taken = Pass("train", costs, ROOF, [2000.0] * 3, [4000.0] * 3)
    assert outside(looks, 1, taken) == [PythonLine(line, name, 2000.0, "backward")]
    told = sentences(replace(taken, python=outside(looks, 1, taken)))
    assert f"In the backward pass, {line} in {name} takes 2000 ms, operators included (100% of a pass" in told[-1]


def test_lines_of_python_are_told_with_function_place_time_and_share() -> None:
    lines = [PythonLine(Line("net.py", number), "Net.forward", ms) for number, ms in ((7, 36.0), (9, 2.0), (11, 0.1))]
    taken = Pass("infer", [], ROOF, [40.0] * 3, [40.0] * 3, python=lines)
    told = [each for each in sentences(taken) if each.startswith("Outside of operators")]
    assert told == [
        "Outside of operators, net.py:7 in Net.forward takes 36.0 ms (90% of a pass without the profiler, sampled).",
        "Outside of operators, net.py:9 in Net.forward takes 2.00 ms (5% of a pass without the profiler, sampled).",
    ]
    assert not re.search("net.py:11", " ".join(told))
