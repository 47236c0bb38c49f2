"""Compilation: how long the first pass takes where the execution is `compile`."""

from ctxbench.metrics.base import Measurement, Metric, Pass, Quantity, Unit, by_mode
from ctxbench.mode import MODES, Mode


def time(measurement: Measurement, mode: Mode, one_pass: Pass) -> None:
    """Report the first pass of a compiled case."""
    if measurement.case.execution == "compile":
        measurement.report({f"compile_{mode}_s": one_pass.first_s})


METRIC = Metric(
    name="compile",
    place=70,
    about="seconds of the first pass with torch.compile",
    columns=by_mode("compile_{mode}_s", float),
    quantities=[
        Quantity(
            key=f"compile_{mode}",
            column=f"compile_{mode}_s",
            title=f"Compile, {mode}",
            unit=Unit("s"),
            origin="measured",
            part="compile",
            noun=f"compile time ({mode})",
        )
        for mode in reversed(MODES)
    ],
    convention=lambda values: "Compile: seconds of the first pass, compilation included",
    asked_for=False,
    default=False,
    time=time,
)
