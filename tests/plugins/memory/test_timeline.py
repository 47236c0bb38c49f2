"""The bytes in memory during a pass: the steps that are kept, and what a run writes of them."""

from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pytest

import ctxbench
from ctxbench.plugins.memory.profile import MemoryStep
from ctxbench.plugins.memory.timeline import thinned

SuiteFile = Callable[..., Path]


def course(in_memory: list[int], forward: int) -> list[MemoryStep]:
    """Steps with these bytes in memory; the first `forward` of them are the forward pass."""
    phases: tuple[Literal["forward"], Literal["backward"]] = ("forward", "backward")
    return [MemoryStep("aten.bmm.default", phases[place >= forward], size) for place, size in enumerate(in_memory)]


def test_steps_that_change_nothing_are_left_out() -> None:
    assert thinned(course([5, 5, 5, 7, 7, 5, 5, 5, 5], forward=7)) == [0, 3, 5, 7, 8]


@pytest.mark.parametrize("peak", [0, 1, 499, 500, 640, 998, 999])
@pytest.mark.parametrize("most", [10, 50, 200])
def test_a_long_pass_keeps_its_ends_its_peak_its_dip_and_its_change_of_phase(peak: int, most: int) -> None:
    in_memory = [10 + step % 7 for step in range(1000)]
    in_memory[peak], in_memory[(peak + 300) % 1000] = 999, 1
    kept = thinned(course(in_memory, forward=500), most)
    assert len(kept) <= most
    assert kept == sorted(set(kept))
    assert {0, 499, 500, 999, peak, (peak + 300) % 1000} <= set(kept)


def test_of_equal_peaks_the_first_is_kept() -> None:
    in_memory = [step % 5 for step in range(1000)]
    in_memory[640] = in_memory[641] = 999
    kept = thinned(course(in_memory, forward=1000), 20)
    assert 640 in kept
    assert 641 not in kept


@pytest.mark.processes
@pytest.mark.usefixtures("shared_server")
def test_a_run_writes_the_course_of_each_mode_up_to_its_peak(suite_file: SuiteFile, tmp_path: Path) -> None:
    run = ctxbench.run(
        str(suite_file(["sa", "ham_nmf"], metrics=("memory",))), shape=(1, 8, 16, 16), static=True, out=tmp_path / "run"
    )
    timeline = run.folder.timeline()
    for row in run.frame.to_dict("records"):
        for mode in ("infer", "train"):
            own = timeline[(timeline["case"] == row["case"]) & (timeline["mode"] == mode)]
            assert own["bytes"].max() == row[f"memory_{mode}_predicted_bytes"]
            assert 2 < len(own) <= 200
            assert own["step"].is_monotonic_increasing
            assert own["phase"].unique().tolist() == (["forward"] if mode == "infer" else ["forward", "backward"])


@pytest.mark.processes
@pytest.mark.usefixtures("shared_server")
def test_a_case_that_fails_later_keeps_its_timeline(suite_file: SuiteFile, tmp_path: Path) -> None:
    suite = str(suite_file(["sa"], metrics=("memory", "latency"), axes='dtype = "tf32"'))
    run = ctxbench.run(suite, device="cpu", out=tmp_path / "run")
    assert run.frame["status"].tolist() == ["unsupported"]
    assert not run.folder.timeline().empty
