"""The contract of one module, check by check."""

import signal
from collections.abc import Callable

from ctxbench import registry
from ctxbench.base.errors import UsageError
from ctxbench.plugins.verify.checks import CHECKS, COMPILERS, run_checks
from ctxbench.plugins.verify.subject import Subject
from ctxbench.worker.protocol import CheckDone, CheckStarted, Reply, Verify, WrongInput


def verify(task: Verify, emit: Callable[[Reply], object]) -> None:
    """Run the checks and report each result as it is known."""

    def start(started: CheckStarted) -> None:
        emit(started)
        # The process's own time: other work decides nothing. The kernel ends even a loop that is not Python's. Windows
        # has no such limit; there that of the process ends it.
        if hasattr(signal, "setitimer"):
            signal.signal(signal.SIGPROF, signal.SIG_DFL)
            signal.setitimer(signal.ITIMER_PROF, task.timeout_s)

    start(CheckStarted("load", required=True, vital=True))
    try:
        entry = registry.get(task.reference)
        subject = Subject(
            entry, entry.load(), task.channels, entry.check_hparams(task.hparams, task.channels), task.size
        )
    except UsageError as error:
        emit(WrongInput(str(error)))
        return
    checks = [check for check in CHECKS if check.name not in task.done and (task.compilers or check not in COMPILERS)]
    for result in run_checks(
        subject, checks, on_start=lambda check: start(CheckStarted(check.name, check.required, check.vital))
    ):
        emit(CheckDone(result))
