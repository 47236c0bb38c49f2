"""The commands that pages print for installing work in a clone, and keep the PyTorch that is there."""

import re
import shlex
import tomllib
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, distributions, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from ctxbench.base.extras import PACKAGES
from ctxbench.plugin import brought

ROOT = Path(__file__).resolve().parents[1]
CONFIG = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = CONFIG["project"]
EXTRAS = PROJECT["optional-dependencies"]
CONSTRAINTS = (ROOT / "constraints.txt").read_text(encoding="utf-8")
(PINNED,) = re.findall(r"^torch==.*$", CONSTRAINTS, re.MULTILINE)
CPU = ["--index-url", "https://download.pytorch.org/whl/cpu"]
PAGES = [
    path for each in ("*.md", "docs/**/*.md", "examples/**/*.md", "examples/*.yml") for path in sorted(ROOT.glob(each))
]
# What a build of torch for CPUs brings beside what ctxbench itself asks for.
TORCH_NEEDS = ("fsspec", "networkx", "sympy")
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
        case ["--require-hashes", "--no-deps", "-r", file]:
            return bool(pins(file)) and "torch" not in pins(file)
        case ["--target", _, library]:  # a folder beside the environment
            return library.startswith("nvidia-cudnn-")
    return False


@pytest.mark.parametrize(("page", "command"), COMMANDS)
def test_a_printed_command_works_in_a_clone_and_keeps_torch(page: str, command: str) -> None:
    assert keeps_torch(command), f"{page}: pip install {command}"


@pytest.mark.parametrize("page", sorted({page for page, command in COMMANDS if "detectors" in command}))
def test_a_page_that_installs_detectors_names_their_licence(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    assert all("AGPL-3.0" in text[at.end() : at.end() + 120] for at in re.finditer(r"detectors\]", text))


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


def closure(asked: Iterable[str]) -> set[str]:
    """Names of what these requirements bring on this machine, as far as what they ask for is installed.

    What torch brings is left out: its builds for CUDA name each library of NVIDIA with its version.
    """
    found: set[tuple[str, str]] = set()
    waiting = [Requirement(each) for each in asked]
    while waiting:
        each = waiting.pop()
        name = str(canonicalize_name(each.name))
        for extra in {"", *each.extras} - {known for other, known in found if other == name}:
            found.add((name, extra))
            try:
                further = [] if name == "torch" else map(Requirement, requires(name) or [])
            except PackageNotFoundError:
                further = []
            waiting += [other for other in further if not other.marker or other.marker.evaluate({"extra": extra})]
    return {name for name, _ in found} - {"ctxbench"}


# `make extras`, too, runs those of an extra whose packages a command asks for.
@pytest.mark.parametrize(
    "extra",
    [pytest.param(each, marks=[pytest.mark.extra(each)] * (each not in ("dev", "docs", "test"))) for each in EXTRAS],
)
def test_all_that_an_extra_brings_has_its_version_in_the_constraints(extra: str) -> None:
    pinned = {canonicalize_name(each) for each in re.findall(r"^[\w.-]+", CONSTRAINTS, re.MULTILINE)}
    assert closure([*PROJECT["dependencies"], *EXTRAS[extra]]) - pinned == set()


def pins(file: str) -> dict[str, str]:
    """The versions in a file of hashes, of which each line has one or more."""
    lines = (ROOT / file).read_text(encoding="utf-8").splitlines()
    found = [re.fullmatch(r"([a-z0-9-]+)==(\S+)((?: --hash=sha256:[0-9a-f]{64})+)", line) for line in lines]
    return {each[1]: each[2] for each in found if each} if all(found) else {}


@pytest.mark.parametrize("file", ["hashes.txt", "hashes-dev.txt"])
def test_what_make_installs_has_its_hashes(file: str) -> None:
    pinned = re.findall(r"^([\w.-]+)[<=]=(.+)$", CONSTRAINTS, re.MULTILINE)
    hashed = pins(file)
    assert hashed
    assert hashed.items() <= {canonicalize_name(name): version for name, version in pinned}.items()
    assert f"$(call HASHED,{file}) --editable" in (ROOT / "Makefile").read_text(encoding="utf-8")
    if not hashed.items() <= {canonicalize_name(each.name): each.version for each in distributions()}.items():
        pytest.skip("other versions are installed")
    needed = closure([*PROJECT["dependencies"], *CONFIG["build-system"]["requires"], *TORCH_NEEDS])
    needed = needed if file == "hashes.txt" else closure([*EXTRAS["dev"], "ctxbench-science"]) - needed
    assert needed - {"torch", "ctxbench-science"} == hashed.keys()


@pytest.mark.parametrize("path", sorted([*ROOT.glob(".github/workflows/*.yml"), ROOT / "examples" / "gate-github.yml"]))
def test_a_workflow_may_read_alone_and_runs_actions_by_their_hash(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert re.search(r"^permissions:\n  contents: read\n(?! )", text, re.MULTILINE)
    assert set(re.findall(r"^ +([a-z-]+: write)", text, re.MULTILINE)) <= {"id-token: write"}
    used = re.findall(r"uses: (\S+)", text)
    assert [each for each in used if not re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", each)] == []
    assert text.count("persist-credentials: false") == sum("actions/checkout@" in each for each in used) > 0


def test_what_a_requirement_brings_is_found_through_extras_and_markers() -> None:
    assert closure(["jinja2"]) == {"jinja2", "markupsafe"}
    assert closure(["no-such-package>=1", "torch"]) == {"no-such-package", "torch"}
