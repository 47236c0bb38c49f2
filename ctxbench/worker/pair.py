"""One side of a pair of processes: it prepares rows and times blocks, a command at a time."""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ctxbench.devices.clock import Clock, Step
from ctxbench.failures import describe_failure
from ctxbench.metrics.latency import warm_up
from ctxbench.worker.measurement import CaseMeasurement
from ctxbench.worker.protocol import BLOCK, NEXT, Answer, PairRow, TakeSide

# A sample lasts at least this long, so that neither the timer nor one interruption is much of it.
SAMPLE_S = 0.002
# A block holds five samples, or as many as fit into this time.
BLOCK_S, SAMPLES = 0.1, 5
CONTROL_SAMPLES = 3


@dataclass
class Row:
    """A row that is ready to be timed."""

    step: Step
    control: Step
    clock: Clock
    passes: int
    samples: int

    def block(self) -> Answer:
        """Milliseconds a pass of the control workload, then of the row."""
        control = [self.clock.time_block(self.control, 1) * 1e3 for _ in range(CONTROL_SAMPLES)]
        row = [self.clock.time_block(self.step, self.passes) * 1e3 / self.passes for _ in range(self.samples)]
        return Answer(control, row)


def take_side(task: TakeSide, emit: Callable[[Answer], bytes]) -> None:
    """Do what each command says with the rows of `task`, in their order; a row's failure is its answer."""
    rows = prepared(task)
    row: Row | None = None
    answer = Answer()
    while True:
        command = emit(answer)
        if command not in (NEXT, BLOCK):
            return
        try:
            if command == NEXT:
                row = None  # its memory is free before the next row's is taken
                row = next(rows)()
                answer = Answer()
            else:
                assert row is not None
                answer = row.block()
        except Exception as error:  # whatever a module raises is a result
            answer = Answer(failure=describe_failure(error))


def prepared(task: TakeSide) -> Iterator[Callable[[], Row]]:
    """For each row, the function that builds it, runs its first pass with the checks, and warms it up."""
    for each in task.rows:

        def prepare(each: PairRow = each) -> Row:
            measurement = CaseMeasurement(each.case, task.measure, lambda message: None, force=True)
            measurement.load()
            first = measurement.first_pass(each.mode)
            clock, control = measurement.clock(), measurement.device.control_workload()
            clock.time_block(control, 2)
            pass_s = warm_up(first.step, clock, task.measure.warmup_s)
            passes = max(1, math.ceil(SAMPLE_S / pass_s))
            samples = max(1, min(SAMPLES, int(BLOCK_S / (passes * pass_s))))
            step = slowed(first.step, each.inject, measurement.device.synchronize) if each.inject else first.step
            return Row(step, control, clock, passes, samples)

        yield prepare


def slowed(step: Step, share: float, synchronize: Callable[[], None]) -> Step:
    """A pass that takes `share` longer: after it, the processor spins for that share of what it took."""

    def slow() -> object:
        start = time.perf_counter()
        result = step()
        synchronize()
        end = time.perf_counter()
        until = end + share * (end - start)
        while time.perf_counter() < until:
            pass
        return result

    return slow
