"""The copy in which `make` tests holds the tracked files of a clone, whatever lies beside them."""

import subprocess
from pathlib import Path

import first_hour
import pytest
import tracked

FILES = {".gitignore": "runs/\n", "README.md": "a\n", "modules/sa.py": "1\n"}


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def git(root: Path, *words: str) -> None:
    subprocess.run(["git", "-C", root, *words], check=True, capture_output=True)


def files_of(root: Path) -> dict[str, str]:
    paths = [path for path in root.rglob("*") if path.is_file() and ".git" not in path.relative_to(root).parts]
    return {path.relative_to(root).as_posix(): path.read_text() for path in paths}


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with a commit; what `tracked` copies of it goes to `copy` beside it."""
    root = tmp_path / "clone of a person"
    write(root, FILES)
    git(root, "init", "--quiet")
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--message", "a")
    monkeypatch.setattr(tracked, "ROOT", root)
    monkeypatch.setattr(tracked, "COPY", tmp_path / "copy")
    tracked.COPY.mkdir()
    return root


def test_the_tracked_files_have_at_most_ten_mib() -> None:
    total = sum((tracked.ROOT / name).stat().st_size for name in tracked.tracked()[0])
    assert total <= 10 * 2**20, "gzip -9n compresses tables, and a run that a newer one answers for goes"


def test_a_copy_has_the_tracked_files_as_they_are_and_no_others(clone: Path) -> None:
    write(
        clone, {"README.md": "edited\n", "modules/mine.py": "new\n", "runs/a/run.json": "{}", "modules/staged.py": ""}
    )
    git(clone, "add", "modules/staged.py")
    git(clone, "clone", "--quiet", ".", "second")
    assert tracked.copy_to(tracked.COPY) == ["modules/mine.py", "second/"]
    expected = {**FILES, "README.md": "edited\n", "modules/staged.py": ""}
    assert files_of(tracked.COPY) == expected
    assert sorted(tracked.listed(tracked.COPY, "ls-files")) == sorted(expected)


def test_a_refreshed_copy_lacks_what_went_and_keeps_what_is_ignored(clone: Path) -> None:
    tracked.copy_to(tracked.COPY)
    write(tracked.COPY, {"runs/cache": "kept\n", "modules/left.py": "by a test\n"})
    kept = (tracked.COPY / ".gitignore").stat()
    write(clone, {"README.md": "b\n"})
    git(clone, "commit", "--all", "--quiet", "--message", "b")
    (clone / "modules" / "sa.py").unlink()
    write(clone, {"README.md": "a\n"})
    git(clone, "checkout", "--quiet", "--detach")
    assert tracked.copy_to(tracked.COPY) == []
    assert files_of(tracked.COPY) == {".gitignore": FILES[".gitignore"], "README.md": "a\n", "runs/cache": "kept\n"}
    assert (tracked.COPY / ".gitignore").stat().st_ino == kept.st_ino


def test_an_archive_counts_what_its_gitignore_does_not_name(clone: Path) -> None:
    for path in sorted((clone / ".git").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    (clone / ".git").rmdir()
    write(clone, {"runs/a/run.json": "{}"})
    assert tracked.copy_to(tracked.COPY) == []
    assert files_of(tracked.COPY) == FILES


def test_what_a_command_wrote_in_the_copy_is_taken_over(clone: Path) -> None:
    write(clone, {"docs/figures/old.png": ""})
    git(clone, "add", "docs")
    tracked.copy_to(tracked.COPY)
    write(tracked.COPY, {"README.md": "made\n", "docs/figures/new.png": ""})
    (tracked.COPY / "docs" / "figures" / "old.png").unlink()
    tracked.take_back()
    assert files_of(clone) == {**FILES, "README.md": "made\n", "docs/figures/new.png": ""}


def test_the_commands_of_a_page_are_those_that_it_prints() -> None:
    readme, tutorial = first_hour.commands("README.md"), first_hour.commands("docs/tutorial.md")
    assert readme[0].endswith("MyContext --modules linear --shape 1,64,32,32")
    assert readme[1] == "ctxbench new my_module.py --class MyContext"
    assert [line.split()[1] for line in tutorial] == ["verify", "compare", "report"]
