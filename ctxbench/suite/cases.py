"""A suite as read, and the grid of its cases."""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ctxbench import devices, limits, registry
from ctxbench.case import EMPTY, Case, as_list
from ctxbench.conditions import parse_shape
from ctxbench.errors import UsageError, unknown
from ctxbench.registry.entry import Entry
from ctxbench.suite.file import CONDITIONS, POINTS, SuiteFile, parse_pair


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
        for name in self.file.published.rows:
            if name.partition("(")[0] not in modules:
                raise UsageError(f"{self.path}: [published.rows]: {unknown('module', name, modules)}")
        self._check_figures(found)
        for name in (name for pair in self.file.crossover for name in parse_pair(pair)):
            if name not in modules:
                raise UsageError(f"{self.path}: crossover: {unknown('module', name, modules)}")
        if not found:
            raise UsageError(f"{self.path}: the suite has no case left; loosen [[exclude]]")
        return found

    def _check_figures(self, cases: Sequence[Case]) -> None:
        """UsageError for a figure against a hyper-parameter that no module has."""
        entries = [*registry.entries(), *(case.entry for case in cases)]
        known = {*POINTS, *CONDITIONS, *(each.name for entry in entries for each in entry.hyperparameters)}
        for figure in self.file.figures:
            for key, name in (("x", figure.x), *(("along", name) for name in figure.along)):
                if name not in known:
                    raise UsageError(f"{self.path}: key 'figures.{key}': {unknown('hyper-parameter', name, known)}")

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
        hparams = self._hparams(entry)
        for *values, network, shape, b, c, s, dtype, device, layout, execution, count in itertools.product(
            *map(as_list, hparams.values()), *self._axes(entry)
        ):
            chosen = entry.check_hparams(dict(zip(hparams, values, strict=True)))
            shape = parse_shape((b or shape[0], c or shape[1], s or shape[2], s or shape[3]))
            device = auto_device if device == "auto" else device
            count = count if devices.has_clock(device) else None
            case = Case(
                *(entry.key, entry.reference, chosen, shape, dtype, layout, execution, device, count, entry.defaults),
                registry.absolute(network),
            )
            if not any(_matches(case, rule) for rule in self.file.exclude):
                yield case

    def _hparams(self, entry: Entry) -> dict[str, Any]:
        """The values, or lists of them, that the suite gives the hyper-parameters of a module."""
        hparams: dict[str, Any] = {}
        for given, settings in self.file.hparams.items():
            if registry.means(given, entry.key, entry.reference):
                hparams |= settings
        return hparams

    def _axes(self, entry: Entry) -> list[Sequence[Any]]:
        """The values of each axis, in the order in which the grid of a module runs through them."""
        axes = self.file.axes
        # Beside networks, the empty slot is a row of each of them alone.
        networks = [each for each in axes.network if each or entry.key != EMPTY or not any(axes.network)]
        inputs: list[Sequence[Any]] = [axes.shape, axes.batch or [0], axes.channels or [0], axes.size or [0]]
        conditions: list[Sequence[Any]] = [axes.dtype, axes.device, axes.memory_format, axes.execution]
        return [networks, *inputs, *conditions, axes.threads or [None]]

    def _grid_size(self, name: str) -> int:
        """How many cases the grid of a module has, those that are excluded too."""
        entry = registry.get(name)
        return math.prod(map(len, [*map(as_list, self._hparams(entry).values()), *self._axes(entry)]))

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
        axes = self.file.axes
        rest = dict(values)
        entry = registry.get(str(rest.pop("module", "")))
        shape = rest.pop("shape", axes.shape[0])
        places = as_list(rest.pop("device", axes.device))
        fixed = {name: rest.pop(name, getattr(axes, name)[0]) for name in ("dtype", "memory_format", "execution")}
        threads = rest.pop("threads", None)
        for device in places:
            yield Case(
                entry.key,
                entry.reference,
                entry.check_hparams(rest),
                parse_shape(shape),
                **fixed,
                device=auto_device if device == "auto" else str(device),
                threads=threads if devices.has_clock(device) or device == "auto" else None,
                defaults=entry.defaults,
                network=registry.absolute(axes.network[0]),
            )


def _matches(case: Case, rule: Mapping[str, Any]) -> bool:
    """Whether a case has every value that an `exclude` rule names."""
    batch, channels, height, width = case.shape
    known: dict[str, Any] = {"batch": batch, "channels": channels, "height": height, "width": width}
    known |= {
        name: getattr(case, name) for name in ("dtype", "memory_format", "execution", "device", "threads", "network")
    }
    known |= {**case.defaults, **case.hparams}
    return all(
        registry.means(str(value), case.module, case.reference) if name == "module" else known.get(name) == value
        for name, value in rule.items()
    )
