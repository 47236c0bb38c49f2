"""Differences between two runs, a row a number: exact quantities first, then times that can be told apart."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ctxbench.base.errors import UsageError
from ctxbench.base.number import ratio_of_runs, rough_ratio
from ctxbench.base.texts import listed
from ctxbench.model.metric import RecordRow
from ctxbench.model.metrics import read_number
from ctxbench.model.suite_file import MeasureTable
from ctxbench.results.environment import differences
from ctxbench.table.table import Cell, Origin, Table, plain_table

from ..run_data import RunData, heading_of
from .cells import doubts, heading, quantity_cell, ratio_cell, value_of
from .runs import DIGITS, Compared, Key, compared, control_lines, key_names, key_of, reason_against

OTHER = "{name}: {old} in run 1, {new} in run 2"
# Conditions on which no exact quantity depends.
UNCOUNTED = ("device", "threads")
UNCERTAIN = "Not known to differ: the interval of the ratio contains 1."


def difference_table(first: RunData, second: RunData) -> Table:
    """The numbers of shared cases that differ, run 2 over run 1; the caption has what is the same, and what is unknown.

    A time differs if the 95 % interval of its ratio does not contain 1. Of cases that differ in `UNCOUNTED` alone the
    counts are compared. UsageError if the runs share no case.
    """
    names = key_names((first, second))
    one, two = ({key_of(row, names): row for row in run.rows} for run in (first, second))
    counted = _counted_alike(one, two, names)
    both = [key for key in one if key in two or key in counted]
    if not both:
        raise UsageError(f"{first.name} and {second.name} share no case: there is nothing to compare")
    labels = _labels([*one, *two])
    rows: list[tuple[str | Cell, ...]] = []
    untold: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    same: dict[str, None] = {}
    for each in sorted(compared(), key=lambda each: not each.quantity.exact):
        unit = each.quantity.unit
        for key in both if each.quantity.better else ():
            if key in counted and not each.quantity.exact:
                continue
            pair = one[key], two[counted.get(key, key)]
            found = _ratio(*pair, each)
            if isinstance(found, Cell):
                cells = (quantity_cell(row, each.quantity, unit, each.column, DIGITS) for row in pair)
                rows.append((labels[key], heading(each.title, unit), *cells, found))
            elif found:
                untold[found][each.title].append(labels[key])
            elif value_of(one[key], each.column) is not None:
                same[each.title] = None
    exact = [title for title in same if title not in {row[1] for row in rows}]
    caption = [
        f"run 1: {first.folder.path}; run 2: {second.folder.path}; ratios are run 2 over run 1, and of counts the "
        "difference in single parameters, MACs or bytes."
    ]
    pairs = (zip(names, *each, strict=True) for each in counted.items())
    for name in dict.fromkeys(name for pair in pairs for name, mine, theirs in pair if mine != theirs):
        place = names.index(name)
        values = [
            listed(list(dict.fromkeys(key[place] or "unset" for key in keys))) for keys in (counted, counted.values())
        ]
        other = OTHER.format(name=heading_of(name).lower(), old=values[0], new=values[1])
        caption.append(f"Of other conditions, so that counts alone are compared: {other}.")
    for number, run_data in enumerate((first, second), 1):
        if state := run_data.unfinished:
            caption.append(f"Run {number} is not finished (state: {state}); rows are missing.")
    for number, run, shared in ((1, one, {*two, *counted}), (2, two, {*one, *counted.values()})):
        if alone := [labels[key] for key in run if key not in shared]:
            caption.append(f"Only in run {number}: {', '.join(alone)}.")
    caption += [f"The same in both: {'; '.join(exact)}."] if exact else []
    for why, titles in untold.items():
        which = (title if len(who) == len(both) else f"{title} of {', '.join(who)}" for title, who in titles.items())
        caption.append(f"{why} This is about: {'; '.join(which)}.")
    numbers: dict[str, Origin] = {"run 1": "measured", "run 2": "measured", "2 / 1": "ratio"}
    table = plain_table(
        {"case": "label", "quantity": "label", **numbers}, rows, "What differs" if rows else "Nothing differs"
    )
    return replace(
        table,
        caption=(*caption, *_other_code(first, second), *_conditions(first, second), *control_lines((first, second))),
    )


def _counted_alike(one: Collection[Key], two: Collection[Key], names: Sequence[str]) -> dict[Key, Key]:
    """The cases of the second run by those of the first that differ from them in `UNCOUNTED` alone, each once."""

    def rest(key: Key) -> Key:
        return tuple(value for name, value in zip(names, key, strict=True) if name not in UNCOUNTED)

    others: dict[Key, list[Key]] = defaultdict(list)
    for key in two:
        if key not in one:
            others[rest(key)].append(key)
    return {key: others[rest(key)].pop(0) for key in one if key not in two and others.get(rest(key))}


def _labels(keys: Sequence[Key]) -> dict[Key, str]:
    """A name for each case: its module, and of the rest what differs between cases."""
    places = [place for place in range(1, len(keys[0])) if len({key[place] for key in keys}) > 1]
    return {key: " ".join(filter(None, [key[0], *(key[place] for place in places)])) for key in keys}


def _ratio(first: RecordRow, second: RecordRow, each: Compared) -> Cell | str:
    """The ratio of two numbers that differ, or why nothing can be said; "" where they do not differ."""
    if reason := reason_against(first, second, each, 2):
        return reason
    one, two = (read_number(row, each.quantity, each.column) for row in (first, second))
    if one is None or two is None or one.value == two.value:
        return ""
    if not one.value:
        return Cell("was 0")
    if not each.has_interval or one.origin == "predicted":
        cell = ratio_cell(rough_ratio(two.value / one.value))
        return replace(cell, text=f"{cell.text} ({two.value - one.value:+,.0f})") if each.quantity.exact else cell
    found = ratio_of_runs(two, one)
    if reasons := [reason for time in (one, two) for reason in doubts(time, " of the ratio")]:
        return reasons[0]
    return UNCERTAIN if found.low <= 1 <= found.high else ratio_cell(found)


def _other_code(first: RunData, second: RunData) -> Iterator[str]:
    """The modules whose files are others in the two runs, with these files and the commits that they are of."""
    found = []
    for module in dict.fromkeys(row["module"] for row in first.rows):
        one, two = (_files(run.meta, module) for run in (first, second))
        others = [
            *(file for file in one if one[file] not in two.values()),
            *(file for file in two if two[file] not in one.values()),
        ]
        if one and two and others:
            commits = (str(run.meta["sources"].get(module, {}).get("commit"))[:10] for run in (first, second))
            found.append(f"{module} ({listed(sorted({Path(file).name for file in others}))}; {' -> '.join(commits)})")
    if found:
        yield f"Other code: {', '.join(found)}."


def _files(meta: Mapping[str, Any], module: str) -> dict[str, str]:
    """SHA-256 of the module's file, and of a person's own files that were imported for it."""
    own = (meta.get("sources") or {}).get(module) or {}
    named = {own["file"]: own["sha256"]} if own else {}
    imports = (meta.get("imports") or {}).items()
    return named | {
        file: sha for row, files in imports if row.partition(" in ")[0] == module for file, sha in files.items()
    }


def _conditions(first: RunData, second: RunData) -> Iterator[str]:
    try:
        found = differences(first.environment, second.environment, OTHER)
        then, now = (MeasureTable.model_validate(run.definition["measure"]).model_dump() for run in (first, second))
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        paths = f"{first.folder.path} or {second.folder.path}"
        raise UsageError(f"run.json of {paths}: what it says of machine or settings is damaged ({error!r})") from None
    old, new = (str(run.environment.get("commit"))[:10] for run in (first, second))
    settings: dict[str, tuple[Any, Any]] = {"commit of ctxbench": (old, new)}
    settings |= {name: (then.get(name), now[name]) for name in now}
    found += [OTHER.format(name=name, old=old, new=new) for name, (old, new) in settings.items() if old != new]
    if found:
        yield f"Other conditions: {'; '.join(found)}."
