"""A suite as read, and the grid of its cases."""

import itertools
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from ctxbench import devices, registry
from ctxbench.base import limits
from ctxbench.base.errors import UsageError, unknown
from ctxbench.model.case import EMPTY, Case, as_list
from ctxbench.model.conditions import COLUMNS, CONDITIONS, check_product, to_columns
from ctxbench.model.suite_file import COMPUTED, POINTS, SuiteFile
from ctxbench.plugin import brought
from ctxbench.registry.entry import Entry
from ctxbench.registry.reference import Reference
from ctxbench.registry.trust import said

# The keys of `axes` that replace a part of the shape: batch, channels, height and width.
SIZES = ("batch", "channels", "size")


@dataclass(frozen=True)
class GridPoint:
    """A point of the grid, or an extra case, with its conditions as a suite says them: the device may be `auto`."""

    entry: Entry
    hparams: Mapping[str, Any]
    conditions: Mapping[str, Any]
    is_extra: bool = False

    def cases(self, auto_device: str) -> Iterator[Case]:
        """The case on its device; before an extra one in a network, that without the module."""
        device = auto_device if self.conditions["device"] == "auto" else self.conditions["device"]
        settled = {
            "device": device,
            "threads": self.conditions["threads"] if devices.has_clock(device) else None,
            "network": registry.absolute(self.conditions["network"]),
        }
        entry = self.entry
        own = {**self.conditions, **settled}
        case = Case(entry.key, entry.reference, self.hparams, defaults=entry.defaults, **own)
        if self.is_extra and case.network:
            yield case.without()
        yield case


def reference_in(suite: Path, chosen: bool, name: str) -> Reference:
    """The reference of a name that the caller chose, or that the file of a suite says."""
    return Reference.parse(name) if chosen else said(name, suite)


@dataclass(frozen=True)
class Suite:
    """A suite as read: its name (the file's stem), where it lies, and its content.

    `chosen`: the modules are those that the caller named, not the file's.
    """

    name: str
    path: Path
    file: SuiteFile
    chosen: bool = False

    def reference(self, name: str) -> Reference:
        """The reference of a module or network of this suite: what the caller did not choose, its file says."""
        return reference_in(self.path, self.chosen, name)

    @property
    def named(self) -> set[str]:
        """The modules that the suite names one by one."""
        return {*self.file.modules, *(str(case.get("module", "")) for case in self.file.cases)}

    def cases(self, auto_device: str = "cpu") -> list[Case]:
        """The cases in order: module by module, then the product of the axes, then the explicit extra cases.

        `auto_device` stands in for the device `auto`. Raises UsageError as `points` does, and if no case is left.
        """
        found = self._cases(self.points, auto_device)
        if not found:
            raise UsageError(f"{self.path}: the suite has no case left; loosen [[exclude]]")
        return found

    @cached_property
    def points(self) -> list[GridPoint]:
        """The points of the grid and the extra cases, which are not on a device yet.

        Raises UsageError for unknown modules, hyper-parameters and keys.
        """
        missing: dict[str, UsageError] = {}
        found = self._points(missing)
        for error in missing.values():
            raise error
        entries = {point.entry.reference: point.entry for point in found}.values()
        for name in self.file.hparams:
            if not any(registry.means(name, entry.key, entry.reference) for entry in entries):
                registry.get(self.reference(name))
        modules = {*registry.names(), *(entry.key for entry in entries)}
        for row in self.file.gate.margins:
            if row.removesuffix(" infer").removesuffix(" train") not in modules:
                raise UsageError(f"{self.path}: [gate] margins: {unknown('module', row, modules)}")
        for block in self.file.published.blocks if self.file.published else ():
            if block not in modules:
                raise UsageError(f"{self.path}: published: {unknown('module', block, modules)}")
        known = {entry.reference: entry for entry in (*registry.entries(), *entries)}.values()
        self._check_figures(known)
        self._check_exclude(known)
        for key, name in self.named_in_keys():
            if name not in modules:
                raise UsageError(f"{self.path}: {key}: {unknown('module', name, modules)}")
        return found

    def named_in_keys(self) -> Iterator[tuple[str, str]]:
        """The modules that keys of plugins name, each behind its key. UsageError for a text that names none."""
        for plugin, (key, declared) in brought("keys"):
            for place, text in enumerate(getattr(self.file, key)):
                try:
                    yield from ((key, name) for name in plugin.load(declared.modules)(text))
                except UsageError as error:
                    raise UsageError(f"{self.path}: key '{key}.{place}': {error}") from None

    def _check_figures(self, entries: Iterable[Entry]) -> None:
        """UsageError for a figure against a hyper-parameter that no module has."""
        known = {*POINTS, *COMPUTED, *self._hyperparameters(entries)}
        for figure in self.file.figures:
            for key, name in (("x", figure.x), *(("along", name) for name in figure.along)):
                if name not in known:
                    raise UsageError(f"{self.path}: key 'figures.{key}': {unknown('hyper-parameter', name, known)}")

    def _hyperparameters(self, entries: Iterable[Entry]) -> set[str]:
        """Names of hyper-parameters: those that modules declare, and those that the file sets, which a module takes."""
        declared = {each.name for entry in entries for each in entry.hyperparameters}
        return declared.union(*self.file.hparams.values())

    def _check_exclude(self, entries: Collection[Entry]) -> None:
        """UsageError for a rule about a module that there is not, or about a key that no case has."""
        named = {"module", *COLUMNS, *self._hyperparameters(entries)}
        for place, rule in enumerate(self.file.exclude):
            where = f"{self.path}: key 'exclude.{place}'"
            name = str(rule.get("module", ""))
            if "module" in rule and not any(registry.means(name, e.key, e.reference) for e in entries):
                raise UsageError(f"{where}: {unknown('module', name, (each.key for each in entries))}")
            for key in rule:
                if key not in named:
                    raise UsageError(f"{where}: {unknown('key', key, named)}")

    def cases_here(self, auto_device: str, missing: dict[str, UsageError]) -> list[Case]:
        """The cases of the available modules; why others are not goes to `missing`, by their names in the suite.

        Raises UsageError if two modules have the same name.
        """
        return self._cases(self._points(missing), auto_device)

    def _points(self, missing: dict[str, UsageError]) -> list[GridPoint]:
        """The points of the modules that are available."""
        found: list[GridPoint] = []
        sources: list[tuple[str, Callable[[], Iterable[GridPoint]]]] = []
        empty = [EMPTY] * (any(self.file.axes.network) and EMPTY not in self.file.modules)
        for name in (*empty, *self.file.modules):
            keys = [entry.key for entry in registry.entries() if not entry.broken] if name == "*" else [name]
            sources += [(key, partial(self._grid, key)) for key in keys]
        self._check_size([key for key, _ in sources])
        for values in self.file.cases:
            sources.append((str(values.get("module", "")), partial(self._extra, values)))
        for name, points in sources:
            try:
                found += points()
            except UsageError as error:
                missing[name] = error
        return found

    def _cases(self, points: Iterable[GridPoint], auto_device: str) -> list[Case]:
        """The cases of points, each once. UsageError for two modules, or two networks, of the same name."""
        unique: dict[str, Case] = {}
        for point in points:
            for case in point.cases(auto_device):
                if not point.is_extra and any(_matches(case, rule) for rule in self.file.exclude):
                    continue
                known = unique.setdefault(case.id, case)
                if known.reference != case.reference:
                    raise UsageError(
                        f"{known.reference} and {case.reference} have the same name {case.module!r}; rename one class, "
                        "or register it under another key"
                    )
                if known.network != case.network:
                    raise UsageError(f"{known.network} and {case.network} have the same name; rename one function")
        return list(unique.values())

    def _grid(self, name: str) -> Iterator[GridPoint]:
        entry = registry.get(self.reference(name))
        hparams, axes = self._hparams(entry), self._axes(entry)
        choices = [entry.choices(key, given) for key, given in hparams.items()]
        for values in itertools.product(*choices, *axes.values()):
            chosen = entry.check_hparams(dict(zip(hparams, values, strict=False)))
            found = dict(zip(axes, values[len(hparams) :], strict=True))
            b, c, s = (found.pop(size) for size in SIZES)
            batch, channels, height, width = found["shape"]
            found["shape"] = shape = (b or batch, c or channels, s or height, s or width)
            check_product(shape, shape)
            yield GridPoint(entry, chosen, found)

    def _hparams(self, entry: Entry) -> dict[str, Any]:
        """The values, or lists of them, that the suite gives the hyper-parameters of a module."""
        hparams: dict[str, Any] = {}
        for given, settings in self.file.hparams.items():
            if registry.means(given, entry.key, entry.reference):
                hparams |= settings
        return hparams

    def _axes(self, entry: Entry) -> dict[str, Sequence[Any]]:
        """The values of each axis, in the order in which the grid of a module runs through them."""
        axes = self.file.axes
        found = {name: getattr(axes, name) or [each.default] for name, each in CONDITIONS.items()}
        # Beside networks, the empty slot is a row of each of them alone.
        networks = [each for each in axes.network if each or entry.key != EMPTY or not any(axes.network)]
        found["network"] = networks
        sizes = {size: getattr(axes, size) or [0] for size in SIZES}
        return {"network": networks, "shape": axes.shape, **sizes, **found}

    def _grid_size(self, name: str) -> int:
        """Number of cases in the grid of a module, excluded ones too."""
        entry = registry.get(self.reference(name))
        choices = [entry.choices(key, given) for key, given in self._hparams(entry).items()]
        return math.prod(map(len, [*choices, *self._axes(entry).values()]))

    def _check_size(self, names: Sequence[str]) -> None:
        """UsageError if the grids of these modules have more cases than `limits.CASES`. Other errors are told later."""
        count = 0
        for name in names:
            with suppress(UsageError):
                count += self._grid_size(name)
        if count > limits.CASES:
            raise UsageError(
                f"{self.path}: the grid has {count:,} cases, more than {limits.CASES:,}; shorten the lists of [axes] "
                "and [hparams], or name fewer modules"
            )

    def _extra(self, values: Mapping[str, Any]) -> Iterator[GridPoint]:
        """The points of an entry of `cases`: one for each device."""
        rest = dict(values)
        entry = registry.get(self.reference(str(rest.pop("module", ""))))
        places = as_list(rest.pop("device", self.file.axes.device))
        first = {name: (getattr(self.file.axes, name) or [each.default])[0] for name, each in CONDITIONS.items()}
        found = {name: rest.pop(name, value) for name, value in first.items()}
        found["shape"] = tuple(found["shape"])
        hparams = entry.check_hparams(rest)
        for device in places:
            yield GridPoint(entry, hparams, {**found, "device": device}, is_extra=True)


def _matches(case: Case, rule: Mapping[str, Any]) -> bool:
    """Return whether a case has every value that an `exclude` rule names."""
    known = {**to_columns(case), **case.defaults, **case.hparams}
    return all(
        registry.means(str(value), case.module, case.reference)
        if name == "module"
        else known.get(name) == (registry.absolute(str(value)) if name == "network" else value)
        for name, value in rule.items()
    )
