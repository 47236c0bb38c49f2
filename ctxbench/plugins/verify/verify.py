"""The contract of a module checked in a fresh process, which may hang, crash or run out of memory."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ctxbench import registry
from ctxbench.base.errors import UsageError
from ctxbench.engine.remote import ask
from ctxbench.model.conditions import parse_shape
from ctxbench.model.failures import last_line, signal_name
from ctxbench.plugins.verify.contract import (
    CHANNELS,
    MEMORY_LIMIT_GIB,
    MOST_HANGS,
    NO_MORE,
    SIZE,
    TIMEOUT_S,
    CheckResult,
    option,
)
from ctxbench.plugins.verify.wire import CheckDone, CheckStarted

# A module that sleeps takes no processor time: its process is stopped after so many times the limit of a check.
PROCESS_LIMIT = 5

if TYPE_CHECKING:
    from ctxbench.engine.exit import Exit
    from ctxbench.engine.one_process import Executor


def verify(
    reference: str,
    executor: "Executor",
    *,
    channels: int | None = None,
    hparams: Mapping[str, Any] | None = None,
    size: tuple[int, int] | None = None,
    also: tuple[int, int] | None = None,
    timeout_s: float = TIMEOUT_S,
    compilers: bool = True,
    on_start: Callable[[str], None] = lambda name: None,
    on_result: Callable[[CheckResult], None] = lambda result: None,
) -> list[CheckResult]:
    """Check a module (a key, `path.py:Class` or `package.module:Class`) in a fresh process of `executor`.

    It is made for as many `channels` as an instance is, or CHANNELS. It is checked at `size`, by default SIZE or, if it
    refuses that, one of OTHER_SIZES or `also`. `on_start` gets the name of each check that begins, `on_result` each
    result as soon as it is known. Without `compilers`, torch.compile and torch.export are left out: they take seconds
    and only inform. A check that takes more than `timeout_s` of processor time is not decided; nor is one in which the
    process reaches PROCESS_LIMIT times as much on the wall's clock. The others go on in a new process, but not without
    a check that they need, nor after MOST_HANGS required ones that were stopped. A check in which the process crashes
    or runs out of memory has failed, and no check runs after it. Raises UsageError, with the traceback of the module's
    own file, if there is nothing to check.
    """
    if size and min(size) < 1:
        raise UsageError(f"size {size[0]} {size[1]} is not a height and a width of at least 1")
    parse_shape((1, channels or CHANNELS, *(size or SIZE)))
    reference = registry.absolute(reference)  # the executor may have begun in another working folder
    results: list[CheckResult] = []
    running = CheckStarted("load", required=True, vital=True)
    stopped = 0

    def add(result: CheckResult) -> None:
        results.append(result)
        on_result(result)

    def take(message: CheckStarted | CheckDone) -> None:
        nonlocal running
        match message:
            case CheckStarted():
                running = message
                on_start(message.name)
            case CheckDone(result):
                add(result)

    while True:
        done = [result.name for result in results]
        answered = ask(
            executor, "contract", CheckStarted | CheckDone, reference, channels, hparams or {}, size, also, compilers,
            timeout_s, done, on_told=take, timeout_s=PROCESS_LIMIT * timeout_s, memory_limit_gib=MEMORY_LIMIT_GIB,
        )  # fmt: skip
        if answered.wrong:
            raise UsageError(answered.wrong)
        ended = answered.ended
        if reason := _stop(ended, timeout_s):
            fact, hint = reason
            stopped += running.required
            is_last = running.vital or stopped == MOST_HANGS
            add(CheckResult(running.name, "not decided", fact, hint + NO_MORE * is_last, running.required))
            if not is_last:
                continue
        elif reason := _death(ended):
            fact, hint = reason
            add(CheckResult(running.name, "failed", fact, hint + NO_MORE))
        return results


def _stop(ended: "Exit", timeout_s: float) -> tuple[str, str] | None:
    """Fact and hint if the process was stopped at a limit."""
    more = option(f"verify --timeout {5 * timeout_s:g}", f"timeout_s={5 * timeout_s:g}")
    if signal_name(ended.signal) == "SIGPROF":
        return (
            f"still running after {timeout_s:g} s of processor time",
            f"it was stopped; look for an endless loop, or allow more: {more}",
        )
    if ended.timed_out:
        return (
            f"the process was still running after {PROCESS_LIMIT * timeout_s:g} s",
            f"it was stopped; look for what it waits for, or on a busy machine allow more: {more}",
        )
    return None


def _death(ended: "Exit") -> tuple[str, str] | None:
    """Fact and hint if the process ended before its last check."""
    if ended.signal:
        return f"the process was killed by {signal_name(ended.signal)}", last_line(ended.output)
    if ended.code or ended.early:
        return f"the process ended with exit code {ended.code}", last_line(ended.output)
    return None
