"""Runs on a GPU, `results/gpu-NAME`: the newest, and how far predictions are from what it measured."""

import json
from typing import Any

import pandas as pd
from lists import ROOT

RESULTS = ROOT / "results"
# Columns of bytes and of marks: the prediction of the day of the run, today's, and today's with cuDNN's workspaces.
ERRORS = {
    "then": ("predicted_bytes", "plain_marks"),
    "plain": ("plain_allocated_bytes", "plain_marks"),
    "card": ("allocated_bytes", "marks"),
}


def gpu_run(having: str = "") -> dict[str, Any]:
    """Folder, GPU, day and steps of the newest run, with a step whose title has this text; nothing if there is none."""
    runs = []
    for path in RESULTS.glob("gpu-*/steps.json"):
        run = {"folder": path.parent.name, **json.loads(path.read_text(encoding="utf-8"))}
        if any(having in step["step"] for step in run["steps"]):
            runs.append(run)
    return max(runs, key=lambda run: run["day"], default={})


def gpu_errors(of: str = "card", *, marked: bool = True) -> "pd.Series[float]":
    """Of each measured peak of all blocks, by what it is of: the prediction over it, less one; the largest first.

    `of` is one of ERRORS. Without `marked`, only of predictions that no mark calls into question.
    """
    peaks = gpu_peaks()
    peaks = peaks if marked else peaks[peaks[ERRORS[of][1]].isna()]
    names = [f"`{row.module}` {row.mode} {row.dtype} {row.shape}" for row in peaks.itertuples()]
    return _largest_first(peaks[of], names)


def gpu_peaks() -> pd.DataFrame:
    """The measured peaks of all blocks, with the errors of predictions as shares: see ERRORS."""
    peaks = _table("peaks").merge(_table("cudnn-peaks"))
    return peaks.assign(**{name: peaks[of] / peaks["measured_bytes"] - 1 for name, (of, _) in ERRORS.items()})


def gpu_ranges() -> dict[str, float]:
    """Count the peaks with two ends, those within to 0.1 %, and by what share the furthest is outside."""
    peaks = gpu_peaks().dropna(subset=["low_bytes"])
    requested = peaks["requested_bytes"]
    outside = pd.concat([peaks["low_bytes"] / requested - 1, 1 - peaks["high_bytes"] / requested], axis=1).max(axis=1)
    return {"count": len(peaks), "within": int((outside <= 0.001).sum()), "furthest": float(outside.max())}


def gpu_gradients() -> pd.DataFrame:
    """The operators whose gradients were computed there, for arguments of other strides."""
    return _table("gradients")


def _table(name: str) -> pd.DataFrame:
    """A table of the newest run, compressed or not."""
    return pd.read_csv(next((RESULTS / gpu_run()["folder"]).glob(f"{name}.csv*")))


def _largest_first(errors: "pd.Series[float]", names: list[str]) -> "pd.Series[float]":
    return errors.set_axis(names).sort_values(key=lambda error: -error.abs(), kind="stable")
