"""What machine, software and settings a run was made with."""

import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = ("ctxbench", "torch", "torchprofile", "numpy", "pandas")


def describe() -> dict[str, Any]:
    """The environment as plain values for `run.json`. Imports torch and, if there is a GPU, initialises CUDA."""
    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpu": _cpu_model(),
        "cpu_count": os.cpu_count(),
        "cpu_usable": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "load_average": os.getloadavg(),
        "packages": {name: _version(name) for name in PACKAGES},
        "commit": _commit(),
        **_torch(),
    }


def _torch() -> dict[str, Any]:
    import torch

    found: dict[str, Any] = {
        "torch_threads": torch.get_num_threads(),
        "torch_build": {"cuda": torch.version.cuda, "git": torch.version.git_version},
        "blas": "mkl" if torch.backends.mkl.is_available() else "other",
        "onednn": torch.backends.mkldnn.is_available(),
        "gpus": [],
        "driver": None,
    }
    if torch.cuda.is_available():
        properties = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]
        found["gpus"] = [
            {"name": p.name, "memory_bytes": p.total_memory, "capability": f"{p.major}.{p.minor}"} for p in properties
        ]
        found["driver"] = _driver()
        found["cudnn"] = torch.backends.cudnn.version()
    return found


def _driver() -> str | None:
    try:
        command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\n")[0].strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def _cpu_model() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or "unknown"


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _commit() -> str | None:
    """The commit of the source tree that ctxbench runs from, with `+changes` if files differ; None for a wheel."""
    folder = Path(__file__).parent

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(folder), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        git("ls-files", "--error-unmatch", __file__)
        return git("rev-parse", "HEAD") + ("+changes" if git("status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def command_line() -> str:
    """The command that started this process."""
    return " ".join([Path(sys.argv[0]).name, *sys.argv[1:]])


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What makes two environments' measurements incomparable, a phrase each; empty when they may share a table."""

    def facts(environment: Mapping[str, Any]) -> dict[str, Any]:
        gpus = ", ".join(gpu["name"] for gpu in environment["gpus"])
        return {
            "cpu": environment["cpu"],
            "usable cores": environment["cpu_usable"],
            "gpu": gpus or "none",
            "driver": environment["driver"],
            "torch": environment["packages"]["torch"],
            "threads": environment["torch_threads"],
        }

    old, new = facts(before), facts(now)
    return [f"{name}: {old[name]} then, {new[name]} now" for name in old if old[name] != new[name]]
