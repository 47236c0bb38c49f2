"""A sweep over scripted slots: each case once and on one slot, slots that are lost, failures of the driver's disk."""

import threading
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fakes import cases
from scripted import ScriptedSlot

from ctxbench.base.errors import UsageError
from ctxbench.engine.one_process import Plan
from ctxbench.engine.progress import Quiet
from ctxbench.model.case import Case, Measure
from ctxbench.results.run_folder import RunFolder
from ctxbench_science.cluster import sweep as sweeping
from ctxbench_science.cluster.sweep import SweepPart, bundles, sweep

pytestmark = pytest.mark.slow  # many small cases, which take seconds together

PROCESSES = 3


def run(path: Path, slots: Sequence[ScriptedSlot], grouped: Sequence[Sequence[Case]]) -> RunFolder:
    folder = RunFolder.open(path) if (path / "run.json").exists() else RunFolder.create(path, {})
    plan = Plan(Measure(processes=PROCESSES), ["params", "latency"])
    sweep([SweepPart(folder, grouped, slots)], plan, Quiet())
    return folder


def test_every_case_is_measured_once_and_on_one_slot(tmp_path: Path) -> None:
    begin = threading.Barrier(3)
    slots = [ScriptedSlot(f"host/{n}", begin=begin) for n in range(3)]
    grid = cases(100)
    folder = run(tmp_path / "run", slots, [[case] for case in grid])
    frame = folder.frame()
    assert list(frame["case"]) == [case.id for case in grid]
    assert set(frame["status"]) == {"ok"}
    assert set(frame["processes"]) == {PROCESSES}
    assert set(frame["latency_infer_ms"]) == {1.0}
    measured = [each for slot in slots for each in slot.measured]
    assert sorted(measured) == sorted((case.id, number) for case in grid for number in range(PROCESSES + 1))
    where = folder.finished()
    assert {len({record["slot"] for record in processes.values()}) for processes in where.values()} == {1}
    assert set(frame["slot"]) == {slot.name for slot in slots}
    assert len(folder.samples()) == 100 * PROCESSES * 2


def test_no_process_of_a_slot_is_of_two_cases(tmp_path: Path) -> None:
    slot, on_gpu = ScriptedSlot("host/1"), [replace(case, device="cuda") for case in cases(3)]
    assert set(run(tmp_path / "run", [slot], [[case] for case in on_gpu]).frame()["status"]) == {"ok"}
    assert sorted(slot.measured) == sorted((case.id, number) for case in on_gpu for number in range(PROCESSES + 1))


def test_a_slot_takes_many_cases_at_first_and_one_at_the_end(tmp_path: Path) -> None:
    begin = threading.Barrier(2)
    slots = [ScriptedSlot(f"host/{n}", begin=begin) for n in range(2)]
    run(tmp_path / "run", slots, [[case] for case in cases(70)])
    taken: list[int] = []
    for number in (0, 1):
        of_process_0 = [process == 0 for _, process in slots[number].measured]
        starts = [i for i, first in enumerate(of_process_0) if first and (i == 0 or not of_process_0[i - 1])]
        for start in starts:
            ends = (i for i in range(start, len(of_process_0)) if not of_process_0[i])
            taken.append(next(ends) - start)
    assert max(taken) == sweeping.MOST_CASES
    assert min(taken) == 1
    assert sum(taken) == 70


def test_what_is_compared_stays_together() -> None:
    grid = [
        Case(module, "x:X", hparams, shape, execution=execution)
        for module, hparams in (("sa", {}), ("ham_nmf", {"steps": 3}), ("ham_nmf", {"steps": 6}), ("a2", {}))
        for shape in ((1, 8, 4, 4), (1, 8, 8, 8))
        for execution in ("eager", "compile")
    ]
    found = bundles(grid, {"sa", "a2"})
    together: dict[Any, int] = defaultdict(int)
    for bundle in found:
        together[frozenset((case.module, case.hparams_json) for case in bundle)] += 1
        assert len({case.shape for case in bundle}) == 1
    crossed = frozenset({("sa", "{}"), ("a2", "{}")})
    assert together == {
        crossed: 2,
        frozenset({("ham_nmf", '{"steps": 3}')}): 2,
        frozenset({("ham_nmf", '{"steps": 6}')}): 2,
    }
    assert sorted(case.id for bundle in found for case in bundle) == sorted(case.id for case in grid)


def test_a_lost_slots_cases_are_measured_anew_elsewhere(tmp_path: Path) -> None:
    begin = threading.Barrier(2)
    last = cases(40)[-1]
    slots = [
        ScriptedSlot("host/lost", dies=lambda case, number: number == 2, begin=begin),
        ScriptedSlot("host/kept", begin=begin),
    ]
    folder = run(tmp_path / "run", slots, [[case] for case in cases(40)])
    frame = folder.frame()
    assert set(frame["slot"]) == {"host/kept"}
    assert set(frame["status"]) == {"ok"}
    assert len(frame) == 40
    assert slots[0].measured
    assert len(folder.samples()) == 40 * PROCESSES * 2
    assert set(folder.finished()[last.id]) == set(range(PROCESSES + 1))


def test_a_case_that_loses_two_slots_is_a_crashed_row(tmp_path: Path) -> None:
    grid = cases(12)

    def dies(case: Case, number: int) -> bool:
        return case == grid[3]

    third = ScriptedSlot("host/3", dies)
    second = ScriptedSlot("host/2", dies, then=third)
    folder = run(tmp_path / "run", [ScriptedSlot("host/1", dies, then=second)], [[case] for case in grid])
    frame = folder.frame().set_index("case")
    failed = frame.loc[grid[3].id]
    assert failed["status"] == "crashed"
    assert failed["message"] == "2 slots were lost while they measured this case; the last: host/2 is gone"
    assert list(frame["status"]).count("ok") == 11
    assert set(frame["slot"]) == {"host/2", "host/3", ""} or set(frame["slot"]) == {"host/3", ""}


def test_without_a_slot_the_run_ends_with_a_sentence_and_resumes(tmp_path: Path) -> None:
    grid = [[case] for case in cases(40)]
    calls = iter(range(1000))
    dying = ScriptedSlot("host/1", dies=lambda case, number: next(calls) == 100)
    with pytest.raises(UsageError) as caught:
        run(tmp_path / "run", [dying], grid)
    assert "every slot was lost, the last one because host/1 is gone" in str(caught.value)
    assert "continue with ctxbench resume" in str(caught.value)
    folder = RunFolder.open(tmp_path / "run")
    done = len(folder.frame())
    assert 0 < done < 40
    assert f"{done} of 40 cases" in str(caught.value)
    other = ScriptedSlot("host/2")
    frame = run(tmp_path / "run", [other], grid).frame()
    assert list(frame["slot"]).count("host/1") == done
    assert list(frame["slot"]).count("host/2") == 40 - done
    assert len(other.measured) == (40 - done) * (PROCESSES + 1)


def test_a_case_that_was_interrupted_is_measured_whole_again(tmp_path: Path) -> None:
    grid = [[case] for case in cases(2)]
    run(tmp_path / "run", [ScriptedSlot("host/1")], grid)
    path = tmp_path / "run" / "processes.csv"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:-1]))
    other = ScriptedSlot("host/2")
    folder = run(tmp_path / "run", [other], grid)
    lost = [case for case, processes in folder.finished().items() if processes[0]["slot"] == "host/2"]
    assert sorted(other.measured) == [(case, number) for case in lost for number in range(PROCESSES + 1)]
    assert len(lost) == 1
    assert len(folder.samples()) == 2 * PROCESSES * 2


def test_a_failed_case_is_not_measured_again(tmp_path: Path) -> None:
    slot = ScriptedSlot("host/1", fails=[2])
    grid = [[case] for case in cases(3)]
    assert list(run(tmp_path / "run", [slot], grid).frame()["status"]) == ["ok", "nan", "ok"]
    other = ScriptedSlot("host/2")
    run(tmp_path / "run", [other], grid)
    assert other.measured == []


def test_a_full_disk_ends_the_sweep_with_what_is_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = iter(range(1000))
    append = RunFolder.append

    def full(self: RunFolder, *arguments: Any) -> None:
        if next(written) >= 10:
            raise UsageError(f"cannot write to {self.path}: No space left on device")
        append(self, *arguments)

    monkeypatch.setattr(RunFolder, "append", full)
    with pytest.raises(UsageError, match="No space left on device"):
        run(tmp_path / "run", [ScriptedSlot(f"host/{n}") for n in range(3)], [[case] for case in cases(20)])
    monkeypatch.undo()
    assert len(RunFolder.open(tmp_path / "run").finished()) > 0
    assert len(run(tmp_path / "run", [ScriptedSlot("host/9")], [[case] for case in cases(20)]).frame()) == 20


def test_an_error_of_the_code_itself_is_raised(tmp_path: Path) -> None:
    def broken(case: Case, number: int) -> bool:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run(tmp_path / "run", [ScriptedSlot("host/1", dies=broken), ScriptedSlot("host/2")], [[c] for c in cases(9)])


def test_parts_are_measured_at_the_same_time(tmp_path: Path) -> None:
    begin = threading.Barrier(2)  # each waits for the other
    parts = []
    for name in ("h100", "a100"):
        folder = RunFolder.create(tmp_path / name, {})
        parts.append(SweepPart(folder, [[case] for case in cases(4)], [ScriptedSlot(f"{name}/1", begin=begin)]))
    sweep(parts, Plan(Measure(processes=PROCESSES), ["params", "latency"]), Quiet())
    for part in parts:
        assert set(part.folder.frame()["slot"]) == {part.slots[0].name}
        assert len(part.folder.frame()) == 4
