"""A row that the host's other work disturbed is told by the rows before it."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

import gpu_times
from gpu_times import NEIGHBOURS, is_off, launches

from ctxbench.base.mode import Mode


def test_a_row_that_takes_twice_its_neighbours_time_an_operator_is_off() -> None:
    quiet = [19.0, 24.0, 15.0, 31.0, 20.0, 22.0, 18.0, 200.0, 21.0]
    assert len(quiet) == NEIGHBOURS
    assert [is_off(us, quiet) for us in (15.0, 41.0, 43.0, 68.0)] == [False, False, True, True]
    assert not is_off(68.0, quiet[1:])


def test_the_operators_of_a_pass_are_counted_with_the_gradients_that_are_kept() -> None:
    assert launches("se", "infer", (1, 64, 32, 32)) == 6
    assert launches("se", "train", (1, 64, 32, 32)) > 12


def test_a_row_that_is_off_is_timed_again_and_the_faster_time_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter(["0.36", "0.12", "0.13"])
    monkeypatch.setattr(gpu_times, "timed", lambda *case: [next(times), "", "", 1])
    before = [20.0] * NEIGHBOURS
    case: tuple[str, Mode, str, tuple[int, ...]] = ("se", "infer", "float32", (1, 64, 32, 32))
    assert [gpu_times.undisturbed(case, before)[0] for _ in range(2)] == ["0.12", "0.13"]
    assert before[-2:] == pytest.approx([20.0, 21.7], rel=0.01)
