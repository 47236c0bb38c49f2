"""A suite as read, and the grid of its cases."""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ctxbench import devices, registry
from ctxbench.base import limits
from ctxbench.base.errors import UsageError, unknown
from ctxbench.model.case import EMPTY, Case, as_list
from ctxbench.model.conditions import COLUMNS, CONDITIONS, parse_shape, to_columns
from ctxbench.model.suite_file import COMPUTED, POINTS, SuiteFile, parse_pair
from ctxbench.registry.entry import Entry

# The keys of `axes` that replace a part of the shape: batch, channels, height and width.
SIZES = ("batch", "channels", "size")


@dataclass(frozen=True)
class Suite:
    """A suite as read: its name (the file's stem), where it lies, and its content.

    `chosen`: the modules are those that the caller named, not the file's.
    """

    name: str
    path: Path
    file: SuiteFile
    chosen: bool = False

    @property
    def named(self) -> set[str]:
        """The modules that the suite names one by one."""
        return {*self.file.modules, *(str(case.get("module", "")) for case in self.file.cases)}

    def cases(self, auto_device: str = "cpu") -> list[Case]:
        """The cases in order: module by module, then the product of the axes, then the explicit extra cases.

        `auto_device` stands in for the device `auto`. Raises UsageError for unknown modules and hyper-parameters.
        """
        missing: dict[str, UsageError] = {}
        found = self.cases_here(auto_device, missing)
        for error in missing.values():
            raise error
        for name in self.file.hparams:
            if not any(registry.means(name, case.module, case.reference) for case in found):
                registry.get(name)
        modules = {*registry.names(), *(case.module for case in found)}
        for row in self.file.gate.margins:
            if row.removesuffix(" infer").removesuffix(" train") not in modules:
                raise UsageError(f"{self.path}: [gate] margins: {unknown('module', row, modules)}")
        for block in self.file.published.blocks if self.file.published else ():
            if block not in modules:
                raise UsageError(f"{self.path}: published: {unknown('module', block, modules)}")
        self._check_figures(found)
        self._check_exclude(found)
        for name in (name for pair in self.file.crossover for name in parse_pair(pair)):
            if name not in modules:
                raise UsageError(f"{self.path}: crossover: {unknown('module', name, modules)}")
        if not found:
            raise UsageError(f"{self.path}: the suite has no case left; loosen [[exclude]]")
        return found

    def _check_figures(self, cases: Sequence[Case]) -> None:
        """UsageError for a figure against a hyper-parameter that no module has."""
        entries = [*registry.entries(), *(case.entry for case in cases)]
        known = {*POINTS, *COMPUTED, *(each.name for entry in entries for each in entry.hyperparameters)}
        for figure in self.file.figures:
            for key, name in (("x", figure.x), *(("along", name) for name in figure.along)):
                if name not in known:
                    raise UsageError(f"{self.path}: key 'figures.{key}': {unknown('hyper-parameter', name, known)}")

    def _check_exclude(self, cases: Sequence[Case]) -> None:
        """UsageError for a rule about a module that there is not, or about a key that no case has."""
        entries = {each.reference: each for each in (*registry.entries(), *(case.entry for case in cases))}
        named = {"module", *COLUMNS, *(each.name for entry in entries.values() for each in entry.hyperparameters)}
        for place, rule in enumerate(self.file.exclude):
            where = f"{self.path}: key 'exclude.{place}'"
            name = str(rule.get("module", ""))
            if "module" in rule and not any(registry.means(name, e.key, e.reference) for e in entries.values()):
                raise UsageError(f"{where}: {unknown('module', name, (each.key for each in entries.values()))}")
            for key in rule:
                if key not in named:
                    raise UsageError(f"{where}: {unknown('key', key, named)}")

    def cases_here(self, auto_device: str, missing: dict[str, UsageError]) -> list[Case]:
        """The cases of the modules that can be had; why not goes to `missing`, by the suite's name of the module.

        Raises UsageError if two modules have the same name.
        """
        found: list[Case] = []
        sources: list[tuple[str, Callable[[], Iterable[Case]]]] = []
        empty = [EMPTY] * (any(self.file.axes.network) and EMPTY not in self.file.modules)
        for name in (*empty, *self.file.modules):
            keys = [entry.key for entry in registry.entries() if not entry.broken] if name == "*" else [name]
            sources += [(key, partial(self._grid, key, auto_device)) for key in keys]
        self._check_size([key for key, _ in sources])
        for values in self.file.cases:
            sources.append((str(values.get("module", "")), partial(self._extra, values, auto_device)))
        for name, cases in sources:
            try:
                found += cases()
            except UsageError as error:
                missing[name] = error
        unique: dict[str, Case] = {}
        for case in found:
            known = unique.setdefault(case.id, case)
            if known.reference != case.reference:
                raise UsageError(
                    f"{known.reference} and {case.reference} have the same name {case.module!r}; rename one class, or "
                    "register it under another key"
                )
            if known.network != case.network:
                raise UsageError(f"{known.network} and {case.network} have the same name; rename one function")
        return list(unique.values())

    def _grid(self, name: str, auto_device: str) -> Iterator[Case]:
        entry = registry.get(name)
        hparams, axes = self._hparams(entry), self._axes(entry)
        for values in itertools.product(*map(as_list, hparams.values()), *axes.values()):
            chosen = entry.check_hparams(dict(zip(hparams, values, strict=False)))
            found = dict(zip(axes, values[len(hparams) :], strict=True))
            b, c, s = (found.pop(size) for size in SIZES)
            shape = found["shape"]
            found["shape"] = (b or shape[0], c or shape[1], s or shape[2], s or shape[3])
            case = _case(entry, chosen, found, auto_device)
            if not any(_matches(case, rule) for rule in self.file.exclude):
                yield case

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
        entry = registry.get(name)
        return math.prod(map(len, [*map(as_list, self._hparams(entry).values()), *self._axes(entry).values()]))

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

    def _extra(self, values: Mapping[str, Any], auto_device: str) -> Iterator[Case]:
        """The cases of an entry of `cases`: one for each device, and in a network also that without the module."""
        rest = dict(values)
        entry = registry.get(str(rest.pop("module", "")))
        places = as_list(rest.pop("device", self.file.axes.device))
        first = {name: (getattr(self.file.axes, name) or [each.default])[0] for name, each in CONDITIONS.items()}
        found = {name: rest.pop(name, value) for name, value in first.items()}
        hparams = entry.check_hparams(rest)
        for device in places:
            case = _case(entry, hparams, {**found, "device": device}, auto_device)
            if case.network:
                yield case.without()
            yield case


def _case(entry: Entry, hparams: Mapping[str, Any], found: Mapping[str, Any], auto_device: str) -> Case:
    """A case of a module under these conditions, as a suite says them."""
    device = auto_device if found["device"] == "auto" else found["device"]
    settled = {
        "shape": parse_shape(found["shape"]),
        "device": device,
        "threads": found["threads"] if devices.has_clock(device) else None,
        "network": registry.absolute(found["network"]),
    }
    return Case(entry.key, entry.reference, hparams, defaults=entry.defaults, **{**found, **settled})


def _matches(case: Case, rule: Mapping[str, Any]) -> bool:
    """Return whether a case has every value that an `exclude` rule names."""
    known = {**to_columns(case), **case.defaults, **case.hparams}
    return all(
        registry.means(str(value), case.module, case.reference)
        if name == "module"
        else known.get(name) == (registry.absolute(str(value)) if name == "network" else value)
        for name, value in rule.items()
    )
