"""Plans of runs, which list once cases, the data sheets of devices and sources; a shape that is read once."""

from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from fakes import FakeExecutor

import ctxbench
from ctxbench import devices
from ctxbench.base.errors import UsageError
from ctxbench.engine import plan as dry_run
from ctxbench.engine.cache import NO_CACHE_ENV
from ctxbench.engine.in_process import InProcess
from ctxbench.model import conditions, grid
from ctxbench.model.case import Case, Measure
from ctxbench.model.messages import Values
from ctxbench.model.read_suite import Overrides, load
from ctxbench.results import plan
from ctxbench.results.plan import RunPlan, prepare
from ctxbench.worker.protocol import Ask

NOTHING: dict[str, Any] = {"gpus": [], "torch_build": {}}


class LentGpu:
    """A device that is known without being here, and what knows it."""

    title = "Lent GPU"

    def names(self) -> list[str]:
        return ["lent-gpu"]

    def device(self, name: str) -> "LentGpu":
        return self

    def model_dump(self, *, mode: str) -> dict[str, Any]:
        return {"title": self.title}


@pytest.fixture(autouse=True)
def lent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "loaded", lambda kind: [LentGpu()])


def counted(monkeypatch: pytest.MonkeyPatch, calls: Counter[str], place: Any, name: str) -> None:
    real: Callable[..., Any] = getattr(place, name)

    def call(*given: Any, **named: Any) -> Any:
        calls[name] += 1
        return real(*given, **named)

    monkeypatch.setattr(place, name, call)


def test_a_run_lists_cases_and_sources_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    calls: Counter[str] = Counter()
    for place, name in (
        *((grid.Suite, each) for each in ("_points", "cases")),
        *((plan, each) for each in ("sources_of", "source_of")),
        (devices, "check"),
    ):
        counted(monkeypatch, calls, place, name)
    run = ctxbench.run(
        "quick", modules=["se", "sa"], shape=(1, 32, 4, 4), metrics=["params"], in_process=True, out=tmp_path / "run"
    )
    assert run.frame["status"].tolist() == ["ok", "ok"]
    assert calls == {"_points": 1, "cases": 1, "sources_of": 1, "source_of": 1, "check": 1}


def test_a_shape_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: Counter[str] = Counter()
    counted(monkeypatch, calls, conditions, "_integer")  # called for each of the four numbers of a shape
    suite = load("quick", Overrides(modules=["se"], conditions={"shape": ["1,8,4,4"]}))
    calls_of_files = calls["_integer"]
    (case,) = suite.cases()
    assert case.shape == (1, 8, 4, 4)
    assert conditions.from_columns(conditions.to_columns(case))["shape"] == (1, 8, 4, 4)
    assert calls_of_files == calls["_integer"] == 8  # the file's own shape, and the option in its place


def test_sheets_are_read_once_and_only_other_devices_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    suite = load("quick", Overrides(modules=["se", "sa"], conditions={"device": ["lent-gpu", "auto"]}))
    calls: Counter[str] = Counter()
    counted(monkeypatch, calls, devices, "sheets")
    counted(monkeypatch, calls, devices, "check")
    found = prepare(suite, NOTHING)
    assert found.sheets == {"lent-gpu": {"title": "Lent GPU"}}
    assert [case.device for case in found.cases] == ["lent-gpu", "cpu"] * 2
    assert calls["check"] == 1
    assert found.sheets is found.sheets
    assert [*RunPlan(suite, found.cases[1:2]).sheets] == []


def test_a_device_that_is_not_here_is_told() -> None:
    suite = load("quick", Overrides(modules=["se"], conditions={"device": ["cuda"]}))
    with pytest.raises(UsageError, match="device 'cuda' was asked for, but torch sees no GPU here"):
        prepare(suite, NOTHING)


def test_a_static_plan_has_each_case_without_a_device_once() -> None:
    suite = load("quick", Overrides(modules=["se"], conditions={"device": ["cpu", "cuda", "lent-gpu"]}))
    found = prepare(suite, NOTHING, static=True)
    assert [case.device for case in found.cases] == [devices.META, "lent-gpu"]


def test_an_excluded_device_is_that_which_auto_stands_for() -> None:
    suite = load("quick", Overrides(modules=["se", "sa"]))
    file = suite.file.model_copy(update={"exclude": [{"module": "sa", "device": "cuda"}]})
    limited = grid.Suite(suite.name, suite.path, file)
    on_cuda = [case for case in limited.cases("cuda") if case.module == "sa"]
    on_cpu = [case for case in limited.cases("cpu") if case.module == "sa"]
    assert (on_cuda, len(on_cpu)) == ([], len([case for case in suite.cases() if case.module == "sa"]))


def test_a_plan_says_what_run_json_keeps_of_it() -> None:
    suite = load("quick", Overrides(modules=["se"], conditions={"device": ["lent-gpu"]}))
    meta = RunPlan(suite, suite.cases()).meta(NOTHING, counter="ctxbench", metrics=["params"], force=False)
    assert {"suite": "quick", "state": "running", "static": False, "metrics": ["params"]}.items() <= meta.items()
    assert [*meta["sources"]] == ["ctxbench", "se"]
    assert [*meta["sheets"]] == ["lent-gpu"]


def test_a_dry_run_takes_one_short_product_for_each_dtype_of_products(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, float]] = []

    def rate(case: Case, measure: Measure, executor: object) -> float:
        asked.append((case.dtype, measure.sample_s))
        return 1e9

    monkeypatch.setattr(dry_run, "ForkServer", lambda soon: nullcontext(InProcess()))
    monkeypatch.setattr(dry_run, "machine", lambda server: NOTHING)
    monkeypatch.setattr(dry_run, "matmul_rate", rate)
    dtypes = ["float32", "float16", "autocast-float16", "autocast-bfloat16"]
    suite = load("quick", Overrides(modules=["se"], conditions={"dtype": dtypes, "shape": ["1,32,4,4"]}))
    planned = dry_run.plan(suite)
    assert [each.case.dtype for each in planned] == dtypes
    assert all(each.seconds for each in planned)
    assert asked == [(dtype, dry_run.PRODUCT_S) for dtype in ("float32", "float16", "autocast-bfloat16")]


def test_a_second_dry_run_starts_no_process_until_something_changes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv(NO_CACHE_ENV)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    script = FakeExecutor(lambda task: [Values({"macs": 10**9})])
    monkeypatch.setattr(dry_run, "ForkServer", lambda soon: script.launch())
    monkeypatch.setattr(dry_run, "machine", lambda executor: executor.run(Ask("machine", []), print) and NOTHING)
    suite = load("quick", Overrides(modules=["se", "sa"], conditions={"shape": ["1,16,4,4"]}))
    first = dry_run.plan(suite)
    asked = len(script.timeouts)
    again = dry_run.plan(suite)
    assert [each.seconds for each in again] == [each.seconds for each in first] != [None, None]
    assert asked == len(script.timeouts) == 4
    monkeypatch.setenv("OMP_NUM_THREADS", "7")  # all is asked again, since a count may read a variable
    dry_run.plan(suite)
    assert len(script.timeouts) == 8
