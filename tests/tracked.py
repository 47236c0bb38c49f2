"""Makes a copy of the files that git tracks, and a Python that imports ctxbench from it.

`python tests/tracked.py` refreshes `.tracked` and `.venv/tracked`, in which `make` tests, lints and builds: whatever
else lies in the clone (runs, modules and suites of a person, settings of tools, another checkout) cannot change what it
finds. Tracked files are copied as they are on the disk, staged ones with them. The others are named, since a new file
is tested once it is staged. In an archive, which has no `.git`, all files count that `.gitignore` does not name. With
`--back COMMAND ...` it runs a Python command in the copy, and takes over the tracked files that this has changed, added
or removed.
"""

import fcntl
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
COPY, PYTHON = ROOT / ".tracked", ROOT / ".venv" / "tracked"
SHOWN = 5  # names of files that are left out, in one line


def git(folder: Path, *arguments: str) -> str:
    """Output of a git command in `folder`. CalledProcessError if it fails."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    # The copy is a repository of its own, whose ignored files are those that its .gitignore names.
    command = ["git", "-c", "core.excludesFile=", "-c", "safe.directory=*", "-C", str(folder), *arguments]
    return subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout


def listed(folder: Path, *which: str) -> list[str]:
    """The files that git lists in `folder`, without those that are not on the disk."""
    names = git(folder, *which, "-z").split("\0")
    return [name for name in names if name and os.path.lexists(folder / name) and not (folder / name).is_dir()]


def tracked() -> tuple[list[str], list[str]]:
    """The files that git tracks in this clone, and those that are beside them and not ignored."""
    if (ROOT / ".git").exists():
        others = git(ROOT, "ls-files", "--others", "--exclude-standard", "-z").split("\0")
        return listed(ROOT, "ls-files", "--cached"), list(filter(None, others))
    unpacked = (f"--git-dir={COPY / '.git'}", f"--work-tree={ROOT}", "ls-files", "--others", "--exclude-standard")
    return listed(ROOT, *unpacked), []


def copy_to(root: Path) -> list[str]:
    """Make or refresh a repository at `root` that has the tracked files, and no other; the files that it lacks."""
    if not (root / ".git").exists():
        git(ROOT, "init", "--quiet", str(root))
    if (ROOT / ".git").exists():
        git(root, "fetch", "--quiet", "--update-shallow", str(ROOT), "HEAD")
        git(root, "update-ref", "--no-deref", "HEAD", "FETCH_HEAD")
    names, others = tracked()
    for name in names:
        _refresh(ROOT / name, root / name)
    git(root, "read-tree", "--empty")
    subprocess.run(
        ["git", "-C", str(root), "update-index", "--add", "-z", "--stdin"],
        input="\0".join(names), text=True, check=True,
    )  # fmt: skip
    git(root, "clean", "--quiet", "-d", "--force", "--force")
    return others


def _refresh(source: Path, target: Path) -> None:
    """Copy a file, unless the target has its size and time: what was compiled of it then stays valid."""
    if os.path.lexists(target):
        old, new = target.lstat(), source.lstat()
        if (old.st_size, old.st_mtime_ns, old.st_mode) == (new.st_size, new.st_mtime_ns, new.st_mode):
            return
        target.unlink()
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(source, target, follow_symlinks=False)


def interpreter(root: Path, folder: Path) -> Path:
    """A Python that imports ctxbench from `root`, and all else from where this one has it."""
    if not (folder / "pyvenv.cfg").exists():
        venv.create(folder, symlinks=True)
    here = Path(sysconfig.get_path("purelib"))
    there = folder / here.relative_to(sys.prefix)
    # This Python may itself be such a one.
    others = [path for path in sys.path if Path(path).name == here.name]
    (there / "others.pth").write_text("\n".join(others), encoding="utf-8")
    for path in here.glob("__editable__*ctxbench*"):
        text = path.read_text(encoding="utf-8").replace(str(ROOT), str(root))
        (there / path.name).write_text(text, encoding="utf-8")
    return folder / "bin" / "python"


def take_back() -> None:
    """Take over what differs in the copy from the files here."""
    for name in git(COPY, "ls-files", "--deleted", "-z").split("\0")[:-1]:
        (ROOT / name).unlink(missing_ok=True)
    for name in listed(COPY, "ls-files", "--modified", "--others", "--exclude-standard"):
        (ROOT / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(COPY / name, ROOT / name)


def main() -> int:
    COPY.mkdir(exist_ok=True)
    with (ROOT / ".venv" / "tracked.lock").open("w") as lock:  # two commands of make may begin at once
        fcntl.flock(lock, fcntl.LOCK_EX)
        others = copy_to(COPY)
        python = interpreter(COPY, PYTHON)
    if others:
        more = f" and {len(others) - SHOWN} more" if len(others) > SHOWN else ""
        print(f"Left out, since git does not track them: {', '.join(others[:SHOWN])}{more}.", file=sys.stderr)
    if sys.argv[1:2] != ["--back"]:
        return 0
    code = subprocess.run([str(python), *sys.argv[2:]], cwd=COPY, check=False).returncode
    take_back()
    return code


if __name__ == "__main__":
    sys.exit(main())
