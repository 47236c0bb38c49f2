"""Fixtures that several test files share."""

from collections.abc import Callable
from pathlib import Path

import pytest

TINY = """
title = "tiny"
modules = {modules}
metrics = {metrics}
[axes]
shape = [1, 8, 6, 5]
{axes}
[measure]
budget_s = 0.01
warmup_s = 0
timeout_s = {timeout}
{measure}
"""


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Children measure with one thread: tests are about what is recorded, not about speed."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


@pytest.fixture
def suite_file(tmp_path: Path) -> Callable[..., Path]:
    """Write a suite of tiny cases and return its path."""

    def write(
        modules: list[str],
        metrics: tuple[str, ...] = ("params", "latency"),
        axes: str = "",
        timeout: float = 60,
        measure: str = "",
    ) -> Path:
        path = tmp_path / "tiny.toml"
        text = TINY.format(modules=modules, metrics=list(metrics), axes=axes, timeout=timeout, measure=measure)
        path.write_text(text.replace("'", '"'), encoding="utf-8")
        return path

    return write
