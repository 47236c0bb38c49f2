"""Findings of GPU runs, from the newest `results/gpu-NAME` and the run of Table 3 beside it."""

import csv
import json
from collections.abc import Iterator
from typing import Any

from lists import ROOT

from ctxbench.base.mode import MODES
from ctxbench.results.run_folder import RunFolder
from ctxbench.table.markdown import render_markdown
from ctxbench.table.table import Origin, plain_table

RESULTS = ROOT / "results"
# Two peaks that differ by less are equal: weights count by their bytes in the one, in blocks of 512 in the other.
EQUAL, NEAR = 1e-4, 0.01


def gpu_last() -> str:
    """The GPU, the day and the steps that came out as expected."""
    run = _newest()
    if not run:
        return "**No GPU has run ctxbench yet.**"
    good = sum(step["verdict"] == "as expected" for step in run["steps"])
    name, day, steps = run["gpu"]["GPU"], run["day"], len(run["steps"])
    return f"**Last run on a GPU: {name}, {day}; {good} of {steps} steps were as expected.**"


def gpu_steps() -> str:
    """A row for each step of the last run."""
    run = _newest()
    facts = ", ".join(f"{name} {value}" if name != "GPU" else value for name, value in run["gpu"].items())
    rows = [
        (str(at), each["step"], each["expectation"], each["seen"] or "-", each["verdict"], f"{each['seconds']:.0f}")
        for at, each in enumerate(run["steps"], 1)
    ]
    words: dict[str, Origin] = dict.fromkeys(("step", "expected", "seen", "verdict"), "text")
    table = render_markdown(plain_table({"": "label", **words, "seconds": "measured"}, rows))
    return f"{facts}.\n\n{table}"


def gpu_memory() -> str:
    """Measured against predicted peaks of Table 3's blocks."""
    errors = sorted(_table3_errors(), key=lambda pair: -abs(pair[0]))
    equal = sum(abs(error) < EQUAL for error, _ in errors)
    error, row = errors[0]
    return (
        f"On an {_newest()['gpu']['GPU']}, {equal} of {len(errors)} measured peaks of the table's blocks were as "
        "predicted. "
        f"The largest error is {100 * error:+.2g} % ({row})."
    )


def gpu_all_blocks() -> str:
    """Measured against predicted peaks of all blocks."""
    errors = []
    with (RESULTS / _newest()["folder"] / "peaks.csv").open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["predicted_bytes"] and row["measured_bytes"]:
                error = float(row["predicted_bytes"]) / float(row["measured_bytes"]) - 1
                errors.append((error, f"`{row['module']}` {row['mode']} {row['dtype']} {row['shape']}"))
    errors.sort(key=lambda pair: -abs(pair[0]))
    near = sum(abs(error) <= NEAR for error, _ in errors)
    error, largest = errors[0]
    return (
        f"{near} of {len(errors)} peaks were within {100 * NEAR:.0f} %. "
        f"The largest error is {100 * error:+.1f} % ({largest})."
    )


def _table3_errors() -> Iterator[tuple[float, str]]:
    name = str(_newest()["folder"]).removeprefix("gpu-")
    for _, row in RunFolder.open(RESULTS / f"table3-{name}").frame().iterrows():
        for mode in MODES:
            error = row[f"memory_{mode}_predicted_bytes"] / row[f"memory_{mode}_bytes"] - 1
            yield error, f"`{row['module']}` {mode}"


def _newest() -> dict[str, Any]:
    runs = []
    for path in RESULTS.glob("gpu-*/steps.json"):
        runs.append({"folder": path.parent.name, **json.loads(path.read_text(encoding="utf-8"))})
    return max(runs, key=lambda run: run["day"], default={})
