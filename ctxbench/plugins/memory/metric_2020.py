"""Peak memory of a pass under the PyTorch of 2020, which the figures of that year's papers are held against."""

from ctxbench.base.mode import MODES, NOUNS
from ctxbench.base.notes import Note
from ctxbench.model.metric import MIB, ColumnValues, Measurement, Metric, Quantity, by_mode
from ctxbench.plugins.memory.convention import CONVENTION
from ctxbench.plugins.memory.metric import outside_convention, pass_of


def count(measurement: Measurement) -> None:
    """Predict the peak of both modes for a module alone; why there is none is a note."""
    from ctxbench.plugins.memory.convention import UnpredictableError

    columns = {mode: f"memory_{mode}_predicted_2020_bytes" for mode in MODES}
    note = outside_convention(measurement)
    if note or measurement.case.network:
        measurement.mark_missing([*columns.values()], note)
        return
    for mode, column in columns.items():
        try:
            measurement.report({column: pass_of(measurement, mode, "cuda-2020").allocated_bytes})
        except UnpredictableError as error:
            measurement.mark_missing([column], Note("no_memory_mode", {"mode": mode, "reason": str(error)}))


def convention(values: ColumnValues) -> str:
    """Definition of the peaks, and the software that they are for."""
    return (
        f"Memory, PyTorch of 2020: peak, predicted for CUDA under the PyTorch of 2020, without a device; {CONVENTION}"
    )


METRIC = Metric(
    name="memory_2020",
    order=31,
    about="peak memory of a pass, predicted for the PyTorch of 2020, as its papers print it",
    default=False,
    columns=by_mode("memory_{mode}_predicted_2020_bytes", int),
    quantities=[
        Quantity(
            key=f"memory_{mode}_2020",
            column=f"memory_{mode}_predicted_2020_bytes",
            title=f"Memory, {mode}, PyTorch of 2020",
            unit=MIB,
            origin="predicted",
            part="memory",
            noun=f"{NOUNS[mode]} memory under the PyTorch of 2020",
            in_suite_table=False,
        )
        for mode in reversed(MODES)
    ],
    convention=convention,
    count=count,
)
