"""Runs whose rows compare --reuse does not take."""

from pathlib import Path

import pytest
from attacks import small
from report_data import table3_run, without_key

from ctxbench.base.errors import AlteredRun, UsageError
from ctxbench.plugins.compare.comparison import reusable
from ctxbench.results.run_folder import RunFolder


@pytest.mark.slow
def test_a_case_whose_first_process_is_gone_is_not_reused(small_run: RunFolder, tmp_path: Path) -> None:
    run, table = small_run.path, small_run.path / "processes.csv"
    environment = small_run.meta["environment"]
    assert len(reusable(run, small.suite(tmp_path), (), environment)) == 4
    lines = table.read_text(encoding="utf-8").splitlines(keepends=True)
    table.write_text("".join([lines[0], *lines[2:]]), encoding="utf-8")
    with pytest.warns(AlteredRun):
        assert len(reusable(run, small.suite(tmp_path), (), environment)) == 3


@pytest.mark.parametrize("key", ["environment", "environment.gpus", "environment.packages.torch", "definition.measure"])
def test_reuse_names_a_key_that_is_missing(key: str, tmp_path: Path) -> None:
    run = table3_run(tmp_path / "run")
    without_key(run, key)
    with pytest.raises(UsageError, match=rf"run\.json is damaged: {key}.* is missing"):
        reusable(run, small.suite(tmp_path), (), {})
