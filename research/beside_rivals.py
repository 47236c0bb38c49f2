"""Runs `ctxbench check` and three rivals on the same ten changes and five unchanged commits.

Run: python research/beside_rivals.py [--states quiet,loops,any] [--only NAME,...] [--out results/gate-rivals]
It prints the table of what each found. On two cores with nothing else at work a state takes eight minutes: that beside
busy loops has seven of the fifteen, and "any" has the instructions, which no other work changes.

It makes an environment for asv and pytest-benchmark, which sees the packages of this one.
Each tool has a margin of 5 % and runs the same two passes, inference and a training step of the tutorial's module,
[1, 128, 32, 32], one thread, of the commit before and of the changed one. What the CSV has already is not run again.
The third rival counts the instructions of one pass of each by callgrind, as CodSpeed does, all in one process.
"""

import argparse
import csv
import os
import re
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
import venv
from collections.abc import Mapping, Sequence
from pathlib import Path

from check_commits import ADD, COMMITS, FORWARD
from gate_on_this_machine import SLOWER, STATES, begin, busy_loops, changed_tree

OUT = Path(__file__).resolve().parents[1] / "results" / "gate-rivals"
BUDGET, MARGIN = "20s", 0.05
PACKAGES = ("asv==0.6.5", "pytest-benchmark==5.3.1", "virtualenv")
QUERY = "        self.query = nn.Conv2d(channels, width, 1)\n"
KEY = QUERY.replace("query", "key")
CHANGES = {
    **{name: COMMITS[name] for name in ("5 % slower", "10 % slower", "20 % slower", "more memory", "a sign")},
    "one more convolution": SLOWER["convolution"],
    "eight copies": SLOWER["copies"],
    "a product in float64": SLOWER["dtype"],
    "a gradient cut": (ADD, ADD.replace("(context @", "(context.detach() @")),
    "an exception at odd sizes": (FORWARD, f"{FORWARD}        if x.shape[2] % 2:\n            raise ValueError\n"),
}
UNCHANGED = {
    **{name: COMMITS[name] for name in ("nothing", "a comment", "a renamed variable")},
    "another docstring": ("Each position gets", "Every position gets"),
    "another order of layers": (QUERY + KEY, KEY + QUERY),
}
EVERY, ANY = {**CHANGES, **UNCHANGED}, "any"
# Those that time alone tells, or nothing: what is run beside busy loops.
TIMED = (
    "10 % slower",
    "20 % slower",
    "one more convolution",
    "eight copies",
    "nothing",
    "a renamed variable",
    "another order of layers",
)
# What the rivals run, of the module in the folder TREE: asv hides PYTHONPATH.
BENCH = """
import os, sys
import torch

sys.path.insert(0, os.environ["TREE"])
from my_module import MyContext

torch.set_num_threads(1)
torch.manual_seed(0)
x = torch.randn(1, 128, 32, 32)
module = MyContext(128)

def infer():
    with torch.inference_mode():
        module.eval()(x)

def train():
    module.zero_grad()
    module.train()(x).sum().backward()
"""
BENCH_PYTEST = (
    f"{BENCH}\ndef test_infer(benchmark):\n    benchmark(infer)\n\ndef test_train(benchmark):\n    benchmark(train)\n"
)
BENCH_ASV = f"{BENCH}\ndef time_infer():\n    infer()\n\ndef time_train():\n    train()\n"
# Valgrind's requests are macros of C.
MARKS = """
#include <valgrind/callgrind.h>
void start(void) { CALLGRIND_START_INSTRUMENTATION; }
void zero(void) { CALLGRIND_ZERO_STATS; }
void dump(void) { CALLGRIND_DUMP_STATS; }
void stop(void) { CALLGRIND_STOP_INSTRUMENTATION; }
"""
BENCH_CALLGRIND = f"""
import ctypes, os, sys

marks = ctypes.CDLL(sys.argv[1])
for tree in sys.argv[2:]:
    os.environ["TREE"] = tree
    sys.modules.pop("my_module", None)
    bench = {{}}
    exec({BENCH!r}, bench)
    for each in (bench["infer"], bench["train"]):
        marks.start()
        each()
        each()
        marks.zero()
        each()
        marks.dump()
        marks.stop()
"""
ASV_CONFIG = (
    '{{"version": 1, "project": "my_module", "repo": "{tree}", "branches": ["HEAD"], "environment_type": "existing"}}'
)


class Tools:
    """The tools; each is asked for one change and answers what it says, and whether it is against the change."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.base = folder, folder / "base"
        changed_tree_in(self.base, "", "")
        self.python = folder / "rivals" / "bin" / "python"
        venv.create(folder / "rivals", with_pip=True)
        self.run(str(self.python), "-m", "pip", "install", "--quiet", *PACKAGES, must=True)
        own = self.run(str(self.python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").stdout.strip()
        (Path(own) / "these.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
        (folder / "test_bench.py").write_text(BENCH_PYTEST, encoding="utf-8")
        (folder / "benchmarks").mkdir()
        (folder / "benchmarks" / "__init__.py").touch()
        (folder / "benchmarks" / "bench.py").write_text(BENCH_ASV, encoding="utf-8")

    def run(
        self, *command: str, cwd: Path | None = None, tree: Path | None = None, must: bool = False
    ) -> subprocess.CompletedProcess[str]:
        alone = {"OMP_NUM_THREADS": "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        environ = {**os.environ, **alone, **({"TREE": str(tree)} if tree else {})}
        return subprocess.run(command, cwd=cwd or self.folder, env=environ, text=True, capture_output=True, check=must)

    def check(self, tree: Path) -> tuple[bool, str]:
        asked = ["--against", "HEAD~1", "--module", "my_module.py:MyContext", "--budget", BUDGET]
        ended = self.run(sys.executable, "-m", "ctxbench", "check", *asked, cwd=tree)
        return ended.returncode in (1, 4, 6), f"exit code {ended.returncode}"

    def pytest_benchmark(self, tree: Path) -> tuple[bool, str]:
        kept = f"--benchmark-storage={tree.name}-kept"
        command = [str(self.python), "-m", "pytest", "-q", "-p", "pytest_benchmark.plugin", "test_bench.py", kept]
        self.run(*command, "--benchmark-autosave", tree=self.base)
        ended = self.run(*command, "--benchmark-compare", f"--benchmark-compare-fail=min:{MARGIN:.0%}", tree=tree)
        is_slower = "Performance has regressed" in ended.stdout + ended.stderr
        if not is_slower and ended.returncode not in (0, 1):
            raise SystemExit(f"pytest-benchmark failed: {ended.stdout}{ended.stderr}")
        return ended.returncode != 0, f"exit code {ended.returncode}" + ", regressed" * is_slower

    def asv(self, tree: Path) -> tuple[bool, str]:
        folder = self.folder / f"asv-{tree.name}"
        folder.mkdir()
        (folder / "benchmarks").symlink_to(self.folder / "benchmarks")
        (folder / "asv.conf.json").write_text(ASV_CONFIG.format(tree=tree), encoding="utf-8")
        command = [str(self.python), "-m", "asv"]
        self.run(*command, "machine", "--yes", "--machine", "here", cwd=folder, must=True)
        hashes = self.run("git", "log", "--format=%H", cwd=tree).stdout.split()
        for commit, version in zip(hashes, (tree, self.base), strict=True):
            same = ["--environment", f"existing:{self.python}", "--machine", "here", "--set-commit-hash", commit]
            self.run(*command, "run", *same, cwd=folder, tree=version)
        compared = self.run(
            *command, "compare", "--machine", "here", "--factor", str(1 + MARGIN), *hashes[::-1], cwd=folder
        )
        marks = re.findall(r"^\| ([-+!x ~]) +\|", compared.stdout, re.MULTILINE)
        if not marks:
            raise SystemExit(f"asv compared nothing: {compared.stdout}{compared.stderr}")
        return bool({"+", "!"} & {*marks}), f"marks {''.join(marks)!r}"

    def callgrind(self, trees: Sequence[Path]) -> list[tuple[bool, str]]:
        """Of each change, whether a pass has more instructions; the base is counted once.

        It needs valgrind with its headers, and a C compiler. valgrind hides AVX-512: kernels for AVX2 are counted.
        """
        library = self.folder / "marks.so"
        (self.folder / "marks.c").write_text(MARKS, encoding="utf-8")
        self.run("cc", "-shared", "-fPIC", "-o", str(library), str(self.folder / "marks.c"), must=True)
        tool = ["valgrind", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={self.folder / 'counts'}"]
        sides = [str(each) for each in (self.base, *trees)]
        self.run(*tool, sys.executable, "-c", BENCH_CALLGRIND, str(library), *sides, must=True)
        dumps = sorted(self.folder.glob("counts.*"), key=lambda path: int(path.suffix[1:]))
        counts = [int(re.findall(r"^totals: (\d+)$", path.read_text(), re.MULTILINE)[0]) for path in dumps]
        before, *now = zip(counts[::2], counts[1::2], strict=True)
        growths = [max(after / first - 1 for first, after in zip(before, each, strict=True)) for each in now]
        return [(growth > MARGIN, f"{growth:+.2%} instructions") for growth in growths]


def changed_tree_in(folder: Path, old: str, new: str) -> Path:
    """A repository with the tutorial's module in one commit, and the changed one in the next."""
    folder.mkdir(parents=True)
    changed_tree(folder, old, new)
    author = ["-c", "user.name=ctxbench", "-c", "user.email=ctxbench@localhost"]
    command = ["git", *author, "commit", "--quiet", "--all", "--allow-empty", "--message", "Candidate"]
    subprocess.run(command, cwd=folder, check=True)
    return folder


def rows(path: Path = OUT / "rivals.csv") -> list[dict[str, str]]:
    """The rows of the CSV; none where there is none."""
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return [*csv.DictReader(file)]


COLUMNS = ("state", "tool", "change", "is_change", "against", "seconds", "said")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=OUT, help="where the CSV goes")
    parser.add_argument("--states", default="quiet", help=f"of {', '.join([*STATES, ANY])}, with a comma between")
    parser.add_argument("--only", default="", help="these changes alone, with a comma between")
    options = parser.parse_args()
    begin(options.out)
    path = options.out / "rivals.csv"
    with tempfile.TemporaryDirectory() as folder:
        tools = Tools(Path(folder))
        for state in options.states.split(","):
            names = options.only.split(",") if options.only else TIMED if state == "loops" else [*EVERY]
            trees = {
                name: changed_tree_in(Path(folder) / f"{state}-{at}", *EVERY[name]) for at, name in enumerate(names)
            }
            with busy_loops(len(os.sched_getaffinity(0)) if state == "loops" else 0):
                (count if state == ANY else time_each)(tools, state, trees, path)
    print(table(rows(path)))


def time_each(tools: Tools, state: str, trees: Mapping[str, Path], path: Path) -> None:
    """Ask the tools that time for each change, one after the other."""
    done = {(row["state"], row["tool"], row["change"]) for row in rows(path)}
    for name, tree in trees.items():
        for ask in (tools.check, tools.asv, tools.pytest_benchmark):
            if (state, ask.__name__, name) not in done:
                start = time.monotonic()
                told = ask(tree)
                add(path, state, ask.__name__, name, told, time.monotonic() - start)


def count(tools: Tools, state: str, trees: Mapping[str, Path], path: Path) -> None:
    """Count the instructions of all changes that have none yet."""
    done = {row["change"] for row in rows(path) if row["tool"] == "callgrind"}
    left = {name: tree for name, tree in trees.items() if name not in done}
    start = time.monotonic()
    for name, told in zip(left, tools.callgrind([*left.values()]) if left else [], strict=True):
        add(path, state, "callgrind", name, told, (time.monotonic() - start) / len(left))


def add(path: Path, state: str, tool: str, name: str, told: tuple[bool, str], seconds: float) -> None:
    """Add a row to the CSV, and show it."""
    against, said = told
    row = [state, tool, name, int(name in CHANGES), int(against), f"{seconds:.1f}", said]
    print(*row, sep=" | ", flush=True)
    is_new = not path.exists()
    with path.open("a", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([COLUMNS] * is_new + [row])


TITLES = {
    "check": f"`ctxbench check --budget {BUDGET}`",
    "asv": "asv, `compare --factor 1.05`",
    "pytest_benchmark": "pytest-benchmark, `--benchmark-compare-fail=min:5%`",
    "callgrind": "instructions by callgrind, 5 % more",
}


def table(found: Sequence[Mapping[str, str]]) -> str:
    """A table of what each tool found in each state of the machine; a sentence where nothing was run."""
    if not found:
        return "Nothing was run."
    lines = [
        "| beside it | tool | changes found | missed | unchanged commits it is against | seconds a commit, median |",
        "|---|---|--:|---|---|--:|",
    ]
    beside = {**STATES, ANY: "anything"}
    for state in dict.fromkeys(row["state"] for row in found):
        for tool, title in TITLES.items():
            own = [row for row in found if (row["state"], row["tool"]) == (state, tool)]
            if not own:
                continue
            changed = [row for row in own if row["is_change"] == "1"]
            missed = ", ".join(row["change"] for row in changed if row["against"] == "0") or "none"
            unchanged = [row for row in own if row["is_change"] == "0"]
            false = [row["change"] for row in unchanged if row["against"] == "1"]
            counts = f"{sum(row['against'] == '1' for row in changed)} of {len(changed)}"
            wrong = f"{len(false)} of {len(unchanged)}" + f": {', '.join(false)}" * bool(false)
            seconds = statistics.median(float(row["seconds"]) for row in own)
            lines.append(f"| {beside[state]} | {title} | {counts} | {missed} | {wrong} | {seconds:.0f} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
