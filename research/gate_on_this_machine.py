"""Runs short gates on unchanged, slowed and slower code on this machine; the docs are made from what it stores.

Run: python research/gate_on_this_machine.py [--beside-loops] [--out results/gate-cpu]   (40 minutes on two idle cores)
Then: python docs/update.py

The gates of each state of the machine are a series, in a folder of its own. A gate whose JSON lies there already is not
run again, so that an interrupted series goes on. `evidence.json` names the commit of a series: for a new one remove it,
and the gates of the old one.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from stamp import stamp, write_stamp

from ctxbench.base.disk import read_text
from ctxbench.base.statistics import rate_at_most

ROOT = Path(__file__).resolve().parents[1]
GATES = ROOT / "results" / "gate-cpu"
BUDGET = "60s"
# Kinds of gates: how many, and the slowdown of two of the four rows. Each gate has the rows of two modules of the suite
# `ci`, the next one those of the next two.
KINDS = {"unchanged": (20, None), "slower-10": (10, "10%"), "slower-20": (5, "20%")}
# The state of the machine, in the name of its folder and in words; the code, in the names of the gates and in words.
STATES = {"quiet": "nothing", "loops": "a busy loop on each core"}
TEXTS = {
    "unchanged": "unchanged code",
    "slower-10": "two rows of four 10 % slower, by extra passes",
    "slower-20": "two rows of four 20 % slower, by extra passes",
    "code": "a slower operation in the module",
}
# A check that went wrong ends with another code.
EXPECTED_CODES = (0, 1, 3)
# Slower code: what takes the place of what in examples/my_module.py.
SLOWER = {
    "convolution": ("self.value(x)", "self.value(self.value(x))"),
    "copies": ("query = self.query(x)", "for _ in range(8):\n            x = x.clone()\n        query = self.query(x)"),
    "dtype": ("(context @ query)", "(context.double() @ query.double()).to(x.dtype)"),
}

Gate = Mapping[str, Any]


@contextmanager
def busy_loops(count: int) -> Iterator[None]:
    """So many processes that compute all the time."""
    with ExitStack() as loops:
        for _ in range(count):
            loop = loops.enter_context(subprocess.Popen([sys.executable, "-c", "while True: pass"]))
            loops.callback(loop.kill)
        yield


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=GATES, help="where the gates' JSON goes")
    parser.add_argument("--beside-loops", action="store_true", help="run a busy loop on each core beside the gates")
    options = parser.parse_args()
    folder: Path = options.out / ("loops" if options.beside_loops else "quiet")
    begin(folder)
    modules = tomllib.loads((ROOT / "suites" / "ci.toml").read_text(encoding="utf-8"))["modules"]
    with busy_loops(len(os.sched_getaffinity(0)) if options.beside_loops else 0):
        for kind, (count, share) in KINDS.items():
            for number in range(count):
                pair = ",".join(modules[(2 * number + each) % len(modules)] for each in range(2))
                inject = [] if share is None else ["--inject", share]
                path = folder / f"{kind}-{number + 1:02}.json"
                measure(path, ["--self-test", "--modules", pair, *inject])
        for name, (old, new) in SLOWER.items():
            with tempfile.TemporaryDirectory() as repository:
                changed_tree(Path(repository), old, new)
                path = folder / f"code-{name}.json"
                measure(path, ["--against", "HEAD", "--module", "my_module.py:MyContext"], Path(repository))


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
    gate = {**json.loads(part.read_text(encoding="utf-8")), "load": round(os.getloadavg()[0], 1)}
    path.write_text(json.dumps(gate, indent=1) + "\n", encoding="utf-8")
    part.unlink()


def stored(folder: Path = GATES) -> dict[str, Gate]:
    """The gates of both series, compressed or not, by state and name: `quiet-unchanged-01`."""
    return {
        f"{state}-{path.name.partition('.')[0]}": json.loads(read_text(path))
        for state in STATES
        for path in sorted((folder / state).glob("*-*.json*"))
    }


def section(gates: Mapping[str, Gate]) -> str:
    """Section on the series for the page of the gate's error rates."""
    conditions = next(iter(gates.values()))["conditions"]
    kinds = ", ".join(f"{len(of_kind(gates, next(iter(STATES)), kind))} of {text}" for kind, text in TEXTS.items())
    first = f"Suite `ci`, two of its modules a gate, budget {BUDGET}; {conditions}. Gates in each state: {kinds}."
    return "\n\n".join([first, false_alarms(gates), *(spread(gates, state) for state in STATES)])


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


def of_kind(gates: Mapping[str, Gate], state: str, kind: str) -> list[Gate]:
    """The gates of one kind of code in one state of the machine."""
    return [gate for name, gate in gates.items() if name.startswith(f"{state}-{kind}-")]


def false_alarms(gates: Mapping[str, Gate]) -> str:
    """Count of the rows of unchanged code that all gates called slower, with a bound."""
    plain = verdicts(gates.values(), slowed=False)
    count = plain.count("regressed")
    bound = rate_at_most(count, len(plain))
    return (
        f"Unchanged code was called a regression in {count} of {len(plain)} row verdicts, and ok in "
        f"{plain.count('ok')}. If the rows of one check were independent of each other, the rate would be at most "
        f"{bound:.1%} with 95 % confidence; they share a machine and a time."
    )


def spread(gates: Mapping[str, Gate], state: str) -> str:
    """Spread between pairs of unchanged code in one state, and the smallest change that can be found."""
    own = of_kind(gates, state, "unchanged")
    rows = [each for gate in own for each in gate["self_test"]["spreads"]]
    deviations = [each["deviation"] for each in rows if each["deviation"] is not None]
    visible = [each["visible"] for each in rows if each["visible"] is not None]
    if not deviations or not visible:
        return f"No gates with {STATES[state]} beside them are in this series."
    return (
        f"With {STATES[state]} beside the gate, a row's log ratio spread by {statistics.median(deviations):.1%} "
        "(median row of unchanged code; standard deviation over pairs). The smallest change to be found in 95 of 100 "
        f"checks was {statistics.median(visible):.1%} (median row; at most {max(visible):.1%})."
    )


if __name__ == "__main__":
    main()
