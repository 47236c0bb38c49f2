"""Evidence for the headlines of the README: the stored run, its commit and date, and the code that they judge.

If that code is another one than at the run's commit, the headline says "as of". `tests/test_docs.py` holds it to that.
"""

import hashlib
import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

from lists import ROOT, markdown

# Has the table that `evidence_list` makes.
TABLE = ROOT / "results" / "README.md"


@dataclass(frozen=True)
class Headline:
    """`run` is the folder with the evidence, `judges` the files and folders whose code the headline is about."""

    run: str
    judges: tuple[str, ...]


HEADLINES = {
    "memory": Headline(
        "results/table3-static", ("ctxbench/plugins/memory", "ctxbench/plugins/macs", "ctxbench/metrics/params.py")
    ),
    "gate": Headline("results/gate-cpu", ("ctxbench/gate", "ctxbench/plugins/check/child/pair.py")),
    "prediction": Headline("results/prediction", ("ctxbench/plugins/predict", "ctxbench/plugins/predict/sheets.toml")),
}


def source(name: str) -> str:
    """`results/gate-cpu, commit 1dc83de, 2026-11-21`; of code that was changed since, `as of commit ...`."""
    return named(name, digest_then(name))


def named(name: str, then: str) -> str:
    """The evidence of a headline; `then` is the digest of the judged code as the evidence was made."""
    commit, date = made(name)
    changed = "" if digest_now(name) == then else "as of "
    return f"`{HEADLINES[name].run}`, {changed}commit {commit[:7]}, {date}"


def made(name: str) -> tuple[str, str]:
    """The commit whose code made the evidence, and the day."""
    folder = ROOT / HEADLINES[name].run
    run = folder / "run.json"
    if run.exists():
        environment = json.loads(run.read_text(encoding="utf-8"))["environment"]
        return environment["commit"], environment["time"][:10]
    stored = json.loads((folder / "evidence.json").read_text(encoding="utf-8"))
    return stored["commit"], stored["date"]


def digest_now(name: str) -> str:
    """Of the judged files as they are in the working tree."""
    files = [
        path
        for judged in HEADLINES[name].judges
        for path in ([ROOT / judged] if (ROOT / judged).is_file() else (ROOT / judged).rglob("*"))
        if path.is_file() and path.suffix != ".pyc"
    ]
    return _digest({path.relative_to(ROOT).as_posix(): _blob(path) for path in files})


def digest_then(name: str) -> str:
    """Of the judged files as they were in the commit that made the evidence.

    It is in results/README.md; for new evidence git tells it, which must have that commit.
    """
    begin = _row(name)
    for line in TABLE.read_text(encoding="utf-8").splitlines():
        if line.startswith(begin):
            return line.removeprefix(begin).partition("`")[0]
    command = ["git", "ls-tree", "-r", "--format=%(path) %(objectname)", made(name)[0], *HEADLINES[name].judges]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return _digest(dict(line.rsplit(" ", 1) for line in listed.splitlines()))


def _blob(path: Path) -> str:
    """The name that git gives to the content of a file."""
    content = path.read_bytes()
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


def _digest(blobs: dict[str, str]) -> str:
    return hashlib.sha256(repr(sorted(blobs.items())).encode()).hexdigest()[:12]


def evidence_list() -> str:
    """The headlines of the README, and what they rest on."""
    header = ("headline", "evidence", "commit", "date", "judges", "digest of that code")
    return "\n".join(
        [markdown(dict.fromkeys(header, "text"), []), *(f"{_row(name)}{digest_then(name)}` |" for name in HEADLINES)]
    )


def _row(name: str) -> str:
    """The row of a headline up to its digest."""
    headline, (commit, date) = HEADLINES[name], made(name)
    judged = ", ".join(f"`{each}`" for each in headline.judges)
    return f"| `{name}` | `{headline.run}` | {commit[:10]} | {date} | {judged} | `"
