"""Which code does which task, and what is imported before the first."""

import contextlib
import sys
import warnings
from collections.abc import Callable, Iterator

from ctxbench.base.clocks import FORKS
from ctxbench.base.errors import UsageError, is_interrupt
from ctxbench.model.failures import describe_failure
from ctxbench.model.messages import Progress
from ctxbench.results.sources import own_files
from ctxbench.worker.protocol import (
    CountCase,
    DescribeEnvironment,
    Environment,
    Imported,
    ListCases,
    MatmulRate,
    MeasureCase,
    NetworkShape,
    ProfileCase,
    ReadEntry,
    ReadModule,
    ReadNetwork,
    Reply,
    TakeOutputs,
    TakeSide,
    Task,
    TellCosts,
    TellMemory,
    TellTime,
    TimeKernels,
    Verify,
    WrongInput,
)

# Tells the parent; the result is the parent's byte, where the sender waits for one.
Emit = Callable[[Reply], bytes]
# The modules that were imported before the code of any case; in one process for all, none is known.
_before_the_fork: set[str] = set()


def preload(static: bool = True) -> None:
    """Import what every child needs, before the fork; what static metrics need too, if `static`.

    Starts no thread and touches no driver. A backward pass would do both: beside a GPU, autograd's engine starts a
    thread for it and initialises CUDA, and then no forked child can train.
    """
    import torch

    import ctxbench.model.metrics
    import ctxbench.registry
    import ctxbench.worker.measurement

    ctxbench.model.metrics.metrics()
    ctxbench.registry.names()
    if not static:
        return
    from ctxbench.meta.without_compiler import without_compiler
    from ctxbench.plugins.macs.counter import count_macs
    from ctxbench.plugins.memory.predict import predict_peak

    # The first meta computations import torch's decompositions: once, here.
    with without_compiler():
        layer = torch.nn.Conv2d(4, 4, 1, device="meta")
        image = torch.empty(1, 4, 2, 2, device="meta")
        count_macs(layer, image)
        predict_peak(layer, image, mode="infer")


def prepare(task: Task) -> None:
    """Import what a task's network is made of once, before the fork; the child tells what goes wrong."""
    if isinstance(task, MeasureCase | CountCase) and task.case.network and ":" not in task.case.network:
        with contextlib.suppress(Exception):
            from ctxbench.networks._parts import timm

            timm()
    _before_the_fork.update(sys.modules)


def perform(task: Task, emit: Emit) -> None:
    """Do one task. Failures of a case are reported, not raised."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        match task:
            case DescribeEnvironment():
                from ctxbench.results import environment

                emit(Environment(environment.describe()))
            case Verify():
                from ctxbench.plugins.verify.child import verify

                _limit_memory(task.memory_limit_gib)
                verify(task, emit)
            case ListCases():
                from ctxbench.plugins.check.child_listing import list_cases

                list_cases(task, emit)
            case TakeSide():
                from ctxbench.plugins.check.child_pair import take_side

                _limit_memory(task.measure.memory_limit_gib)
                take_side(task, emit)
            case TakeOutputs():
                from ctxbench.plugins.check.child_outputs import take_outputs

                _limit_memory(task.measure.memory_limit_gib)
                with _reported(emit):
                    take_outputs(task, emit)
            case TimeKernels():
                from ctxbench.plugins.calibrate.child import time_kernels

                time_kernels(task, emit)
            case MatmulRate() | MeasureCase():
                from ctxbench.worker.measurement import CaseMeasurement

                _limit_memory(task.measure.memory_limit_gib)
                telling = _Telling(emit)
                with _reported(telling):
                    if isinstance(task, MatmulRate):
                        CaseMeasurement(task.case, task.measure, telling).measure_matmul()
                    else:
                        CaseMeasurement(task.case, task.measure, telling, task.counter, task.force).run(task.metrics)
                telling.tell()
            case _:
                with _reported(emit):
                    _answer(task, emit)


def _answer(
    task: ReadModule | ReadNetwork | CountCase | TellCosts | TellMemory | TellTime | ProfileCase, emit: Emit
) -> None:
    """Tell what a command asks of one module or network."""
    from ctxbench import registry
    from ctxbench.registry import networks

    sys.dont_write_bytecode = True  # reading leaves a user's folders as they are
    try:
        match task:
            case ReadModule():
                emit(ReadEntry(registry.get(task.reference).plain))
            case ReadNetwork():
                emit(NetworkShape(networks.get(task.name).shape))
            case CountCase():
                from ctxbench.plugins.audit.child import count_case

                emit(count_case(task))
            case TellCosts():
                from ctxbench.plugins.show import child as tell

                tell.costs(task, emit)
            case TellMemory():
                from ctxbench.plugins.show import child as tell

                tell.memory(task, emit)
            case ProfileCase():
                from ctxbench.plugins.profile.child import profile_case

                profile_case(task, emit)
            case TellTime():
                from ctxbench.plugins.predict import child as tell_time

                tell_time.time(task, emit)
    except UsageError as error:
        emit(WrongInput(str(error)))


@contextlib.contextmanager
def _reported(emit: Emit) -> Iterator[None]:
    """Report whatever a user's code raises, also what is meant to end the process; a person's Ctrl-C goes on."""
    try:
        yield
    except BaseException as error:
        if is_interrupt(error):
            raise
        emit(describe_failure(error))


class _Telling:
    """An Emit that tells, before each message, which files of a person's own were imported since the last one."""

    def __init__(self, emit: Emit) -> None:
        self._emit, self._known = emit, {*_before_the_fork}

    def __call__(self, message: Reply) -> bytes:
        if not isinstance(message, Progress):  # between two samples, nothing should be computed
            self.tell()
        return self._emit(message)

    def tell(self) -> None:
        new = sys.modules.keys() - self._known
        self._known |= new
        if files := own_files(new):
            self._emit(Imported(files))


def _limit_memory(gib: float | None) -> None:
    """Cap the child's private memory (RLIMIT_DATA, on Linux), so that a case that eats memory fails alone."""
    if gib is not None and FORKS:
        import resource

        limit = int(gib * 2**30)
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
