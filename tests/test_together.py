"""Rows of a round in one process: on a simulated GPU, and in real processes, of which some fail."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from fakes import EngineClock
from simulated_gpu import CONTEXT_S, ONCE_S, START_S, TIMES_S, SimulatedGpu

from ctxbench.base.clocks import FORKS
from ctxbench.engine.client import ForkServer
from ctxbench.engine.one_process import CaseOutcome, Plan
from ctxbench.engine.progress import Quiet
from ctxbench.engine.rounds import execute
from ctxbench.engine.together import groups, measure_together
from ctxbench.model.case import Case, Measure
from ctxbench.model.messages import Failure, Values
from ctxbench.model.record import Record
from ctxbench.results.run_folder import RunFolder
from ctxbench.worker import tasks
from ctxbench.worker.protocol import MeasureCases, Measured, Reply

FAILING = Path(__file__).parent / "fixtures" / "failing.py"
TABLE3 = ("sa", "da", "a2", "apc", "dm", "acf", "ham_cd", "ham_nmf", "linear", "focused_linear", "ham_vq")
MINE = Case("Mine", "/home/me/mine.py:Mine", {}, (1, 8, 4, 4), device="cuda")


def on_gpu(*keys: str) -> list[Case]:
    return [Case(key, f"ctxbench.modules.{key}:X", {}, (1, 8, 4, 4), device="cuda") for key in keys]


def run(
    gpu: SimulatedGpu, cases: Sequence[Case], path: Path, monkeypatch: pytest.MonkeyPatch, **measure: object
) -> dict[str, Record]:
    monkeypatch.setattr("ctxbench.base.clocks.here", gpu)
    settings = Measure.model_validate({"processes": 3, **measure})
    plan, folder = Plan(settings, ["params", "latency"]), RunFolder.create(path, {})
    return {each.module: each for each in execute(cases, plan, gpu, gpu.launch, folder, Quiet())}


def test_the_rows_of_a_round_share_a_process_on_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = SimulatedGpu()
    records = run(gpu, on_gpu(*TABLE3), tmp_path / "run", monkeypatch)
    assert [sorted(each) for each in gpu.tasks] == [sorted(TABLE3)] * 3
    assert len({tuple(each) for each in gpu.tasks}) == 3
    assert {(each.status, each.processes, each.get("latency_infer_ms")) for each in records.values()} == {
        ("ok", 3, 5.0)
    }
    once, rounds = 11 * (CONTEXT_S + ONCE_S) + CONTEXT_S, 3 * (START_S + CONTEXT_S + 11 * TIMES_S)
    assert gpu.seconds == pytest.approx(once + rounds)
    frame = RunFolder.open(tmp_path / "run").frame().set_index("module")
    assert frame["latency_infer_processes"].map(len).tolist() == [3] * 11


def test_each_row_has_a_process_of_its_own_where_that_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = SimulatedGpu()
    together = run(gpu, on_gpu(*TABLE3), tmp_path / "together", monkeypatch)
    alone = run(other := SimulatedGpu(), on_gpu(*TABLE3), tmp_path / "alone", monkeypatch, alone=True)
    assert [len(each) for each in other.tasks] == [1] * 33
    assert other.seconds - gpu.seconds == pytest.approx(3 * 10 * CONTEXT_S)
    assert [each.values for each in alone.values()] == [each.values for each in together.values()]


@pytest.mark.parametrize(
    ("cases", "found"),
    [
        (on_gpu("sa", "a2"), [["sa", "a2"]]),
        ([replace(case, device="cpu") for case in on_gpu("sa", "a2")], [["sa"], ["a2"]]),
        ([*on_gpu("sa"), MINE, *on_gpu("a2", "dm"), MINE], [["sa", "Mine"], ["a2", "dm", "Mine"]]),
        ([MINE, MINE], [["Mine"], ["Mine"]]),
        ([*on_gpu("sa"), replace(*on_gpu("a2"), execution="compile"), *on_gpu("dm")], [["sa", "dm"], ["a2"]]),
        ([*on_gpu("sa"), replace(*on_gpu("a2"), network="resnet50_d8"), *on_gpu("dm")], [["sa", "dm"], ["a2"]]),
        ([*on_gpu("sa"), replace(*on_gpu("a2"), device="cuda:1"), *on_gpu("dm")], [["sa", "dm"], ["a2"]]),
        ([*on_gpu("sa"), replace(*on_gpu("a2"), threads=1), *on_gpu("dm")], [["sa", "dm"], ["a2"]]),
    ],
)
def test_which_cases_share_a_process(cases: Sequence[Case], found: Sequence[Sequence[str]]) -> None:
    assert [[case.module for case in group] for group in groups(cases, alone=False)] == found
    assert [len(group) for group in groups(cases, alone=True)] == [1] * len(cases)


def test_what_fails_is_measured_again_alone_and_the_rest_shares_another_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`dm` fails wherever it is, `apc` only after another one, as if by what that left."""
    gpu = SimulatedGpu(fails=lambda case, before: case.module == "dm" or (case.module == "apc" and bool(before)))
    records = run(gpu, on_gpu("sa", "a2", "apc", "dm", "acf"), tmp_path / "run", monkeypatch)
    assert (records["dm"].status, records["dm"].message) == ("crashed", "an illegal memory access")
    assert (records["apc"].status, records["apc"].processes) == ("ok", 3)
    beside = sum(each[-1] == "apc" and len(each) > 1 for each in gpu.tasks)
    assert [each.code for each in records["apc"].notes] == ["failed_beside"] * bool(beside)
    assert beside
    assert {records[name].processes for name in ("sa", "a2", "acf")} == {3}
    assert ["dm"] in gpu.tasks
    assert all(each[-1] == "dm" for each in gpu.tasks if "dm" in each)


@pytest.mark.processes
@pytest.mark.skipif(not FORKS, reason="only Linux has a fork server")
def test_real_processes_of_several_cases(one_server: ForkServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A crash and a time limit each end one case; limits are counted from the beginning of each."""
    modules = ("Failing", "Segfault", "Failing", "Sleep", "Failing", "NotANumber")
    cases = [Case(name, f"{FAILING}:{name}", {}, (1, 8, 6, 5 + place)) for place, name in enumerate(modules)]
    plan = Plan(Measure(processes=1, sample_s=0.01, warmup_s=0, timeout_s=600), ["latency"])
    clock, begun, kept = EngineClock(), list[str](), dict[str, CaseOutcome]()
    monkeypatch.setattr("ctxbench.base.clocks.here", clock)

    class Watches(Quiet):
        def metric(self, name: str) -> None:
            clock.seconds += 1000 if begun[-1] == cases[3].id and name == "first_infer" else 0

    def keep(case: Case, outcome: CaseOutcome) -> None:
        clock.seconds += 400  # two of them would be later than a limit for all
        kept[case.id] = outcome

    measure_together(cases, plan, one_server, Watches(), lambda case: begun.append(case.id), keep)
    statuses = ["ok", "crashed", "ok", "timeout", "ok", "nan"]
    assert [outcome.record.status for outcome in kept.values()] == statuses
    assert begun == [*kept] == [case.id for case in cases]
    assert kept[cases[2].id].record.get("latency_train_ms") > 0
    assert not any(outcome.record.notes for outcome in kept.values())


def test_a_process_ends_at_its_first_failure() -> None:
    told: list[Reply] = []

    def emit(message: Reply) -> bytes:
        told.append(message)
        return b""

    names = ("Failing", "NotANumber", "Failing")
    plan = Plan(Measure(processes=1, sample_s=0.01, warmup_s=0), ["latency"])
    tasks.perform(MeasureCases([plan.task(Case(name, f"{FAILING}:{name}", {}, (1, 8, 6, 5))) for name in names]), emit)
    assert [type(each) for each in told if isinstance(each, Measured | Failure)] == [Measured, Failure]
    assert [each.values["title"] for each in told if isinstance(each, Values) and "title" in each.values] == [
        *names[:2]
    ]
