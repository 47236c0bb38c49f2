"""Plug-ins: the example package, installed for real; broken ones are listed with their reason and stop nothing."""

import importlib.metadata
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ctxbench import registry
from ctxbench.base.errors import UsageError
from ctxbench.registry.entry import Entry

EXAMPLE = Path(__file__).parents[1] / "examples" / "ctxbench-example-plugin"
BUILT_IN = sorted(path.stem for path in (EXAMPLE.parents[1] / "modules").glob("[!_]*.py"))
SHOW_ALL = """
import json
from ctxbench import registry
from ctxbench.registry.entry import Entry
print(json.dumps({e.key: [e.title, e.broken] for e in registry.entries()}))
print(type(registry.get("global_context").build(16)).__module__)
"""
MODULE = """
from torch import nn
from ctxbench import register

@register("{key}", title="Plugged")
class Plugged(nn.Module):
    def __init__(self, channels: int, size: int, *, k: int = 3):
        super().__init__()

class Bare(nn.Module):
    pass
"""
MODULE_OF_A_BASE = """
from torch import nn

class Root(nn.Module):
    def __init__(self, channels: int, *, k: int = 3): ...

class Base(Root): ...
"""


@pytest.mark.processes
def test_the_example_package_is_found_once_it_is_installed(tmp_path: Path) -> None:
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    copy = tmp_path / "source"
    subprocess.run(["cp", "-r", str(EXAMPLE), str(copy)], check=True)
    subprocess.run([*pip, "--target", str(tmp_path / "installed"), str(copy)], check=True)
    search = os.pathsep.join(filter(None, [str(tmp_path / "installed"), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": search}

    def python(*arguments: str) -> str:
        command = [sys.executable, *arguments]
        done = subprocess.run(command, env=environment, cwd=tmp_path, check=True, capture_output=True, text=True)
        return done.stdout

    found, module = python("-c", SHOW_ALL).splitlines()
    entries = json.loads(found)
    assert sorted(entries) == sorted({*BUILT_IN, "global_context"} - {"identity"})
    assert entries["global_context"] == ["Global context (GC)", None]
    assert module == "ctxbench_example.global_context"
    assert "\n  global_context " in python("-m", "ctxbench", "list")


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder on the search path, and a registry that forgets what it discovered there."""
    monkeypatch.syspath_prepend(str(tmp_path))
    registry._discovered.cache_clear()
    yield tmp_path
    registry._discovered.cache_clear()


def discover(monkeypatch: pytest.MonkeyPatch, *points: tuple[str, str]) -> dict[str, Entry]:
    found = [importlib.metadata.EntryPoint(name, value, registry.ENTRY_POINT_GROUP) for name, value in points]
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: found)
    return registry._discovered()


def test_a_plug_in_is_described_from_its_source(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (package / "plugged_one.py").write_text(MODULE.format(key="plugged"), encoding="utf-8")
    found = discover(monkeypatch, ("plugged", "plugged_one:Plugged"), ("bare", "plugged_one:Bare"))
    entry = found["plugged"]
    assert (entry.title, entry.broken) == ("Plugged", None)
    assert [(p.name, p.annotation, p.default) for p in entry.hyperparameters] == [
        ("size", "int", None),
        ("k", "int", 3),
    ]
    assert (found["bare"].title, found["bare"].broken) == ("Bare", None)
    assert "plugged_one" not in sys.modules


@pytest.mark.parametrize("imported", ["from .base import Base", "from mine.base import Base", MODULE_OF_A_BASE])
def test_a_constructor_that_a_plug_in_inherits_is_described_too(
    package: Path, monkeypatch: pytest.MonkeyPatch, imported: str
) -> None:
    (package / "mine").mkdir()
    (package / "mine" / "__init__.py").touch()
    (package / "mine" / "base.py").write_text(MODULE_OF_A_BASE, encoding="utf-8")
    source = f'{imported}\nfrom ctxbench import register\n@register("own", title="Own")\nclass Own(Base): pass\n'
    (package / "mine" / "own.py").write_text(source, encoding="utf-8")
    entry = discover(monkeypatch, ("own", "mine.own:Own"))["own"]
    assert [(p.name, p.annotation, p.default) for p in entry.hyperparameters] == [("k", "int", 3)]
    assert "mine" not in sys.modules


@pytest.mark.parametrize(
    ("source", "point", "key", "reason"),
    [
        (MODULE, ("plugged", "plugged_two:Gone"), "plugged", "defines no class 'Gone'"),
        (MODULE, ("plugged", "no_such_package.part:Gone"), "plugged", "No module named 'no_such_package'"),
        (MODULE, ("plugged", "plugged_two.part:Gone"), "plugged", "there is no module 'plugged_two.part'"),
        ("class Plugged(:", ("plugged", "plugged_two:Plugged"), "plugged", "SyntaxError"),
        ("\0", ("plugged", "plugged_two:Plugged"), "plugged", "null bytes"),
        (
            MODULE.replace('title="Plugged"', "title=name"),
            ("plugged", "plugged_two:Plugged"),
            "plugged",
            "all literals",
        ),
        (MODULE.replace("k: int = 3", "k: int = max(2, 3)"), ("plugged", "plugged_two:Plugged"), "plugged", "literals"),
        (MODULE, ("other", "plugged_two:Plugged"), "other", "its class registers 'plugged'; use one name"),
        (
            MODULE.replace("{key}", "sa"),
            ("sa", "plugged_two:Plugged"),
            "sa (plugged_two:Plugged)",
            "its key 'sa' is taken by ctxbench.modules.sa:SelfAttention",
        ),
    ],
)
def test_a_broken_plug_in_is_listed_with_its_reason_and_stops_nothing(
    package: Path, monkeypatch: pytest.MonkeyPatch, source: str, point: tuple[str, str], key: str, reason: str
) -> None:
    (package / "plugged_two.py").write_text(source.replace("{key}", "plugged"), encoding="utf-8")
    found = discover(monkeypatch, point)
    assert reason in (found[key].broken or "")
    assert sorted(found) == sorted([*BUILT_IN, key])
    assert all(found[name].broken is None for name in BUILT_IN)
    with pytest.raises(UsageError, match="cannot be loaded"):
        found[key].load()


def test_two_plug_ins_of_one_name_leave_the_first_in_place(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("plugged_three", "plugged_four"):
        (package / f"{name}.py").write_text(MODULE.format(key="plugged"), encoding="utf-8")
    found = discover(monkeypatch, ("plugged", "plugged_three:Plugged"), ("plugged", "plugged_four:Plugged"))
    assert found["plugged"].broken is None
    assert "is taken by plugged_three:Plugged" in (found["plugged (plugged_four:Plugged)"].broken or "")
