"""Passes that were not computed: outputs kept by content, and the output of another input."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from ctxbench.base.notes import Note
from ctxbench.devices.clock import Step
from ctxbench.model.case import Case, Measure
from ctxbench.model.failures import StaleOutput
from ctxbench.model.messages import Values
from ctxbench.worker.measurement import CaseMeasurement
from ctxbench.worker.protocol import Reply

WORK_S, LOOK_UP_S = 0.02, 0.00002


class PassClock:
    """A clock that only the passes move."""

    def __init__(self) -> None:
        self.at = 0.0

    def time_block(self, step: Step, passes: int) -> float:
        before = self.at
        for _ in range(passes):
            step()
        return self.at - before

    def now(self) -> float:
        return self.at


def checked(monkeypatch: pytest.MonkeyPatch, step_of: Callable[[Tensor, PassClock], Step], ms: float) -> list[Note]:
    """The notes of a case whose pass is a given one, with a median of `ms`."""
    told: list[Reply] = []
    case = Case("sa", "ctxbench.modules.sa:SelfAttention", {}, (1, 8, 4, 4))
    measurement = CaseMeasurement(case, Measure(), told.append)
    measurement.load()
    clock = PassClock()
    monkeypatch.setattr(measurement, "clock", lambda: clock)
    before = measurement.x.clone()
    monkeypatch.setattr(measurement, "_step", lambda mode: step_of(measurement.x, clock))
    first = measurement.first_pass("infer")
    told.clear()
    measurement.check_computed(first.step, "infer", ms)
    assert torch.equal(measurement.x, before)
    return [note for each in told if isinstance(each, Values) for note in each.notes]


def keeps(x: Tensor, clock: PassClock) -> Step:
    """A pass that computes an output once for each content of its input."""
    kept: dict[bytes, Tensor] = {}

    def step() -> Tensor:
        key = x.numpy().tobytes()
        clock.at += LOOK_UP_S if key in kept else WORK_S
        return kept.setdefault(key, 2 * x)

    return step


def test_outputs_kept_by_content_are_told_from_work(monkeypatch: pytest.MonkeyPatch) -> None:
    (note,) = checked(monkeypatch, keeps, ms=LOOK_UP_S * 1e3)
    assert (note.code, note.about) == ("kept_by_content", "latency_infer")
    assert "a pass on a new input takes more than 3 times one on the same input again" in str(note)


@pytest.mark.parametrize("interrupted", [0, 1, 4])
def test_one_long_pass_is_no_kept_output(interrupted: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 1 ms each, but for one that something else holds up, which may be the first on an unseen input."""

    def honest(x: Tensor, clock: PassClock) -> Step:
        passes = iter(range(100))

        def step() -> Tensor:
            clock.at += 1.0 if next(passes) == interrupted + 1 else 1e-3
            return 2 * x

        return step

    assert checked(monkeypatch, honest, ms=1.0) == []


def test_an_output_of_the_input_before_is_an_error_whatever_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    def stale(x: Tensor, clock: PassClock) -> Step:
        y = 2 * x
        return lambda: y

    with pytest.raises(StaleOutput):
        checked(monkeypatch, stale, ms=1.0)
