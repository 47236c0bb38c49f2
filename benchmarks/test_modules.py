"""The suite `ci`, infer and train, under pytest-benchmark: `pytest benchmarks --benchmark-json out.json`."""

from collections.abc import Callable

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from ctxbench.base.mode import MODES
from ctxbench.model import read_suite as suite
from ctxbench.model.case import Case
from ctxbench.plugins.pytest.fixture import BenchmarkCase


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("case", suite.load("ci").cases(), ids=lambda case: case.id.replace(" ", "-"))
def test_pass(case: Case, mode: str, benchmark: BenchmarkFixture, ctxbench_case: Callable[..., BenchmarkCase]) -> None:
    prepared = ctxbench_case(case.module, case.shape, mode, case.dtype, case.device, case.threads, **case.hparams)
    benchmark.group = mode
    benchmark.extra_info.update(prepared.extra_info)
    benchmark(prepared.step)
