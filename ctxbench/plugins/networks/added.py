"""Time added by a module to a network's pass, and its time alone on the inputs that its slots get."""

from collections.abc import Callable, Sequence
from statistics import mean, median
from typing import Any

from ctxbench.base.mode import MODES, Mode
from ctxbench.model.case import EMPTY
from ctxbench.model.messages import Doing
from ctxbench.model.metric import Column, Measurement, Metric, RecordRow, TimedPass

# Rounds of a process at least: in each, a pass with the module, one without it, and the module alone.
FEWEST_ROUNDS = 5
TIMES = ("added", "alone")


def time(measurement: Measurement, mode: Mode, one_pass: TimedPass) -> None:
    """Time passes with the module, without it, and the module alone, in turn, and report the medians.

    What it adds is the median of the differences of neighbours. Alone, it trains with a gradient to its input, as in
    the network.
    """
    case, settings = measurement.case, measurement.settings
    if not case.network or case.module == EMPTY or case.execution != "eager":
        return
    measurement.emit(Doing(f"added_{mode}"))
    clock = measurement.clock()
    alone = _alone(measurement, mode)
    steps = (one_pass.step, _without(measurement, mode), *filter(None, [alone]))
    for step in steps:
        clock.time_block(step, 1)
    rounds: list[list[float]] = []
    end = clock.now() + settings.sample_s
    while len(rounds) < FEWEST_ROUNDS or clock.now() < end:
        rounds.append([clock.time_block(step, 1) * 1e3 for step in steps])
    values = {f"added_{mode}_ms": median(with_it - without for with_it, without, *_ in rounds)}
    measurement.report(values | ({f"alone_{mode}_ms": median(each[2] for each in rounds)} if alone else {}))


def _without(measurement: Measurement, mode: Mode) -> Callable[[], object]:
    """A pass of the network with an empty slot."""
    model = measurement.case.without().made(measurement.device.torch)
    model.train(mode == "train")
    return measurement.step_of(mode, model, measurement.x, [*model.parameters()])


def _alone(measurement: Measurement, mode: Mode) -> Callable[[], object] | None:
    """A pass of all uses of the module, on the inputs that they get in the network; None if no slot gets any."""
    from ctxbench.registry.slot import uses

    model = measurement.model
    model.eval()
    given_to = uses(model, measurement.x)
    model.train(mode == "train")
    passes = []
    for module, given in given_to:
        given.requires_grad_(mode == "train")
        passes.append(measurement.step_of(mode, module, given, [*module.parameters(), given]))

    def step() -> None:
        for each in passes:
            each()

    return step if passes else None


def combine(processes: Sequence[RecordRow]) -> dict[str, Any]:
    """Means over the processes with Student's interval: a difference may be below 0."""
    from ctxbench.base.limits import FEWEST_PROCESSES
    from ctxbench.base.statistics import t_interval

    values: dict[str, Any] = {}
    for name in (f"{what}_{mode}" for what in TIMES for mode in MODES):
        found = [row[f"{name}_ms"] for row in processes if row.get(f"{name}_ms") is not None]
        if found:
            values[f"{name}_ms"] = mean(found)
        if len(found) >= FEWEST_PROCESSES:
            interval = t_interval(found)
            values |= {f"{name}_low_ms": interval.low, f"{name}_high_ms": interval.high}
    return values


METRIC = Metric(
    name="added",
    order=45,
    about="what a module adds to the time of a network",
    columns=[
        Column(f"{what}_{mode}{end}_ms", float, least=float("-inf"))
        for what in TIMES
        for mode in MODES
        for end in ("", "_low", "_high")
    ],
    quantities=[],
    asked_for=False,
    default=False,
    time=time,
    combine=combine,
)
