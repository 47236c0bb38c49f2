"""Code of each task, and imports before the first."""

import contextlib
import importlib
import sys
import warnings
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

from ctxbench import devices
from ctxbench.base.call_sites import is_library
from ctxbench.base.clocks import FORKS
from ctxbench.model.messages import Failure, Progress
from ctxbench.model.metrics import metrics
from ctxbench.plugin import loaded
from ctxbench.registry import networks
from ctxbench.registry.reference import Reference
from ctxbench.registry.torchvision import with_torchvision
from ctxbench.results.sources import own_files
from ctxbench.worker import opened
from ctxbench.worker.protocol import Ask, Imported, MatmulRate, MeasureCase, MeasureCases, Measured, Reply, Task
from ctxbench.worker.questions import Emit, answer, function_of, reported

# Modules that a child imports for whatever case.
_BY_EACH_CHILD = (
    "ctxbench.base.statistics", "ctxbench.meta.built", "ctxbench.registry.layout", "ctxbench.registry.slot",
    "ctxbench.table.numbers", "numpy.fft", "numpy.ma", "numpy.random", "numpy.typing", "psutil",
    "torch.utils._device",
)  # fmt: skip
# The modules that were imported before the code of any case; in one process for all, none is known.
_before_the_fork: set[str] = set()


def preload(static: bool = True) -> None:
    """Import what every child needs, before the fork; what static metrics need too, if `static`.

    Starts no thread and touches no driver. A backward pass would do both: beside a GPU, autograd's engine starts a
    thread for it and initialises CUDA, and then no forked child can train.
    """
    import ctxbench.registry
    import ctxbench.worker.measurement

    metrics()
    ctxbench.registry.names()
    for name in _BY_EACH_CHILD:
        importlib.import_module(name)
    if not static:
        return
    from ctxbench.meta.without_compiler import without_compiler

    # The first meta computations import torch's decompositions: once, here.
    with without_compiler():
        for prepare_plugin in loaded("preload"):
            prepare_plugin()


def prepare(task: Task) -> None:
    """Import what answers a question, and the libraries of networks and metrics, once, before the fork.

    timm and torchvision take more than a second. None of it starts a thread or touches a driver. The child tells what
    goes wrong.
    """
    names: list[str] = []
    match task:
        case Ask():
            references = task.references
            with contextlib.suppress(Exception), _installed_alone():
                function_of(task.question)
        case MeasureCases():
            references = []  # networks share no process
        case _:
            references = [task.case.network] if task.case.network else []
    if isinstance(task, MeasureCase):
        names = [name for each in task.metrics for name in metrics()[each].imports(task.measure)]
    for each in references:
        source = Reference.parse(each).source
        library = "timm" if not source or source.startswith(f"{networks.BUILT_IN}.") else source.partition(".")[0]
        if library in ("timm", "torchvision"):
            with contextlib.suppress(Exception), _installed_alone():
                with_torchvision(partial(importlib.import_module, library))
    for name in names:
        with contextlib.suppress(Exception), _installed_alone():
            importlib.import_module(name)
    _before_the_fork.update(sys.modules)


@contextlib.contextmanager
def _installed_alone() -> Iterator[None]:
    """Import nothing but what is installed: a file of a person's own runs in a child alone, whatever its name."""
    everywhere = [*sys.path]
    sys.path[:] = [each for each in everywhere if is_library(Path(each, "any"))]
    try:
        yield
    finally:
        sys.path[:] = everywhere


def perform(task: Task, emit: Emit) -> None:
    """Do one task. Failures of a case are reported, not raised."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        match task:
            case Ask():
                _limit_memory(task.memory_limit_gib)
                answer(task, emit)
            case MatmulRate() | MeasureCase():
                _measure(task, emit)
            case MeasureCases():
                _measure_each(task.tasks, emit)


def _measure_each(tasks: Sequence[MeasureCase], emit: Emit) -> None:
    """Measure cases up to the first that fails; without a clock, those of the same passes share what these show."""
    for _, alike in groupby(tasks, lambda each: each.case.passes):
        known: dict[str, Any] = {}
        for each in alike:
            has_clock = devices.has_clock(each.case.device)
            if not _measure(each, emit, None if has_clock else known):
                return
            emit(Measured())
            if has_clock:
                devices.device(each.case.device).release()


def _measure(task: MatmulRate | MeasureCase, emit: Emit, known: dict[str, Any] | None = None) -> bool:
    """Measure a case, or the rate of a product under its conditions; whether nothing failed."""
    from ctxbench.worker.measurement import CaseMeasurement

    _limit_memory(task.measure.memory_limit_gib)
    telling = _Telling(emit)
    with reported(telling):
        if isinstance(task, MatmulRate):
            CaseMeasurement(task.case, task.measure, telling).measure_matmul()
        else:
            CaseMeasurement(
                task.case, task.measure, telling, task.counter, task.force, kept=task.kept, known=known
            ).run(task.metrics)
    telling.tell()
    return not telling.has_failed


class _Telling:
    """An Emit that tells, before each message, which own files of a person were imported or read since the last one."""

    def __init__(self, emit: Emit) -> None:
        self._emit, self._known = emit, {*_before_the_fork}
        self._opened: set[str] = set()
        opened.listen()
        self.has_failed = False

    def __call__(self, message: Reply) -> bytes:
        if not isinstance(message, Progress):  # between two samples, nothing should be computed
            self.tell()
        self.has_failed |= isinstance(message, Failure)
        return self._emit(message)

    def tell(self) -> None:
        new = sys.modules.keys() - self._known
        self._known |= new
        if files := {**own_files(new), **opened.since(self._opened)}:
            self._emit(Imported(files))


def _limit_memory(gib: float | None) -> None:
    """Cap the child's private memory (RLIMIT_DATA, on Linux), so that a case that eats memory fails alone."""
    if gib is not None and FORKS:
        import resource

        limit = int(gib * 2**30)
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
