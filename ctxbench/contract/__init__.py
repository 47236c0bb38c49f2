"""The contract of a context module, checked in a fresh process: what holds, what does not, and what to do about it."""

import signal
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from ctxbench.errors import UsageError

if TYPE_CHECKING:
    from ctxbench.engine.scheduler import Executor

Outcome = Literal["passed", "failed", "not applicable"]

CHANNELS = 64
# Odd, not square, and 99 positions: enough for the hams' default rank of 64.
SIZE = (11, 9)
TIMEOUT_S = 180.0
# The checks feed inputs of a few hundred KiB; a module that needs more than this has lost its way.
MEMORY_LIMIT_GIB = 8.0


@dataclass(frozen=True)
class CheckResult:
    """What one check found: a measured `fact` and, if it failed, a `hint` at the cause.

    A check that is not `required` informs only: its failure does not break the contract.
    """

    name: str
    outcome: Outcome
    fact: str
    hint: str = ""
    required: bool = True

    @property
    def broken(self) -> bool:
        """Whether this result breaks the contract."""
        return self.required and self.outcome == "failed"


def verify(
    reference: str,
    executor: "Executor",
    *,
    channels: int = CHANNELS,
    hparams: Mapping[str, Any] | None = None,
    size: tuple[int, int] = SIZE,
    timeout_s: float = TIMEOUT_S,
    compilers: bool = True,
    on_result: Callable[[CheckResult], None] = lambda result: None,
) -> list[CheckResult]:
    """Check a module (a key, `path.py:Class` or `package.module:Class`) in a fresh process of `executor`.

    `on_result` gets each result as it is known. Without `compilers`, torch.compile and torch.export are left out: they
    take seconds and only inform. A check that hangs, crashes or eats memory has failed, and ends the
    list. Raises UsageError, with the traceback of the module's own file, if there is nothing to check.
    """
    if min(size) < 1:
        raise UsageError(f"size {size[0]} {size[1]} is not a height and a width of at least 1")
    results: list[CheckResult] = []
    running = "load"
    problem: str | None = None

    def on_event(event: dict[str, Any]) -> None:
        nonlocal running, problem
        match event["event"]:
            case "check":
                running = event["name"]
            case "result":
                results.append(CheckResult(**event["result"]))
                on_result(results[-1])
            case "usage":
                problem = event["message"]

    task = {
        "task": "contract",
        "reference": reference,
        "channels": channels,
        "hparams": dict(hparams or {}),
        "size": list(size),
        "compilers": compilers,
        "memory_limit_gib": MEMORY_LIMIT_GIB,
    }
    ended = executor.run(task, on_event, timeout_s)
    if problem is not None:
        raise UsageError(problem)
    if ended.timed_out:
        fact, hint = (
            f"still running after {timeout_s:g} s",
            "the process was ended; look for a loop, or allow more time",
        )
    elif ended.signal:
        fact, hint = f"the process was killed by {signal.Signals(ended.signal).name}", _last_words(ended.output)
    elif ended.code:
        fact, hint = f"the process ended with exit code {ended.code}", _last_words(ended.output)
    else:
        return results
    results.append(CheckResult(running, "failed", fact, f"{hint}; the checks after this one did not run"))
    on_result(results[-1])
    return results


def perform(task: Mapping[str, Any], emit: Callable[[dict[str, Any]], object]) -> None:
    """The child's side of `verify`: run the checks, report each result as it is known."""
    from ctxbench import registry
    from ctxbench.contract.checks import CHECKS, COMPILERS, run_checks
    from ctxbench.contract.subject import Subject

    try:
        entry = registry.get(task["reference"])
        hparams = entry.check_hparams(task["hparams"])
        height, width = task["size"]
        subject = Subject(entry, entry.load(), task["channels"], hparams, (height, width))
    except UsageError as error:
        emit({"event": "usage", "message": str(error)})
        return
    checks = [check for check in CHECKS if task["compilers"] or check not in COMPILERS]
    for result in run_checks(subject, checks, on_start=lambda name: emit({"event": "check", "name": name})):
        emit({"event": "result", "result": asdict(result)})


def _last_words(output: str) -> str:
    lines = output.strip().splitlines()
    return f"it last printed: {lines[-1]}" if lines else "it printed nothing"
