"""The record of a case from those of its processes."""

from collections.abc import Collection, Mapping
from dataclasses import replace

from ctxbench.base.limits import FEWEST_PROCESSES
from ctxbench.model.metrics import metrics
from ctxbench.model.record import Record


def combine(finished: Mapping[int, Record], planned: int, undisturbed: Collection[int]) -> Record:
    """The record of a case from its processes; process 0 has what was measured once.

    Times come from the `undisturbed` processes, or from all where fewer than three of the `planned` ones are.
    """
    first = finished[min(finished)]
    record = replace(first, values={}, notes=[])
    timed = {number: finished[number] for number in sorted(finished) if number}
    good = {number: each for number, each in timed.items() if number in undisturbed}
    used = good if len(good) >= min(FEWEST_PROCESSES, planned) else timed
    for each in (first, *used.values(), *timed.values()):  # others may have disturbed the one that compiled
        record.values = {**each.values, **record.values}
    for each in (first, *used.values()):
        record.note(*each.notes)
        record.machine_state = record.machine_state or each.machine_state
    for metric in metrics().values() if used else ():
        if metric.combine:
            for column in metric.columns:
                record.values.pop(column.name, None)
            record.take(metric.combine([each.values for each in used.values()]))
    record.elapsed_s = round(sum(each.elapsed_s or 0.0 for each in finished.values()), 3)
    if used:
        record.processes, record.rounds = len(used), " ".join(map(str, used))
        record.others_share = max((each.others_share for each in used.values() if each.others_share), default=0.0)
    for number, each in timed.items():
        if each.status != "ok":
            earlier = f"in process {number} of {planned}: " if number > 1 else ""
            record.status, record.message = each.status, earlier + each.message
            record.note(*each.notes)
    return record
