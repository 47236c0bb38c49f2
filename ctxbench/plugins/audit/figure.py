"""One figure of a published table, with what is counted of it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

from ctxbench.base.number import fixed, significant
from ctxbench.model.case import Case
from ctxbench.model.conditions import Shape
from ctxbench.model.metric import Unit
from ctxbench.model.published import Printed
from ctxbench.plugins.audit.conventions import TOOLS, Changes, Convention, of_tools, others, without_state
from ctxbench.plugins.audit.recount import Recount
from ctxbench.plugins.audit.recounted import Alternative, sizes
from ctxbench.plugins.macs.tools import full_name


@dataclass(frozen=True, eq=False)
class PublishedFigure:
    """The figure of a row and a quantity."""

    recount: Recount
    row: str
    quantity: str

    @cached_property
    def text(self) -> str:
        return self.recount.table.rows[self.row].printed[self.quantity]

    @cached_property
    def printed(self) -> Printed:
        return Printed.parse(self.text)

    @cached_property
    def unit(self) -> Unit:
        return self.recount.table.unit(self.quantity)

    @cached_property
    def case(self) -> Case:
        return self.recount.case(self.row)

    @cached_property
    def own(self) -> Convention:
        """The convention that the source names."""
        return self.own_of(None)

    def own_of(self, other: Alternative | None) -> Convention:
        """The convention that the source names, of an alternative to the row."""
        table = self.recount.table
        forms = {**table.counts, **table.rows[self.row].counts, **(other.counts if other else {})}
        tool = TOOLS["macs"][self.counter] if self.counter and self.quantity == "macs" else ""
        return Convention(self.quantity, forms.get(self.quantity, self.quantity), self.unit, tool)

    @cached_property
    def others(self) -> Mapping[Changes, Convention]:
        """The other conventions that it may follow, by what tells them from the source's own."""
        found = others(self.own)
        value = self.counted(self.own)
        if value is None or self.fits(()):
            return found
        is_more = self.printed.value * self.printed.factor(self.unit) > value
        return {changes: each for changes, each in found.items() if each.is_more in (None, is_more)}

    @cached_property
    def tools(self) -> Mapping[Changes, Convention]:
        """The conventions of other counters."""
        return of_tools(self.own)

    @cached_property
    def counter(self) -> str:
        """The full name of the counter that the source names for the row; "" if it names none."""
        named = self.recount.table.tool_of(self.row)
        return full_name(named) if named else ""

    @cached_property
    def known(self) -> Mapping[Changes, Fraction]:
        """Numbers under each other convention and by each other counter, where they are known."""
        self.recount.counts(self.case, TOOLS.get(self.quantity, {}).values())
        found = {changes: self.counted(each) for changes, each in {**self.others, **self.tools}.items()}
        return {changes: value for changes, value in found.items() if value is not None}

    @cached_property
    def tried(self) -> Mapping[Changes, Fraction]:
        """The same, without the states of a counter that change nothing here."""
        return {
            changes: value
            for changes, value in self.known.items()
            if (plain := without_state(changes)) == changes or value != self.known.get(plain)
        }

    @cached_property
    def missing(self) -> str:
        """Reason why the source's own count of it is not known; "" if it is."""
        return "; ".join(dict.fromkeys(self.recount.counts(self.case, self.own.needs)[1].values()))

    def convention(self, changes: Changes) -> Convention | None:
        """The source's own with these changes; None if it cannot be changed so."""
        return (self.others.get(changes) or self.tools.get(changes)) if changes else self.own

    def counted(self, convention: Convention, other: Alternative | None = None) -> Fraction | None:
        """The count under a convention, in units of one, of the row or of an alternative; None if it is not known."""
        case = self.recount.case(self.row, other) if other else self.case
        counts, missing = self.recount.counts(case, convention.needs)
        return None if missing else convention.counted(counts)

    def count(self, changes: Changes) -> Fraction:
        """The count under a column's convention, or, where it is not known so, under the source's own."""
        convention = self.convention(changes)
        found = self.counted(convention) if convention else None
        if found is None:
            found = self.counted(self.own)
        assert found is not None
        return found

    def fits(self, changes: Changes) -> bool:
        """Return whether the figure is equal under the source's own convention with these changes."""
        convention = self.convention(changes)
        value = self.counted(convention) if convention else None
        return convention is not None and value is not None and convention.agrees(self.printed, value)

    def of_shape(self, shape: Shape, changes: Changes) -> Fraction | None:
        """The count at another input; None if it is not known."""
        convention = self.convention(changes) or self.own
        counts, missing = self.recount.counts(replace(self.case, shape=shape), convention.needs)
        return None if missing else convention.counted({**counts, **sizes(shape)})

    def digits(self, changes: Changes) -> int | None:
        """The count under one of the conventions as the digits of the figure would give it; None if it is not known."""
        convention = self.convention(changes)
        if convention is None or changes not in self.known:
            return None
        value = self.known[changes] / self.printed.factor(convention.unit)
        return round(value / self.printed.step - Fraction(convention.cut, 2))

    def is_printed(self, value: Fraction, powers: int = 0) -> bool:
        """Return whether a number of units of one rounds to the figure, whose point may be so many places off."""
        return self.printed.rounds(value / Fraction(10) ** powers, self.unit)

    def written(self, value: Fraction) -> str:
        """A number in the unit of the figure, with one digit more than is printed, and with two at least."""
        factor = self.printed.factor(self.unit)
        number, places = float(value / factor), self.printed.decimals + 1
        if factor == 1 and value.denominator == 1:
            return f"{int(value)}{self.printed.suffix}"
        text = fixed(number, places)
        return (text if abs(number) >= 10 ** (1 - places) else significant(number, 2)) + self.printed.suffix
