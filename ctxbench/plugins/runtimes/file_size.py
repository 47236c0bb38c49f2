"""Facts of an exported module: duration of the export, the file, the operators left by the runtime."""

from ctxbench.base.mode import Mode
from ctxbench.model.metric import MIB, Column, Measurement, Metric, Quantity, TimedPass, Unit


def time(measurement: Measurement, mode: Mode, one_pass: TimedPass) -> None:
    """Report what the execution says of the module that it built; nothing where it built none."""
    measurement.report(measurement.built.facts)


METRIC = Metric(
    name="export",
    order=72,
    about="seconds to export and to open a module in a runtime, size of the file, operators left",
    columns=[
        Column("export_s", float),
        Column("export_open_s", float),
        Column("export_bytes", int),
        Column("export_operators", int),
    ],
    quantities=[
        Quantity(
            key=key, column=column, title=title, unit=unit, origin="measured", part="export", noun=noun,
        )
        for key, column, title, unit, noun in (
            ("export", "export_s", "Export", Unit("s"), "export time"),
            ("export_open", "export_open_s", "Open", Unit("s"), "time to open"),
            ("export_size", "export_bytes", "File", MIB, "file size"),
            ("export_operators", "export_operators", "Operators", Unit(""), "operators"),
        )
    ],
    convention=(
        "Export: seconds to write the module as ONNX, and of the runtime to open it; the file, MiB = 2^20 bytes; "
        "operators that the runtime's optimisation has left"
    ),
    asked_for=False,
    default=False,
    time=time,
)  # fmt: skip
