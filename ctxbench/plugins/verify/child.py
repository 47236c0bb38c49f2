"""The contract of one module, check by check."""

import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ctxbench import registry
from ctxbench.plugins.verify.checks import CHECKS, COMPILERS, run_checks
from ctxbench.plugins.verify.contract import CHANNELS, OTHER_SIZES, SIZE
from ctxbench.plugins.verify.subject import Subject
from ctxbench.plugins.verify.wire import CheckDone, CheckStarted
from ctxbench.registry.maker import Maker


def verify(
    reference: str,
    channels: int | None,
    hparams: Mapping[str, Any],
    size: tuple[int, int] | None,
    also: tuple[int, int] | None,
    compilers: bool,
    timeout_s: float,
    done: Sequence[str],
    emit: Callable[[object], object],
) -> None:
    """Run the checks but those that are `done`, and report each result as it is known.

    Without `channels` it is made for as many as an instance is, or CHANNELS; without a `size`, SIZE or another that it
    takes, at last `also`, is its usual input. Without `compilers`, torch.compile and torch.export are left out. A check
    that takes more than `timeout_s` of processor time ends the process with SIGPROF.
    """

    def start(started: CheckStarted) -> None:
        emit(started)
        # The process's own time: other work decides nothing. The kernel ends even a loop that is not Python's. Windows
        # has no such limit; there that of the process ends it.
        if hasattr(signal, "setitimer"):
            signal.signal(signal.SIGPROF, signal.SIG_DFL)
            signal.setitimer(signal.ITIMER_PROF, timeout_s)

    start(CheckStarted("load", required=True, vital=True))
    entry = registry.get(reference)
    channels = channels or entry.made_for or CHANNELS
    made = entry.check_hparams(hparams, channels)
    others = () if size else (*OTHER_SIZES, also or SIZE)
    make = entry.load()
    make = replace(make, size=size or also) if isinstance(make, Maker) else make
    subject = Subject(entry, make, channels, made, size or SIZE, others)
    checks = [check for check in CHECKS if check.name not in done and (compilers or check not in COMPILERS)]
    for result in run_checks(
        subject, checks, on_start=lambda check: start(CheckStarted(check.name, check.required, check.vital))
    ):
        emit(CheckDone(result))
