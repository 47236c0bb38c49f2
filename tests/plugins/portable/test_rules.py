"""Rules for targets without a converter here, and other ways of writing what is refused."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from mends import WRITTEN
from torch import Tensor, nn

from ctxbench.plugins.portable.found import Found
from ctxbench.plugins.portable.graph import GraphCall
from ctxbench.plugins.portable.isolated import isolated
from ctxbench.plugins.portable.mends import MENDS, mend_of
from ctxbench.plugins.portable.rules import RULES, refused_by
from ctxbench.plugins.portable.targets import TARGETS, Converted, Target, tried

MAP = torch.randn(2, 8, 12, 6, generator=torch.Generator().manual_seed(0))
PACKED = torch.randn(2, 10, 24, generator=torch.Generator().manual_seed(0))
# What each pair of functions is called with.
ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "windows": (MAP, 2), "heads": (PACKED, 2), "unit_clamp": (MAP,), "repeated": (PACKED[:, :1], 5),
}  # fmt: skip


class Of(nn.Module):
    """A function of a tensor, and of a number, as a module."""

    def __init__(self, function: Callable[..., Tensor], *numbers: int) -> None:
        super().__init__()
        self.function, self.numbers = function, numbers

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x, *self.numbers)


def test_a_rule_refuses_operators_and_axes_and_blames_the_first_line() -> None:
    written = [
        GraphCall("add", "a.py, line 1", 4),
        GraphCall("view", "a.py, line 2", 6),
        GraphCall("expand", "a.py, line 3", 4),
    ]
    file = [
        GraphCall("ADD", "", 4),
        GraphCall("RESHAPE", "", 6),
        GraphCall("BROADCAST_TO", "", 4),
        GraphCall("GATHER_ND", "", 4),
    ]
    outside, first = refused_by("litert_gpu", file, written)
    assert outside == ["RESHAPE of 6 axes (a.py, line 2)", "BROADCAST_TO (a.py, line 3)", "GATHER_ND"]
    assert first == written[1]
    assert refused_by("litert_gpu", [GraphCall("ADD", "", 4)], written) == ([], None)


def test_what_a_rule_refuses_is_no_trial() -> None:
    def read(outside: list[str]) -> Found:
        call = GraphCall("view", "a.py, line 2", 6) if outside else None
        target = Target("Fake", ("torch",), lambda model, x: Converted(None, outside, blamed=call), rule=True)
        return tried(target, nn.ReLU(), MAP)

    refused, free = read(["view of 6 axes"]), read([])
    assert (refused.status, refused.short, refused.error) == ("rule", "refused by rule", None)
    assert refused.sentence == (
        "refused by rule: view of 6 axes; instead: windows by one swap of axes, with all neighbouring axes merged"
    )
    assert (free.short, free.sentence) == ("no rule refuses it", "")


def test_each_rule_is_of_a_target_of_rules_and_has_its_source() -> None:
    ruled = {name for name, target in TARGETS.items() if target.rule}
    assert {rule.target for rule in RULES} == ruled
    assert len({rule.source for rule in RULES}) == len(RULES)
    assert all(bool(rule.operators) != bool(rule.most_axes) for rule in RULES)


def test_a_call_is_mended_by_its_operator_and_axes() -> None:
    assert mend_of(GraphCall("view", "", 6)) == MENDS[0].instead
    assert mend_of(GraphCall("permute", "", 5)) == MENDS[1].instead
    assert mend_of(GraphCall("view", "", 4)) == mend_of(GraphCall("topk", "", 6)) == mend_of(None) == ""


@pytest.fixture(params=range(len(MENDS)))
def written(request: pytest.FixtureRequest) -> tuple[int, Any, Any]:
    """The number of a way out, with both ways of writing it."""
    assert len(WRITTEN) == len(MENDS)
    return (request.param, *WRITTEN[request.param])


def test_what_is_written_instead_has_the_same_output(written: tuple[int, Any, Any]) -> None:
    _, before, after = written
    arguments = ARGUMENTS[before.__name__]
    assert before(*arguments).shape == after(*arguments).shape
    assert torch.allclose(before(*arguments), after(*arguments), rtol=0, atol=2e-7)


@pytest.mark.extra("litert")
@pytest.mark.slow
def test_no_rule_of_litert_s_gpu_refuses_what_is_written_instead(written: tuple[int, Any, Any]) -> None:
    number, *ways = written
    x, *numbers = ARGUMENTS[ways[0].__name__]
    before, after = (isolated(read_for_gpu, Of(each, *numbers), x, limit_s=60) for each in ways)
    assert (before.short, after.short) == ("refused by rule", "no rule refuses it")
    assert before.mend == MENDS[number].instead


def read_for_gpu(model: nn.Module, x: Tensor) -> Found:
    return tried(TARGETS["litert_gpu"], model, x)
