"""The newest run on a GPU, `results/gpu-NAME`, and how far predicted peaks are from those that it measured."""

import json
from typing import Any

import pandas as pd
from lists import ROOT

from ctxbench.base.mode import MODES
from ctxbench.results.run_folder import RunFolder

RESULTS = ROOT / "results"


def gpu_run() -> dict[str, Any]:
    """Folder, GPU, day and steps; nothing if no GPU has run ctxbench."""
    runs = []
    for path in RESULTS.glob("gpu-*/steps.json"):
        runs.append({"folder": path.parent.name, **json.loads(path.read_text(encoding="utf-8"))})
    return max(runs, key=lambda run: run["day"], default={})


def gpu_errors() -> "pd.Series[float]":
    """Of each measured peak of all blocks, by what it is of: the prediction over it, less one; the largest first."""
    peaks = pd.read_csv(RESULTS / gpu_run()["folder"] / "peaks.csv").dropna(
        subset=["predicted_bytes", "measured_bytes"]
    )
    names = [f"`{row.module}` {row.mode} {row.dtype} {row.shape}" for row in peaks.itertuples()]
    return _largest_first(peaks["predicted_bytes"] / peaks["measured_bytes"] - 1, names)


def gpu_table3_errors() -> "pd.Series[float]":
    """The same of the blocks of Table 3."""
    frame = RunFolder.open(RESULTS / gpu_run()["folder"].replace("gpu-", "table3-")).frame()
    found = [frame[f"memory_{mode}_predicted_bytes"] / frame[f"memory_{mode}_bytes"] - 1 for mode in MODES]
    return _largest_first(pd.concat(found), [f"`{key}` {mode}" for mode in MODES for key in frame["module"]])


def _largest_first(errors: "pd.Series[float]", names: list[str]) -> "pd.Series[float]":
    return errors.set_axis(names).sort_values(key=lambda error: -error.abs(), kind="stable")
