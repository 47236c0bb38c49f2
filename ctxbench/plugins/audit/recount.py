"""The counts of rows: which case a row of a published table is, and what ctxbench counts of it."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ctxbench import registry
from ctxbench.base.errors import UsageError
from ctxbench.base.mode import MODES
from ctxbench.model.case import EMPTY, Case
from ctxbench.model.conditions import CONDITIONS
from ctxbench.model.read_suite import location_of
from ctxbench.plugins.audit.recounted import COUNTS, Alternative, RecountedTable, sizes
from ctxbench.plugins.macs.tools import full_name
from ctxbench.registry.reference import Reference
from ctxbench.registry.trust import said

# Counts these of a case: the numbers by name, and why others are not known.
Count = Callable[[Case, Iterable[str]], tuple[Mapping[str, int], Mapping[str, str]]]
# Counts that cost no more together: who asks for one is told all.
TOGETHER = (
    {"params", "params_matrices", "buffers"},
    {"params_bias", "params_norm", "params_vectors"},
    {"macs", "macs_matmul", "macs_layers", "macs_norm"},
    *({f"memory_{mode}", f"memory_{mode}_2020"} for mode in MODES),
)
# In place of the file of a table whose figures a person gave.
GIVEN = Path()
# Where libraries have the functions that build their networks.
LIBRARIES = {"timm": "timm.models", "torchvision": "torchvision.models"}


@dataclass
class Recount:
    """Counts for the rows of a table, each number once; `blocks` take the place of those with these names.

    `failed` has the sentence of each case that could not be counted, by its reference and its id.
    """

    path: Path
    table: RecountedTable
    count: Count
    blocks: Mapping[str, str] = field(default_factory=dict)
    failed: dict[tuple[str, str], str] = field(default_factory=dict)
    _values: dict[tuple[str, str], dict[str, int]] = field(default_factory=dict)
    _missing: dict[tuple[str, str], dict[str, str]] = field(default_factory=dict)
    _cases: dict[tuple[str, str], Case] = field(default_factory=dict)

    def check(self) -> None:
        """UsageError names the line of the tool, or of the first row or alternative, that there is not."""
        tools: dict[tuple[str, ...], str] = {("tool",): self.table.tool}
        tools |= {("rows", name, "tool"): row.tool for name, row in self.table.rows.items()}
        for keys, tool in tools.items():
            try:
                full_name(tool or "thop")
            except UsageError as error:
                raise UsageError(f"{self._location(keys)}{error}") from None
        for name, row in self.table.rows.items():
            if {*COUNTS} & row.printed.keys():
                self.case(name)
        for each in self.table.alternatives.values():
            for name in each.rows or self.table.rows:
                self.case(name, each)

    def check_failures(self) -> None:
        """UsageError names the line of the first row with its failure, where no row could be counted."""
        rows = (name for name, row in self.table.rows.items() if {*COUNTS} & row.printed.keys())
        reasons = {name: self.failure(name) for name in rows}
        if reasons and all(reasons.values()):
            name, reason = next(iter(reasons.items()))
            raise self.wrong(("rows", name), name, UsageError(reason))

    def failure(self, name: str, other: Alternative | None = None) -> str:
        """The sentence of the case of a row, or of an alternative to it, that could not be counted; "" if it could."""
        case = self.case(name, other)
        return self.failed.get((case.reference, case.id), "")

    def case(self, name: str, other: Alternative | None = None) -> Case:
        """The case of a row, or of an alternative to it. UsageError names the line of what cannot be."""
        key = next((key for key, each in self.table.alternatives.items() if each is other), "")
        if (key, name) not in self._cases:
            try:
                self._cases[key, name] = self._case(name, other)
            except UsageError as error:
                raise self.wrong(("alternatives", key) if key else ("rows", name), name, error) from None
        return self._cases[key, name]

    def _case(self, name: str, other: Alternative | None) -> Case:
        row, shape = self.table.rows[name], self.table.shape_of(name)
        block, network, settings = row.block, row.network, row.settings
        if other:
            block, shape = other.block or block, other.shape or shape
            network = network if other.network is None else other.network
            settings = other.settings if other.block else {**settings, **other.settings}
        if shape is None:
            raise UsageError("the row has no shape, and the table names none")
        has_slot = bool(block) or ":" not in network
        named = block or (EMPTY if has_slot else whole(network))
        entry = registry.get(self.blocks.get(block) or said(named, self.path))
        network = CONDITIONS["network"].checked(network) if has_slot else ""
        network = str(said(network, self.path, is_network=True).whole) if network else ""
        hparams = entry.check_hparams(settings)
        return Case(entry.key, entry.reference, hparams, shape, entry.defaults, network=network, device="meta")

    def wrong(self, keys: tuple[str, ...], row: str, error: UsageError) -> UsageError:
        """An error with the line of these keys, and the row."""
        return UsageError(f"{where}row {row!r}: {error}" if (where := self._location(keys)) else str(error))

    def _location(self, keys: tuple[str, ...]) -> str:
        """`FILE, line 7: `, where the last of these keys stands; "" of a line that a person gave."""
        return f"{location_of(self.path, keys)}: " if self.path != GIVEN else ""

    def counts(self, case: Case, names: Iterable[str]) -> tuple[dict[str, int], dict[str, str]]:
        """These counts of a case with the sizes of its input, and why others of them are not known."""
        key, names = (case.reference, case.id), {*names}
        values, missing = self._values.setdefault(key, {}), self._missing.setdefault(key, {})
        if new := names - values.keys() - missing.keys():
            new = new.union(*(each for each in TOGETHER if each & new)) - values.keys() - missing.keys()
            try:
                found, lacking = self.count(case, sorted(new)) if key not in self.failed else ({}, {})
            except UsageError as error:
                found, lacking = {}, {}
                self.failed[key] = str(error)
            values |= found
            missing |= lacking or dict.fromkeys(new - values.keys(), self.failed.get(key, ""))
        return {**sizes(case.shape), **values}, {name: missing[name] for name in sorted(names) if name in missing}


def whole(network: str) -> str:
    """The reference of a whole network: `timm:NAME` and `torchvision:NAME` are the libraries' own."""
    named = Reference.parse(network)
    return str(named.at(LIBRARIES.get(named.source, named.source)))
