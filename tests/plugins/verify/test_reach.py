"""Reach of the blocks of the registry, by the checks of the contract."""

from typing import Any

import pytest
from test_contract import checked
from torch import nn

from ctxbench import registry
from ctxbench.plugins.verify.checks import CHECKS, run_checks
from ctxbench.plugins.verify.contract import SIZE
from ctxbench.plugins.verify.subject import Subject
from ctxbench.registry import register

pytestmark = pytest.mark.slow  # many small cases, which take seconds together


LOCAL = "as declared, local: a change at the centre reaches "
WHOLE = "a change at one corner reaches 1023 of 1023 positions (100%)"


@pytest.mark.parametrize(
    ("key", "hparams", "channels", "fact"),
    [
        ("lka", {}, 8, f"{LOCAL}529 of 1023 positions (52%), a 23x23 window"),
        ("msca", {}, 8, f"{LOCAL}625 of 1023 positions (61%), a 25x25 window"),
        ("coord", {}, 8, f"{LOCAL}63 of 1023 positions (6%), within a 33x31"),
        ("criss_cross", {"recurrence": 1}, 8, f"{LOCAL}63 of 1023"),
        ("pool", {}, 8, f"{LOCAL}9 of 1023 positions (1%), a 3x3 window"),
        ("dwconv", {}, 8, f"{LOCAL}49 of 1023 positions (5%), a 7x7 window"),
        ("gated_cnn", {}, 8, f"{LOCAL}49 of 1023 positions (5%), a 7x7"),
        ("swin", {}, 32, f"{LOCAL}49 of 1023 positions (5%), a 7x7 window"),
        ("grid", {}, 32, f"{LOCAL}49 of 1023 positions (5%), within a"),
        ("area", {}, 32, f"{LOCAL}280 of 1023 positions (27%), within a"),
        ("area", {"area": 2}, 32, f"{LOCAL}536 of 1023 positions (52%)"),
        ("neighborhood", {}, 32, f"{LOCAL}49 of 1023 positions (5%), a 7x7"),
        ("neighborhood", {"dilation": 2}, 32, f"{LOCAL}49 of 1023"),
        ("deformable", {}, 32, "as declared, by content: in 5 trials a change at the centre reaches "),
        ("cbam", {}, 32, WHOLE),
        ("focal", {}, 8, WHOLE),
    ],
)
def test_how_far_a_block_sees_is_as_declared(key: str, hparams: dict[str, Any], channels: int, fact: str) -> None:
    reach, mixing = checked(key, channels, ("reach", "position mixing"), hparams)
    assert (reach.outcome, reach.fact[: len(fact)]) == ("passed", fact)
    assert mixing.outcome == ("not applicable" if key == "criss_cross" else "passed")


@register("claims", title="Claims", reach="by content", position_mixing=False, listed=False)
class Claims(nn.Conv2d):
    """A block that says that the input decides what it reaches, and reaches nothing."""

    def __init__(self, channels: int) -> None:
        super().__init__(channels, channels, 1)


def test_what_reaches_by_content_reaches_another_position() -> None:
    wanted = [each for each in CHECKS if each.name == "reach"]
    (reach,) = run_checks(Subject(registry.of_class(Claims), Claims, 8, {}, SIZE), wanted)
    assert (reach.outcome, reach.hint) == ("failed", "'by content' is declared: correct reach= in @register")


def test_positions_near_a_border_reach_farther_inside() -> None:
    (reach,) = checked("neighborhood", 32, ["reach"], {"dilation": 4})
    assert (reach.outcome, "reaches 63 of 1023 positions" in reach.fact) == ("passed", True)


@pytest.mark.parametrize(
    ("key", "hparams", "local"),
    [
        ("pool", {}, "local: 3 x 3"),
        ("dwconv", {"kernel_size": 5}, "local: 5 x 5"),
        ("lka", {}, "local: 23 x 23"),
        ("swin", {}, "local: 7 x 7"),
        ("neighborhood", {}, "local: 7 x 7"),
        ("coord", {}, "local: 127 positions"),
        ("grid", {}, ""),
        ("grid", {"partition": "block"}, "local: 7 x 7"),
        ("area", {"area": 1}, ""),
        ("deformable", {}, ""),
        ("se", {}, ""),
        ("identity", {}, ""),
    ],
)
def test_a_local_block_says_what_it_sees(key: str, hparams: dict[str, Any], local: str) -> None:
    assert registry.get(key).locality((1, 64, 64, 64), hparams) == local
