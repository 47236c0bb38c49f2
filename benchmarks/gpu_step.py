"""Shared parts of the steps of gpu.py: the step, its measurement and the reading of its rows."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

DEVICE = "cuda"


class CannotRun(Exception):
    """The step does not apply to this machine, or could not be judged; the text says why."""


@dataclass(frozen=True)
class Step:
    """A step: `run(out, deadline)` says whether it came out as expected, and what was seen."""

    name: str
    title: str
    expectation: str
    timeout_s: float
    run: Callable[[Path, float], tuple[bool, str]]


def folders(out: Path) -> list[Path]:
    """Everything that a run with this folder writes: itself, and beside it Table 3 under both protocols."""
    name = out.name.removeprefix("gpu-")
    return [out, *(out.with_name(f"{table}-{name}") for table in ("table3", "table3-paper"))]


def measured(folder: Path, **options: Any) -> "pd.DataFrame":
    """Run a suite through the engine; its records."""
    import ctxbench
    from ctxbench.engine.progress import Plain

    return ctxbench.run(**{"device": DEVICE, **options}, out=folder, reporter=Plain()).frame


def failures(frame: "pd.DataFrame") -> list[str]:
    """The rows that are not `ok`, and why."""
    bad = frame[frame["status"] != "ok"]
    return [f"{row['case']}: {row['status']}, {row['message']}" for _, row in bad.iterrows()]
