"""Costs of each command: modules that it imports, and processor time (children included) in units of `import torch`.

Each is run once before it is measured, so that counts are kept from that run, and then in turn from the cache and with
all counted anew. Times are medians with the smallest and the largest. Each row is compared with the committed one:
modules exactly, times where the two ranges lie apart.
Run, on an idle machine: python benchmarks/commands.py [repeats]. Writes results/commands.csv.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import pandas as pd

from ctxbench.base.number import Number, order
from ctxbench.engine.cache import NO_CACHE_ENV

ROOT = Path(__file__).resolve().parents[1]
TABLE = ROOT / "results" / "commands.csv"
# Arguments of ctxbench, and the goal in units of `import torch`; OUT is a new folder.
COMMANDS = {
    "--help": 0.06,
    "list": 0.12,
    "show ham_nmf": 0.2,
    "run --static --modules sa --out OUT": 1.3,
    "run --suite table3 --static --out OUT": 1.5,
    "predict ham_nmf --for a100-40gb --mode infer": 1.3,
    "run --suite table3 --dry-run": 1.5,
    "report results/table3-cpu --out OUT": 2.0,
}
TIMES = ("again", "anew")


def run(command: Sequence[str], **environment: str) -> tuple[float, str]:
    """Processor time of a command and of the processes that it waited for, and what it wrote to its error stream."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"} | environment
    with tempfile.TemporaryDirectory() as folder:
        before = os.times()
        words = [str(Path(folder) / "out") if part == "OUT" else part for part in command]
        done = subprocess.run(words, check=True, capture_output=True, text=True, cwd=ROOT, env=env)
        after = os.times()
    children = (after.children_user, after.children_system), (before.children_user, before.children_system)
    return sum(children[0]) - sum(children[1]), done.stderr


def modules(command: Sequence[str]) -> int:
    """Modules that the command's own process imports."""
    _, told = run([command[0], "-X", "importtime", *command[1:]])
    return sum(line.startswith("import time:") for line in told.splitlines()) - 1  # the heading


def compared(row: Mapping[str, Any], last: Mapping[str, Any]) -> list[str]:
    """Differences from the committed row: another number of modules, and times whose ranges lie apart."""
    found = []
    if row["modules"] != last["modules"]:
        found.append(f"{row['modules']} modules, {last['modules']} before")
    for name in TIMES:
        now, then = (Number(each[name], each[f"{name}_low"], each[f"{name}_high"]) for each in (row, last))
        if order(now, then):
            found.append(f"{name} {now.text()}, {then.text()} before")
    return found


def main() -> None:
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    committed = pd.read_csv(TABLE).set_index("command").to_dict("index")
    unit = median(run([sys.executable, "-c", "import torch"])[0] for _ in range(repeats))
    rows = []
    for arguments, goal in COMMANDS.items():
        command = [sys.executable, "-m", "ctxbench", *arguments.split()]
        row: dict[str, Any] = {"command": f"ctxbench {arguments}", "modules": modules(command)}
        samples: dict[str, list[float]] = {name: [] for name in TIMES}
        for _ in range(repeats):
            samples["again"].append(run(command)[0] / unit)
            samples["anew"].append(run(command, **{NO_CACHE_ENV: "1"})[0] / unit)
        for name, found in samples.items():
            times = {name: median(found), f"{name}_low": min(found), f"{name}_high": max(found)}
            row |= {column: round(value, 2) for column, value in times.items()}
        rows.append({**row, "goal": goal, "import_torch_s": round(unit, 2)})
        last = committed.get(row["command"])
        print(
            row["command"],
            row["modules"],
            row["again"],
            *(compared(row, last) if last else ["new"]),
            sep="; ",
            flush=True,
        )
    pd.DataFrame(rows).to_csv(TABLE, index=False, lineterminator="\n")


if __name__ == "__main__":
    main()
