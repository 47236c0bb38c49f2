"""Output of `ctxbench show` for a case, built on the meta device: its costs."""

from collections import Counter
from collections.abc import Mapping

from ctxbench.base.errors import UsageError
from ctxbench.meta.autocast import Autocast
from ctxbench.metrics.params import count_params
from ctxbench.model.case import Case
from ctxbench.plugins.macs.counter import MacCount, count_macs
from ctxbench.plugins.macs.tools.table import as_tools
from ctxbench.plugins.macs.training import count_training_macs
from ctxbench.plugins.macs.watch import UncountableError
from ctxbench.table.shown import CellKind, Shown


def costs(case: Case, by_operator: bool, tools: list[str]) -> list[Shown]:
    """Params and MACs of a module beside the closed forms; by operator, and as other `tools` count, if asked for.

    UsageError if the module cannot be counted without data.
    """
    model, x = case.on_meta()
    autocast = Autocast(case.device, case.autocast_dtype)
    why = ""
    try:
        counts = {"macs": count_macs(model, x, autocast=autocast)}
    except UncountableError as error:
        raise UsageError(str(error)) from None
    try:
        counts["macs_train"] = count_training_macs(model, x, autocast=autocast)
    except UncountableError as error:
        why = f"no macs_train: {error}"
    rows = []
    for name, counted in (("params", count_params(model)), *((name, count.macs) for name, count in counts.items())):
        formula = case.entry.closed_form(name, case.shape, case.hparams) if name != "macs_train" else None
        rows.append((name, f"{counted:,}", "" if formula is None else f"{formula:,}"))
    rows.append(("macs_matmul", f"{counts['macs'].macs_matmul:,}", ""))
    shape = f"{'x'.join(map(str, case.shape))} {case.computed_in}"
    parts = [Shown(columns={shape: "label", "counted": "counted", "closed form": "counted"}, rows=rows)]
    parts += [Shown(f"{name} does not include {count.left_out}") for name, count in counts.items() if count.left_out]
    parts += [Shown(each) for each in counts["macs"].remarks]
    if why:
        parts.append(Shown(why))
    if by_operator:
        parts.append(_by_operator(counts))
    if tools:
        parts += as_tools(model, case.shape, tools)
    return parts


def _by_operator(counts: Mapping[str, MacCount]) -> Shown:
    """Costs of each operator, the largest first, in each of the counts."""
    costs = sum((Counter(count.by_operator) for count in counts.values()), Counter())
    rows = []
    for operator, _ in costs.most_common():
        cells = []
        for count in counts.values():
            macs = count.by_operator.get(operator)
            cells += ["", ""] if macs is None else [f"{macs:,}", f"{macs / count.macs:.1%}"]
        rows.append((operator.removeprefix("aten::"), *cells))
    columns: dict[str, CellKind] = {title: "counted" for name in counts for title in (name, f"of {name}")}
    return Shown(columns={"operator": "label", **columns}, rows=rows)
