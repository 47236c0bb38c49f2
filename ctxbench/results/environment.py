"""Environment of a run: machine, software and settings."""

import os
import platform
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

from ctxbench import devices
from ctxbench.base import extras
from ctxbench.executions import executions
from ctxbench.results.sources import commit_of

PACKAGES = ("ctxbench", "torch", "torchprofile", "numpy", "pandas")


def describe() -> dict[str, Any]:
    """The environment as plain values for `run.json`. Imports torch and, if there is a GPU, initialises CUDA."""
    import torch

    return {
        **moment(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": {name: _version(name) for name in PACKAGES} | _runtimes(),
        "torch_build": {"cuda": torch.version.cuda, "git": torch.version.git_version},
        **devices.fingerprint(),
    }


def moment() -> dict[str, Any]:
    """Facts of an environment that change while the machine stays as it is."""
    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "load_average": os.getloadavg() if hasattr(os, "getloadavg") else None,
        "commit": commit_of(Path(__file__), Path(__file__).parents[1]),
    }


def _runtimes() -> dict[str, str]:
    """The versions of the installed packages that executions need."""
    names = dict.fromkeys(name for way in executions().values() for name in extras.packages_of(way.extra))
    return {name: found for name in names if (found := _version(name))}


def _version(package: str) -> str | None:
    try:
        return extras.installed(package)
    except PackageNotFoundError:
        return None


def command_line() -> str:
    """The command that started this process."""
    started = Path(sys.argv[0])
    name = f"python -m {started.parent.name}" if started.name == "__main__.py" else started.name
    return " ".join([name, *sys.argv[1:]])


def differences(
    before: Mapping[str, Any], now: Mapping[str, Any], phrase: str = "{name}: {old} then, {new} now"
) -> list[str]:
    """Reasons against comparing two environments' measurements, a phrase each; empty when they may share a table.

    A fact that one of them does not tell, as an older `run.json` or a GPU without NVML, is no difference.
    """
    old, new = _facts(before), _facts(now)
    differing = [name for name in old if name in new and old[name] != new[name]]
    return [phrase.format(name=name, old=old[name], new=new[name]) for name in differing]


def _facts(environment: Mapping[str, Any]) -> dict[str, Any]:
    """Facts of an environment that measurements depend on, as far as it has them."""
    gpus = environment["gpus"]
    facts = {
        "cpu": environment["cpu"],
        "usable cores": environment["cpu_usable"],
        "gpu": ", ".join(gpu["name"] for gpu in gpus) or "none",
        "driver": environment["driver"],
        "torch": environment["packages"]["torch"],
        "threads": environment["torch_threads"],
    }
    for name, key in (("power limit (W)", "power_limit_w"), ("MIG mode", "mig_mode")):
        if gpus and all(key in gpu for gpu in gpus):
            facts[name] = ", ".join(str(gpu[key]) for gpu in gpus)
    titles = (
        ("cuDNN", "cudnn"),
        ("allocator configuration", "allocator_config"),
        ("malloc", "malloc"),
        ("CPU capability", "cpu_capability"),
        ("instruction sets", "instruction_sets"),
        ("oneDNN", "onednn_version"),
        ("oneDNN's largest instruction set", "onednn_max_isa"),
    )
    for name, key in titles:
        if key in environment:
            value = environment[key]
            facts[name] = ", ".join(value) if isinstance(value, list) else value
    return facts
