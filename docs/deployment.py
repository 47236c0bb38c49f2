"""The generated parts of the page on deployment: blocks by target, rules with published statuses, what mends."""

import inspect
import re
from collections.abc import Callable
from functools import cache

import pandas as pd
from lists import markdown, stored_run, table
from mends import WRITTEN

from ctxbench.plugins.portable.found import PHONES, Found, found_of
from ctxbench.plugins.portable.rules import RULES
from ctxbench.plugins.portable.targets import TARGETS
from ctxbench.table.table import Origin

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


def rule_list() -> str:
    """The rules with their sources, and the published refusals that each foresees."""
    rows = []
    for rule in RULES:
        own = statuses()[statuses()["target"] == rule.target]
        fires = own[own["refused"].str.contains(f"{rule.refused}: ", regex=False)]
        foreseen = [each.network for each in fires.itertuples() if each.published == "refused"]
        false = [each.network for each in fires.itertuples() if each.published == "whole"]
        address = rule.source.removeprefix("https://github.com/")
        rows.append((TARGETS[rule.target].title, rule.refused, f"[{address}]({rule.source})",
                     ", ".join(map(named, foreseen)), ", ".join(map(named, false))))  # fmt: skip
    headings: dict[str, Origin] = {"target": "label", "refuses": "text", "source": "text"}
    headings |= {"refused as published": "text", "taken as published": "text"}
    return markdown(headings, rows)


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


def mend_list() -> str:
    """Code that is refused, and code to write instead."""
    rows = [(f"`{code_of(before)}`", f"`{code_of(after)}`") for before, after in WRITTEN]
    return markdown({"refused": "text", "the same output": "text"}, rows)


def code_of(function: Callable[..., object]) -> str:
    """The statements of a function that do something, on one line."""
    lines = inspect.getsource(function).splitlines()[2:]
    kept = [line.strip() for line in lines if line.strip() and not re.search(r"\.shape$|import ", line)]
    return "; ".join(kept).removeprefix("return ").replace("; return ", "; ")
