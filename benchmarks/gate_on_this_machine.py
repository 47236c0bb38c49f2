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

from scipy.stats import beta

from ctxbench.report.formats.markdown import render_markdown
from ctxbench.report.tables.table import plain_table

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
    text = "\n".join(section(gates))
    PAGE.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}", encoding="utf-8")


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
    conditions = next(iter(gates.values()))["conditions"]
    yield f"Suite `ci` with a budget of {BUDGET}; {conditions}.\n"
    untouched, slowed = ("untouched", "ok", "inconclusive", "regressed"), ("found", "left inconclusive", "missed")
    numbers = dict.fromkeys((*untouched, f"slowed by {SHARE}", *slowed, "pairs", "seconds"), "counted")
    rows = [line(name, [gate]) for name, gate in gates.items()]
    yield render_markdown(plain_table({"gate": "label", **numbers}, rows))
    unchanged = [gate for name, gate in gates.items() if name.startswith("unchanged")]
    injected = [gate for name, gate in gates.items() if name.startswith("injected")]
    yield from (f"{text}\n" for text in (false_alarms(list(gates.values())), found(injected), spread(unchanged)))


def line(name: str, gates: Sequence[Gate]) -> list[str]:
    plain, slow = verdicts(gates, slowed=False), verdicts(gates, slowed=True)
    cells = [len(plain), plain.count("ok"), plain.count("inconclusive"), plain.count("regressed")]
    cells += [len(slow), slow.count("regressed"), slow.count("inconclusive"), slow.count("ok")]
    # Schema 1 of the JSON calls the replicates of a row its pairs.
    pairs = max(row["pairs" if gate["schema"] == 1 else "replicates"] for gate in gates for row in gate["rows"])
    return [name, *map(str, cells), str(pairs), f"{sum(gate['elapsed_s'] for gate in gates):.0f}"]


def verdicts(gates: Sequence[Gate], slowed: bool) -> list[str | None]:
    """The verdicts of the rows that were, or were not, slowed on purpose."""
    return [
        row["verdict"]
        for gate in gates
        for row, spread in zip(gate["rows"], gate["self_test"]["spreads"], strict=True)
        if bool(spread["injected"]) == slowed
    ]


def false_alarms(gates: Sequence[Gate]) -> str:
    plain = verdicts(gates, slowed=False)
    count = plain.count("regressed")
    # Clopper and Pearson's one-sided bound on the rate.
    bound = float(beta.ppf(0.95, count + 1, len(plain) - count))
    return (
        f"Identical code was called a regression in {count} of {len(plain)} row verdicts (a rate of at most "
        f"{bound:.1%} with 95 % confidence), and ok in {plain.count('ok')}."
    )


def found(gates: Sequence[Gate]) -> str:
    slow = verdicts(gates, slowed=True)
    return (
        f"Of {len(slow)} slowdowns by {SHARE}, {slow.count('regressed')} were found, {slow.count('inconclusive')} were "
        f"left inconclusive, {slow.count('ok')} were missed."
    )


def spread(gates: Sequence[Gate]) -> str:
    rows = [each for gate in gates for each in gate["self_test"]["spreads"]]
    deviations = [each["deviation"] for each in rows if each["deviation"] is not None]
    visible = [each["visible"] for each in rows if each["visible"] is not None]
    return (
        f"Between the pairs of unchanged code, a row's log ratio spread by {statistics.median(deviations):.1%} "
        f"(standard deviation; median of all rows, at most {max(deviations):.1%}); the smallest change to be found "
        f"within the budget in 95 of 100 checks was {statistics.median(visible):.1%} (median row; at most "
        f"{max(visible):.1%})."
    )


if __name__ == "__main__":
    main()
