"""The commit and the day that evidence is of: `evidence.json` beside it, which docs/lists.py reads."""

import json
from datetime import UTC, datetime
from pathlib import Path

import ctxbench
from ctxbench.results.sources import commit_of


def stamp() -> dict[str, str]:
    """Today and the commit of ctxbench; ends the command where ctxbench is not as that commit has it."""
    package = Path(ctxbench.__file__)
    commit = commit_of(package, package.parent)
    if commit is None or commit.endswith("+changes"):
        raise SystemExit("Evidence is for a commit: commit the changes in ctxbench/ first.")
    return {"commit": commit, "date": datetime.now(UTC).date().isoformat()}


def write_stamp(folder: Path, evidence: dict[str, str]) -> None:
    """Writes `evidence.json` into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "evidence.json").write_text(json.dumps(evidence, indent=2) + "\n", encoding="utf-8")
