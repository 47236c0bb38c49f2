"""A line for each counter: what it prints for a module, beside ctxbench's count, and why it differs."""

from collections import Counter
from collections.abc import Sequence

from torch import nn

from ctxbench.base.call_sites import CallSite
from ctxbench.plugins.macs.counter import counted
from ctxbench.plugins.macs.tools import not_run, state_words
from ctxbench.plugins.macs.tools.calls import Calls
from ctxbench.plugins.macs.tools.reading import Reading, reading
from ctxbench.plugins.macs.tools.states import in_state
from ctxbench.plugins.macs.watch import UncountableError
from ctxbench.table.shown import CellKind, Shown


def as_tools(module: nn.Module, shape: Sequence[int], names: Sequence[str]) -> list[Shown]:
    """A table of counters by their full names: what each prints, its ratio to ctxbench's count, and why it differs.

    A state has a line where it prints another number than the version without it, if that is asked for, too.
    """
    calls = Calls(module, shape)
    macs = counted(calls.operators).macs
    columns: dict[str, CellKind] = {
        **{"counter": "label", "params": "counted", "prints": "counted", "unit": "text"},
        **{"of macs": "counted", "why it differs": "text"},
    }
    rows = [_row(name, calls, macs) for name in names]
    plain = {row[0]: row[1:] for row in rows if "+" not in row[0]}
    told = [row for row in rows if "+" not in row[0] or row[1:] != plain.get(row[0].partition("+")[0])]
    ran = [reading(row[0]) for row in told if row[0] not in not_run()]
    packages = dict.fromkeys(f"{each.name.partition('+')[0]}: {each.about['about']}." for each in ran)
    given = dict.fromkeys(f"+{each.state}: {state_words()[each.state]}." for each in ran if each.state)
    alike = ["A state that has no line prints what its version prints without it."] * (len(told) < len(rows))
    return [Shown(columns=columns, rows=told), *map(Shown, (*packages, *given, *alike)), *_unread(calls)]


def _row(name: str, calls: Calls, macs: int) -> tuple[str, ...]:
    if name in not_run():
        return name, "", "not run", "", "", not_run()[name]
    each = reading(name)
    try:
        printed = each.count(calls)
    except UncountableError as error:
        return each.name, "", "nothing", each.unit, "", str(error)
    params = each.params(calls)
    ratio = f"x{printed / macs:.3f}" if macs else ""
    why = "" if printed == macs else "; ".join([*_left_out(each, calls), each.about["why"]])
    return each.name, "" if params is None else f"{params:,}", f"{printed:,}", each.unit, ratio, why


def _left_out(each: Reading, calls: Calls) -> list[str]:
    """The share of products and convolutions that a counter does not see, and the source line of most of them."""
    calls = in_state(calls, each.state)
    products = [call for call in calls.operators if call.macs]
    lines: Counter[tuple[str, CallSite]] = Counter()
    for call in products:
        if not each.sees(call, calls):
            lines[call.name.removeprefix("aten::"), call.place] += call.macs
    if not lines:
        return []
    share = lines.total() / sum(call.macs for call in products)
    (name, place), _ = lines.most_common(1)[0]
    return [f"leaves out {lines.total():,} MACs ({share:.1%}), most of them in {name}, {place}"]


def _unread(calls: Calls) -> list[Shown]:
    """A sentence on products that are computed and that nobody reads."""
    macs = sum(each.macs for each in calls.operators if not calls.is_read(each))
    return [Shown(f"{macs:,} MACs are computed, but the output does not depend on them.")] * bool(macs)
