"""Declaration of a plugin, and the list of plugins. Imports nothing of ctxbench, and no plugin's code but this.

A plugin is a folder of `ctxbench/plugins/`, or an installed package that declares an entry point of the group
`ctxbench.plugins`, whose name is that of the plugin and whose value is the package. The package has one `PLUGIN`.
"""

import importlib
import pkgutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

FOLDER = "ctxbench.plugins"
# What plugins bring under a name, which must be that of one plugin alone.
NAMED = ("commands", "functions", "questions", "notes", "extras", "keys")


class PluginError(ValueError):
    """Plugins that do not go together, or one that cannot be loaded; a sentence says which."""


@dataclass(frozen=True, slots=True)
class Command:
    """A command: its group and its line in the help, its function as `file:name`, its order in the group, examples."""

    group: str
    line: str
    run: str
    order: int
    examples: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class SuiteKey:
    """A key of suites, a list of texts, which `report` takes as an option in place of the suite's.

    `modules`, as `file:name`, gives the modules that a text names, or raises UsageError. `metavar` and `help` are the
    option's.
    """

    modules: str
    metavar: str
    help: str


@dataclass(frozen=True, slots=True)
class Plugin:
    """All that the core knows of one capability. What is left out, it does not have.

    `file:name` is an object in a file of the plugin's folder, which is imported on first use. Its `needs` are the
    plugins that it imports, and those whose metrics its suites name.
    """

    about: str
    needs: Sequence[str] = ()
    # Extras of ctxbench, with what is imported of the packages that each brings.
    extras: Mapping[str, Sequence[str]] = field(default_factory=dict)
    # Asked for.
    commands: Mapping[str, Command] = field(default_factory=dict)
    functions: Mapping[str, str] = field(default_factory=dict)
    # The folder, a package, of its suites, and the keys that it adds to suites.
    suites: str = ""
    keys: Mapping[str, SuiteKey] = field(default_factory=dict)
    # Measured. `devices` names what knows devices that are not here, `counters` the values of `--counter`, `questions`
    # what a fresh process is asked, `preload` functions that are called before the fork, which start no thread and
    # touch no driver, `composites` sets of names of composite
    # operators of PyTorch that a record of a pass has beside their parts, `notes` the words of codes, with those for
    # several rows at once where they differ.
    metrics: Sequence[str] = ()
    executions: Sequence[str] = ()
    devices: str = ""
    counters: Sequence[str] = ()
    composites: Sequence[str] = ()
    questions: Mapping[str, str] = field(default_factory=dict)
    preload: Sequence[str] = ()
    notes: Mapping[str, str | tuple[str, str]] = field(default_factory=dict)
    # Predicted: functions of a `MemoryProfile`, a card's name and whether convolutions are in TF32, which return the
    # profile with what libraries take on that card. `libraries` are functions that tell the libraries which are asked
    # here from others, as texts: a part of the key of what is kept.
    workspaces: Sequence[str] = ()
    libraries: Sequence[str] = ()
    # Inputs: a function of the name of a place in a network and the side of its image in pixels, which returns input
    # shapes by the names of places, and the keys of `[measure]` that let rows tell theirs.
    places: Sequence[str] = ()
    # Kept: functions of the `RunFolder` of a run that ends, which give keys of its run.json.
    finished: Sequence[str] = ()
    # Shown. Tables and lines are functions of a `RunData`, with their order: those of a report, those that `run`
    # prints below its own, and lines that `report` prints. `checks` take the runs of a report before it is written,
    # `beside` gives `choose` and `compare` columns for the keys of modules, and a sentence on them.
    tables: Mapping[str, int] = field(default_factory=dict)
    printed: Mapping[str, int] = field(default_factory=dict)
    lines: Sequence[str] = ()
    figures: Sequence[str] = ()
    sentences: Sequence[str] = ()
    titles: Sequence[str] = ()
    headings: Mapping[str, str] = field(default_factory=dict)
    conventions: Sequence[str] = ()
    beside: Sequence[str] = ()
    checks: Sequence[str] = ()
    # Its name, and that of the package that has the declaration; `plugins` fills them in.
    name: str = ""
    package: str = ""

    def load(self, reference: str) -> Any:
        """The object that `file:name` names."""
        file, _, name = reference.partition(":")
        try:
            return getattr(importlib.import_module(f"{self.package}.{file}"), name)
        except ImportError as error:
            if self.package.startswith(f"{FOLDER}."):
                raise
            # Of another version than this ctxbench, whose files it imports.
            raise PluginError(
                f"the plugin {self.name} does not fit this ctxbench; install it anew ({self.package}.{file}: {error})"
            ) from error


@cache
def plugins() -> dict[str, Plugin]:
    """All plugins by name, those of ctxbench first.

    PluginError for two of one name, for a name that two of them bring, for a plugin that another one needs and that is
    not there, and for one that cannot be loaded.
    """
    folder = importlib.import_module(FOLDER)
    packages = [(info.name, f"{FOLDER}.{info.name}") for info in pkgutil.iter_modules(folder.__path__)]
    packages += [(each.name, each.value) for each in entry_points(group=FOLDER)]
    found: dict[str, Plugin] = {}
    for name, package in packages:
        if name in found:
            raise PluginError(f"two plugins are called {name}: {found[name].package} and {package}")
        try:
            declared = importlib.import_module(package).PLUGIN
            _check_types(declared)
            found[name] = replace(declared, name=name, package=package)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # also a sys.exit(), with which every command would end in silence
            reason = str(error) or type(error).__name__
            raise PluginError(f"the plugin {name} cannot be loaded from {package}: {reason}") from error
    _check(found)
    return found


def elsewhere() -> dict[str, Path]:
    """The packages of plugins that do not lie in ctxbench, each with its folder."""
    packages = [each.package for each in plugins().values() if not each.package.startswith(f"{FOLDER}.")]
    return {name: Path(*importlib.import_module(name).__path__) for name in packages}


def _check_types(declared: Any) -> None:
    """TypeError where a declaration holds another kind of thing than its entry does."""
    if not isinstance(declared, Plugin):
        raise TypeError(f"PLUGIN is {type(declared).__name__}, not ctxbench.plugin.Plugin")
    empty = Plugin(declared.about)
    for each in fields(Plugin):
        held = getattr(declared, each.name)
        kind = next(kind for kind in (str, Mapping, Sequence) if isinstance(getattr(empty, each.name), kind))
        if not isinstance(held, kind) or (kind is Sequence and isinstance(held, str)):
            raise TypeError(f"{each.name} is {type(held).__name__}, not {kind.__name__}")
    for entry, of in {"commands": Command, "keys": SuiteKey}.items():
        for name, held in getattr(declared, entry).items():
            if not isinstance(held, of):
                raise TypeError(f"{entry}[{name!r}] is {type(held).__name__}, not ctxbench.plugin.{of.__name__}")


def _check(found: Mapping[str, Plugin]) -> None:
    taken: dict[tuple[str, str], str] = {}
    for name, plugin in found.items():
        for need in plugin.needs:
            if need not in found:
                raise PluginError(f"the plugin {name} needs the plugin {need}, which is not there")
        for each in fields(plugin):
            named = getattr(plugin, each.name)
            for key in named if each.name in NAMED else ():
                if (other := taken.setdefault((each.name, key), name)) != name:
                    raise PluginError(f"the plugins {other} and {name} both bring {key!r} ({each.name})")


def brought(kind: str) -> Iterator[tuple[Plugin, Any]]:
    """Each thing of one kind that a plugin brings: an item of a list, a pair of a mapping, or the one text."""
    for plugin in plugins().values():
        found = getattr(plugin, kind)
        if isinstance(found, str):
            found = [found] * bool(found)
        for each in found.items() if isinstance(found, Mapping) else found:
            yield plugin, each


def loaded(kind: str) -> list[Any]:
    """The objects that plugins bring of a kind whose items are `file:name`, by their order if they have one.

    Of a kind whose items have names, see `brought`.
    """
    found = [(plugin, each if isinstance(each, tuple) else (each, 0)) for plugin, each in brought(kind)]
    return [plugin.load(reference) for plugin, (reference, _) in sorted(found, key=lambda each: each[1][1])]
