"""A line for each counter: what it prints for a module, beside ctxbench's count, and why it differs."""

from collections import Counter
from collections.abc import Sequence

from torch import nn

from ctxbench.base.call_sites import CallSite
from ctxbench.plugins.macs.counter import counted
from ctxbench.plugins.macs.tools.calls import Calls
from ctxbench.plugins.macs.tools.reading import Reading, reading
from ctxbench.plugins.macs.watch import UncountableError
from ctxbench.table.shown import CellKind, Shown


def as_tools(module: nn.Module, shape: Sequence[int], names: Sequence[str]) -> list[Shown]:
    """A table of counters by their full names: what each prints, its ratio to ctxbench's count, and why it differs."""
    calls = Calls(module, shape)
    macs = counted(calls.operators).macs
    columns: dict[str, CellKind] = {
        **{"counter": "label", "params": "counted", "prints": "counted", "unit": "text"},
        **{"of macs": "counted", "why it differs": "text"},
    }
    rows = [_row(reading(name), calls, macs) for name in names]
    packages = dict.fromkeys(f"{each.partition('+')[0]}: {reading(each).about['about']}." for each in names)
    return [Shown(columns=columns, rows=rows), *map(Shown, packages), *_unread(calls)]


def _row(each: Reading, calls: Calls, macs: int) -> tuple[str, ...]:
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
