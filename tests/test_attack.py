"""The short form of `tests/attack.py`, with a new seed each time: no attack does harm.

A failure prints the line that repeats it. The seed is that of CTXBENCH_TEST_SAMPLE, which CI draws and each run prints;
else another one for each kind.
"""

import os
from pathlib import Path

import attack
import pytest
from attacks import kept

pytestmark = [pytest.mark.processes, pytest.mark.long]


# Those that once did harm are tests, which run by themselves.
@pytest.mark.parametrize("kind", [kind for kind, tried in attack.KINDS.items() if tried is not kept.attack])
def test_no_attack_does_harm(kind: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    # As a person's commands: on the real machine, whose clock shows that a pass was not computed, and with the cache.
    monkeypatch.setenv("CTXBENCH_TEST_MACHINE", "real")
    monkeypatch.delenv("CTXBENCH_NO_CACHE")
    seed = os.environ.get("CTXBENCH_TEST_SAMPLE")
    code = attack.main(["--short", "--only", kind, *(["--seed", seed] if seed else [])])
    printed = capsys.readouterr().out
    assert code == 0, printed
    row = next(line for line in printed.splitlines() if line.startswith(f"| {kind} |"))
    tried, *harms = (int(cell) for cell in row.strip("|").split("|")[1:])
    assert tried > 0
    assert harms == [0, 0, 0, 0]


@pytest.mark.plugin("memory")
@pytest.mark.parametrize("name", kept.CASES)
def test_each_attack_that_is_kept_has_its_tests(name: str) -> None:
    file, _, test = kept.CASES[name].partition("::")
    text = (Path(__file__).parent / file).read_text(encoding="utf-8")
    assert f"def {test.partition('[')[0]}" in text
