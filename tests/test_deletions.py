"""Deletions of plugins: in `make long` of each, with CTXBENCH_TEST_DELETIONS=3 for three by chance."""

import os
import random

import pytest
from delete_plugins import prove

from ctxbench.plugin import plugins

COUNT = int(os.environ.get("CTXBENCH_TEST_DELETIONS") or len(plugins()))
NAMES = sorted(
    random.Random(os.environ.get("PYTEST_XDIST_TESTRUNUID")).sample([*plugins()], min(COUNT, len(plugins())))
)


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_what_is_left_without_a_plugin_holds(name: str) -> None:
    proof = prove(name)
    assert not proof.broken, str(proof)
