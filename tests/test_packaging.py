"""The four packages import from a wheel and from an editable install, from any folder."""

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytestmark = [pytest.mark.processes, pytest.mark.long]
ROOT = Path(__file__).resolve().parents[1]
# Each install says --ignore-installed: without it pip removes the ctxbench that these tests run from.
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
WHERE = """
import importlib.util, site, sys
site.addsitedir(sys.argv[1])
for name in ("ctxbench", "ctxbench.modules", "ctxbench.suites", "ctxbench.report"):
    print(importlib.util.find_spec(name).origin)
from ctxbench import registry
print(registry.get("sa").file)
"""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the source tree, so that building leaves nothing in the repository."""
    copy = tmp_path_factory.mktemp("source")
    for name in ("ctxbench", "modules", "networks", "published", "suites", "report", "science"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("setup.py", "pyproject.toml", "constraints.txt", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    return copy


@pytest.fixture(scope="module")
def wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel of the tree, built where one of an older commit was: with a plugin and a module that are gone since."""
    older = [source / "ctxbench" / "plugins" / "older" / "__init__.py", source / "modules" / "older.py"]
    for file in older:
        file.parent.mkdir(exist_ok=True)
        file.write_text("raise ImportError\n")
    before = build(source, tmp_path_factory.mktemp("before"))
    assert {"ctxbench/plugins/older/__init__.py", "ctxbench/modules/older.py"} <= names_in(before)
    older[1].unlink()
    shutil.rmtree(older[0].parent)
    return build(source, tmp_path_factory.mktemp("wheel"))


def build(source: Path, folder: Path) -> Path:
    subprocess.run([*PIP, "wheel", "--no-deps", "--no-build-isolation", "-w", folder, source], check=True)
    return next(folder.glob("*.whl"))


def names_in(wheel: Path) -> set[str]:
    names = zipfile.ZipFile(wheel).namelist()
    return {name for name in names if ".dist-info/" not in name and not name.endswith("/")}


def places(site: Path, elsewhere: Path) -> list[Path]:
    """The files of the four packages and of a module, as an interpreter sees them that knows no other site folder."""
    command = [sys.executable, "-I", "-S", "-c", WHERE, str(site)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=elsewhere)
    return [Path(line) for line in done.stdout.split()]


def test_a_wheel_holds_what_the_tree_holds(source: Path, wheel: Path) -> None:
    inside = [source / name for name in ("modules", "networks", "published", "suites", "report")]
    files = [file for folder in inside for file in folder.rglob("*")]
    held = {f"ctxbench/{file.relative_to(source)}" for file in files if file.is_file()}
    held |= {str(file.relative_to(source)) for file in (source / "ctxbench").rglob("*") if file.is_file()}
    assert names_in(wheel) == held


def test_the_wheel_of_science_holds_what_its_tree_holds(source: Path, tmp_path: Path) -> None:
    science = source / "science"
    held = {str(file.relative_to(science)) for file in (science / "ctxbench_science").rglob("*") if file.is_file()}
    assert names_in(build(science, tmp_path)) == held


def test_the_documented_install_works_from_any_folder(source: Path, wheel: Path, tmp_path: Path) -> None:
    documented = ["install", "-c", "constraints.txt", "."]  # after the earlier builds of `wheel` there
    assert f"pip {' '.join(documented)}\n" in (ROOT / "README.md").read_text()
    site = tmp_path / "site"
    options = ["--ignore-installed", "--no-deps", "--no-build-isolation", "--target", str(site)]
    subprocess.run([*PIP, *documented, *options], check=True, cwd=source)
    installed = {str(file.relative_to(site)) for file in (site / "ctxbench").rglob("*.*") if file.is_file()}
    assert names_in(wheel) == {name for name in installed if not name.endswith(".pyc")}
    assert places(site, tmp_path) == [
        site / "ctxbench" / "__init__.py",
        site / "ctxbench" / "modules" / "__init__.py",
        site / "ctxbench" / "suites" / "__init__.py",
        site / "ctxbench" / "report" / "__init__.py",
        site / "ctxbench" / "modules" / "sa.py",
    ]
    code = "import sys; sys.path.insert(0, sys.argv.pop(1)); from ctxbench.cli import main; main()"
    command = [sys.executable, "-c", code, str(site), "run", "--static", "--modules", "ham_nmf"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert "ham_nmf" in done.stdout
    assert len(list((tmp_path / "runs").glob("table3-*/records.csv"))) == 1


def test_an_editable_install_points_into_the_source(source: Path, tmp_path: Path) -> None:
    prefix = tmp_path / "prefix"
    options = ["--ignore-installed", "--no-deps", "--no-build-isolation", "--prefix", str(prefix)]
    subprocess.run([*PIP, "install", *options, "--editable", source], check=True)
    (site,) = prefix.glob("lib/python*/site-packages")
    assert places(site, tmp_path) == [
        source / "ctxbench" / "__init__.py",
        source / "modules" / "__init__.py",
        source / "suites" / "__init__.py",
        source / "report" / "__init__.py",
        source / "modules" / "sa.py",
    ]
