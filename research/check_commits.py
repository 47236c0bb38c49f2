"""Runs `ctxbench check` on twelve commits of one module; docs/plugins/check.md has what it says of each.

Run: python research/check_commits.py [--static] [--out results/check-commits]   (five minutes on two cores; with
--static, which measures no time, any machine will do)
Then: python docs/update.py

A check whose JSON lies in the folder already is not run again. `evidence.json` names the commit of a series: for a new
one remove it, and the checks of the old one.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from gate_on_this_machine import ROOT, begin, changed_tree

OUT = ROOT / "results" / "check-commits"
BUDGET = "2m"
ADD = "torch.add(x, (context @ query).view_as(x))"
POOL = "self.value(x).flatten(2) @ key.transpose(1, 2)"
FORWARD = "    def forward(self, x: Tensor) -> Tensor:\n"
# A forward pass, and a wait of this share of its time.
WAITING = """    def forward(self, x: Tensor) -> Tensor:
        import time

        begin = time.perf_counter()
        y = self.computed(x)
        end = time.perf_counter()
        while time.perf_counter() < end + {share} * (end - begin):
            pass
        return y

    def computed(self, x: Tensor) -> Tensor:
"""
# What takes the place of what in examples/my_module.py.
COMMITS: dict[str, tuple[str, str]] = {
    "nothing": ("", ""),
    "a comment": (FORWARD, f"{FORWARD}        # a mean of all positions\n"),
    "a renamed variable": ("context", "mean"),
    "a sign": (ADD, ADD.replace("torch.add", "torch.sub")),
    "a factor": (ADD, ADD.replace(".view_as(x)", ".view_as(x) * 2.0")),
    "another dtype": ("(context @ query)", "(context.bfloat16() @ query.bfloat16()).to(x.dtype)"),
    "5 % slower": (FORWARD, WAITING.format(share=0.05)),
    "10 % slower": (FORWARD, WAITING.format(share=0.1)),
    "20 % slower": (FORWARD, WAITING.format(share=0.2)),
    "faster": (POOL, "self.value((x.flatten(2) @ key.transpose(1, 2)).unsqueeze(3)).squeeze(3)"),
    "more memory": (FORWARD, f"{FORWARD}        kept = x.clone()\n"),
    "an exception": (FORWARD, f'{FORWARD}        raise ValueError("not finished")\n'),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=OUT, help="where the JSON of the checks goes")
    parser.add_argument("--static", action="store_true", help="measure no time")
    given = parser.parse_args()
    folder: Path = given.out
    begin(folder)
    for name in COMMITS:
        path = stored(folder.resolve(), name)
        if not path.exists():
            print(name, flush=True)
            with tempfile.TemporaryDirectory() as repository:
                changed_tree(Path(repository), *COMMITS[name])
                check(Path(repository), path, static=given.static)


def stored(folder: Path, name: str) -> Path:
    return folder / f"{name.replace(' % ', '-').replace(' ', '-')}.json"


def check(repository: Path, path: Path, *, static: bool) -> None:
    """The check of the working tree, as a user runs it, with its JSON in `path`."""
    suite = (ROOT / "suites" / "ci.toml").read_text(encoding="utf-8")
    own = repository / ".git" / "suite.toml"
    own.write_text(suite.replace(', "latency"]', "]") if static else suite, encoding="utf-8")
    asked = ["--against", "HEAD", "--module", "my_module.py:MyContext", "--suite", str(own), "--budget", BUDGET]
    command = [sys.executable, "-m", "ctxbench", "check", *asked, "--json", str(path)]
    subprocess.run(command, cwd=repository, check=False)
    if not path.exists():
        raise SystemExit(f"the check of {path.stem} wrote nothing")


def codes(folder: Path = OUT) -> dict[str, str]:
    """Exit code of each commit's check, with its name."""
    found = {name: json.loads(stored(folder, name).read_text(encoding="utf-8")) for name in COMMITS}
    return {name: f"{each['exit_code']} ({each['exit_name']})" for name, each in found.items()}


if __name__ == "__main__":
    main()
