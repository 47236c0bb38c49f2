"""The counts of rows: which case a row of a published table is, and what ctxbench counts of it."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ctxbench import registry
from ctxbench.base.errors import UsageError
from ctxbench.model.case import Case
from ctxbench.model.conditions import CONDITIONS, Shape
from ctxbench.model.published import COUNTS, Alternative, Published, sizes
from ctxbench.model.read_suite import location_of

# Counts these of a case: the numbers by name, and why others are not known.
Count = Callable[[Case, Iterable[str]], tuple[Mapping[str, int], Mapping[str, str]]]


@dataclass
class Recount:
    """Counts for the rows of a table, each number once; `blocks` take the place of those with these names."""

    path: Path
    table: Published
    count: Count
    blocks: Mapping[str, str] = field(default_factory=dict)
    _values: dict[str, dict[str, int]] = field(default_factory=dict)
    _missing: dict[str, dict[str, str]] = field(default_factory=dict)
    _places: dict[str, tuple[tuple[str, ...], str]] = field(default_factory=dict)

    def check(self) -> None:
        """UsageError names the line of the first row or alternative that is of nothing that there is."""
        for name, row in self.table.rows.items():
            if {*COUNTS} & row.printed.keys():
                self.case(name)
        for each in self.table.alternatives.values():
            for name in each.rows or self.table.rows:
                self.case(name, each)

    def case(self, name: str, other: Alternative | None = None) -> Case:
        """The case of a row, or of an alternative to it. UsageError names the line of what cannot be."""
        row, shape = self.table.rows[name], self.table.shape_of(name)
        block, network, settings = row.block, row.network, row.settings
        keys = ("rows", name)
        if other:
            (key,) = [key for key, each in self.table.alternatives.items() if each is other]
            keys = ("alternatives", key)
            block, shape = other.block or block, other.shape or shape
            network = network if other.network is None else other.network
            settings = other.settings if other.block else {**settings, **other.settings}
        try:
            found = _case(self.blocks.get(block, block), network, settings, shape)
        except UsageError as error:
            raise self._wrong(keys, name, error) from None
        self._places.setdefault(found.id, (keys, name))
        return found

    def _wrong(self, keys: tuple[str, ...], row: str, error: UsageError) -> UsageError:
        return UsageError(f"{location_of(self.path, keys)}: row {row!r}: {error}")

    def counts(self, case: Case, names: Iterable[str]) -> tuple[dict[str, int], dict[str, str]]:
        """These counts of a case with the sizes of its input, and why others of them are not known."""
        values, missing = self._values.setdefault(case.id, {}), self._missing.setdefault(case.id, {})
        if new := {*names} - values.keys() - missing.keys():
            try:
                found, lacking = self.count(case, sorted(new))
            except UsageError as error:
                raise self._wrong(*self._places[case.id], error) from None
            values |= found
            missing |= lacking
        return {**sizes(case.shape), **values}, {name: missing[name] for name in names if name in missing}


def _case(block: str, network: str, settings: Mapping[str, object], shape: Shape | None) -> Case:
    entry = registry.get(block)
    if shape is None:
        raise UsageError("the row has no shape, and the table names none")
    network = registry.absolute(CONDITIONS["network"].checked(network))
    hparams = entry.check_hparams(settings)
    return Case(entry.key, entry.reference, hparams, shape, entry.defaults, network=network, device="meta")
