"""Simulates a sweep over a cluster: what its driver costs, and how long slots wait for it.

Each process of a case sleeps instead of measuring; all else is the driver's real work: threads, queue, records on disk.
Run: python research/sweep.py results/sweep-simulation.csv
"""

import argparse
import os
import random
import sys
import tempfile
import time
from pathlib import Path

import pandas as pd

from ctxbench.engine.one_process import Plan
from ctxbench.engine.progress import Quiet
from ctxbench.model.case import Case, Measure
from ctxbench.results.run_folder import RunFolder
from ctxbench_science.cluster.sweep import SweepPart, sweep

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "science" / "cluster"))
from fakes import cases
from scripted import ScriptedSlot

CASES, SLOTS = 2000, 64
PROCESSES = 5
# Of a process, in seconds: the median and the standard deviation of the logarithm.
MEDIAN_S, SPREAD = 0.25, 0.5


def simulate(slots: int, folder: Path) -> dict[str, float]:
    """One sweep: what the driver took, and which share of the time slots did not measure."""
    random.seed(0)
    slept = 0.0

    def seconds(case: Case, number: int) -> float:
        nonlocal slept
        found = random.lognormvariate(0, SPREAD) * MEDIAN_S
        slept += found
        return found

    part = SweepPart(
        RunFolder.create(folder, {}),
        [[case] for case in cases(CASES)],
        [ScriptedSlot(f"host/{number}", seconds=seconds) for number in range(slots)],
    )
    start, used = time.monotonic(), time.process_time()
    sweep([part], Plan(Measure(processes=PROCESSES), ["params", "latency"]), Quiet())
    wall, driver = time.monotonic() - start, time.process_time() - used
    assert len(part.folder.frame()) == CASES
    return {
        "cases": CASES,
        "slots": slots,
        "processes": CASES * (PROCESSES + 1),
        "wall_s": round(wall, 1),
        "driver_ms_per_case": round(1000 * driver / CASES, 2),
        "waiting_share": round(1 - slept / (wall * slots), 4),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    out = parser.parse_args().out
    os.environ["OMP_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory() as folder:
        frame = pd.DataFrame([simulate(SLOTS, Path(folder) / "run")])
    frame.to_csv(out, index=False)
    print(frame.to_string(index=False))
