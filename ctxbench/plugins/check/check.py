"""Parts shared by every kind of check: the suite seen from a source tree, the names of rows, and the result."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from ctxbench import devices
from ctxbench.base import clocks as this_machine
from ctxbench.base import disk
from ctxbench.base import load as machine_load
from ctxbench.base.errors import UsageError
from ctxbench.base.mode import MODES
from ctxbench.model.case import Case
from ctxbench.model.conditions import CONDITIONS, phrases
from ctxbench.model.grid import Suite
from ctxbench.plugins.check.request import Deadline, Request
from ctxbench.plugins.check.result import ExactChange, GateResult, OutputVerdict, exit_code
from ctxbench.plugins.check.rows import RowKey, RowVerdict
from ctxbench.plugins.check.trees import Modules
from ctxbench.plugins.check.wire import PairRow


class Check:
    """A check under way. The request's suite names its files from the root of the tree; the budget runs from here."""

    def __init__(self, request: Request, here: Modules) -> None:
        self.deadline = Deadline(request.budget_s)
        self.here = here
        self.suite = suite_in_tree(request.suite, here.root) if here.root else request.suite
        self.request = replace(request, suite=self.suite)
        self.notes = [str(note) for note in machine_load.notes({"busy_cores": this_machine.here.busy_cores()})]

    def result(
        self,
        baseline: str,
        rows: Sequence[RowVerdict],
        environment: Mapping[str, Any],
        cases: Sequence[Case],
        named: Iterable[Case] | None = None,
        exact: Sequence[ExactChange] = (),
        compared: int = 0,
        *,
        timed: bool = True,
        advisory: bool = False,
        slowed: Collection[RowKey] = (),
        evidence: Literal["pair", "process"] = "pair",
        outputs: Sequence[OutputVerdict] = (),
    ) -> GateResult:
        """The result against `baseline`; `cases` are those measured, `named` all that it speaks of (default: these)."""
        exact = [replace(each, accepted=each.quantity in self.request.accepted) for each in exact]
        must_match = self.request.must_match
        code = exit_code(
            rows,
            exact,
            compared,
            inconclusive_is=self.request.inconclusive_is,
            timed=timed,
            advisory=advisory,
            slowed=slowed,
            outputs=outputs if must_match else (),
        )
        return GateResult(
            baseline=baseline,
            candidate=self.here.name,
            rows=tuple(rows),
            labels=labels(cases if named is None else named),
            exact=tuple(exact),
            compared=compared,
            margin=self.request.rule(()).margin,
            conditions=conditions_phrase(environment, cases),
            notes=tuple(dict.fromkeys(self.notes)),
            elapsed_s=self.deadline.elapsed_s,
            exit_code=code,
            evidence=evidence,
            advisory=advisory,
            outputs=tuple(outputs),
            must_match=must_match,
        )


def suite_in_tree(suite: Suite, root: Path) -> Suite:
    """The suite with its modules' and networks' files named from the tree's root, so that each side finds its own."""

    def name_in_tree(name: str) -> str:
        source, colon, class_name = name.rpartition(":")
        if not source.endswith(".py"):
            return name
        path = disk.whole(Path(source))
        if not path.is_relative_to(root.resolve()):
            raise UsageError(f"{source} lies outside the repository {root}: no other commit has it")
        return path.relative_to(root.resolve()).as_posix() + colon + class_name

    modules = [name_in_tree(name) for name in suite.file.modules]
    cases = [
        {**case, **{key: name_in_tree(str(case[key])) for key in ("module", "network") if key in case}}
        for case in suite.file.cases
    ]
    axes = suite.file.axes.model_copy(update={"network": [*map(name_in_tree, suite.file.axes.network)]})
    return replace(suite, file=suite.file.model_copy(update={"modules": modules, "cases": cases, "axes": axes}))


def task_rows(cases: Mapping[str, Case], inject: Mapping[RowKey, float] | None = None) -> dict[RowKey, PairRow]:
    """The latency rows of the cases, by their names, as a pair takes them; `inject` slows single rows by a share."""
    return {
        RowKey(name, mode): PairRow(case, mode, (inject or {}).get(RowKey(name, mode), 0.0))
        for name, case in cases.items()
        for mode in MODES
        if devices.has_clock(case.device)
    }


def labels(cases: Iterable[Case]) -> dict[str, str]:
    """A short name for each case: the module alone where that is enough."""
    unique = {case.id: case for case in cases}
    modules = [case.module for case in unique.values()]
    return {name: case.module if modules.count(case.module) == 1 else name for name, case in unique.items()}


def conditions_phrase(environment: Mapping[str, Any], cases: Sequence[Case]) -> str:
    """On what, with what and under which conditions the rows were measured."""
    names = dict.fromkeys(case.device for case in cases)
    measured = [devices.device(name) for name in names if devices.has_clock(name)]
    parts = list(dict.fromkeys(part for device in measured for part in device.described(environment)))
    parts.append(f"torch {environment['packages']['torch']}")
    told = {name: {getattr(case, name) for case in cases} for name in CONDITIONS if name != "device"}
    here = any(device.has_threads for device in measured)
    told["threads"] = {environment["torch_threads"] if n is None else n for n in told["threads"]} if here else set()
    return ", ".join([*parts, *phrases(told)])
