"""Deletions of plugins: what is quick to see of each, and proofs by the tests of copies in `make long`."""

import json
import os
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import GONE, SAMPLE
from delete_plugins import FIGURES, alone, core, deletable, linked, other_tests, with_dependents, words, words_in
from import_rules import ROOT

from ctxbench.plugin import plugins

PLUGINS = ROOT / "ctxbench" / "plugins"
# Of a sample three, other ones for each seed.
NAMES = deletable()
PROVED = random.Random(os.environ[SAMPLE]).sample(NAMES, min(3, len(NAMES))) if SAMPLE in os.environ else NAMES
WITHOUT = """
import json, runpy, sys
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
sys.argv = ["ctxbench", "--help"]
runpy.run_module("ctxbench", run_name="__main__")
"""


# By which the core means something else; `broken_contract`: that a module which `--anyway` measures breaks it.
OTHERWISE = {
    *("added", "attention", "broken_contract", "card", "cases", "check", "choose", "claims", "compare", "contract"),
    *("costs", "counts", "cudnn", "energy", "export", "gradient", "kernels", "networks", "onnx", "operators"),
    *("outputs", "passes", "place", "places", "precision", "predicted", "profile", "ray", "refused", "reused", "show"),
    *("side", "slot", "slots", "spectrum", "time", "trees", "verify", "yaml"),
}


@pytest.mark.processes
@pytest.mark.parametrize("name", plugins())
def test_without_a_plugin_its_commands_are_gone_and_suites_are_read(name: str, tmp_path: Path) -> None:
    gone = with_dependents(name)
    linked(tmp_path, {*gone})
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-c", WITHOUT]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True)
    told, _, shown = done.stdout.partition("\n")
    left, commands, refused, heavy = json.loads(told)
    assert {*left} == {*plugins()} - {*gone}
    assert not {*commands} & {command for each in gone for command in plugins()[each].commands}
    # A suite that asks for a metric which is not there says so.
    assert all(re.search("unknown (metric|quantity|key)", sentence) for sentence in refused.values()), refused
    assert bool(refused) == bool({*FIGURES} & {*gone})
    assert not heavy
    assert re.search(r"^  list\s", shown, re.MULTILINE)
    assert not [each for each in plugins()[name].commands if re.search(rf"^  {each}\s", shown, re.MULTILINE)]


def test_the_core_has_no_word_of_a_plugin_that_can_go() -> None:
    core = [path for path in (ROOT / "ctxbench").rglob("*.py") if PLUGINS not in path.parents]
    core += [path for each in ("report", "modules", "networks") for path in (ROOT / each).rglob("*.py")]
    known = {word for path in core for word in words_in(path)}
    brought = {word for name in deletable() for word in words(name)}
    assert brought & known == (OTHERWISE & brought if GONE else OTHERWISE)


@pytest.mark.slow
@pytest.mark.parametrize("name", deletable())
def test_no_test_of_others_imports_a_plugin(name: str) -> None:
    assert other_tests(name) == []


@pytest.mark.long
@pytest.mark.timeout(0)  # it runs all other tests
def test_the_core_holds_without_a_plugin() -> None:
    proof = core()
    assert not proof.broken, str(proof)


@pytest.mark.long
@pytest.mark.timeout(0)
@pytest.mark.parametrize("name", PROVED)
def test_a_plugin_holds_with_what_it_needs_alone(name: str) -> None:
    proof = alone(name)
    assert not proof.broken, str(proof)
