"""A run of a second, in this very process: what disks and damaged folders are tried with."""

from pathlib import Path

from ctxbench.engine.run import run_suite
from ctxbench.model.grid import Suite
from ctxbench.model.read_suite import load
from ctxbench.results.run_folder import RunFolder

SUITE = """
title = "small"
modules = ["linear", "acf"]
metrics = ["params", "macs", "memory", "latency"]
[axes]
shape = [1, 8, 6, 5]
device = ["cpu", "meta"]
[measure]
sample_s = 0.01
warmup_s = 0
"""
# Counted, so that every run has the same.
COUNTED = ("case", "status", "params", "macs", "memory_train_predicted_bytes")


def suite(folder: Path) -> Suite:
    path = folder / "small.toml"
    path.write_text(SUITE)
    return load(str(path))


def begin(folder: Path, out: Path) -> RunFolder:
    return run_suite(suite(folder), out=out, in_process=True)


def counted(run: RunFolder) -> list[tuple[object, ...]]:
    """Rows that every run of the suite must have, however it came to its end."""
    return [tuple(row) for row in run.frame()[[*COUNTED]].itertuples(index=False)]
