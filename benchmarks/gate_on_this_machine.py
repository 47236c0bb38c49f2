"""Runs the gate's self-test again and again on this machine and writes the counts into docs/gate-error-rates.md.

Run: python benchmarks/gate_on_this_machine.py [--out results/gate-cpu]   (about half an hour on two idle cores)

A gate whose JSON lies in the folder already is not run again, so that an interrupted series goes on.
"""

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "gate-error-rates.md"
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"
UNCHANGED, INJECTED = 5, 3
SHARE = "10%"
BUDGET = "5m"
# A verdict that cannot be had, and one that is wrong, are what is counted here; both are exit codes of a self-test.
EXPECTED_CODES = (0, 1, 3)

Gate = Mapping[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "gate-cpu", help="where the gates' JSON goes")
    folder: Path = parser.parse_args().out
    names = [f"unchanged-{n + 1}" for n in range(UNCHANGED)] + [f"injected-{n + 1}" for n in range(INJECTED)]
    for name in names:
        path = folder / f"{name}.json"
        if not path.exists():
            print(name, flush=True)
            measure(path, inject=name.startswith("injected"))
    gates = {name: json.loads((folder / f"{name}.json").read_text(encoding="utf-8")) for name in names}
    page = PAGE.read_text(encoding="utf-8")
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise SystemExit(f"{PAGE} lacks the markers {BEGIN} and {END}")
    PAGE.write_text(f"{before}{BEGIN}\n\n{'\n'.join(section(gates))}\n\n{END}{after}", encoding="utf-8")


def measure(path: Path, inject: bool) -> None:
    """One gate, as a user runs it."""
    part = path.with_suffix(".part")
    command = [sys.executable, "-m", "ctxbench", "check", "--self-test", "--budget", BUDGET, "--json", str(part)]
    ended = subprocess.run([*command, *(["--inject", SHARE] if inject else [])], cwd=ROOT, check=False)
    if ended.returncode not in EXPECTED_CODES:
        raise SystemExit(ended.returncode)
    part.rename(path)


def section(gates: Mapping[str, Gate]) -> Iterator[str]:
    """The part of the page between the markers, line by line."""
    first = next(iter(gates.values()))
    yield f"Suite `ci`, {len(first['rows'])} rows a gate, budget {BUDGET}. {first['conditions']}.\n"
    yield "| gate | untouched rows | of them ok | inconclusive | regressed | slowed rows | of them found | inconclusive | ok "
    yield "| seconds |\n|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|"
    for name, gate in gates.items():
        cells = [*counts([gate], slowed=False), *counts([gate], slowed=True)]
        yield f"| {name} | {' | '.join(map(str, cells))} | {gate['elapsed_s']:.0f} |"
    cells = [*counts(gates.values(), slowed=False), *counts(gates.values(), slowed=True)]
    yield f"| **all** | {' | '.join(map(str, cells))} | {sum(gate['elapsed_s'] for gate in gates.values()):.0f} |"
