"""Context ability of a module: the accuracy of a small trained network on synthetic tasks (asked for by name)."""

import json
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache, partial, reduce
from statistics import mean, median
from typing import TYPE_CHECKING, Any

from pydantic import Field

from ctxbench.base.clocks import usable_cores
from ctxbench.base.errors import UsageError
from ctxbench.base.notes import Note
from ctxbench.base.number import Number
from ctxbench.model.case import Measure, Repeats, Seconds, WholeNumber
from ctxbench.model.messages import Doing
from ctxbench.model.metric import Column, Measurement, Metric, Quantity, RecordRow, Settings, Unit
from ctxbench_science.recall import RECIPE

if TYPE_CHECKING:
    from ctxbench_science.recall.scenes import SceneTask
    from ctxbench_science.recall.training import Trained

KINDS = ("segment", "global", "lookup", "where")
NOUNS = {
    "segment": "mean IoU of noisy regions",
    "global": "accuracy from one vector of context",
    "lookup": "accuracy from a partner with the same mark",
    "where": "accuracy from the mirrored place",
}
# Percent: the accuracy from which a task counts as solved.
SOLVED = 80.0
# What an accuracy on a few thousand cells may differ by from what is expected.
NOISE = 3.0
CHANCE = 10.0
# Mean IoU in percent that Bayes's decision reaches in `segment` from so much of a scene;
# tests/plugins/recall/test_scenes.py has how.
SEGMENT_BOUNDS = {
    "the cell alone": 32.0,
    "the cell, and how often each digit is in the scene": 54.0,
    "the cell and its neighbours": 72.0,
    "all cells of its region": 98.0,
}


NOT_ASKED = "not asked for"
# Seconds of a training step at USUAL_SHAPE on one core of an AMD EPYC: the median of 33 modules, of 0.007 to 0.09 s.
STEP_S = 0.0164
USUAL_SHAPE = (64, 8, 8)


class Recall(Settings):
    """The module is built for `recall_shape` (channels, height, width), whatever the case's input is, and trained on
    each of `recall_tasks` for `recall_steps` (`segment`: `recall_segment_steps`) with `recall_seeds` seeds, and with
    eight where some seeds learn and others do not; `recall_timeout_s` is for all of a row. With `recall_stored` a
    module that a run results/recall-* has, with this recipe and the same code, is not trained again.
    """

    recall_tasks: list[str] = Field(["segment", "global", "lookup-8"], min_length=1)
    recall_shape: list[WholeNumber] = Field([*USUAL_SHAPE], min_length=3, max_length=3)
    recall_steps: Repeats = 800
    recall_segment_steps: Repeats = 300
    recall_seeds: Repeats = 5
    recall_timeout_s: Seconds = 3600.0
    recall_stored: bool = True


def takes_s(measure: Measure) -> float:
    """About how many seconds the trainings of a row take, side by side on the cores: STEP_S a step, in proportion to
    the size of the scenes.

    On each task one or two learning rates are tried; it is reckoned with two.
    """
    settings = Recall.of(measure)
    each = [
        settings.recall_segment_steps if name == "segment" else settings.recall_steps for name in settings.recall_tasks
    ]
    steps = sum(each) * (settings.recall_seeds + 2)
    return STEP_S * steps * math.prod(settings.recall_shape) / math.prod(USUAL_SHAPE) / len(usable_cores())


def compute(measurement: Measurement) -> None:
    """Train on each task with each seed, and report what they reached; or what the stored run reached."""
    from ctxbench.meta.influence import gradient_reaches
    from ctxbench_science.recall.scenes import task_of
    from ctxbench_science.recall.training import SceneNetwork, repeats, trainings

    settings = Recall.of(measurement.settings)
    channels, height, width = settings.recall_shape
    if full := full_rank(measurement.case.hparams, channels, height * width):
        measurement.report({}, Note("recall_full_rank", full))
    shape = (channels, height, width)
    make = partial(measurement.entry.build, channels, measurement.case.hparams)
    try:
        tasks = {
            task: settings.recall_segment_steps if task.kind == "segment" else settings.recall_steps
            for task in (task_of(name, height, width) for name in settings.recall_tasks)
        }
        if settings.recall_stored and (row := _stored(measurement, settings)):
            curve = json.loads(row["recall_curve"])
            _report(measurement, {task.kind for task in tasks}, {task.name: curve[task.name] for task in tasks})
            values = {"recall_gradient": row["recall_gradient"], "recall_s": float(row["recall_s"])}
            measurement.report({**values, "recall_recipe": RECIPE})
            return
        SceneNetwork(make, *shape)  # tells a module that does not fit, or returns another shape
        reached = gradient_reaches(make, shape)
        found = trainings(
            make, shape, tasks, settings.recall_seeds, lambda text: measurement.emit(Doing(f"recall: {text}"))
        )
    except UsageError as error:
        measurement.report({f"recall_{kind}_reason": str(error) for kind in KINDS})
        return
    steady = repeats(make, shape, next(iter(tasks)))
    measurement.report({"recall_gradient": reached}, *[Note("recall_unsteady")] * (not steady))
    summed = {}
    for task, own in found.items():
        if broken := [each.diverged for each in own if each.diverged]:
            measurement.report({}, Note("recall_diverged", {"task": task.name, "reason": broken[0]}))
            continue
        summed[task.name] = _summary(task, own, tasks[task], height * width)
        if median(each.shuffled for each in own) > (CHANCE + NOISE) / 100:
            measurement.report({}, Note("recall_peeks", {"task": task.name}))
    _report(measurement, {task.kind for task in tasks}, summed)
    seconds = median(each.seconds for own in found.values() for each in own)
    measurement.report({"recall_s": seconds, "recall_recipe": RECIPE})


def _stored(measurement: Measurement, settings: Recall) -> Mapping[str, str] | None:
    """The row of a stored run with the same module, code and recipe, if that has all tasks; it is noted."""
    from ctxbench_science.recall.stored import stored_rows

    entry, wanted = measurement.entry, {*settings.recall_tasks}
    recipe = ("recall_shape", "recall_steps", "recall_segment_steps", "recall_seeds")
    for run, row in stored_rows(entry.reference, measurement.case.hparams_json, entry.file):
        measure = run.meta["definition"]["measure"]
        then = Recall(**{key: value for key, value in measure.items() if key in Recall.model_fields})
        same = all(getattr(then, key) == getattr(settings, key) for key in recipe)
        if same and wanted <= {*then.recall_tasks} and wanted <= {*json.loads(row["recall_curve"])}:
            about = {"run": run.folder, "torch": run.meta["environment"]["packages"]["torch"]}
            measurement.report({}, Note("recall_stored", about))
            return row
    return None


def _report(measurement: Measurement, asked: Collection[str], curve: Mapping[str, Mapping[str, Any]]) -> None:
    """Report the results by task, and of each kind its first one."""
    for kind in KINDS:
        values = [each["accuracy"] for name, each in curve.items() if name.partition("-")[0] == kind]
        reason = "its training diverged" if kind in asked else NOT_ASKED
        measurement.report({f"recall_{kind}": values[0]} if values else {f"recall_{kind}_reason": reason})
    measurement.report({"recall_curve": json.dumps(curve)})


def _summary(task: "SceneTask", found: "Sequence[Trained]", steps: int, cells: int) -> dict[str, Any]:
    """Of the seeds of a task: accuracies in percent, their median (of `segment` the mean), how many learned.

    The steps to 90 % are None where most seeds never reached it.
    """
    to_learned = median(each.steps_to_learned or math.inf for each in found)
    accuracies = [100 * each.accuracy for each in found]
    return {
        "accuracy": mean(accuracies) if task.kind == "segment" else median(accuracies),
        "accuracies": accuracies,
        "learned": sum(each.learned for each in found),
        "shuffled": 100 * median(each.shuffled for each in found),
        "rate": found[0].rate,
        "steps": None if to_learned == math.inf else to_learned,
        "trained_steps": steps,
        "cells": cells,
    }


def full_rank(hparams: Mapping[str, Any], channels: int, cells: int) -> dict[str, int]:
    """The rank of a decomposition that leaves nothing out, and the sides D and n of its matrix; empty for a lower one.

    The rank is the hyper-parameter `rank` or `bases`, D is `d`, or the channels, over `heads`.
    """
    rank = hparams.get("rank", hparams.get("bases"))
    if not isinstance(rank, int):
        return {}
    height = (hparams.get("d") or channels) // (hparams.get("heads") or 1)
    return {"rank": rank, "height": height, "columns": cells} if rank >= min(height, cells) else {}


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


def first_of(kind: str, curve: str) -> tuple[str, dict[str, Any]]:
    """The first task of a kind: its name, and the accuracies of its seeds in percent with what sums them up."""
    return next((name, each) for name, each in json.loads(curve).items() if name.partition("-")[0] == kind)


def accuracy_of(name: str, found: Mapping[str, Any]) -> Number:
    """Accuracy of a task's seeds, in percent: of `segment` the mean with Student's interval, else the median.

    A median has no interval: of seeds of which some learned and others did not, one would be across two modes.
    """
    if name != "segment":
        return Number(found["accuracy"], origin="measured")
    from ctxbench.base.statistics import t_interval

    low, high, _ = t_interval(found["accuracies"])
    return Number(found["accuracy"], max(low, 0.0), min(high, 100.0), origin="measured")


def learned_of(found: Mapping[str, Any]) -> Number:
    """The share of the seeds that learned a task, in percent, with Clopper and Pearson's 95 % interval."""
    from scipy.stats import binomtest

    share = binomtest(found["learned"], len(found["accuracies"]))
    low, high = share.proportion_ci(0.95)
    return Number(100 * share.statistic, 100 * low, 100 * high, origin="measured")


def interval_of(kind: str) -> "Callable[[RecordRow], tuple[float, float] | None]":
    """Reader of a kind's 95 % interval over seeds, in percent."""

    def read(row: RecordRow) -> tuple[float, float] | None:
        if row[f"recall_{kind}"] is None:
            return None
        found = accuracy_of(*first_of(kind, row["recall_curve"]))
        return found.ends if found.has_interval else None

    return read


def seeds_of(kind: str) -> "Callable[[RecordRow], str]":
    """Reader of the number of seeds that learned a kind's task, as `(5 of 8)`; `segment` has none."""

    def read(row: RecordRow) -> str:
        if kind == "segment" or row[f"recall_{kind}"] is None:
            return ""
        _, found = first_of(kind, row["recall_curve"])
        return f"({found['learned']} of {len(found['accuracies'])})"

    return read


def failed_up_to(name: str, cells: int) -> float:
    """The accuracy in percent up to which a task counts as failed: what the digits' histogram allows, and NOISE."""
    others = 2 * int(name.removeprefix("lookup-")) - 1 if name.startswith("lookup") else cells - 1
    return from_histogram(others) + NOISE


def sentence(row: RecordRow) -> str:
    """Sentence on the tasks that a row's module learned or did not, or on the failure; "" if not asked for."""
    parts: dict[str, list[str]] = {"": [], "learned ": [], "learned in part ": [], "did not learn ": []}
    for name, found in json.loads(row["recall_curve"] or "{}").items():
        value = accuracy_of(name, found)
        if name == "segment":
            parts[""].append(f"segments with a mean IoU of {value.text(decimals=0)} %")
            continue
        failed = value.value <= failed_up_to(name, found["cells"])
        verb = "learned " if value.value >= SOLVED else "did not learn " if failed else "learned in part "
        seeds = f"{found['learned']} of {len(found['accuracies'])} seeds"
        parts[verb].append(f"{name} in {found['trained_steps']} steps ({value.value:.0f} %, {seeds})")
    if clauses := [f"{verb}{', '.join(texts)}" for verb, texts in parts.items() if texts]:
        return f"{'; '.join(clauses)}: accuracy on small tasks, chance is {CHANCE:g} %."
    reasons = dict.fromkeys(str(row[f"recall_{kind}_reason"]) for kind in KINDS if row[f"recall_{kind}_reason"])
    reasons.pop(NOT_ASKED, None)
    return f"has no recall: {'; '.join(reasons)}" if reasons else ""


METRIC = Metric(
    name="recall",
    order=86,
    about="what context a module can bring: accuracy of a small trained network on synthetic tasks",
    columns=[
        *(Column(f"recall_{kind}", float, most=100.0) for kind in KINDS),
        *(Column(f"recall_{kind}_reason", str) for kind in KINDS),
        Column("recall_gradient", str),
        Column("recall_recipe", int),
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
                on_front=kind == "segment",
                reason_column=f"recall_{kind}_reason",
                decimals=0,
                interval=interval_of(kind),
                beside=seeds_of(kind),
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
    convention=(
        "Recall: accuracy of a small network around the module, trained on scenes of handwritten digits; chance is "
        "10 %, and the recognition of the digits allows about 95 %; segment: mean IoU of noisy regions, mean over "
        "seeds; global: the framed digit, lookup: the one with the same mark, where: the one at the mirrored place, "
        f"median over seeds, and how many of these reached {SOLVED:g} %; see docs/plugins/recall.md"
    ),
    default=False,
    compute=compute,
    settings=Recall,
    limit_s=lambda measure: Recall.of(measure).recall_timeout_s,
    takes_s=takes_s,
    sentence=sentence,
)
