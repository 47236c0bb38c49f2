"""The generated tables of what the cost buys: published gains of twins, the noise, and both beside costs."""

from collections.abc import Iterator
from itertools import combinations
from statistics import fmean

from headlines import recalled
from lists import built_in, markdown
from orders import Refused, agreement, orders, rank_correlation

from ctxbench import registry
from ctxbench.base.number import Number, significant
from ctxbench.metrics.params import count_params
from ctxbench.model.case import Case
from ctxbench.plugins.memory.predict import predict_peak
from ctxbench.plugins.predict.operators import operators_in
from ctxbench.plugins.predict.passes import time_of
from ctxbench.plugins.predict.sheet import sheets
from ctxbench.plugins.recall.metric import NOUNS
from ctxbench.plugins.twins.gains import Twins
from ctxbench.plugins.twins.records import PLAIN
from ctxbench.table.table import Origin

# The maps that a head of mmsegmentation has on Cityscapes, of two images, and the GPU of its records.
SHAPE = (2, 512, 64, 128)
CARD = "v100-sxm2"
KINDS = ("segment", "global", "lookup")
# Costs beside a gain, by source: those of the block alone by ctxbench, and printed ones.
COSTS: dict[str, dict[str, Origin]] = {
    "mmsegmentation": {"params, M": "counted", "training, MiB": "predicted", f"training, ms on {CARD}": "predicted"},
    "timm": dict.fromkeys(("params, %", "images/s on RTX 5090, %"), "published"),
}


def twins_gains(name: str) -> str:
    """The gain of each block over the plain body, of those with costs, and whether it is told from it."""
    found = orders(name)
    rows = []
    for block in found.blocks:
        costs = [*_costs(name, block)]
        if block != PLAIN and found.differences(block, PLAIN) and any(costs):
            told = "" if found.told_apart(block, PLAIN) else "tied"
            rows.append((f"`{block}`", found.difference(block).text(decimals=1, sign="+"), told, *costs))
    words = {"gain, points": "published", "with the plain body": "text"}
    return markdown({"block": "label", **words, **COSTS[name]}, rows)


def _costs(name: str, block: str) -> Iterator[str]:
    """Costs that a block adds to the plain body: those of a head are of its block here."""
    found = orders(name)
    if name == "timm":
        for figure in ("params, M", "images/s, RTX 5090"):
            shares = [100 * (own[block] / own[PLAIN] - 1) for own in _both(found, block, figure)]
            yield f"{fmean(shares):+.1f}" if shares else ""
    elif block in {entry.key for entry in built_in()}:
        module, image = Case(block, registry.get(block).reference, {}, SHAPE).on_meta()
        profile = predict_peak(module, image, mode="train")
        yield significant(count_params(module) / 1e6)
        yield f"{profile.allocated_bytes / 2**20:,.0f}"
        yield time_of(operators_in(profile), sheets()[CARD]).time.text()


def _both(found: Twins, block: str, figure: str) -> list[dict[str, float]]:
    """The groups of twins with a figure of a block and of the plain body."""
    groups = [group for groups in found.source.by_setting(figure).values() for group in groups]
    return [dict(group) for group in groups if {block, PLAIN} <= group.keys()]


def twins_order(source: str, better: str, worse: str) -> str:
    """The sentence that a block is better than another. The page cannot be made where the noise forbids it."""
    return f"- Told: {orders(source).claim(better, worse)}"


def twins_refused(source: str, better: str, worse: str) -> str:
    """The refusal of such a sentence. The page cannot be made where it would not be refused."""
    try:
        found = orders(source).claim(better, worse)
    except Refused as error:
        return f"- Refused: {error}."
    raise SystemExit(f"a page says that this is refused, and it is not: {found}")


def twins_ranks() -> str:
    """Rank correlation of the gains of mmsegmentation's heads between backbones, and between data sets."""
    found = orders("mmsegmentation")
    settings = dict.fromkeys(each for block in found.blocks for each in found.differences(block, PLAIN))
    values: dict[str, list[Number]] = {"two backbones, on one data set": [], "two data sets, in one backbone": []}
    backbones, data = values.values()
    for one, other in combinations(settings, 2):
        if one[0] == other[0]:
            data.append(agreement(found, one, other)[0])
        elif one[1] == other[1]:
            backbones.append(agreement(found, one, other)[0])
    rows = []
    for between, own in values.items():
        agree = sum(each.low > 0 or not each.has_interval for each in own)
        ends = (min(each.value for each in own), max(each.value for each in own))
        rows.append((between, str(len(own)), str(agree), *(f"{end:+.2f}" for end in ends)))
    counts = dict.fromkeys(("pairs", "agree", "lowest", "highest"), "published")
    return markdown({"between": "label", **counts}, rows)


def twins_recall() -> str:
    """Rank correlation of the published gains of heads with what their blocks learned on drawn scenes."""
    found = orders("mmsegmentation")
    own = {row["module"]: row for row in recalled() if not row["changed"]}
    shared = [block for block in found.blocks if block in own]
    gains = [found.difference(block).value for block in shared]
    rows = []
    for kind in KINDS:
        value = rank_correlation(gains, [own[block][f"recall_{kind}"] for block in shared])
        told = "" if value.low > 0 or value.high < 0 else "not told from chance"
        rows.append((f"`{kind}`: {NOUNS[kind]}", str(len(shared)), value.text(decimals=2, sign="+"), told))
    heads = dict.fromkeys(("blocks", "rank correlation"), "measured")
    return markdown({"recall": "label", **heads, "verdict": "text"}, rows)
