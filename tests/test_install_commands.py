"""The commands that pages print for installing work in a clone, and keep the PyTorch that is there."""

import re
import shlex
import tomllib
from pathlib import Path

import pytest

from ctxbench.base.extras import PACKAGES
from ctxbench.plugin import brought

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
(PINNED,) = re.findall(r"^torch==.*$", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE)
CPU = ["--index-url", "https://download.pytorch.org/whl/cpu"]
PAGES = [
    path for each in ("*.md", "docs/**/*.md", "examples/**/*.md", "examples/*.yml") for path in sorted(ROOT.glob(each))
]
COMMANDS = sorted(
    {
        (page.relative_to(ROOT).as_posix(), found.strip())
        for page in PAGES
        for found in re.findall(r"pip install ([^`#\n]+)", page.read_text(encoding="utf-8"))
    }
)


def keeps_torch(command: str) -> bool:
    """Return whether what follows `pip install` is there, and leaves a PyTorch within the bounds as it is.

    A constraint file names the one version. Without one, only ctxbench's own bounds may decide, so no extra is asked.
    """
    match shlex.split(command):
        case ["-c", "../ctxbench/constraints.txt", "torch", "--no-deps", *rest]:
            return rest == CPU
        case ["-c", constraints, *rest] if constraints in ("constraints.txt", "../ctxbench/constraints.txt"):
            clone = constraints.removesuffix("/constraints.txt") if "/" in constraints else "."
            path, _, extras = rest[-1].rstrip("]").partition("[")
            inside = ROOT / path.removeprefix(clone).lstrip("/")
            is_there = path.startswith(clone) and (inside / "pyproject.toml").is_file()
            return rest[:-1] in ([], ["-e"]) and is_there and all(each in EXTRAS for each in extras.split(",") if each)
        case [torch, *rest] if torch == PINNED:
            return rest == CPU
        case ["."]:
            return True
    return False


@pytest.mark.parametrize(("page", "command"), COMMANDS)
def test_a_printed_command_works_in_a_clone_and_keeps_torch(page: str, command: str) -> None:
    assert keeps_torch(command), f"{page}: pip install {command}"


def test_the_pages_print_how_to_install_each_extra_that_a_command_asks_for() -> None:
    printed = " ".join(command for _, command in COMMANDS)
    asked = {*PACKAGES, *(extra for _, (extra, _) in brought("extras"))}
    assert "networks" in asked
    assert [extra for extra in asked if not re.search(rf"[\[,]{extra}[\],]", printed)] == []


@pytest.mark.parametrize(
    "command",
    [
        '"ctxbench[networks]"',
        '".[networks]"',
        '-e ".[onnx]"',
        '-c constraints.txt ".[network]"',
        "-c constraints.txt ./examples/none",
        "torch==2.11.0 --index-url https://download.pytorch.org/whl/cpu",
        "torch",
        '"torch>=2.11" --index-url https://download.pytorch.org/whl/cpu',
    ],
)
def test_a_command_that_does_not_is_found(command: str) -> None:
    assert not keeps_torch(command)
