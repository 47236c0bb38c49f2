"""Deletions of plugins: what CI looks for of each, and all that is left of the tests in `make long`."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from delete_plugins import linked, other_tests, prove, with_dependents

from ctxbench.plugin import plugins

# How many plugins, the first ones, are deleted in a copy whose tests then run: minutes for each.
COUNT = int(os.environ.get("CTXBENCH_TEST_DELETIONS") or len(plugins()))
# The figures that the paper and most suites are about; tests of modules and suites assert them.
FIGURES = ("macs", "memory")
WITHOUT = """
import json, sys
from ctxbench.plugin import brought, plugins
from ctxbench.base.errors import UsageError
from ctxbench.model.read_suite import available, load
refused = {}
for name in available():
    try:
        load(name)
    except UsageError as error:
        refused[name] = str(error)
heavy = sorted({"torch", "pandas"} & {*sys.modules})
commands = [name for _, (name, _) in brought("commands")]
print(json.dumps([[*plugins()], commands, refused, heavy]))
"""


@pytest.mark.processes
@pytest.mark.parametrize("name", plugins())
def test_without_a_plugin_its_commands_are_gone_and_suites_are_read(name: str, tmp_path: Path) -> None:
    gone = with_dependents(name)
    linked(tmp_path, {*gone})
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}

    def python(*arguments: str) -> str:
        command = [sys.executable, *arguments]
        done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True)
        return done.stdout

    left, commands, refused, heavy = json.loads(python("-c", WITHOUT))
    assert {*left} == {*plugins()} - {*gone}
    assert not {*commands} & {command for each in gone for command in plugins()[each].commands}
    # A suite that asks for a metric which is not there says so.
    assert all(re.search("unknown (metric|quantity|key)", sentence) for sentence in refused.values()), refused
    assert not refused or {*FIGURES, "numerics"} & {*gone}
    assert not heavy
    shown = python("-m", "ctxbench", "--help")
    assert not [each for each in plugins()[name].commands if re.search(rf"^  {each}\s", shown, re.MULTILINE)]


@pytest.mark.parametrize("name", [name for name in plugins() if name not in FIGURES])
def test_no_test_of_others_imports_a_plugin(name: str) -> None:
    assert other_tests(name) == []


@pytest.mark.long
@pytest.mark.parametrize("name", [*plugins()][:COUNT])
def test_what_is_left_without_a_plugin_holds(name: str) -> None:
    proof = prove(name)
    assert not proof.broken, str(proof)
