"""Decides what each figure of a published table is: by the counts, by its column, by configurations, by bounds."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

from ctxbench.base.errors import UsageError
from ctxbench.base.texts import counted, listed
from ctxbench.model.metric import Unit
from ctxbench.model.published import Printed
from ctxbench.plugins.audit.column import MOST_BY_CHANCE, chance, convention_of, counters_of, fitting, pairs_by_chance
from ctxbench.plugins.audit.conventions import TOOLS, Changes, as_counted_by
from ctxbench.plugins.audit.differences import broken
from ctxbench.plugins.audit.figure import PublishedFigure
from ctxbench.plugins.audit.finding import AuditFinding, Verdict
from ctxbench.plugins.audit.reasons import explanations, reasons
from ctxbench.plugins.audit.recount import Recount
from ctxbench.plugins.audit.recounted import COUNTS, Alternative, LeastFigure, sizes
from ctxbench.registry.formula import FormulaError, evaluate

NO_TIME = "a time is measured on its device, not counted"
NO_COUNT = "ctxbench does not count it"
STOPPED = "the audit was stopped"
# So many conventions are named that fit a column alike.
MOST_NAMED = 3
WEIGHTS = "its weights alone, all applied at each position, take more"
# By row and quantity.
Findings = dict[tuple[str, str], AuditFinding]


def judge(recount: Recount, tell: Callable[[str], object] = lambda stage: None) -> list[AuditFinding]:
    """A finding for each figure of the table, row by row; those of a row that cannot be counted are not judged.

    `tell` gets what is done next. UsageError names the line of what is wrong in the file, and that of the first row
    where no row can be counted.
    """
    recount.check()
    rows = recount.table.rows
    for number, row in enumerate(rows, 1):
        tell(f"[{number}/{len(rows)}] counting {row}")
        _count(recount, row)
    recount.check_failures()
    found: Findings = {}
    quantities = dict.fromkeys(quantity for row in rows.values() for quantity in row.printed)
    for number, quantity in enumerate(quantities, 1):
        tell(f"[{number}/{len(quantities)}] judging {quantity}")
        figures = [PublishedFigure(recount, name, quantity) for name, row in rows.items() if quantity in row.printed]
        found |= _Column.of(quantity, figures).findings()
    for name in rows:
        if why := _by_one_counter(recount, name):
            found |= {(name, of): replace(found[name, of], verdict=Verdict.CONVENTION, why=why) for of in TOOLS}
    breaks = broken(recount.table)
    ordered = [found[name, quantity] for name, row in rows.items() for quantity in row.printed]
    return [
        replace(each, verdict=Verdict.CANNOT_BE, why=breaks[each.row, each.quantity])
        if each.verdict != Verdict.EQUAL and (each.row, each.quantity) in breaks
        else each
        for each in ordered
    ]


def known(recount: Recount) -> list[AuditFinding]:
    """The figures whose count is known when an audit stops; none is judged, since that takes other counts."""
    stopped = replace(recount, count=lambda case, names: ({}, dict.fromkeys(names, STOPPED)))
    printed = [(name, each) for name, row in recount.table.rows.items() for each in row.printed if each in COUNTS]
    figures = [PublishedFigure(stopped, *each) for each in printed]
    counts = ((each, each.counted(each.own)) for each in figures)
    return [
        AuditFinding(each.row, each.quantity, each.text, each.written(count), Verdict.NOT_JUDGED, STOPPED)
        for each, count in counts
        if count is not None
    ]


def readings_of(recount: Recount) -> list[str]:
    """A line for each counted figure of parameters or MACs: what fits it; then the counters that explain all of a row.

    Also of figures that are equal as the source means them.
    """
    lines = []
    for row, about in recount.table.rows.items():
        figures = [PublishedFigure(recount, row, each) for each in about.printed if each in TOOLS]
        figures = [each for each in figures if not each.missing]
        for each in figures:
            named = fitting(each)
            own = ["as ctxbench counts"] * each.fits(())
            said = " or ".join([*own, *([_named(named)] * bool(named))]) or "equal to none"
            lines.append(f"{each.quantity} {each.text}: {said} ({chance([each])}).")
        if len(figures) > 1 and (both := _printing(figures)):
            lines.append(f"{' and '.join(each.quantity for each in figures)} are both printed by {listed(both)}.")
    return lines


def _printing(figures: Sequence[PublishedFigure]) -> list[str]:
    """The counters that print all of these figures."""
    return [name for name in _counters(figures) if all(any(map(each.fits, _ways(each, name))) for each in figures)]


def _counters(figures: Sequence[PublishedFigure]) -> list[str]:
    """The counters that these figures are tried with, in the states that change one of them."""
    tried = {changes[0] for each in figures for changes in each.tried}
    return [name for name in TOOLS["macs"] if as_counted_by(name) in tried]


def _ways(figure: PublishedFigure, counter: str) -> list[Changes]:
    """The conventions by which a counter counts a figure; without gradients it has the parameters of its version."""
    name = counter if counter in TOOLS[figure.quantity] else counter.partition("+")[0]
    return [changes for changes in figure.tools if changes[0] == as_counted_by(name)]


def _by_one_counter(recount: Recount, row: str) -> str:
    """The counters that print both parameters and MACs of a row, if few such pairs near would fit one; "" if not.

    Neither figure is the source's own count.
    """
    figures = [PublishedFigure(recount, row, each) for each in TOOLS if each in recount.table.rows[row].printed]
    if len(figures) < len(TOOLS) or any(each.missing or each.fits(()) for each in figures):
        return ""
    both = [(as_counted_by(each),) for each in _printing(figures)]
    if not both:
        return ""
    counters = _counters(figures)
    near, all_near = pairs_by_chance(figures, [[_ways(each, name) for each in figures] for name in counters])
    if Fraction(near, all_near) > MOST_BY_CHANCE:
        return ""
    tried = f"{len(counters)} counters, versions and states tried, {len(both)} print both"
    return f"{_named(both)} ({tried}; {near} of the {all_near:,} pairs near these would fit one)"


def _count(recount: Recount, row: str) -> None:
    """Count what the figures of a row need. UsageError names its line where a closed form cannot be evaluated."""
    figures = [
        PublishedFigure(recount, row, quantity) for quantity in recount.table.rows[row].printed if quantity in COUNTS
    ]
    try:
        if figures:
            recount.counts(figures[0].case, {name for each in figures for name in each.own.needs})
        for each in figures:
            each.counted(each.own)
    except FormulaError as error:
        raise recount.wrong(("rows", row), row, error) from None


@dataclass(frozen=True)
class _Column:
    """The figures of a quantity that can be judged, the convention of most of them, and those that cannot.

    `counters` are those that explain more of them than any other convention, `chance` how much that says.
    """

    figures: Sequence[PublishedFigure]
    changes: Changes | None
    counters: Sequence[Changes] = ()
    chance: str = ""
    others: Mapping[PublishedFigure, str] = field(default_factory=dict)

    @classmethod
    def of(cls, quantity: str, figures: Sequence[PublishedFigure]) -> "_Column":
        if quantity not in COUNTS:
            reason = NO_TIME if quantity.startswith("latency") else NO_COUNT
            return cls((), None, others=dict.fromkeys(figures, reason))
        missing = {each: each.missing for each in figures if each.missing}
        judged = [each for each in figures if each not in missing]
        changes = convention_of(judged)
        counters = counters_of(judged, changes)
        known = [each for each in judged if counters and each.fits(counters[0]) and not each.fits(())]
        return cls(judged, next(iter(counters), changes), counters, f" ({chance(known)})" if known else "", missing)

    def findings(self) -> Findings:
        found = {(each.row, each.quantity): self._finding(each) for each in self.figures}
        for each, why in self.others.items():
            found[each.row, each.quantity] = AuditFinding(
                each.row, each.quantity, each.text, "", Verdict.NOT_JUDGED, why
            )
        return found

    def _finding(self, figure: PublishedFigure) -> AuditFinding:
        counted = figure.counted(figure.own)
        assert counted is not None
        verdict, why = self._verdict(figure)
        return AuditFinding(figure.row, figure.quantity, figure.text, figure.written(counted), verdict, why)

    def _verdict(self, figure: PublishedFigure) -> tuple[Verdict, str]:
        """The verdict: the first that holds, from equal to not reproduced."""
        changes, own = self.changes, figure.fits(())
        if own and (not changes or figure.fits(changes)):
            return Verdict.EQUAL, ""
        if figure.counter and figure.quantity == "params" and any(map(figure.fits, _ways(figure, figure.counter))):
            return Verdict.EQUAL, f"{as_counted_by(figure.counter)}, which the source names"
        if changes and figure.fits(changes):
            return Verdict.CONVENTION, _named(self.counters or [changes]) + self.chance
        try:
            nearest, why = _by_configuration(figure)
        except UsageError as error:
            return Verdict.NOT_JUDGED, str(error)
        if why:
            return Verdict.CONFIGURATION, why
        if why := next(_bounds(figure), ""):
            return Verdict.CANNOT_BE, why
        if own:
            return Verdict.NOT_AS_COLUMN, "equal as the source means it, where the column is not"
        found = [nearest] * bool(nearest)
        if fits := fitting(figure):
            clues = [*explanations(figure, self.figures, changes or ())]
            would = f"would be equal: {'; '.join(fits[0])} ({chance([figure])})"
            is_other = changes is not None and fits[0] in figure.others
            verdict = Verdict.NOT_AS_COLUMN if is_other else Verdict.NOT_REPRODUCED
            return verdict, "; ".join([would, *clues, *found])
        return Verdict.NOT_REPRODUCED, "; ".join([reasons(figure, self.figures, changes or ()), *found])


def _named(conventions: Sequence[Changes]) -> str:
    """Conventions in words: the first of them, and how many others there are."""
    named, others = conventions[:MOST_NAMED], len(conventions) - MOST_NAMED
    return " or ".join(["; ".join(each) for each in named] + [f"by {counted(others, 'other reading')}"] * (others > 0))


def _by_configuration(figure: PublishedFigure) -> tuple[str, str]:
    """Nearest among the alternatives to the row; then the one with an equal figure, if there is one.

    UsageError names one whose module fails.
    """
    alternatives = figure.recount.table.alternatives.values()
    tried = [each for each in alternatives if figure.row in (each.rows or [figure.row]) and _differs(figure, each)]
    near: dict[Fraction, str] = {}
    for each in tried:
        own = figure.own_of(each)
        value = figure.counted(own, each)
        if failure := figure.recount.failure(figure.row, each):
            raise UsageError(f"another configuration, {each.about}, cannot be counted: {failure}")
        if value is None:
            continue
        away = abs(value / figure.printed.factor(figure.unit) - figure.printed.value)
        near.setdefault(away, f"the nearest, {each.about}, gives {figure.written(value)}")
        if own.agrees(figure.printed, value) or replace(own, cut=True).agrees(figure.printed, value):
            odd = "".join(_contradictions(figure, each))
            return "", f"{each.about}{odd} ({_tried(len(tried))})"
    return f"{near[min(near)]} ({_tried(len(tried))})" if near else "", ""


def _differs(figure: PublishedFigure, other: Alternative) -> bool:
    """Return whether an alternative changes this quantity."""
    return figure.quantity in other.counts or figure.recount.case(figure.row, other) != figure.case


def _contradictions(figure: PublishedFigure, other: Alternative) -> Iterator[str]:
    """Other figures of the row that contradict an alternative."""
    for quantity in figure.recount.table.rows[figure.row].printed:
        each = PublishedFigure(figure.recount, figure.row, quantity)
        if quantity == figure.quantity or quantity not in COUNTS or not _differs(each, other):
            continue
        own = each.own_of(other)
        value = each.counted(own, other)
        if value is not None and not own.agrees(each.printed, value):
            yield f"; its {quantity} would be {each.written(value)}, not {each.text}"


def _bounds(figure: PublishedFigure) -> Iterator[str]:
    """Lower bounds above the figure, with the arithmetic."""
    table = figure.recount.table
    printed = table.rows[figure.row].printed
    known = {key: _lowest(Printed.parse(text), table.unit(key)) for key, text in printed.items()}
    known |= sizes(figure.case.shape)
    most = (figure.printed.value + figure.printed.step / 2) * figure.printed.factor(figure.unit)
    stated = [each for each in table.bounds if figure.row in each.rows and each.quantity == figure.quantity]
    for each in (*stated, *_of_layers(figure)):
        if (least := evaluate(each.least, known)) > most:
            yield f"{each.why}: {_with_numbers(each.least, known)} = {figure.written(Fraction(least))}"


def _of_layers(figure: PublishedFigure) -> list[LeastFigure]:
    """The bound of a block that has the printed parameters, and applies all its weights at each position."""
    if (
        figure.quantity != "macs"
        or "params" not in figure.recount.table.rows[figure.row].printed
        or figure.case.network
    ):
        return []
    params = PublishedFigure(figure.recount, figure.row, "params")
    if params.missing or not (params.fits(()) or fitting(params)):
        return []
    counts, missing = figure.recount.counts(figure.case, ("params_matrices", "macs_layers"))
    weights = counts.get("params_matrices", 0)
    if missing or not 0 < weights * counts["N"] <= counts["macs_layers"]:
        return []
    return [LeastFigure(quantity="macs", least=f"{weights}*N", why=WEIGHTS, rows=[figure.row])]


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


def _tried(count: int) -> str:
    return f"{count} configuration{'s' * (count != 1)} tried"
