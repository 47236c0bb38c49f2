"""Operators that a change added or took away: why a module is slower, or costs more."""

from collections import Counter
from collections.abc import Sequence

from ctxbench.engine.client import ForkServer
from ctxbench.engine.remote import ask
from ctxbench.model.case import Case
from ctxbench.plugins.check.wire import Operators, WrittenCall

# So many differences are told one by one.
MOST = 4
SAME = "its forward pass runs the same operators on the same shapes"


def operators(server: ForkServer, case: Case, timeout_s: float) -> Sequence[WrittenCall]:
    """The operator calls of a case's forward pass in the tree of the server; none where they are not known."""
    return [
        call for found in ask(server, "operators", Operators, case, timeout_s=timeout_s).told for call in found.calls
    ]


def differing(before: Sequence[WrittenCall], now: Sequence[WrittenCall]) -> str:
    """A phrase on the calls that differ, each with its line; empty where one side has none.

    Calls of the same operator for the same shape are alike, wherever they are.
    """
    if not (before and now):
        return ""
    counts = [Counter((call.op, call.shape) for call in calls) for calls in (before, now)]
    more, fewer = counts[1] - counts[0], counts[0] - counts[1]
    parts = [_part(each, f"+{count}", before, now) for each, count in more.items()]
    parts += [_part(each, f"-{count}", now, before) for each, count in fewer.items()]
    rest = [f"and {len(parts) - MOST} others"] * (len(parts) > MOST)
    return f"its forward pass differs by {', '.join([*parts[:MOST], *rest])}" if parts else SAME


def _part(
    alike: tuple[str, tuple[int, ...]], count: str, without: Sequence[WrittenCall], with_: Sequence[WrittenCall]
) -> str:
    """The operator, its shape and the line that has more of it on this side, by the text of the line."""
    there, here = ([call for call in calls if (call.op, call.shape) == alike] for calls in (without, with_))
    more = Counter(call.text for call in here) - Counter(call.text for call in there)
    # There are more calls here than there, so that some line has more of them.
    line = next(call.line for call in here if call.text in more)
    op, shape = alike
    made = f" {'x'.join(map(str, shape))}" if shape else ""
    return f"{count} {op}{made} ({line})"
