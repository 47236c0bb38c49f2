"""What each command costs: processor time (user and system, children included) in units of `import torch`.

Run: python benchmarks/commands.py [repeats]. Prints a table; the machine decides nothing.
"""

import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# Arguments of ctxbench, and the goal in units of `import torch`; OUT is a new folder..
COMMANDS = {
    "--help": 0.08,
    "list": 0.10,
    "run --static --modules sa --out OUT": 1.4,
    "run --suite table3 --static --out OUT": 2.0,
    "run --suite field --static --out OUT": 4.0,
    "predict ham_nmf --for a100-40gb": 1.3,
    "run --suite table3 --dry-run": 1.5,
    f"report {ROOT / 'results' / 'table3-cpu'} --out OUT": 2.5,
}


def seconds(command: list[str], repeats: int) -> float:
    """The median processor time of a command and of the processes that it waited for."""
    found = []
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as folder:
            before = os.times()
            out = [str(Path(folder) / "out") if part == "OUT" else part for part in command]
            subprocess.run(out, check=True, capture_output=True, cwd=ROOT)
            after = os.times()
        found.append(after.children_user + after.children_system - before.children_user - before.children_system)
    return statistics.median(found)


def main() -> None:
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    unit = seconds([sys.executable, "-c", "import torch"], repeats)
    print(f"`import torch`: {unit:.2f} s of processor time, median of {repeats}\n")
    print("| command | s | in units of `import torch` | goal |\n|---|---|---|---|")
    for arguments, goal in COMMANDS.items():
        taken = seconds([sys.executable, "-m", "ctxbench", *arguments.split()], repeats)
        shown = arguments.replace(f"{ROOT}/", "")
        print(f"| `ctxbench {shown}` | {taken:.2f} | {taken / unit:.2f} | {goal} |", flush=True)


if __name__ == "__main__":
    main()
