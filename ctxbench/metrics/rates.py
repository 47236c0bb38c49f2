"""Rates derived from a time and the size of its case: throughput, MAC/s, share of the matmul rate, time per pixel."""

from ctxbench.base.mode import MODES, NOUNS, Mode
from ctxbench.base.notes import Note
from ctxbench.model.metric import Derivation, Metric, Quantity, Unit


def _rate(key: str, mode: Mode, title: str, noun: str, unit: Unit, derive: Derivation) -> Quantity:
    return Quantity(
        key=key,
        column=key,
        title=f"{title}, {mode}",
        unit=unit,
        origin="measured",
        origin_column="latency_origin",
        part="rate",
        noun=f"{NOUNS[mode]} {noun}",
        comparative="more",
        better="larger",
        derive=derive,
    )


def _throughput(mode: Mode) -> Quantity:
    derive = Derivation(f"latency_{mode}", ("batch",), lambda row, ms: row["batch"] * 1e3 / ms)
    return _rate(f"throughput_{mode}", mode, "Throughput", "throughput", Unit("images/s"), derive)


def _time_per_megapixel(mode: Mode) -> Quantity:
    return Quantity(
        key=f"time_per_megapixel_{mode}",
        column=f"time_per_megapixel_{mode}",
        title=f"Time per megapixel, {mode}",
        unit=Unit("ms/Mpx"),
        origin="measured",
        origin_column="latency_origin",
        part="rate",
        noun=f"{NOUNS[mode]} time per megapixel",
        in_suite_table=False,
        derive=Derivation(
            f"latency_{mode}",
            ("batch", "height", "width"),
            lambda row, ms: ms * 1e6 / (row["batch"] * row["height"] * row["width"]),
        ),
    )


MACS_PER_S = _rate(
    "macs_per_s",
    "infer",
    "MACs per second",
    "MACs per second",
    Unit("GMAC/s", 10, 9),
    Derivation("latency_infer", ("macs",), lambda row, ms: row["macs"] * 1e3 / ms),
)
MATMUL_SHARE = Quantity(
    key="matmul_share",
    column="matmul_share",
    title="Share of the matmul rate, infer",
    unit=Unit("%"),
    origin="measured",
    origin_column="latency_origin",
    part="rate",
    noun="share of the matmul rate",
    comparative="more",
    better="larger",
    decimals=0,
    notes=lambda row: [Note("rate_above")] * bool(row["matmul_share"] > 100),
    derive=Derivation(
        "latency_infer",
        ("macs", "matmul_macs_per_s"),
        lambda row, ms: row["macs"] * 1e5 / ms / row["matmul_macs_per_s"],
    ),
)

METRIC = Metric(
    name="rates",
    order=200,
    about="what derives from a time and the size of its case",
    columns=[],
    quantities=[
        *(_throughput(mode) for mode in reversed(MODES)),
        MACS_PER_S,
        MATMUL_SHARE,
        *(_time_per_megapixel(mode) for mode in reversed(MODES)),
    ],
    convention=lambda values: (
        "Rates: batch over time, MACs over time, their share of the rate of a large matrix product in the same run; "
        "time over the pixels H x W of all images, Mpx = 10^6"
    ),
    asked_for=False,
    default=False,
)
