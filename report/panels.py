"""Panels of figures: one panel for each device of each run, and in it the rows that can be compared."""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from ctxbench.base.load import disturbed
from ctxbench.model.conditions import CONDITIONS, SHAPE
from ctxbench.model.metric import Quantity, RecordRow
from ctxbench.model.metrics import read_number, stored_quantities
from ctxbench.plugin import brought
from ctxbench.results.rows import by_values

from .published import with_published
from .run_data import RunData

MOST_ROWS = 60
# The module that costs are set in relation to.
REFERENCE = "sa"
# The mark of a row whose times other work disturbed.
DISTURBED = "†"


@dataclass(frozen=True, eq=False)
class Panel:
    """The rows of one run on one device; `name` tells the run from others beside it, where there are any."""

    name: str
    rows: Sequence[RecordRow]
    run: RunData
    device: str
    # Those of `report.curves`, by figure and quantity.
    series: dict[Any, Any] = field(default_factory=dict, repr=False)

    @property
    def title(self) -> str:
        """The run and the device."""
        return ": ".join(filter(None, [self.name, self.run.device_name(self.device)]))

    @property
    def main(self) -> Sequence[RecordRow]:
        """The alike rows, at most MOST_ROWS: more names do not fit a figure."""
        return self.alike[:MOST_ROWS]

    @cached_property
    def alike(self) -> Sequence[RecordRow]:
        """The rows of one set of conditions: the one with the most rows; of equals, that of the largest input."""
        groups = by_values(self.rows, *(name for name in CONDITIONS if name != "device")).values()
        return max(groups, key=lambda rows: (len(rows), math.prod(rows[0][name] for name in SHAPE.columns)))

    def heading(self, rows: Sequence[RecordRow], origins: Collection[str] = ("measured",)) -> str:
        """The line above what is drawn of these rows: the run, the device, what the rows share.

        Numbers that were not measured have no device, and published ones none of these conditions either; numbers of an
        origin that a plugin brings, such as accuracies of trained networks, have a heading of their own.
        """
        own = {origin: plugin.load(tell) for plugin, (origin, tell) in brought("headings") if origin in origins}
        others = {*origins} - own.keys()
        found = [self.name]
        if "measured" in others:
            found = [self.title, *self.run.conditions(rows), *self._left_out(rows)]
        elif others:
            shared = [] if others == {"published"} else self.run.conditions(rows, threads=False)
            found += [*shared, *self._left_out(rows), " and ".join(sorted(others))]
        remarks = [tell(self.run) for tell in own.values()]
        return ", ".join(filter(None, [*found, *remarks, *self.marks(rows, origins)]))

    def marks(self, rows: Sequence[RecordRow], origins: Collection[str] = ("measured",)) -> list[str]:
        """Legend of the marks of these rows, where their times are shown."""
        if "measured" not in origins:
            return []
        found = [f"{DISTURBED}: timed while other work ran"] if any(map(is_disturbed, rows)) else []
        return found + (["pale: no interval"] if any(map(is_unsure, rows)) else [])

    def _left_out(self, rows: Sequence[RecordRow]) -> list[str]:
        """Remark on the run's rows for other conditions, if these rows are of some alone."""
        for names, noun in (([*SHAPE.columns], "inputs"), ([*CONDITIONS], "conditions")):
            shown, every = (len(by_values(each, *names)) for each in (rows, self.rows))
            if shown < every:
                return [f"{shown} of the run's {every} {noun}"]
        return []


def panels_of(runs: Sequence[RunData]) -> list[Panel]:
    """A panel for each device of each run that has rows."""
    found = []
    for run in runs:
        rows = by_values(with_published(run), "device")
        found += [Panel(run.name if len(runs) > 1 else "", own, run, device) for (device,), own in rows.items()]
    return found


def label_of(row: RecordRow) -> str:
    """Title of the module, with its settings if it has any."""
    return f"{row['name']} {row['settings']}".strip()


def marked_label_of(row: RecordRow) -> str:
    """The same with DISTURBED, which the heading explains, where other work disturbed a time of the row."""
    return f"{label_of(row)} {DISTURBED}" if is_disturbed(row) else label_of(row)


def is_disturbed(row: RecordRow) -> bool:
    """Return whether other work disturbed a time of the row."""
    return disturbed(row["others_share"])


def is_unsure(row: RecordRow) -> bool:
    """Return whether a time of the row was measured in too few processes for an interval."""
    times = [read_number(row, each) for each in stored_quantities() if each.has_interval]
    return any(time is not None and time.high == math.inf for time in times)


def is_reference(row: RecordRow) -> bool:
    """Return whether the row is the reference with its own hyper-parameters."""
    return bool(row["module"] == REFERENCE and row["changed"] == "")


# Methods whose name is no word for readers.
_METHODS = {"cuda-2020": "PyTorch of 2020"}


def origin_of(quantity: Quantity, rows: Sequence[RecordRow]) -> str:
    """Origin of the numbers of rows: `predicted, cuda`."""
    known = [row for row in rows if row[quantity.column] is not None] if quantity.origin_column else ()
    if quantity.origin != "predicted":
        return " or ".join(dict.fromkeys(map(quantity.origin_of, known))) or quantity.origin
    methods = dict.fromkeys(row[quantity.method_column] for row in rows) if quantity.method_column else ()
    return ", ".join([quantity.origin, *(_METHODS.get(each, str(each)) for each in methods if each)])
