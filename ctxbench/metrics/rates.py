"""Rates derived from a time and the size of its case: throughput, MAC/s, share of the matmul rate, time per pixel."""

from typing import Any

from ctxbench.base.mode import MODES, NOUNS, Mode
from ctxbench.base.notes import Note
from ctxbench.model.metric import Derivation, Metric, Quantity, Unit


def _rate(key: str, title: str, noun: str, unit: Unit, derive: Derivation, **facts: Any) -> Quantity:
    shown: dict[str, Any] = {"comparative": "more", "better": "larger", **facts}
    return Quantity(
        key=key, column=key, title=title, unit=unit, origin="measured", origin_column="latency_origin", part="rate",
        noun=noun, derive=derive, **shown,
    )  # fmt: skip


def _throughput(mode: Mode) -> Quantity:
    derive = Derivation(f"latency_{mode}", ("batch",), lambda row, ms: row["batch"] * 1e3 / ms)
    noun = f"{NOUNS[mode]} throughput"
    return _rate(f"throughput_{mode}", f"Throughput, {mode}", noun, Unit("images/s"), derive)


def _time_per_megapixel(mode: Mode) -> Quantity:
    derive = Derivation(
        f"latency_{mode}",
        ("batch", "height", "width"),
        lambda row, ms: ms * 1e6 / (row["batch"] * row["height"] * row["width"]),
    )
    key, noun = f"time_per_megapixel_{mode}", f"{NOUNS[mode]} time per megapixel"
    return _rate(
        *(key, f"Time per megapixel, {mode}", noun, Unit("ms/Mpx"), derive),
        comparative="less", better="smaller", in_suite_table=False,
    )  # fmt: skip


MACS_PER_S = _rate(
    "macs_per_s",
    "MACs per second, infer",
    "inference MACs per second",
    Unit("GMAC/s", 10, 9),
    Derivation("latency_infer", ("macs",), lambda row, ms: row["macs"] * 1e3 / ms),
)
MATMUL_SHARE = _rate(
    "matmul_share",
    "Share of the matmul rate, infer",
    "share of the matmul rate",
    Unit("%"),
    Derivation(
        "latency_infer",
        ("macs", "matmul_macs_per_s"),
        lambda row, ms: row["macs"] * 1e5 / ms / row["matmul_macs_per_s"],
    ),
    decimals=0,
    notes=lambda row: [Note("rate_above")] * bool(row["matmul_share"] > 100),
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
    convention=(
        "Rates: batch over time, MACs over time, their share of the rate of a large matrix product in the same run; "
        "time over the pixels H x W of all images, Mpx = 10^6"
    ),
    asked_for=False,
    default=False,
)
