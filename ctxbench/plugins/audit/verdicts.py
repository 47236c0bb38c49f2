"""Decides what each figure of a published table is: by the counts, by conventions and configurations, by bounds."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

from ctxbench.base.number import fixed
from ctxbench.model.case import Case
from ctxbench.model.metric import Unit
from ctxbench.model.published import COUNTS, Alternative, Bound, Printed, sizes
from ctxbench.plugins.audit.conventions import Convention, others
from ctxbench.plugins.audit.differences import broken
from ctxbench.plugins.audit.finding import Finding, Verdict
from ctxbench.plugins.audit.recount import Recount
from ctxbench.registry.formula import evaluate

NO_TIME = "a time is measured on its device, not counted"
NO_COUNT = "ctxbench does not count it"
WEIGHTS = "its weights alone, all applied at each position, take more"


def judge(recount: Recount, on_row: Callable[[str], object] = lambda row: None) -> list[Finding]:
    """A finding for each figure of the table, row by row. UsageError names the line of what cannot be counted."""
    recount.check()
    found = []
    for row, content in recount.table.rows.items():
        on_row(row)
        found += [_Figure(recount, row, quantity).finding() for quantity in content.printed]
    breaks = broken(recount.table)
    return [
        replace(each, verdict=Verdict.CANNOT_BE, why=breaks[each.row, each.quantity])
        if each.verdict != Verdict.EQUAL and (each.row, each.quantity) in breaks
        else each
        for each in found
    ]


@dataclass(frozen=True)
class _Figure:
    """One figure, with what decides on it."""

    recount: Recount
    row: str
    quantity: str

    @property
    def text(self) -> str:
        return self.recount.table.rows[self.row].printed[self.quantity]

    @property
    def printed(self) -> Printed:
        return Printed.parse(self.text)

    @property
    def unit(self) -> Unit:
        return self.recount.table.unit(self.quantity)

    def finding(self) -> Finding:
        """The verdict: the first that holds, from equal to not reproduced."""
        if self.quantity not in COUNTS:
            return self._says(Verdict.NOT_JUDGED, "", NO_TIME if self.quantity.startswith("latency") else NO_COUNT)
        own, case = self._own(), self.recount.case(self.row)
        counts, missing = self.recount.counts(case, own.needs)
        if missing:
            return self._says(Verdict.NOT_JUDGED, "", "; ".join(missing.values()))
        counted = self.written(own.counted(counts))
        if own.agrees(self.printed, counts):
            return self._says(Verdict.EQUAL, counted)
        if why := self._by_convention(own, case):
            return self._says(Verdict.CONVENTION, counted, why)
        nearest, why = self._by_configuration()
        if why:
            return self._says(Verdict.CONFIGURATION, counted, why)
        if why := next(self._bounds(case), ""):
            return self._says(Verdict.CANNOT_BE, counted, why)
        return self._says(Verdict.NOT_REPRODUCED, counted, nearest)

    def _says(self, verdict: Verdict, counted: str, why: str = "") -> Finding:
        return Finding(self.row, self.quantity, self.text, counted, verdict, why)

    def written(self, value: Fraction) -> str:
        """A number in the unit of the figure, with one digit more than is printed."""
        return fixed(float(value / self.printed.factor(self.unit)), self.printed.decimals + 1) + self.printed.suffix

    def _own(self, other: Alternative | None = None) -> Convention:
        """The convention that the source names, of the row or of an alternative to it."""
        table = self.recount.table
        forms = {**table.counts, **table.rows[self.row].counts, **(other.counts if other else {})}
        return Convention(self.quantity, forms.get(self.quantity, self.quantity), self.unit)

    def _by_convention(self, own: Convention, case: Case) -> str:
        """Under which other convention the figure is equal, and how many were tried."""
        tried = others(own)
        for each in tried:
            counts, missing = self.recount.counts(case, each.needs)
            if not missing and each.agrees(self.printed, counts):
                return f"{'; '.join(each.changes)} ({_tried(len(tried), 'convention')})"
        return ""

    def _by_configuration(self) -> tuple[str, str]:
        """Nearest among the alternatives to the row; then the one with an equal figure, if there is one."""
        alternatives = self.recount.table.alternatives.values()
        tried = [each for each in alternatives if self.row in (each.rows or [self.row]) and self._differs(each)]
        near: dict[Fraction, str] = {}
        for each in tried:
            own, case = self._own(each), self.recount.case(self.row, each)
            counts, missing = self.recount.counts(case, own.needs)
            if missing:
                continue
            value = own.counted(counts)
            away = abs(value / self.printed.factor(self.unit) - self.printed.value)
            near.setdefault(away, f"the nearest, {each.about}, gives {self.written(value)}")
            if own.agrees(self.printed, counts) or replace(own, cut=True).agrees(self.printed, counts):
                odd = "".join(self._contradictions(each, case))
                return "", f"{each.about}{odd} ({_tried(len(tried), 'configuration')})"
        return f"{near[min(near)]} ({_tried(len(tried), 'configuration')})" if near else "", ""

    def _differs(self, other: Alternative) -> bool:
        """Return whether an alternative changes this quantity."""
        return self.quantity in other.counts or self.recount.case(self.row, other) != self.recount.case(self.row)

    def _contradictions(self, other: Alternative, case: Case) -> Iterator[str]:
        """Other figures of the row that contradict an alternative."""
        for quantity in self.recount.table.rows[self.row].printed:
            figure = _Figure(self.recount, self.row, quantity)
            if quantity == self.quantity or quantity not in COUNTS or not figure._differs(other):
                continue
            own = figure._own(other)
            counts, missing = self.recount.counts(case, own.needs)
            if not missing and not own.agrees(figure.printed, counts):
                yield f"; its {quantity} would be {figure.written(own.counted(counts))}, not {figure.text}"

    def _bounds(self, case: Case) -> Iterator[str]:
        """Lower bounds above the figure, with the arithmetic."""
        table = self.recount.table
        known = {
            key: _lowest(Printed.parse(text), table.unit(key)) for key, text in table.rows[self.row].printed.items()
        }
        known |= sizes(case.shape)
        most = (self.printed.value + self.printed.step / 2) * self.printed.factor(self.unit)
        stated = [each for each in table.bounds if self.row in each.rows and each.quantity == self.quantity]
        for each in (*stated, *self._of_layers(case)):
            if (least := evaluate(each.least, known)) > most:
                yield f"{each.why}: {_with_numbers(each.least, known)} = {self.written(Fraction(least))}"

    def _of_layers(self, case: Case) -> list[Bound]:
        """The bound of a block that has the printed parameters, and applies all its weights at each position."""
        if self.quantity != "macs" or "params" not in self.recount.table.rows[self.row].printed or case.network:
            return []
        if _Figure(self.recount, self.row, "params").finding().verdict not in (Verdict.EQUAL, Verdict.CONVENTION):
            return []
        counts, missing = self.recount.counts(case, ("params_matrices", "macs_layers"))
        weights = counts.get("params_matrices", 0)
        if missing or not 0 < weights * counts["N"] <= counts["macs_layers"]:
            return []
        return [Bound(quantity="macs", least=f"{weights}*N", why=WEIGHTS, rows=[self.row])]


def _lowest(printed: Printed, unit: Unit) -> int:
    """The least number that is printed so, in units of one."""
    return int((printed.value - printed.step / 2) * printed.factor(unit))


def _with_numbers(form: str, known: Mapping[str, int]) -> str:
    """A closed form with numbers in place of names, for a person."""
    signs = {"*": "x", "**": "^", "//": "/"}
    numbers = {**known, **{part: int(part) for part in re.findall(r"\d+", form)}}
    parts = [signs.get(part, part) for part in re.findall(r"\w+|\*\*|//|\S", form)]
    text = " ".join(f"{numbers[part]:,}" if part in numbers else part for part in parts)
    return text.replace("( ", "(").replace(" )", ")").replace(" ^ ", "^")


def _tried(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count != 1)} tried"
