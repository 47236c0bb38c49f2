"""One side of a pair of processes: it prepares rows and times blocks, a command at a time."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

import torch

from ctxbench.base import clocks as this_machine
from ctxbench.base.errors import is_interrupt
from ctxbench.devices.clock import Clock, Step
from ctxbench.metrics.latency import warm_up
from ctxbench.model.case import Measure
from ctxbench.model.failures import describe_failure
from ctxbench.plugins.check.wire import BLOCK, NEXT, PairRow
from ctxbench.worker.measurement import CaseMeasurement
from ctxbench.worker.protocol import Answer

# A sample lasts at least this long, so that neither the timer nor one interruption is much of it.
SAMPLE_S = 0.002
# A block holds five samples, or as many as fit into this time.
BLOCK_S, SAMPLES = 0.1, 5
# A pass that gives up its core more often than this waits for something, and its processor time is not what it takes.
MOST_WAITS = 0.1


@dataclass
class ReadyRow:
    """A row that is ready to be timed: a sample runs `run` passes and its time is divided by `passes`.

    `one_thread`: on a core of this machine, in the thread that asks for them.
    """

    step: Step
    clock: Clock
    passes: int
    run: int
    samples: int
    one_thread: bool

    def block(self) -> Answer:
        """Milliseconds a pass by the wall; and by the processor's time, if a pass neither waits nor has threads."""
        if not self.one_thread:
            return Answer([self.clock.time_block(self.step, self.run) * 1e3 / self.passes for _ in range(self.samples)])
        work = [this_machine.here.time_work(self.step, self.run) for _ in range(self.samples)]
        wall, cpu = ([each[part] * 1e3 / self.passes for each in work] for part in (0, 1))
        busy = sum(each.waits for each in work) <= MOST_WAITS * self.run * self.samples  # false for NaN
        return Answer(wall, cpu if busy and min(cpu) > 0 else [])


def take_side(measure: Measure, rows: Sequence[PairRow], emit: Callable[[Answer], bytes]) -> None:
    """Do what each command says with the rows of a side, in their order; a row's failure is its answer.

    After a failure that is `crashed` there is nothing more to do in this process.
    """
    functions = prepared(measure, rows)
    row: ReadyRow | None = None
    answer = Answer()
    while True:
        command = emit(answer)
        if command not in (NEXT, BLOCK) or (answer.failure and answer.failure.status == "crashed"):
            return
        try:
            if command == NEXT:
                row = None  # its memory is free before the next row's is taken
                if torch.cuda.is_initialized():
                    torch.cuda.empty_cache()  # the other side shares the GPU
                row = next(functions)()
                answer = Answer()
            else:
                assert row is not None
                answer = row.block()
        except BaseException as error:  # whatever a module raises is a result
            if is_interrupt(error):
                raise
            answer = Answer(failure=describe_failure(error))


def prepared(measure: Measure, rows: Sequence[PairRow]) -> Iterator[Callable[[], ReadyRow]]:
    """For each row, the function that builds it, runs its first pass with the checks, and warms it up."""
    for each in rows:

        def prepare(each: PairRow = each) -> ReadyRow:
            measurement = CaseMeasurement(each.case, measure, lambda message: None, force=True)
            measurement.load()
            first = measurement.first_pass(each.mode)
            clock = measurement.clock()
            one_thread = measurement.device.kind == "cpu" and torch.get_num_threads() == 1
            pass_s = warm_up(first.step, clock, measure.warmup_s)
            passes, run = slowed(max(1, math.ceil(SAMPLE_S / pass_s)), each.inject)
            samples = max(1, min(SAMPLES, int(BLOCK_S / (run * pass_s))))
            return ReadyRow(first.step, clock, passes, run, samples, one_thread)

        yield prepare


def slowed(passes: int, share: float) -> tuple[int, int]:
    """Number of passes a sample counts (`passes` or more) and number it runs, so that it takes `share` longer.

    Medians of samples are compared, so each sample has the whole share: for 10 % it runs 11 passes and counts 10. The
    share is rounded to the nearest fraction with a denominator of at most 100.
    """
    extra = Fraction(share).limit_denominator(100)
    counted = math.ceil(passes / extra.denominator) * extra.denominator
    return counted, int(counted * (1 + extra))
