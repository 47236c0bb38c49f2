"""Attacks ctxbench, and prints for each kind how many attacks were tried and what harm they did: none is the goal.

Run: python tests/attack.py [--short] [--only KIND] [--seed N]
"""

import argparse
import random
import shlex
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from attacks import disks, inputs, kept, kills, modules
from attacks.tally import Tally

from ctxbench.table.markdown import render_markdown
from ctxbench.table.table import plain_table

# Each kind is a function of a folder of its own, of whether it is to be short, and of a seed.
KINDS: dict[str, Callable[[Path, bool, int], Tally]] = {
    "kills at random moments": kills.attack,
    "full disks": disks.attack,
    "hostile modules": modules.attack,
    "attacks that once did harm": kept.attack,
    **inputs.KINDS,
}
HEADS = ("tried", "lost", "silently wrong", "tracebacks", "left processes")


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table, then a sentence for each harm; 1 if there was any."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true", help="a few attacks of each kind: under a minute")
    parser.add_argument("--only", choices=KINDS)
    parser.add_argument("--seed", type=int, help="default: another one each time")
    options = parser.parse_args(arguments)
    seed = random.randrange(10**6) if options.seed is None else options.seed
    print(f"again: python tests/attack.py {again(options, seed)}\n", flush=True)
    harms: list[str] = []
    rows = []
    for name in [options.only] if options.only else KINDS:
        print(name, file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory(prefix="ctxbench-attack-") as folder:
            tally = KINDS[name](Path(folder), options.short, seed)
        found = (tally.lost, tally.wrong, tally.tracebacks, tally.left)
        rows.append((name, str(tally.tried), *(str(len(harm)) for harm in found)))
        harms += [f"{name}, {head}: {each}" for head, harm in zip(HEADS[1:], found, strict=True) for each in harm]
    print(render_markdown(plain_table({"attack": "label", **dict.fromkeys(HEADS, "counted")}, rows)))
    print(*harms, sep="\n")
    return 1 if harms else 0


def again(options: argparse.Namespace, seed: int) -> str:
    """The arguments that repeat these attacks."""
    words = ["--short"] * options.short + (["--only", options.only] if options.only else []) + ["--seed", str(seed)]
    return shlex.join(words)


if __name__ == "__main__":
    sys.exit(main())
