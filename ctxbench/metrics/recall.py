"""What context a module can bring: the accuracy of a small trained network on synthetic tasks (asked for by name)."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial, reduce
from statistics import mean, median
from typing import TYPE_CHECKING, Any

from pydantic import Field

from ctxbench.case import Measure, Numbers, Repeats, Seconds
from ctxbench.errors import UsageError
from ctxbench.metrics.base import Column, Measurement, Metric, Quantity, RecordRow, Settings, Unit
from ctxbench.notes import Note
from ctxbench.number import Number

if TYPE_CHECKING:
    from ctxbench.recall.training import Trained

KINDS = ("global", "lookup", "where")
NOUNS = {
    "global": "accuracy from one vector of context",
    "lookup": "accuracy from a partner with the same mark",
    "where": "accuracy from the mirrored place",
}


NOT_ASKED = "not asked for"
# Seconds of a training step at USUAL_SHAPE: the median of the modules of results/recall-cpu, whose steps take 0.007 to
# 0.09 s.
STEP_S = 0.0164
USUAL_SHAPE = (64, 8, 8)


class Recall(Settings):
    """The module is built for `recall_shape` (channels, height, width), whatever the case's input is, and trained on
    each of `recall_tasks` for `recall_steps` with `recall_seeds` seeds; `recall_timeout_s` is for all of a row.
    """

    recall_tasks: list[str] = Field(["global", "lookup-8", "where"], min_length=1)
    recall_shape: list[Numbers] = Field([*USUAL_SHAPE], min_length=3, max_length=3)
    recall_steps: Repeats = 800
    recall_seeds: Repeats = 3
    recall_timeout_s: Seconds = 3600.0


def takes_s(measure: Measure) -> float:
    """About how many seconds the trainings of a row take: STEP_S a step, in proportion to the size of the scenes.

    On each task one to three learning rates are tried with the first seed; it is reckoned with two.
    """
    settings = Recall.of(measure)
    steps = len(settings.recall_tasks) * (settings.recall_seeds + 1) * settings.recall_steps
    return STEP_S * steps * math.prod(settings.recall_shape) / math.prod(USUAL_SHAPE)


def compute(measurement: Measurement) -> None:
    """Train on each task with each seed, and report accuracies with their interval over seeds."""
    from ctxbench.recall.scenes import task_of
    from ctxbench.recall.training import repeats, trainings

    curve: dict[str, dict[str, float | None]] = {}
    seconds: list[float] = []
    settings = Recall.of(measurement.settings)
    channels, height, width = settings.recall_shape
    module = partial(measurement.entry.build, channels, measurement.case.hparams), (channels, height, width)
    try:
        tasks = [task_of(name, height, width) for name in settings.recall_tasks]
        for task in tasks:
            found = trainings(*module, task, settings.recall_seeds, settings.recall_steps)
            seconds += [each.seconds for each in found]
            if broken := [each.diverged for each in found if each.diverged]:
                measurement.report({}, Note("recall_diverged", {"task": task.name, "reason": broken[0]}))
            else:
                curve[task.name] = _summary(found)
    except UsageError as error:
        measurement.report({f"recall_{kind}_reason": str(error) for kind in KINDS})
        return
    if not repeats(*module, tasks[0]):
        measurement.report({}, Note("recall_unsteady"))
    for kind in KINDS:
        own = [name for name in curve if name.partition("-")[0] == kind]
        if own:
            measurement.report({f"recall_{kind}": curve[own[0]]["accuracy"]})
        else:
            asked = any(task.kind == kind for task in tasks)
            measurement.report({f"recall_{kind}_reason": "its training diverged" if asked else NOT_ASKED})
    measurement.report({"recall_curve": json.dumps(curve), "recall_s": median(seconds)})


# Accuracies in percent from which a task counts as solved, and up to which as failed: what the digits' histogram alone
# allows in a scene of 64 cells (17), and NOISE.
SOLVED, FAILED = 80.0, 20.0
# What an accuracy on a few thousand cells may differ by from what is expected.
NOISE = 3.0
_BRINGS = {"global": "pool", "lookup": "look up by content", "where": "find a place"}


@cache
def from_histogram(others: int) -> float:
    """Percent right of a guess that knows how often each digit is among `others`, one of which is asked for.

    It is the mean share of the most frequent of so many random digits: what one vector of context for all cells brings
    without any looking up.
    """
    import numpy as np

    expected = 0.0
    for most in range(others):
        # of all 10^n sequences those in which no digit is there more than `most` times: n! [x^n] (sum of x^j / j!)^10
        one = np.array([1 / math.factorial(j) for j in range(most + 1)])
        ways = reduce(lambda found, _: np.convolve(found, one)[: others + 1], range(10), np.ones(1))
        expected += 1 - (math.factorial(others) / 10.0**others * ways[others] if len(ways) > others else 0.0)
    return 100 * expected / others


def first_of(kind: str, curve: str) -> dict[str, Any]:
    """What was found on the first task of a kind: accuracy and its interval in percent, learning rate, steps."""
    found: dict[str, Any] = next(each for name, each in json.loads(curve).items() if name.partition("-")[0] == kind)
    return found


def accuracy_of(found: Mapping[str, Any]) -> Number:
    """The accuracy that was found on a task, in percent, with its interval over seeds where there are several."""
    ends = (found[end] for end in ("low", "high"))
    return Number(found["accuracy"], *(math.nan if end is None else end for end in ends), origin="measured")


def interval_of(kind: str) -> "Callable[[RecordRow], tuple[float, float] | None]":
    """What reads a kind's 95 % interval over seeds, in percent."""

    def read(row: RecordRow) -> tuple[float, float] | None:
        if row[f"recall_{kind}"] is None:
            return None
        found = accuracy_of(first_of(kind, row["recall_curve"]))
        return found.ends if found.has_interval else None

    return read


def failed_up_to(kind: str, curve: Mapping[str, Any]) -> float:
    """The accuracy in percent up to which the first task of a kind counts as failed."""
    marks = next((name.partition("-")[2] for name in curve if name.startswith("lookup")), "")
    return from_histogram(2 * int(marks) - 1) + NOISE if kind == "lookup" and marks else FAILED


def sentence(row: RecordRow) -> str:
    """What a row's module learned to bring and what not, or why that is not known; "" if it was not asked."""
    curve = json.loads(row["recall_curve"] or "{}")
    parts: dict[str, list[str]] = {"learned to": [], "learned in part to": [], "did not learn to": []}
    for kind in KINDS:
        value = row[f"recall_{kind}"]
        if value is not None:
            failed = value <= failed_up_to(kind, curve)
            verb = "learned to" if value >= SOLVED else "did not learn to" if failed else "learned in part to"
            parts[verb].append(f"{_BRINGS[kind]} ({value:.0f} %)")
    joined = {"did not learn to": " or "}
    told = [f"{verb} {joined.get(verb, ' and ').join(texts)}" for verb, texts in parts.items() if texts]
    if told:
        return f"{'; '.join(told)}: accuracy after a short training on small tasks, chance is 10 %."
    reasons = dict.fromkeys(str(row[f"recall_{kind}_reason"] or NOT_ASKED) for kind in KINDS)
    reasons.pop(NOT_ASKED, None)
    return f"has no recall: {'; '.join(reasons)}" if reasons else ""


def _summary(found: "Sequence[Trained]") -> dict[str, float | None]:
    """Mean accuracy in percent with its 95 % interval over seeds, the learning rate, the median of the steps to 90 %.

    The steps are None where most seeds never reached it.
    """
    from ctxbench.statistics import t_interval

    accuracies = [100 * each.accuracy for each in found]
    low, high, _ = t_interval(accuracies) if len(found) > 1 else (math.nan, math.nan, 0.0)
    steps = median(each.steps_to_learned or math.inf for each in found)
    ends = {"low": max(low, 0.0), "high": min(high, 100.0)} if len(found) > 1 else {"low": None, "high": None}
    learned = None if steps == math.inf else steps
    return {"accuracy": mean(accuracies), **ends, "rate": found[0].rate, "steps": learned}


METRIC = Metric(
    name="recall",
    place=86,
    about="what context a module can bring: accuracy of a small trained network on synthetic tasks",
    columns=[
        *(Column(f"recall_{kind}", float, most=100.0) for kind in KINDS),
        *(Column(f"recall_{kind}_reason", str) for kind in KINDS),
        Column("recall_curve", str, json=dict),
        Column("recall_s", float),
    ],
    quantities=[
        *(
            Quantity(
                key=f"recall_{kind}",
                column=f"recall_{kind}",
                title=f"Recall, {kind}",
                unit=Unit("%"),
                origin="measured",
                part="recall",
                noun=NOUNS[kind],
                comparative="more",
                better="larger",
                reason_column=f"recall_{kind}_reason",
                decimals=0,
                interval=interval_of(kind),
            )
            for kind in KINDS
        ),
        Quantity(
            key="recall_s",
            column="recall_s",
            title="Training for recall",
            unit=Unit("s"),
            origin="measured",
            part="recall",
            noun="training time of recall",
            in_suite_table=False,
            reason_column="recall_global_reason",
            decimals=0,
        ),
    ],
    convention=lambda values: (
        "Recall: accuracy of a small network around the module, trained on scenes of handwritten digits; chance is "
        "10 %, and the recognition of the digits allows about 95 %; global: the framed digit, lookup: the one with the "
        "same mark, where: the one at the mirrored place; mean over seeds; see docs/suites/recall.md"
    ),
    default=False,
    compute=compute,
    settings=Recall,
    limit_s=lambda measure: Recall.of(measure).recall_timeout_s,
    takes_s=takes_s,
    sentence=sentence,
    extra="recall",
)
