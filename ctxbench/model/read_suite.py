"""Reads suites and applies a caller's overrides; every error names file, key and what is allowed."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from ctxbench import registry
from ctxbench.base import disk
from ctxbench.base.errors import UsageError, unknown
from ctxbench.base.extras import with_science
from ctxbench.model.grid import Suite, reference_in
from ctxbench.model.hparams import as_suites, of_configs
from ctxbench.model.published import Published, line_of, plain_keys
from ctxbench.model.suite_file import SuiteFile
from ctxbench.plugin import brought
from ctxbench.registry import networks
from ctxbench.registry.reference import Reference
from ctxbench.registry.trust import said

# Where values come from that a command or a Python caller has given.
OPTIONS = "the command's options"
# Of a suite about a paper's table, once other modules or inputs are asked for.
OTHER_TITLE = "Context modules"
PublishedT = TypeVar("PublishedT", bound=Published)


@dataclass(frozen=True)
class Overrides:
    """Overrides of a suite's values by the command line or a Python caller; None keeps the suite's.

    `conditions` has lists of values; `also_on` are devices beside those that the run has without them.
    """

    modules: list[str] | None = None
    conditions: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    metrics: list[str] | None = None
    hparams: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    measure: Mapping[str, Any] = field(default_factory=dict)
    also_on: Sequence[str] = ()

    @property
    def leaves_out_budget(self) -> bool:
        """Return whether a number of processes is given and no budget: the suite's own would overrule it."""
        return "processes" in self.measure and "total_s" not in self.measure


def available(folder: str = "suites") -> list[str]:
    """The names of the suites, or of the `published` tables, that come with ctxbench and its plugins."""
    return sorted(_files(folder))


def package_of(suite: str) -> str:
    """The package that a suite of ctxbench or of a plugin lies in; "" if there is none of this name."""
    return _files("suites").get(suite, ("", Path()))[0]


def _files(folder: str) -> dict[str, tuple[str, Path]]:
    """The files of suites or published tables by name, each with its package. ValueError for a name that is taken."""
    found: dict[str, tuple[str, Path]] = {}
    own = [f"{plugin.package}.{name}" for plugin, name in brought("suites")] if folder == "suites" else []
    for package in (f"ctxbench.{folder}", *own):
        for item in files(package).iterdir():
            name = item.name.removesuffix(".toml")
            if name in found and name != item.name:
                raise ValueError(f"Two suites are called {name}: in {found[name][0]} and {package}.")
            if name != item.name:
                found[name] = package, Path(str(item))
    return found


def load(name_or_path: str, overrides: Overrides | None = None) -> Suite:
    """Read a suite by name, or by the path of a TOML file, and apply overrides. UsageError for anything malformed."""
    path = _find(name_or_path)
    content = disk.read_toml(path)
    if isinstance(named := content.get("published"), str):
        content["published"] = read_published(named, Published, path.parent).model_dump()
    file = _validate(content, str(path))
    _check_networks(file, path)
    if (beside := code_beside(path)).is_file():
        said(f"{beside}:", path)
    suite = Suite(path.stem, path, file)
    return suite if overrides is None else overridden(suite, overrides)


def code_beside(suite: Path) -> Path:
    """The Python file that goes with a suite: that of its name, with `_` for `-`."""
    return suite.with_name(f"{suite.stem.replace('-', '_')}.py")


def read_published(name_or_path: str, table: type[PublishedT], beside: Path | None = None) -> PublishedT:
    """A published table by its name, or by the path of its file, which may be relative to the folder `beside`.

    `table` has its keys. UsageError names the file and the line of anything malformed.
    """
    path = published_path(name_or_path)
    path = beside / path if beside else path
    content = disk.read_toml(path)
    try:
        return table.model_validate(content)
    except ValidationError as error:
        where = location_of(path, plain_keys(error.errors()[0]["loc"]))
        raise UsageError(f"{where}: {_first_sentence(error, table)}") from None


def published_path(name_or_path: str) -> Path:
    """The file of a published table. UsageError for a name that there is not."""
    if name_or_path.endswith(".toml") or "/" in name_or_path:
        return Path(name_or_path)
    return _built_in("published", "published table", name_or_path)


def location_of(path: Path, keys: tuple[str, ...]) -> str:
    """`FILE, line 7`, where the last of these keys stands."""
    return f"{path}, line {line_of(disk.read_text(path), keys)}"


def restore(name: str, path: Path, definition: Mapping[str, Any], is_trusted: bool = False) -> Suite:
    """The suite of a stored run, overrides included; what it names runs as what a person names if it `is_trusted`."""
    suite = _validate(definition, str(path))
    if not is_trusted:
        _check_networks(suite, path)
    return Suite(name, path, suite, chosen=is_trusted)


def _check_networks(suite: SuiteFile, path: Path) -> None:
    """UsageError if a network may not run because a file says it."""
    for name in (*suite.axes.network, *(str(case.get("network") or "") for case in suite.cases)):
        if name:
            said(name, path, is_network=True)


def _find(name_or_path: str) -> Path:
    if name_or_path.endswith(".toml") or "/" in name_or_path:
        return Path(name_or_path)
    return _built_in("suites", "suite", name_or_path)


def _built_in(folder: str, kind: str, name: str) -> Path:
    """The file of a name in a folder of ctxbench. UsageError if there is none."""
    found = _files(folder)
    if name not in found:
        raise unknown(kind, name, found, with_science("more suites") if folder == "suites" else "")
    return found[name][1]


def _validate(content: Mapping[str, Any], where: str) -> SuiteFile:
    try:
        return SuiteFile.model_validate(content)
    except ValidationError as error:
        sentence = _first_sentence(error)
        if where == OPTIONS:  # the user has typed no key
            told = re.sub(r"^key '(?:axes\.|measure\.)?(\w+)(?:\.\d+)?' is (.+?): ", r"\1 \2: ", sentence)
            raise UsageError(re.sub(r"^(.+?): (?=\1)", "", told)) from None  # a condition names itself
        raise UsageError(f"{where}: {sentence}") from None


def _first_sentence(error: ValidationError, whole: type[BaseModel] = SuiteFile) -> str:
    """The first problem of a validation of the model `whole`: key, what is wrong, value."""
    problem = error.errors()[0]
    names = [*plain_keys(problem["loc"])]
    key = ".".join(names)
    if problem["type"] == "extra_forbidden":
        model = _model_at(names[:-1], whole)
        return str(unknown("key", names[-1], model.model_fields)) + (
            f" in [{'.'.join(names[:-1])}]" if names[:-1] else ""
        )
    if problem["type"] == "missing":
        example = (
            "docs/suite-files.md has an example with every key" if whole is SuiteFile else "see those in published/"
        )
        return f"the key {key!r} is missing; {example}"
    message = problem["msg"].removeprefix("Value error, ")
    message = message[0].lower() + message[1:]
    if isinstance(problem["input"], dict):  # of a whole table, which is too long to print
        return f"key {key!r}: {message}" if key else message
    return f"key {key!r} is {problem['input']!r}: {message}"


def _model_at(names: list[str], model: type[BaseModel]) -> type[BaseModel]:
    """The model of the table that these keys lead to, from the model of the whole."""
    for name in names:
        found = model.model_fields.get(name)
        kinds = (each for each in _types_in(found.annotation) if isinstance(each, type)) if found else ()
        model = next((each for each in kinds if issubclass(each, BaseModel)), model)
    return model


def _types_in(annotation: Any) -> Iterator[Any]:
    """A type, and those in its brackets."""
    yield annotation
    for each in get_args(annotation):
        yield from _types_in(each)


def overridden(suite: Suite, overrides: Overrides) -> Suite:
    """The suite with other values. UsageError for a value that it cannot have, or a module that it does not have."""
    chosen = suite.chosen or overrides.modules is not None
    return replace(suite, file=_override(suite.file, overrides, suite.path, chosen), chosen=chosen)


def _override(suite: SuiteFile, overrides: Overrides, path: Path, chosen: bool) -> SuiteFile:
    content = suite.model_dump()
    if overrides.modules is not None:
        content["modules"] = overrides.modules
    if overrides.metrics is not None:
        content["metrics"] = overrides.metrics
    content["axes"] |= {name: [*values] for name, values in overrides.conditions.items()}
    own = [networks.shape_of(name) for name in overrides.conditions.get("network", ()) if name]
    if "shape" not in overrides.conditions and any(own):
        content["axes"]["shape"] = [list(shape) for shape in dict.fromkeys(own) if shape]
    if "shape" in overrides.conditions or any(own):
        content["axes"] |= {"batch": [], "channels": [], "size": []}
    named = [reference_in(path, chosen, each) for each in content["modules"]]
    for key, hparams in _chosen_hparams(named, overrides.hparams).items():
        content["hparams"][key] = {**content["hparams"].get(key, {}), **hparams}
    content["measure"] |= overrides.measure
    if overrides.leaves_out_budget:
        content["measure"]["total_s"] = None
    content["axes"]["device"] += overrides.also_on
    if overrides.modules is not None:
        gone = [*suite.modules, *(str(case.get("module")) for case in suite.cases)]
        content["exclude"] = [
            rule for rule in suite.exclude if _is_among(rule, content["modules"]) or not _is_among(rule, gone)
        ]
        content["cases"] = []
        known = {*registry.names(), *content["modules"], *map(registry.own_name, content["modules"])}
        content["hparams"] = {key: values for key, values in content["hparams"].items() if key in known}
    found = _validate(content, OPTIONS)
    if suite.published and suite.published.shape and not _is_of_its_table(suite, found):
        return found.model_copy(update={"title": OTHER_TITLE})
    return found


def _is_among(rule: Mapping[str, Any], modules: Sequence[str]) -> bool:
    """Return whether an `exclude` rule is about one of these modules, by their names alone: their files may be gone."""
    name = str(rule.get("module"))
    return any(registry.means(name, each, registry.absolute(each)) for each in modules)


def _is_of_its_table(suite: SuiteFile, changed: SuiteFile) -> bool:
    """Return whether modules and inputs are still among those of a suite about a paper's table."""
    inputs = ("shape", "batch", "channels", "size", "network")
    same = all(getattr(changed.axes, name) == getattr(suite.axes, name) for name in inputs)
    return same and {*changed.modules} <= {*suite.modules}


def _chosen_hparams(modules: Sequence[Reference], given: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Hyper-parameters by key. What is given without a module goes to every module that has it.

    UsageError for a module that the suite does not have, and for a name that none of its modules has.
    """
    if not given:
        return {}
    names = [name for each in modules for name in (registry.names() if str(each) == "*" else [each])]
    entries = {entry.key: entry for entry in map(registry.get, names)}
    found: dict[str, dict[str, Any]] = {}
    for module, hparams in of_configs(given, {name for entry in entries.values() for name in entry.configs}).items():
        for name, value in hparams.items():
            if module:
                takers = [key for key, e in entries.items() if registry.means(module, key, e.reference)]
                takers = takers or [key for key in [registry.get(module).key] if key in entries]
            else:
                takers = [key for key, e in entries.items() if e.takes_setting(name)]
                takers = takers or [key for key, e in entries.items() if e.passes_on(name)]
            if not takers:
                text = f"{module}.{name}" if module else name
                raise UsageError(f"--set {text}={value}: no module of this run has it ({', '.join(entries)})")
            for key in takers:
                found.setdefault(key, {})[name] = as_suites(value)
    return found
