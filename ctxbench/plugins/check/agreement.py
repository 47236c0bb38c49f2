"""Agreement of values before and after a change: outputs and gradients of both sides, from one seed and input."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ctxbench import devices
from ctxbench.base.number import significant
from ctxbench.base.temporary import temporary_folder
from ctxbench.base.texts import listed
from ctxbench.engine.client import ForkServer
from ctxbench.engine.remote import ask
from ctxbench.model.case import Case, Measure
from ctxbench.model.messages import Failure
from ctxbench.plugins.check.result import OutputVerdict
from ctxbench.plugins.check.wire import Agreement
from ctxbench.plugins.trees.tree_cases import TreeCases

# What a module's own code does; a process that ended or ran too long may have lacked memory or time.
RAISED = ("error", "nan")


def compare_outputs(
    servers: tuple[ForkServer, ForkServer],
    sides: tuple[TreeCases, TreeCases],
    names: Iterable[str],
    measure_of: Callable[[], Measure],
    environment: Mapping[str, Any],
) -> list[OutputVerdict]:
    """The verdicts on these cases of baseline and candidate; a case that is broken now is among the failures of now.

    `measure_of` gives the settings of a process that begins now.
    """
    before, now = sides
    found = []
    for name in names:
        if name in before.failures or name in now.failures:
            continue
        device = now.cases[name].device
        if devices.has_clock(device) and not devices.present(device, environment):
            found.append(OutputVerdict(name, "not compared", f"{device} is not here"))
            continue
        with temporary_folder() as folder:
            path = os.path.join(folder, "outputs")
            kept = _taken(servers[0], _computable(before.cases[name]), measure_of(), path, compare=False)
            answer = kept or _taken(servers[1], _computable(now.cases[name]), measure_of(), path, compare=True)
        if isinstance(answer, Agreement):
            if answer.repaired and not (answer.broken or answer.infinite):
                before.failures[name] = Failure("nan", f"{_infinite(answer.repaired)}, and is finite now")
                found += [each for each in [judge(name, answer)] if each.verdict == "changed"]
                continue
            if not answer.broken:
                found.append(judge(name, answer))
                if answer.same_code and found[-1].verdict == "same":
                    now.unchanged.add(name)
                continue
            answer = Failure("error", "; ".join(answer.broken))
        if answer is not kept and answer and answer.status in RAISED:
            now.failures[name] = answer
        else:
            found.append(OutputVerdict(name, "not compared", f"{answer}" + ", in the baseline" * (answer is kept)))
    return found


def _computable(case: Case) -> Case:
    """The case; of a device that is known by its data sheet alone, on the CPU."""
    return case if devices.has_clock(case.device) else replace(case, device="cpu")


def _taken(server: ForkServer, case: Case, measure: Measure, path: str, compare: bool) -> Agreement | Failure | None:
    """Answer of a process; one that ends before it has failed."""
    answered = ask(
        server, "outputs", Agreement | Failure | None, case, measure, path, compare,
        timeout_s=measure.timeout_s, memory_limit_gib=measure.memory_limit_gib,
    )  # fmt: skip
    if found := answered.failure or next(filter(None, answered.told), None):
        return found
    status, sentence = answered.ended.status(measure.timeout_s, "computing outputs", kernel_killed=False)
    return Failure(status, sentence) if status != "ok" else None


def judge(case: str, found: Agreement) -> OutputVerdict:
    """Changed or the same; not compared where two passes of the baseline alone differ by more than rounding."""
    moved = [each for each in found.differences if each.share > max(each.bound, 2 * each.noise)]
    texts = []
    if moved:
        dtype, bound = moved[0].dtype, moved[0].bound
        parts = ", ".join(f"the {each.part} by {_percent(each.share)}" for each in moved if each.dtype == dtype)
        texts.append(f"{parts} (in {dtype}; less than {_percent(bound)} is rounding)")
    if texts or found.notes:
        change = max((each.share for each in moved), default=None)
        return OutputVerdict(
            case, "changed", "; ".join(filter(None, [*texts, *found.notes, found.right, *found.weights])), change
        )
    for each in found.differences:
        if each.noise > each.bound:
            reason = f"two passes of the baseline differ by {_percent(each.noise)} in the {each.part}"
            return OutputVerdict(case, "not compared", reason)
    if found.infinite:
        return OutputVerdict(case, "not compared", f"{_infinite(found.infinite)}, before and now")
    return OutputVerdict(case, "same", "; ".join(found.weights), max(each.share for each in found.differences))


def _percent(share: float) -> str:
    return f"{significant(100 * share, 2)} %"


def _infinite(parts: Sequence[str]) -> str:
    return f"the {listed(parts)} {'holds' if len(parts) == 1 else 'hold'} NaN or infinity"
