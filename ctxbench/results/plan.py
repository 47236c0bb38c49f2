"""Plan of a run, listed once before it begins: its cases, the data sheets of their devices, their sources."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from ctxbench import devices
from ctxbench.base.errors import UsageError
from ctxbench.executions import executions
from ctxbench.model.case import Case, as_list
from ctxbench.model.grid import Suite
from ctxbench.model.suite_file import SuiteFile
from ctxbench.registry import networks
from ctxbench.results.environment import command_line
from ctxbench.results.sources import source_of, sources_of


@dataclass(frozen=True)
class RunPlan:
    """The cases of a suite on the devices that measure them, and what `run.json` keeps of these."""

    suite: Suite
    cases: Sequence[Case]

    @cached_property
    def sheets(self) -> dict[str, dict[str, Any]]:
        """The data sheets that times are predicted from, by the device's name."""
        found = devices.sheets(dict.fromkeys(case.device for case in self.cases))
        return {name: each.model_dump(mode="json") for name, each in found.items()}

    @cached_property
    def sources(self) -> dict[str, dict[str, Any]]:
        """The files of ctxbench, of the modules and of the networks, by their names."""
        return sources_of(self.cases)

    def meta(self, environment: Mapping[str, Any], *, static: bool = False, **settings: Any) -> dict[str, Any]:
        """Metadata in `run.json` of a run that begins; `settings` are its `counter`, `metrics` and `force`."""
        return {
            "suite": self.suite.name,
            "state": "running",
            "command": command_line(),
            "static": static,
            **settings,
            "definition": self.suite.file.model_dump(mode="json"),
            "suite_file": source_of(self.suite.path),
            "sources": self.sources,
            "sheets": self.sheets,
            "environment": environment,
        }


def prepare(suite: Suite, environment: Mapping[str, Any], static: bool = False) -> RunPlan:
    """The plan of a suite for a machine; when static, cases that would be timed are without a device, each once.

    UsageError for a device that `environment` does not have, and if no case is left.
    """
    if static:
        placed = suite.cases("cpu")
        found = (replace(case, device=devices.META) if devices.has_clock(case.device) else case for case in placed)
        return RunPlan(suite, list({case.id: case for case in found}.values()))
    plan = RunPlan(suite, suite.cases(devices.auto(environment)))
    for name in dict.fromkeys(case.device for case in plan.cases if case.device not in plan.sheets):
        devices.check(name, environment)
    return plan


def check_installed(file: SuiteFile, static: bool = False) -> None:
    """UsageError with the commands that install them, if packages are missing for what a suite names."""

    def named(condition: str) -> Iterator[Any]:
        yield from getattr(file.axes, condition)
        for case in file.cases:
            yield from as_list(case.get(condition, []))

    missing = [networks.lacking(name) for name in named("network")]
    if not static:
        missing += [executions()[name].lacking() for name in named("execution")]
    if missing := list(filter(None, missing)):
        by_command = {each.partition(": ")[2]: each for each in reversed(missing)}
        raise UsageError("; ".join(reversed(by_command.values())))
