"""The newest run on a GPU, `results/gpu-NAME`, and how far predicted peaks are from those that it measured."""

import importlib
import json
import sys
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


def gpu_errors(*, marked: bool = True) -> "pd.Series[float]":
    """Of each measured peak of all blocks, by what it is of: the prediction over it, less one; the largest first.

    Without `marked`, only of predictions that no mark calls into question.
    """
    peaks = gpu_peaks()
    peaks = peaks if marked else peaks[peaks["marks"].isna()]
    names = [f"`{row.module}` {row.mode} {row.dtype} {row.shape}" for row in peaks.itertuples()]
    return _largest_first(peaks["error"], names)


def gpu_peaks() -> pd.DataFrame:
    """The peaks of all blocks that were measured and predicted, with the prediction's error as a share."""
    peaks = pd.read_csv(RESULTS / gpu_run()["folder"] / "peaks.csv")
    peaks = peaks.dropna(subset=["predicted_bytes", "measured_bytes"])
    return peaks.assign(error=peaks["predicted_bytes"] / peaks["measured_bytes"] - 1)


def cudnn_peaks() -> str:
    """A table of how near predicted peaks come to those that the H200 measured, without cuDNN and with it."""
    folder = RESULTS / "gpu-h200-2"
    peaks = pd.read_csv(folder / "peaks.csv").merge(pd.read_csv(folder / "cudnn-peaks.csv"))
    plain, told = (_near(peaks, prefix) for prefix in ("plain_", ""))
    rows = [f"| {what} | {count} | {told[what]} |" for what, count in plain.items()]
    return "\n".join([f"| of {len(peaks)} peaks | without cuDNN | with it |", "| :-- | --: | --: |", *rows])


def _near(peaks: pd.DataFrame, prefix: str) -> dict[str, int]:
    """Count how many predictions are near what was measured, and how many without a mark are not."""
    unmarked = peaks[f"{prefix}marks"].isna()
    near: dict[str, int] = {}
    wrong = {"without a mark": int(unmarked.sum())}
    for column, measured, what in (
        ("bytes", "requested_bytes", "what PyTorch requested"),
        ("allocated_bytes", "measured_bytes", "what its allocator gave"),
    ):
        error = (peaks[f"{prefix}{column}"] - peaks[measured]).abs()
        share = error / peaks[measured]
        near[f"within 1 % of {what}"] = int((share <= 0.01).sum())
        near[f"within 4 KiB of {what}"] = int((error <= 4096).sum())
        for percent in (1, 5):
            of_these = f"of these, more than {percent} % from {what}"
            wrong[of_these] = int((share[unmarked] > percent / 100).sum())
    return near | wrong


def gpu_table3_errors() -> "pd.Series[float]":
    """The same of the blocks of Table 3."""
    frame = RunFolder.open(RESULTS / gpu_run()["folder"].replace("gpu-", "table3-")).frame()
    found = [frame[f"memory_{mode}_predicted_bytes"] / frame[f"memory_{mode}_bytes"] - 1 for mode in MODES]
    return _largest_first(pd.concat(found), [f"`{key}` {mode}" for mode in MODES for key in frame["module"]])


def gpu_plan() -> str:
    """The steps of `make gpu` in a table: what each takes, how that is known, and what is expected."""
    gpu, steps = _program()
    del gpu
    rows = [
        f"| {number} | {_cell(each.title)} | {each.seconds:.0f} | {_cell(each.because)} | {_cell(each.expectation)} |"
        for number, each in enumerate(steps, 1)
    ]
    head = ["|  | step | seconds | how that is known | expected |", "| :-- | :-- | --: | :-- | :-- |"]
    return "\n".join([*head, *rows, f"\nAll take {sum(each.seconds for each in steps):.0f} s."])


def gpu_read() -> str:
    """The readings of the newest run by today's program, of the steps that were not as expected, in a table."""
    gpu, steps = _program()
    found = [each for each in gpu.told_apart(steps, RESULTS / gpu_run()["folder"]) if each.fault]
    rows = [f"| {each.name} | {each.then} | {each.now} | {_cell(each.seen)} | {each.fault} |" for each in found]
    head = ["| step | then | today | what today's program sees | whose fault |", "| :-- | :-- | :-- | :-- | :-- |"]
    return "\n".join([*head, *rows])


def _program() -> tuple[Any, Any]:
    """`benchmarks/gpu.py` and its steps."""
    sys.path.append(str(ROOT / "benchmarks"))
    return importlib.import_module("gpu"), importlib.import_module("gpu_steps").STEPS


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("[", "\\[").replace("`", "")


def _largest_first(errors: "pd.Series[float]", names: list[str]) -> "pd.Series[float]":
    return errors.set_axis(names).sort_values(key=lambda error: -error.abs(), kind="stable")
