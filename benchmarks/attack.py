"""Attacks ctxbench, and prints for each kind how many attacks were tried and what harm they did: none is the goal.

Run: python benchmarks/attack.py [--short] [--only KIND] [--seed 0]
"""

import argparse
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from attacks import disks, folders, kills, modules
from attacks.tally import Tally

# One file a kind: a function of a folder of its own, of whether it is to be short, and of a seed.
KINDS: dict[str, Callable[[Path, bool, int], Tally]] = {
    "kills at random moments": kills.attack,
    "full disks": disks.attack,
    "damaged folders": folders.attack,
    "hostile modules": modules.attack,
}
HEADS = ("tried", "lost", "silently wrong", "tracebacks", "left processes")


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table, then a sentence for each harm; 1 if there was any."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true", help="a few attacks of each kind: under a minute")
    parser.add_argument("--only", choices=KINDS)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    harms: list[str] = []
    print(f"| attack | {' | '.join(HEADS)} |\n|---|{'--:|' * len(HEADS)}", flush=True)
    for name in [options.only] if options.only else KINDS:
        with tempfile.TemporaryDirectory(prefix="ctxbench-attack-") as folder:
            tally = KINDS[name](Path(folder), options.short, options.seed)
        found = (tally.lost, tally.wrong, tally.tracebacks, tally.left)
        print(f"| {name} | {' | '.join(str(each) for each in (tally.tried, *map(len, found)))} |", flush=True)
        harms += [f"{name}, {head}: {each}" for head, harm in zip(HEADS[1:], found, strict=True) for each in harm]
    print(*harms, sep="\n")
    return 1 if harms else 0


if __name__ == "__main__":
    sys.exit(main())
