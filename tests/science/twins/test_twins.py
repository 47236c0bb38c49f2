"""Twins: records and their sources, the noise, gains, orders and their refusals, and columns beside costs."""

import importlib
import math
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ctxbench import registry
from ctxbench.base.errors import UsageError
from ctxbench.base.statistics import t_quantile
from ctxbench.report.beside import beside
from ctxbench_science.twins.beside import gains_of
from ctxbench_science.twins.gains import twins
from ctxbench_science.twins.records import NAMES, PLAIN, Records, records

with pytest.MonkeyPatch.context() as _patch:
    _patch.syspath_prepend(str(Path(__file__).parents[3] / "docs"))
    orders: Any = importlib.import_module("orders")
HEAD = {
    "title": "Zoo", "authors": "A", "venue": "Web", "year": 2020, "link": "", "place": "", "seen": "read",
    "device": "", "software": "", "measure": "mIoU",
}  # fmt: skip


def made(accuracy: dict[tuple[str, str, str], float], repeats: str = "recipe") -> Any:
    """Records of these accuracies, by block, body and recipe."""
    rows = {
        " ".join(key): {
            "block": key[0], "body": key[1], "data": "Scenes", "recipe": key[2], "source": "file:1",
            "printed": {"accuracy": f"{value:.4f}"},
        }
        for key, value in accuracy.items()
    }  # fmt: skip
    return orders.Orders(Records.model_validate({**HEAD, "repeats": repeats, "rows": rows}))


def with_gain(gain: float, spread: float, bodies: int = 6, noise: float = 0.2) -> Any:
    """A block that gains `gain` in each body, give or take `spread`, trained by two recipes of which one is better."""
    values = np.random.default_rng(1)
    found = {}
    for body, recipe in product(range(bodies), (0, 1)):
        base = 70.0 + body + recipe
        extra = gain + spread * (-1) ** body
        for block, more in ((PLAIN, 0.0), ("se", extra), ("gc", extra)):
            found[block, f"B{body}", f"R{recipe}"] = base + more + noise * values.normal()
    return made(found)


@pytest.mark.parametrize("name", NAMES)
def test_each_record_has_its_source_and_each_block_has_a_name(name: str) -> None:
    rows = records(name).rows
    assert all(record.source for record in rows.values())
    assert len({(record.block, *record.setting, record.recipe) for record in rows.values()}) == len(rows)
    known = {entry.key for entry in registry.entries()}
    others = {record.block for record in rows.values()} - known
    assert others == {"mmsegmentation": {PLAIN, "dnl", "enc", "psa", "deeplabv3plus"}, "timm": {PLAIN}}[name]


def test_figures_are_those_of_the_sources() -> None:
    rows = records("timm").rows
    assert [rows[f"{name}.ra2_in1k"].printed["accuracy"] for name in ("resnet33ts", "seresnet33ts")] == [
        "79.726",
        "80.784",
    ]
    city = {
        key: each
        for key, each in records("mmsegmentation").rows.items()
        if "r50-d8_4xb2-40k_cityscapes-512x1024" in key
    }
    head = {each.block: each.printed for each in city.values()}
    assert head[PLAIN] == {"accuracy": "72.25", "memory, GB": "5.7"}
    assert head["non_local"] == {"accuracy": "78.24", "memory, GB": "7.4"}


def test_a_group_of_one_network_and_another_recipe_are_no_twins() -> None:
    found = made({("se", "A", "1"): 75.0, (PLAIN, "A", "2"): 74.0, ("gc", "B", "1"): 70.0, (PLAIN, "B", "1"): 69.0})
    assert found.source.twins == [{"gc": 70.0, PLAIN: 69.0}]
    with pytest.raises(UsageError, match="unknown block with twins 'se'"):
        found.difference("se")


@pytest.mark.slow
def test_the_noise_leaves_out_what_recipes_and_bodies_change() -> None:
    assert with_gain(2.0, 1.5, noise=0.0).noise.sd == pytest.approx(0, abs=1e-3)
    found = with_gain(2.0, 1.5, bodies=300, noise=0.2).noise
    assert found.sd == pytest.approx(0.2, rel=0.06)
    # 6 values of a body, of which its 3 blocks and the difference of its recipes take 4
    assert found.freedom == 300 * 2
    assert found.pair == pytest.approx(t_quantile(0.95, 601) * math.sqrt(2) * found.sd)


def test_the_noise_from_settings_holds_what_a_block_gains_from_one_to_another() -> None:
    found = made({(block, body, "1"): value for (block, body), value in {
        (PLAIN, "A"): 70.0, ("se", "A"): 71.0, (PLAIN, "B"): 70.0, ("se", "B"): 70.0,
    }.items()}, "setting")  # fmt: skip
    # gains of 1 and 0: each of the four accuracies is 0.25 off, with one degree of freedom
    assert found.noise.freedom == 1
    assert found.noise.sd == pytest.approx(0.5)


def test_records_without_repeats_have_no_noise() -> None:
    with pytest.raises(ValueError, match="no two of these records should be equal"):
        _ = made({("se", "A", "1"): 71.0, (PLAIN, "A", "1"): 70.0}).noise


def test_a_clear_gain_is_a_claim_and_a_tie_is_refused() -> None:
    found = with_gain(2.0, 0.1)
    assert found.claim("se", PLAIN).startswith("se is better than plain: mIoU +")
    with pytest.raises(
        orders.Refused,
        match=r"do not tell that se is better than gc: mIoU .* over 6 settings \(p = [01]\.\d\d among 3 ",
    ):
        found.claim("se", "gc")
    with pytest.raises(orders.Refused, match="plain is not better than se: mIoU -2"):
        found.claim(PLAIN, "se")


def test_a_gain_that_differs_between_bodies_is_refused_though_each_is_above_the_noise() -> None:
    found = with_gain(1.0, 3.0, noise=0.05)
    with pytest.raises(orders.Refused, match="do not tell that se is better than plain"):
        found.claim("se", PLAIN)


def test_a_difference_below_the_noise_is_refused_though_all_settings_have_it() -> None:
    rows: dict[tuple[str, str, str], float] = {}
    for body, recipe in product(range(4), (0, 1)):
        # gc is 3 points better or worse than the body by each other recipe: the noise; se is always 0.3 better
        own = {PLAIN: 70.0, "se": 70.3, "gc": 70.0 + 3.0 * (-1) ** recipe}
        rows |= {(block, f"B{body}", f"R{recipe}"): value + 1e-3 * body for block, value in own.items()}
    found = made(rows)
    assert found.difference("se").low > 0.29
    with pytest.raises(orders.Refused, match="do not tell that se is better than plain"):
        found.claim("se", PLAIN)


def test_one_pair_of_trainings_is_judged_by_the_noise() -> None:
    def of(gain: float) -> Any:
        repeated = {
            (block, "A", str(i)): 70 + 0.3 * (i % 3) * (block == "gc") for block in (PLAIN, "gc") for i in range(6)
        }
        return made({**repeated, (PLAIN, "B", "1"): 70.0, ("se", "B", "1"): 70 + gain})

    gain = of(0.5).difference("se")
    assert gain.ends == pytest.approx((0.5 - of(0.5).noise.pair, 0.5 + of(0.5).noise.pair))
    with pytest.raises(orders.Refused):
        of(0.3).claim("se", PLAIN)
    assert "over 1 setting" in of(3.0).claim("se", PLAIN)


def test_the_gain_that_one_pair_of_timm_shows_is_refused() -> None:
    found = orders.orders("timm")
    assert found.differences("se", PLAIN)["resnet33ts", "ImageNet 288"] == pytest.approx(1.058)
    assert found.differences("se", PLAIN)["resnet50", "ImageNet 224"] == pytest.approx(-1.02)
    with pytest.raises(orders.Refused, match="do not tell that se is better than plain"):
        found.claim("se", PLAIN)


def test_the_non_local_head_is_better_than_the_plain_one() -> None:
    assert (
        orders.orders("mmsegmentation").claim("non_local", PLAIN).startswith("non_local is better than plain: mIoU +")
    )


def test_a_rank_correlation_has_an_interval() -> None:
    found = orders.rank_correlation([1, 2, 3, 4, 5, 6, 7, 8], [2, 1, 4, 3, 6, 5, 8, 7])
    assert found.value == pytest.approx(0.9047619)
    # tanh(atanh(r) -+ 1.96 sqrt((1 + r^2 / 2) / 5))
    assert found.ends == pytest.approx((0.4279, 0.9876), abs=1e-4)
    assert not orders.rank_correlation([1, 2, 3, 4], [5, 6, 7, 8]).has_interval


@pytest.mark.parametrize(
    ("first", "second", "why"),
    [
        ([1, 2, 3], [1, 2, 3], "4 or more pairs"),
        ([1, 2, 3, 4], [1, 2, 3], "4 or more"),
        ([1] * 4, [1, 2, 3, 4], "all equal"),
    ],
)
def test_too_few_values_have_no_rank_correlation(first: list[float], second: list[float], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        orders.rank_correlation(first, second)


def test_settings_agree_on_the_blocks_that_both_have() -> None:
    found = twins("mmsegmentation")
    value, blocks = orders.agreement(found, ("R-50-D8", "cityscapes 512x1024"), ("R-101-D8", "cityscapes 512x1024"))
    assert blocks == 15
    assert value.low < value.value < value.high


def test_columns_stand_beside_modules_that_have_twins() -> None:
    columns, sentence = gains_of(["gc", "linear", ""])
    assert [(column.header, column.origin) for column, _ in columns] == [("mIoU", "published"), ("top-1", "published")]
    assert all(cells[0].text.startswith("+") and [cell.text for cell in cells[1:]] == ["", ""] for _, cells in columns)
    assert sentence.startswith("Published gain: points over the same network without the block")
    assert gains_of(["linear", "sa"]) == ([], "")
    assert all(each in beside(["se"])[0] for each in gains_of(["se"])[0])
