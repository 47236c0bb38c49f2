"""The generated parts of the page on deployment: blocks by target, and rules beside published statuses."""

from functools import cache

import pandas as pd
from lists import markdown, stored_run, table

from ctxbench.plugins.portable.found import PHONES, Found, found_of
from ctxbench.plugins.portable.targets import TARGETS

# Blocks with one status of a target that are named.
MOST_NAMED = 10
STATUSES = "deployment-statuses/statuses.csv"


@cache
def deployed() -> dict[str, dict[str, Found]]:
    """Findings of the committed run by block and target; of a block that could not be tried, none."""
    return {str(row["module"]): found_of(row) for row in stored_run("portable-cpu").rows}


def shipped(*, whole: bool = False) -> list[str]:
    """The blocks that every target of phones takes, or takes whole."""
    return [
        key
        for key, found in deployed().items()
        if found and all(found[name].status == "whole" if whole else found[name].converted for name in PHONES)
    ]


def deployment_list() -> str:
    """Number of blocks that each target takes whole, or no rule refuses, and the findings on the others."""
    rows = []
    for name, target in TARGETS.items():
        if not any(name in each for each in deployed().values()):
            continue
        others: dict[str, list[str]] = {}
        for key, each in deployed().items():
            found = each.get(name, Found("absent"))
            if found.short not in ("whole", "one size", "not run", "no rule refuses it"):
                others.setdefault("in parts" if found.parts > 1 else found.short, []).append(f"`{key}`")
        whole = len(deployed()) - sum(map(len, others.values()))
        texts = [
            f"{status}: {', '.join(keys) if len(keys) <= MOST_NAMED else len(keys)}" for status, keys in others.items()
        ]
        rows.append((f"{target.title}{', by rules' * target.rule}", f"{whole} of {len(deployed())}", "; ".join(texts)))
    return markdown({"target": "label", "whole": "measured", "the others": "text"}, rows)


@cache
def statuses() -> pd.DataFrame:
    """The published statuses, with the operators that rules refuse of the networks as converted here."""
    return table(STATUSES).fillna({"refused": ""})


def named(network: str) -> str:
    return f"`{network.partition(':')[2]}`"


def status_counts(target: str) -> dict[str, int]:
    """Of a target's published statuses: how many refuse and take, and of how many the rules say the same."""
    own = statuses()[statuses()["target"] == target]
    refused, taken = own[own["published"] == "refused"], own[own["published"] == "whole"]
    foreseen, free = (refused["refused"] != "").sum(), (taken["refused"] == "").sum()
    return {"refused": len(refused), "foreseen": int(foreseen), "taken": len(taken), "free": int(free)}


def unforeseen() -> list[str]:
    """Networks that are published as refused, and refused by no rule as it is converted here."""
    own = statuses()
    return [*map(named, own[(own["published"] == "refused") & (own["refused"] == "")]["network"])]
