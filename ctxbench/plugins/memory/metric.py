"""Peak memory of a pass: predicted for CUDA on the meta device, and measured on the device at hand."""

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from ctxbench import devices
from ctxbench.base.mode import MODES, NOUNS, Mode
from ctxbench.base.notes import Note
from ctxbench.model.messages import Doing, Timeline, TimelineStep
from ctxbench.model.metric import MIB, Column, ColumnValues, Measurement, Metric, Quantity, RecordRow, by_mode
from ctxbench.plugins.memory.convention import CONVENTION, is_bound

if TYPE_CHECKING:
    from ctxbench.plugins.memory.kernels import MemoryDevice
    from ctxbench.plugins.memory.profile import MemoryProfile, MemoryStep

TARGETS = {"cuda": "CUDA", "cuda-2020": "CUDA under the PyTorch of 2020"}


def pass_of(measurement: Measurement, mode: Mode, device: "MemoryDevice") -> "MemoryProfile":
    """The recorded pass of a mode on a kind of device; the first time it runs. UnpredictableError if there is none.

    That of the PyTorch of 2020 is read off today's where that runs the same operators.
    """
    from ctxbench.plugins.memory.convention import UnpredictableError
    from ctxbench.plugins.memory.era import in_2020
    from ctxbench.plugins.memory.predict import predict_peak

    def recorded() -> "MemoryProfile":
        if device == "cuda-2020":
            with suppress(UnpredictableError):
                if not (today := pass_of(measurement, mode, "cuda")).since_2020.others:
                    return in_2020(today)
        return predict_peak(*measurement.on_meta, mode=mode, device=device, autocast=measurement.case.autocast_dtype)

    return measurement.once(f"pass {mode} {device}", recorded)


def card_of(device: str) -> str:
    """The name of a GPU that is known by its data sheet alone; "" for any other device."""
    return next((name for name, sheet in devices.sheets([device]).items() if sheet.backend == "cuda"), "")


def count(measurement: Measurement) -> None:
    """Predict the peak of both modes, and note the larger one for this PyTorch as what the case needs.

    On a card that is known by its data sheet the peak has what libraries take there; notes say who was asked.
    """
    from ctxbench.plugins.memory.convention import UnpredictableError
    from ctxbench.plugins.memory.predict import on_card

    if note := outside_convention(measurement):
        measurement.mark_missing([f"memory_{mode}_predicted_bytes" for mode in MODES], note)
        return
    target = measurement.settings.memory_device
    card, dtype = card_of(measurement.case.device), measurement.case.dtype
    is_cast = measurement.case.autocast_dtype is not None
    measurement.report({"memory_predicted_for": target}, *[Note("autocast_cuda")] * is_cast)
    peaks: list[int] = []
    marks: dict[str, None] = {}
    for mode in MODES:
        try:
            found = {name: on_card(pass_of(measurement, mode, name), card, dtype) for name in {target, "cuda"}}
            profile = found[target]
            then, now = profile.allocated_bytes, found["cuda"].allocated_bytes
        except UnpredictableError as error:
            note = Note("no_memory_mode", {"mode": mode, "reason": str(error)}, about=f"memory_{mode}")
            measurement.mark_missing([f"memory_{mode}_predicted_bytes"], note)
            continue
        peaks.append(now)
        marks |= dict.fromkeys(profile.marks)
        values = {f"memory_{mode}_predicted_bytes": then, "memory_marks": json.dumps(list(marks))}
        high = [Note("memory_workspace", {"mib": profile.high_bytes / 2**20}, f"memory_{mode}")]
        may_be_higher = profile.high_bytes > profile.peak_bytes
        notes = [Note("memory_unchecked", {"reason": each}, f"memory_{mode}") for each in profile.unchecked]
        notes += [replace(each, about=f"memory_{mode}") for each in profile.told]
        notes += [*_change_since(now, then, mode), *high * may_be_higher]
        measurement.report(values, *notes)
        measurement.emit(Timeline(mode, _timeline(profile.timeline)))
    measurement.predicted_bytes = max(peaks, default=None)


def outside_convention(measurement: Measurement) -> Note | None:
    """Note that the convention does not cover a case's execution; None if it does."""
    reason = measurement.execution.no_memory
    return Note("no_memory", {"reason": reason}) if reason else None


def _change_since(today: int, then: int, mode: str) -> list[Note]:
    """A note if the prediction for the PyTorch of 2020 and that for the installed one are not the same MiB."""
    now, before = (round(size / 2**20) for size in (today, then))
    return [Note("memory_changed", {"mode": mode, "now": now, "then": before})] * (now != before)


def _timeline(steps: "Sequence[MemoryStep]") -> list[TimelineStep]:
    from ctxbench.plugins.memory.timeline import thinned

    return [TimelineStep(at, steps[at].phase, steps[at].op, steps[at].live_bytes) for at in thinned(steps)]


def measure(measurement: Measurement, mode: Mode) -> None:
    """Report the measured peak, if the convention covers the case; `count` has said why not."""
    from ctxbench.plugins.memory.measure import measure_allocation

    if outside_convention(measurement):
        measurement.mark_missing([f"memory_{mode}_bytes"])
        return
    if measurement.case.autocast_dtype:
        measurement.mark_missing([f"memory_{mode}_bytes"], Note("no_peak_autocast"))
        return
    measurement.emit(Doing(f"memory_{mode}"))
    peak = measure_allocation(measurement.model, measurement.x, mode=mode)
    values = {f"memory_{mode}_bytes": peak.allocated_bytes, f"memory_{mode}_requested_bytes": peak.requested_bytes}
    measurement.report(values)


def not_known(row: RecordRow) -> list[Note]:
    """A note if the prediction is a lower bound, or may be wrong either way."""
    text = row["memory_marks"]
    operators = json.loads(text) if text else []
    return [Note("lower_bound" if is_bound(operators) else "not_certain", {"operators": operators})] * bool(operators)


def convention(values: ColumnValues) -> str:
    """Definition of the peaks, and the device that they are predicted for."""
    targets = ", ".join(TARGETS.get(name, name) for name in values("memory_predicted_for"))
    predicted = f" predicted: for {targets}, without a device;" if targets else ""
    return f"Memory: peak, MiB = 2^20 bytes;{predicted} {CONVENTION}"


METRIC = Metric(
    name="memory",
    order=30,
    about="peak memory of a pass, predicted and measured",
    columns=[
        *by_mode("memory_{mode}_bytes", int),
        *by_mode("memory_{mode}_predicted_bytes", int),
        *by_mode("memory_{mode}_requested_bytes", int),
        Column("memory_predicted_for", str),
        Column("memory_marks", str, json=list),
    ],
    quantities=[
        Quantity(
            key=f"memory_{mode}",
            column=f"memory_{mode}_predicted_bytes",
            measured_column=f"memory_{mode}_bytes",
            title=f"Memory, {mode}",
            unit=MIB,
            origin="predicted",
            part="memory",
            noun=f"{NOUNS[mode]} memory",
            exact=True,
            on_front=mode == "train",
            method_column="memory_predicted_for",
            notes=not_known,
        )
        for mode in reversed(MODES)
    ],
    convention=convention,
    count=count,
    measure=measure,
)
