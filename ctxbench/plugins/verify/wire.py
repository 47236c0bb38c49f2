"""Messages of the process that checks a module."""

from dataclasses import dataclass

from ctxbench.plugins.verify.contract import CheckResult


@dataclass(frozen=True, slots=True)
class CheckStarted:
    """A check of the contract begins; if it is `vital`, those after it need it."""

    name: str
    required: bool
    vital: bool


@dataclass(frozen=True, slots=True)
class CheckDone:
    """Result of a check of the contract."""

    result: CheckResult
