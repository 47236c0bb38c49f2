"""Plugins are found by their folders and entry points, load nothing heavy, and bring no name that is taken."""

import sys
from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import ctxbench
from ctxbench import cli, plugin
from ctxbench.plugin import Plugin, PluginError, brought, loaded, plugins

FOLDERS = {path.parent.name for path in (Path(plugin.__file__).parent / "plugins").glob("*/__init__.py")}
DECLARED = """
from ctxbench.plugin import Command, Plugin
PLUGIN = Plugin(about="greets", {fields})
"""
GREETING = """
def greet() -> None:
    \"\"\"Greet.\"\"\"
    print("hello")
"""
Strangers = Callable[..., None]


@pytest.fixture
def strangers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Strangers]:
    """Install packages that each declare a plugin with these fields."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def install(**declared: str) -> None:
        points = []
        for name, fields in declared.items():
            folder = tmp_path / f"stranger_{name}"
            folder.mkdir()
            (folder / "__init__.py").write_text(DECLARED.format(fields=fields), encoding="utf-8")
            (folder / "command.py").write_text(GREETING, encoding="utf-8")
            points.append(EntryPoint(name, folder.name, plugin.FOLDER))
        monkeypatch.setattr(plugin, "entry_points", lambda group: EntryPoints(points))
        _forget()

    yield install
    monkeypatch.undo()
    _forget()
    for name in [name for name in sys.modules if name.startswith("stranger_")]:
        del sys.modules[name]


def _forget() -> None:
    plugins.cache_clear()
    cli.known_commands.cache_clear()


def test_each_folder_is_a_plugin() -> None:
    own = {name for name, each in plugins().items() if each.package.startswith(f"{plugin.FOLDER}.")}
    assert own == FOLDERS
    assert all(each.about for each in plugins().values())


def test_what_plugins_declare_is_there() -> None:
    for kind in ("metrics", "executions", "devices", "preload", "tables", "printed", "lines", "figures", "sentences"):
        assert all(each is not None for each in loaded(kind))
    for kind in ("functions", "questions"):
        assert all(callable(owner.load(reference)) for owner, (_, reference) in brought(kind))
    for _, load in cli.known_commands().values():
        assert callable(load())


def test_a_stranger_s_command_and_function_are_found(strangers: Strangers, capsys: pytest.CaptureFixture[str]) -> None:
    command = 'Command("Greetings", "Greet.", run="command:greet", order=1)'
    strangers(greeting=f'commands={{"greet": {command}}}, functions={{"greet": "command:greet"}}')
    assert list(cli.known_commands())[-1] == "greet"
    ctxbench.greet()  # type: ignore[attr-defined]  # a stranger's plugin brings it
    assert capsys.readouterr().out == "hello\n"
    assert "greet" in dir(ctxbench)


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ('needs=("nothing",)', "the plugin mine needs the plugin nothing, which is not there"),
        ("colour=3", "the plugin mine cannot be loaded from stranger_mine: "),
        ('commands={"zap": 3}', "the plugin mine cannot be loaded from stranger_mine: commands['zap'] is int, not"),
        ("metrics=None", "the plugin mine cannot be loaded from stranger_mine: metrics is NoneType, not Sequence"),
        ('metrics="x"', "the plugin mine cannot be loaded from stranger_mine: metrics is str, not Sequence"),
        (")\nimport sys\nsys.exit(0", "the plugin mine cannot be loaded from stranger_mine: 0"),
        (")\nraise GeneratorExit(", "the plugin mine cannot be loaded from stranger_mine: GeneratorExit"),
        (")\nPLUGIN = (3", "the plugin mine cannot be loaded from stranger_mine: PLUGIN is int, not"),
    ],
)
def test_a_plugin_that_cannot_be_is_named(strangers: Strangers, fields: str, sentence: str) -> None:
    strangers(mine=fields)
    with pytest.raises(PluginError) as raised:
        plugins()
    assert str(raised.value).startswith(sentence)


def test_two_plugins_of_one_name_are_both_named(strangers: Strangers) -> None:
    (name, *_) = plugins()
    package = plugins()[name].package
    strangers(**{name: ""})
    with pytest.raises(PluginError, match=f"two plugins are called {name}: {package} and stranger_{name}"):
        plugins()


@pytest.mark.parametrize("kind", ["commands", "functions", "questions", "notes"])
def test_two_plugins_that_bring_one_name_are_both_named(strangers: Strangers, kind: str) -> None:
    for owner, (name, _) in [*brought(kind)][:1]:
        thing = 'Command("", "", run="a:b", order=1)' if kind == "commands" else '"a:b"'
        strangers(mine=f'{kind}={{"{name}": {thing}}}')
        with pytest.raises(PluginError) as raised:
            plugins()
        assert str(raised.value) == f"the plugins {owner.name} and mine both bring {name!r} ({kind})"


@pytest.mark.parametrize(
    ("fields", "read", "sentence"),
    [
        (
            'commands={"run": Command("", "", run="", order=1)}',
            lambda: cli.known_commands(),
            "the plugin mine brings the command 'run', which ctxbench itself has",
        ),
        (
            'functions={"run": "command:greet"}',
            lambda: dir(ctxbench),
            "the plugin mine brings the function 'run', which ctxbench itself has",
        ),
    ],
)
def test_a_name_of_the_core_is_not_taken(
    strangers: Strangers, fields: str, read: Callable[[], Any], sentence: str
) -> None:
    strangers(mine=fields)
    with pytest.raises(PluginError, match=sentence):
        read()


def test_objects_come_in_the_order_of_their_places(monkeypatch: pytest.MonkeyPatch) -> None:
    made = {
        "late": Plugin("", tables={"file:a": 3, "file:b": 1}, package="p.late"),
        "early": Plugin("", tables={"file:c": 2}, package="p.early"),
    }
    monkeypatch.setattr(plugin, "plugins", lambda: made)
    monkeypatch.setattr("ctxbench.plugin.importlib.import_module", lambda name: SimpleNamespace(a="a", b="b", c="c"))
    assert loaded("tables") == ["b", "c", "a"]
