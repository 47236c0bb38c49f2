"""One side of a pair of processes: it prepares rows and times blocks, one turn at a time, when the other side rests."""

import contextlib
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ctxbench.engine.failures import describe_failure
from ctxbench.engine.tree import own_file
from ctxbench.engine.worker import Emit

if TYPE_CHECKING:
    from ctxbench.engine.clock import Clock, Step

# Commands, a byte each: prepare the next row; time a block of it.
NEXT, BLOCK = b"n", b"b"
# A sample lasts at least this long, so that neither the timer nor one interruption is much of it.
SAMPLE_S = 0.002
# A block holds five samples, or as many as fit into this time.
BLOCK_S, SAMPLES = 0.1, 5
CONTROL_SAMPLES = 3


@dataclass
class Row:
    """A row that is ready to be timed."""

    step: "Step"
    control: "Step"
    clock: "Clock"
    passes: int
    samples: int

    def block(self) -> dict[str, Any]:
        """Milliseconds a pass of the control workload, then of the row."""
        control = [self.clock.time_block(self.control, 1) * 1e3 for _ in range(CONTROL_SAMPLES)]
        row = [self.clock.time_block(self.step, self.passes) * 1e3 / self.passes for _ in range(self.samples)]
        return {"control": control, "row": row}


def take_turns(task: Mapping[str, Any], emit: Emit) -> None:
    """Do what each turn's command says with the rows of `task`, in their order; a row's failure is its result.

    A row is `{"case": ..., "mode": ..., "inject": share}`: with `inject`, each pass is made longer by that share.
    """
    rows = prepared(task)
    row: Row | None = None
    result: dict[str, Any] = {}
    while True:
        command = emit({"event": "turn", **result})
        if command not in (NEXT, BLOCK):
            return
        try:
            if command == NEXT:
                row = None  # its memory is free before the next row's is taken
                row = next(rows)()
                result = {}
            else:
                assert row is not None
                result = row.block()
        except Exception as error:  # whatever a module raises is a result
            result = {"failure": describe_failure(error)}


def prepared(task: Mapping[str, Any]) -> Iterator[Callable[[], Row]]:
    """For each row, the function that builds it, runs its first pass with the checks, and warms it up."""
    from ctxbench.engine.worker import Measurement
    from ctxbench.suite import Case, Measure

    settings = Measure(**task["measure"])
    for each in task["rows"]:
        case = Case.of(each["case"])

        def prepare(case: Case = case, mode: Any = each["mode"], share: float = each.get("inject", 0.0)) -> Row:
            from ctxbench.metrics.control import control_workload
            from ctxbench.metrics.latency import warm_up

            measurement = Measurement(case, settings, [], "ctxbench", True, lambda event: None)
            model, x = measurement.load()
            step, first_pass_s = measurement.first_pass(model, x, mode)
            clock = measurement.clock()
            control = control_workload(measurement.device)
            clock.time_block(control, 2)
            pass_s = warm_up(step, first_pass_s, clock, settings.warmup_s)
            passes = max(1, math.ceil(SAMPLE_S / pass_s))
            samples = max(1, min(SAMPLES, int(BLOCK_S / (passes * pass_s))))
            if share:
                step = slowed(step, share, measurement.synchronize)
            return Row(step, control, clock, passes, samples)

        yield prepare


def slowed(step: "Step", share: float, synchronize: Callable[[], None]) -> "Step":
    """A pass that takes `share` longer: after it, the processor spins for that share of what it took."""
    from time import perf_counter

    def slow() -> object:
        start = perf_counter()
        result = step()
        synchronize()
        end = perf_counter()
        until = end + share * (end - start)
        while perf_counter() < until:
            pass
        return result

    return slow


def resolve(task: Mapping[str, Any], emit: Emit) -> None:
    """Report the cases that a suite has in this source tree, and why a module has none.

    Each case comes with the file of its module. `foreign` are the files below `task["other"]` that loading the modules
    brought in: a tree that loads another tree's code shares it with that one.
    """
    from dataclasses import asdict

    from ctxbench import registry
    from ctxbench.errors import UsageError
    from ctxbench.suite import restore

    suite = restore(task["suite"], Path(task["path"]), task["definition"])
    missing: dict[str, UsageError] = {}
    cases: list[dict[str, Any]] = []
    before = set(sys.modules)
    try:
        found = suite.cases_here(task["auto_device"], missing)
    except UsageError as error:
        emit({"event": "usage", "message": str(error)})
        return
    for case in found:
        entry = registry.get(case.module if case.module in registry.names() else case.reference)
        with contextlib.suppress(Exception):  # what does not load fails as a case, with its message
            entry.load()
        cases.append({"case": asdict(case), "file": entry.file})
    registered = registry.entries() if "*" in suite.file.modules else []
    broken = {entry.key: entry.broken for entry in registered if entry.broken}
    # The harness is one for both sides, wherever it lies.
    names = [name for name in set(sys.modules) - before if not name.startswith("ctxbench.")]
    files = [getattr(sys.modules[name], "__file__", None) for name in names]
    emit(
        {
            "event": "cases",
            "cases": cases,
            "missing": {**broken, **{name: str(error) for name, error in missing.items()}},
            "foreign": sorted(file for file in files if file and task["other"] and own_file(file, Path(task["other"]))),
        }
    )
