"""Other counters: `counters.toml` has the rules of each by version, from documents and behaviour."""

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from ctxbench.base import disk
from ctxbench.base.errors import UsageError, unknown

FILE = Path(__file__).with_name("counters.toml")


@cache
def state_words() -> dict[str, str]:
    found: dict[str, str] = disk.read_toml(FILE)["states"]
    return found


@cache
def declared() -> dict[str, dict[str, Any]]:
    """Rules and facts of each counter, by version, as the file has them."""
    return {name: versions for name, versions in disk.read_toml(FILE).items() if name != "states"}


def unit_of(name: str) -> str:
    """The unit of what a counter prints, by its full name."""
    counter, _, version = name.partition("+")[0].partition("@")
    about = declared()[counter][version]
    return str(about["unit"]) if "unit" in about else unit_of(about["like"])


@cache
def readings() -> tuple[str, ...]:
    """The full names of what has run: `NAME@VERSION`, and `NAME@VERSION+STATE`, the newest version last."""
    return tuple(
        f"{counter}@{version}{state}"
        for counter, versions in declared().items()
        for version, about in versions.items()
        for state in ("", *(f"+{each}" for each in about.get("states", ())))
        if "not_run" not in about
    )


@cache
def not_run() -> dict[str, str]:
    """The full names of versions whose packages could not be run, and why."""
    return {
        f"{counter}@{version}": about["not_run"]
        for counter, versions in declared().items()
        for version, about in versions.items()
        if "not_run" in about
    }


def counters() -> tuple[str, ...]:
    """The names of counters, without version and state."""
    return tuple(dict.fromkeys(each.partition("@")[0] for each in readings()))


def full_name(name: str) -> str:
    """The full name of a counter: without a version it is the newest. UsageError lists what is known of it."""
    counter, plus, state = name.partition("+")
    counter, _, version = counter.partition("@")
    if counter not in counters():
        raise unknown("counter", counter, (*counters(), "all"))
    own = [each for each in readings() if each.startswith(f"{counter}@")]
    newest = own[-1].partition("@")[2].partition("+")[0]
    found = f"{counter}@{version or newest}{plus}{state}"
    if found in not_run():
        raise UsageError(f"{found} was not run, so it has no figures: {not_run()[found]}")
    if found not in own:
        raise unknown("version or state of this counter", name, own)
    return found


def full_names(names: Iterable[str]) -> list[str]:
    """The full names of counters, each once; `all` stands for all readings. UsageError for one that is not known."""
    asked = [*names]
    named = [name for name in asked if name != "all"]
    return [*(readings() if len(named) < len(asked) else dict.fromkeys(map(full_name, named)))]
