"""The generated tables of what the cost buys: published gains of twins, the noise, and both beside costs."""

from itertools import combinations

from headlines import recalled
from lists import markdown
from orders import Refused, agreement, orders, rank_correlation

from ctxbench.base.number import Number
from ctxbench_science.recall.metric import NOUNS
from ctxbench_science.twins.records import PLAIN

KINDS = ("segment", "global", "lookup")


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
