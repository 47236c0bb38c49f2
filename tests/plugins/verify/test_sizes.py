"""Sizes that a block takes, how far it reaches, and whether it mixes positions."""

from dataclasses import replace
from typing import Any

import broken_modules as broken
import pytest
import torch
from field_cases import FEW
from test_contract import check, checked, subject_of
from torch import Tensor, nn

from ctxbench import registry
from ctxbench.plugins.verify import contract
from ctxbench.plugins.verify.checks import CHECKS, run_checks


@pytest.mark.parametrize(
    ("cls", "mark", "fact"),
    [
        (broken.Local, "local: 7 x 7", "local: a change at the centre reaches 49 of 1023 positions (5%), a 7x7"),
        (broken.Pointwise, "local: 1 x 1", "local: a change at a position reaches no other position"),
        (broken.Base, "", "a change at one corner reaches 1023 of 1023 positions (100%), the opposite corner too"),
    ],
)
def test_how_far_a_block_reaches_is_a_fact(cls: type[nn.Module], mark: str, fact: str) -> None:
    found = check("reach", cls)
    assert (found.outcome, found.mark, found.fact[: len(fact)]) == ("passed", mark, fact)


class Axes(nn.Module):
    """Adds the means over these axes of a map."""

    def __init__(self, channels: int, axes: tuple[int, ...]) -> None:
        super().__init__()
        self.layer, self.axes = nn.Conv2d(channels, channels, 1), axes

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layer(x)
        return y + torch.stack([y.mean(axis, keepdim=True).expand_as(y) for axis in self.axes]).sum(0)


class Later(Axes):
    """Adds all that comes before a position, row by row."""

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layer(x)
        return y.flatten(2).cumsum(2).reshape(x.shape)


@pytest.mark.parametrize(
    ("cls", "axes", "mark", "share"),
    [
        (Axes, (2, 3), "sees its row and column", 33 + 31 - 1),
        (Axes, (2,), "sees its column", 33),
        (Axes, (3,), "sees its row", 31),
        (Later, (), "", 33 * 31),
    ],
)
def test_a_block_that_spans_the_map_is_not_called_local(
    cls: type[nn.Module], axes: tuple[int, ...], mark: str, share: int
) -> None:
    found = check("reach", cls, axes=axes)
    assert (found.outcome, found.mark) == ("passed", mark)
    assert f"reaches {share} of 1023 positions" in found.fact
    assert "local" not in found.fact


@pytest.mark.parametrize(
    ("cls", "facts"),
    [
        (
            broken.Windows,
            [
                "[2, 8, 16, 24] to [2, 8, 16, 24], float32 kept; refuses 11x9: RuntimeError: shape",
                "it refuses 9x13, 13x9, 1x65, 65x1: RuntimeError: shape",
                "local: a change at the centre reaches 64 of 1536 positions (4%), a 8x8 window in a 32x48 input",
                "no far position has an effect on the output",
            ],
        ),
        (
            broken.SquareOnly,
            [
                "[2, 8, 8, 8] to [2, 8, 8, 8], float32 kept; square maps only; refuses 11x9: RuntimeError: shape",
                "1x65: [2, 8, 1, 65] gives [2, 520, 1, 1]",
                "a change at one corner reaches 1024 of 1024 positions (100%), the opposite corner too",
                "the same change at 9 far positions has different effects",
            ],
        ),
    ],
)
def test_a_block_that_refuses_sizes_is_checked_at_those_that_it_takes(cls: type[nn.Module], facts: list[str]) -> None:
    subject = replace(subject_of(cls), other_sizes=contract.OTHER_SIZES)
    names = ("shape and dtype", "odd and non-square", "reach", "position mixing")
    found = list(run_checks(subject, [c for c in CHECKS if c.name in names]))
    assert [each.fact[: len(fact)] for each, fact in zip(found, facts, strict=True)] == facts
    assert not any(each.misleads for each in found)


def test_a_block_of_even_sizes_that_halves_them_is_told_that_it_does() -> None:
    class Halving(broken.Base):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x[:, :, ::2, ::2] + x[:, :, 1::2, 1::2])

    subject = replace(subject_of(Halving), other_sizes=contract.OTHER_SIZES)
    (found,) = run_checks(subject, [c for c in CHECKS if c.name == "shape and dtype"])
    assert found.hint.startswith("it makes 8x12 of 16x24, where a block keeps the size; for a whole network use")


@pytest.mark.parametrize(("code", "side"), [((1, 8, 20, 20), 20), ((1, 400, 8), 20), ((1, 8, 8, 8), 8)])
def test_a_block_with_a_position_code_is_checked_at_the_size_of_that(code: tuple[int, ...], side: int) -> None:
    class Fixed(broken.Base):
        def __init__(self, channels: int) -> None:
            super().__init__(channels)
            self.code = nn.Parameter(torch.zeros(code))

        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x + self.code.reshape(1, 8, side, side))

    subject = replace(subject_of(Fixed), other_sizes=contract.OTHER_SIZES)
    (found,) = run_checks(subject, [c for c in CHECKS if c.name == "shape and dtype"])
    shape = f"[2, 8, {side}, {side}]"
    assert found.fact.startswith(f"{shape} to {shape}, float32 kept; refuses 11x9: RuntimeError: The size of tensor")
    assert found.mark == ("takes 20x20" if side == 20 else "")


@pytest.mark.parametrize(("key", "hparams"), [("se", {}), ("aspp", FEW["aspp"]), ("gc", {"pooling": "avg"})])
def test_a_declared_lack_of_position_mixing_is_no_note(key: str, hparams: dict[str, Any]) -> None:
    assert not registry.get(key).mixes_positions(hparams)
    (found,) = checked(key, 32, ["position mixing"], hparams, (11, 9))
    assert found.outcome == "passed"
    assert found.fact.startswith("as declared, global, but without position mixing")


def test_regions_that_are_enlarged_with_aligned_corners_mix_positions() -> None:
    (found,) = checked("ppm", 16, ["position mixing"], {"fuse": False}, (11, 9))
    assert found.outcome == "passed"
    assert "far positions has different effects" in found.fact


def test_a_one_step_gradient_is_reported_and_does_not_make_a_module_local() -> None:
    (found,) = checked("ham_nmf", 8, ["reach"], {"rank": 4}, (11, 9))
    assert found.outcome == "passed"
    assert "reaches 1023 of 1023 positions (100%)" in found.fact
    assert "the gradient of the centre reaches 1 of 1023 positions (0%), since a part" in found.fact


def test_a_module_may_refuse_a_size_with_a_sentence_of_its_own() -> None:
    (found,) = checked("ham_nmf", 8, ["1x1"], {"rank": 4}, (11, 9))
    assert found.outcome == "not applicable"
    assert found.fact.startswith("it refuses 1x1: ValueError: rank = 4 is more than the 1 columns")
    assert found.fact.endswith("; it takes 11x9")


@pytest.mark.slow
def test_a_module_of_one_size_is_checked_at_that_size() -> None:
    names = ("shape and dtype", "odd and non-square", "reach", "closed forms")
    results = {result.name: result for result in checked("focused_linear", 16, names, {"positions": 42}, (6, 7))}
    assert [name for name, result in results.items() if result.broken] == []
    assert "reaches 42 of 42 positions" in results["reach"].fact
    assert "refuses 9x13" in results["odd and non-square"].fact
