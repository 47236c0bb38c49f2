"""Costs of each command: processor time (user and system, children included) in units of `import torch`.

Each is run once before it is measured, so that counts are kept from that run, and once with all counted anew.
Run: python benchmarks/commands.py [repeats]. Writes results/commands.csv; the machine decides nothing.
"""

import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import pandas as pd

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
    "run --suite field --static --out OUT": 4.0,
    "predict ham_nmf --for a100-40gb --mode infer": 1.3,
    "run --suite table3 --dry-run": 1.5,
    "report results/table3-cpu --out OUT": 2.0,
}


def seconds(command: list[str], repeats: int, anew: bool = False) -> float:
    """The median processor time of a command and of the processes that it waited for."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    found = []
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as folder:
            before = os.times()
            out = [str(Path(folder) / "out") if part == "OUT" else part for part in command]
            env = environment | ({NO_CACHE_ENV: "1"} if anew else {})
            subprocess.run(out, check=True, capture_output=True, cwd=ROOT, env=env)
            after = os.times()
        found.append(after.children_user + after.children_system - before.children_user - before.children_system)
    return statistics.median(found)


def main() -> None:
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    unit = seconds([sys.executable, "-c", "import torch"], repeats)
    rows = []
    for arguments, goal in COMMANDS.items():
        command = [sys.executable, "-m", "ctxbench", *arguments.split()]
        seconds(command, 1)
        again, anew = (seconds(command, repeats, anew) / unit for anew in (False, True))
        rows.append({"command": f"ctxbench {arguments}", "again": again, "anew": anew, "goal": goal})
        print(rows[-1], flush=True)
    pd.DataFrame(rows).assign(import_torch_s=unit).round(2).to_csv(TABLE, index=False, lineterminator="\n")


if __name__ == "__main__":
    main()
