"""The one place that runs git. No command here runs a program that a repository names.

Repositories come from elsewhere, with their settings: filters, hooks, monitors, pagers, signers. So whether a file is
as its commit has it is told by its hash, never by `git status` or `git diff`, which run filters.
"""

import hashlib
import os
import subprocess
from pathlib import Path

from ctxbench.base import disk

# What git sets for hooks and aliases: it names a repository, which need not be the one asked for.
# GIT_CONFIG_* stays: people and CI give safe.directory that way.
REPOSITORY_VARIABLES = {
    *("GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_ATTR_SOURCE", "GIT_COMMON_DIR", "GIT_DIR", "GIT_GRAFT_FILE"),
    *("GIT_IMPLICIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_NAMESPACE", "GIT_OBJECT_DIRECTORY", "GIT_PREFIX"),
    *("GIT_SHALLOW_FILE", "GIT_WORK_TREE", "GIT_EXTERNAL_DIFF"),
}

# Each of these would write into the repository, start a program, or leave out files.
SETTINGS = (
    "core.splitIndex=false",
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "gc.auto=0",
    "log.showSignature=false",
    "maintenance.auto=false",
    "core.sparseCheckout=false",
    "submodule.recurse=false",
)


def run(folder: Path, *arguments: str, may_fetch: bool = False, **variables: str) -> subprocess.CompletedProcess[bytes]:
    """Run git in a folder, with further variables of the environment; its messages are in English.

    A partial clone is given what it lacks only if it `may_fetch`, for which its settings may name a program.
    FileNotFoundError if there is no git.
    """
    settings = [part for setting in SETTINGS for part in ("-c", setting)]
    inherited = {name: value for name, value in os.environ.items() if name not in REPOSITORY_VARIABLES}
    fixed = {"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", **({} if may_fetch else {"GIT_ALLOW_PROTOCOL": ""})}
    return subprocess.run(
        ["git", "--no-pager", "--no-optional-locks", "--literal-pathspecs", *settings, "-C", str(folder), *arguments],
        env={**inherited, **fixed, **variables},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )


def output(folder: Path, *arguments: str) -> str:
    """Text that git prints. OSError or subprocess.CalledProcessError if it fails."""
    done = run(folder, *arguments)
    done.check_returncode()
    # Bytes: git names files, and the locale may have no letters for them.
    return os.fsdecode(done.stdout).strip("\n")


def blobs(folder: Path, commit: str, *paths: Path) -> dict[Path, str]:
    """The names of the blobs of these files, and of those in these folders, in a commit. Errors as of `output`."""
    root = Path(output(folder, "rev-parse", "--show-toplevel"))
    listing = output(folder, "ls-tree", "-r", "-z", "--full-name", commit, "--", *map(str, paths))
    # "<mode> <type> <name>\t<path>"; 120000 is a link
    entries = (entry.partition("\t") for entry in listing.split("\0") if entry)
    return {root / path: facts.split()[2] for facts, _, path in entries if facts.startswith("100")}


def is_blob(file: Path, name: str) -> bool:
    """Return whether a file has the content of a blob, but for line ends; one that a filter rewrites has not."""
    if not file.is_file():
        return False
    content = disk.read_bytes(file)
    return name in {_blob(content, len(name)), _blob(content.replace(b"\r\n", b"\n"), len(name))}


def _blob(content: bytes, digits: int) -> str:
    return hashlib.new("sha1" if digits == 40 else "sha256", b"blob %d\0" % len(content) + content).hexdigest()
