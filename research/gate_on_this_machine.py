"""Runs the gate on unchanged, slowed and slower code on this machine; the docs are made from what it stores.

Run: python research/gate_on_this_machine.py [--out results/gate-cpu]   (about half an hour on two idle cores)
Then: python docs/update.py

A gate whose JSON lies in the folder already is not run again, so that an interrupted series goes on. `evidence.json`
names the commit of a series: for a new one remove it, and the gates of the old one.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from scipy.stats import beta
from stamp import stamp, write_stamp

from ctxbench.table.markdown import render_markdown
from ctxbench.table.table import Origin, plain_table

ROOT = Path(__file__).resolve().parents[1]
GATES = ROOT / "results" / "gate-cpu"
UNCHANGED, INJECTED = 4, 2
SHARE = "10%"
BUDGET = "5m"
# A verdict that cannot be had, and one that is wrong, are what is counted here; both are exit codes of a check.
EXPECTED_CODES = (0, 1, 3)
# Slower code: what takes the place of what in examples/my_module.py.
SLOWER = {
    "convolution": ("self.value(x)", "self.value(self.value(x))"),
    "copies": ("query = self.query(x)", "for _ in range(8):\n            x = x.clone()\n        query = self.query(x)"),
    "dtype": ("(context @ query)", "(context.double() @ query.double()).to(x.dtype)"),
}

Gate = Mapping[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=GATES, help="where the gates' JSON goes")
    folder: Path = parser.parse_args().out
    begin(folder)
    self_test = ["--self-test"]
    for number in range(UNCHANGED):
        measure(folder / f"unchanged-{number + 1}.json", self_test)
    for number in range(INJECTED):
        measure(folder / f"injected-{number + 1}.json", [*self_test, "--inject", SHARE])
    for name, (old, new) in SLOWER.items():
        with tempfile.TemporaryDirectory() as repository:
            changed_tree(Path(repository), old, new)
            measure(
                folder / f"slower-{name}.json",
                ["--against", "HEAD", "--module", "my_module.py:MyContext"],
                Path(repository),
            )


def begin(folder: Path) -> None:
    """Stamps a series that begins; one that goes on must be of the commit that it began with."""
    path, evidence = folder / "evidence.json", stamp()
    if not path.exists():
        write_stamp(folder, evidence)
    elif json.loads(path.read_text(encoding="utf-8"))["commit"] != evidence["commit"]:
        raise SystemExit(f"{path} is of another commit: remove it and the gates beside it to begin a new series.")


def changed_tree(repository: Path, old: str, new: str) -> None:
    """A git repository whose commit has the module of examples/, and whose working tree has it with `new` for `old`."""
    module = repository / "my_module.py"
    text = (ROOT / "examples" / module.name).read_text(encoding="utf-8")
    if old not in text:
        raise SystemExit(f"examples/{module.name} must have {old!r}.")
    module.write_text(text, encoding="utf-8")
    author = ["-c", "user.name=ctxbench", "-c", "user.email=ctxbench@localhost"]
    for command in (["init", "--quiet"], ["add", "--all"], [*author, "commit", "--quiet", "--message", "Baseline"]):
        subprocess.run(["git", *command], cwd=repository, check=True)
    module.write_text(text.replace(old, new), encoding="utf-8")


def measure(path: Path, options: Sequence[str], folder: Path = ROOT) -> None:
    """One gate, as a user runs it in a folder; nothing where its JSON is stored already."""
    if path.exists():
        return
    print(path.stem, flush=True)
    part = path.resolve().with_suffix(".part")
    command = [sys.executable, "-m", "ctxbench", "check", *options, "--budget", BUDGET, "--json", str(part)]
    ended = subprocess.run(command, cwd=folder, check=False)
    if ended.returncode not in EXPECTED_CODES:
        raise SystemExit(ended.returncode)
    part.rename(path)


def stored(folder: Path = GATES) -> dict[str, Gate]:
    """The gates of the series, by name."""
    kinds = ("unchanged", "injected", "slower")
    paths = [path for kind in kinds for path in sorted(folder.glob(f"{kind}-*.json"))]
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in paths}


def section(gates: Mapping[str, Gate]) -> str:
    """Section on the series for the page of the gate's error rates."""
    conditions = gates["unchanged-1"]["conditions"]
    as_it_was, slower = (
        ("as it was", "ok", "inconclusive", "regressed"),
        ("slower", "found", "left inconclusive", "missed"),
    )
    numbers: dict[str, Origin] = dict.fromkeys((*as_it_was, *slower, "pairs", "seconds"), "counted")
    rows = [line(name, gate) for name, gate in gates.items()]
    table = render_markdown(plain_table({"gate": "label", **numbers}, rows)).rstrip("\n")
    texts = [f"Suite `ci` with a budget of {BUDGET}; {conditions}.", table, false_alarms(gates)]
    return "\n\n".join([*texts, *found(gates), spread(of_kind(gates, "unchanged"))])


def line(name: str, gate: Gate) -> list[str]:
    plain, slow = verdicts([gate], slowed=False), verdicts([gate], slowed=True)
    cells = [len(plain), plain.count("ok"), plain.count("inconclusive"), plain.count("regressed")]
    cells += [len(slow), slow.count("regressed"), slow.count("inconclusive"), slow.count("ok")]
    # Schema 1 of the JSON calls the replicates of a row its pairs.
    pairs = max(row["pairs" if gate["schema"] == 1 else "replicates"] for row in gate["rows"])
    return [name, *map(str, cells), str(pairs), f"{gate['elapsed_s']:.0f}"]


def verdicts(gates: Iterable[Gate], slowed: bool) -> list[str | None]:
    """The verdicts of the rows that were, or were not, slowed: in a self-test by extra passes, else by their code."""
    found = []
    for gate in gates:
        if "self_test" in gate:
            was_slowed = [bool(each["injected"]) for each in gate["self_test"]["spreads"]]
        else:
            was_slowed = [True] * len(gate["rows"])
        found += [row["verdict"] for row, own in zip(gate["rows"], was_slowed, strict=True) if own == slowed]
    return found


def of_kind(gates: Mapping[str, Gate], kind: str) -> list[Gate]:
    return [gate for name, gate in gates.items() if name.startswith(kind)]


def false_alarms(gates: Mapping[str, Gate]) -> str:
    plain = verdicts(gates.values(), slowed=False)
    count = plain.count("regressed")
    # Clopper and Pearson's one-sided bound on the rate.
    bound = float(beta.ppf(0.95, count + 1, len(plain) - count))
    return (
        f"Unchanged code was called a regression in {count} of {len(plain)} row verdicts, and ok in "
        f"{plain.count('ok')}. If the rows of one check were independent of each other, the rate would be at most "
        f"{bound:.1%} with 95 % confidence; they share a machine and a time."
    )


def found(gates: Mapping[str, Gate]) -> Iterator[str]:
    for kind, what in (("injected", f"slowdowns of {SHARE} by extra passes"), ("slower", "rows with slower code")):
        own = of_kind(gates, kind)
        slow = verdicts(own, slowed=True)
        if not slow:
            yield f"There are no gates with {what} in this series."
            continue
        changes = [row["change"] for gate in own for row in gate["rows"]] if kind == "slower" else []
        size = f", which it measured as {min(changes):+.0%} to {max(changes):+.0%}" if changes else ""
        yield (
            f"Of {len(slow)} {what}{size}, {slow.count('regressed')} were found, {slow.count('inconclusive')} were "
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
