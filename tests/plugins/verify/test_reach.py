"""Reach of the blocks of the registry, by the checks of the contract."""

from typing import Any

import pytest

from ctxbench import registry
from ctxbench.plugins.verify.checks import CHECKS, run_checks
from ctxbench.plugins.verify.contract import SIZE
from ctxbench.plugins.verify.subject import Subject


@pytest.mark.parametrize(
    ("key", "hparams", "channels", "fact"),
    [
        (
            "lka",
            {},
            8,
            "as declared, local: a change at the centre reaches 529 of 1023 positions (52%), a 23x23 window",
        ),
        (
            "msca",
            {},
            8,
            "as declared, local: a change at the centre reaches 625 of 1023 positions (61%), a 25x25 window",
        ),
        (
            "coord",
            {},
            8,
            "as declared, local: a change at the centre reaches 63 of 1023 positions (6%), within a 33x31",
        ),
        ("criss_cross", {"recurrence": 1}, 8, "as declared, local: a change at the centre reaches 63 of 1023"),
        ("cbam", {}, 32, "a change at one corner reaches 1023 of 1023 positions (100%)"),
        ("focal", {}, 8, "a change at one corner reaches 1023 of 1023 positions (100%)"),
    ],
)
def test_how_far_a_block_sees_is_as_declared(key: str, hparams: dict[str, Any], channels: int, fact: str) -> None:
    entry = registry.get(key)
    wanted = [each for each in CHECKS if each.name in ("reach", "position mixing")]
    reach, mixing = run_checks(Subject(entry, entry.load(), channels, hparams, SIZE), wanted)
    assert (reach.outcome, reach.fact[: len(fact)]) == ("passed", fact)
    assert mixing.outcome == ("not applicable" if key == "criss_cross" else "passed")
