"""What a process costs beyond its own measuring: cases whose passes take microseconds, in two processes each.

Run: python benchmarks/engine_overhead.py
"""

import tempfile
from pathlib import Path

import ctxbench

SUITE = """
title = "tiny cases"
modules = ["linear"]
metrics = ["params", "macs", "memory", "latency"]
[axes]
shape = [1, 8, 4, 4]
batch = [{batches}]
[measure]
processes = 1
sample_s = 0.001
warmup_s = 0
"""
CASES = 20


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        suite = Path(folder) / "overhead.toml"
        suite.write_text(SUITE.format(batches=", ".join(str(i + 1) for i in range(CASES))), encoding="utf-8")
        run = ctxbench.run(str(suite), out=Path(folder) / "run")
        elapsed = run.frame["elapsed_s"]
        measuring = run.samples.assign(s=lambda s: s["ms"] * s["passes"] / 1e3).groupby("case")["s"].sum()
        overhead = elapsed - measuring.loc[run.frame["case"]].to_numpy()
    print(f"{CASES} cases, all four metrics, both modes; seconds beyond the timed passes:")
    print(f"median {overhead.median():.3f}, least {overhead.min():.3f}, most {overhead.max():.3f}")


if __name__ == "__main__":
    main()
