"""The devices with a data sheet as a table: their figures, and how much of each was measured."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace

from ctxbench.plugins.predict.sheet import DeviceSpec, sheet, sheets
from ctxbench.table.table import Origin, Table, plain_table

# The peaks that the table has, TFLOP/s.
PEAKS = ("float32", "tf32", "float16")


def measured_dtypes() -> dict[str, str]:
    """By the title of a device: the dtypes that its factors were measured in, and with which software."""
    # imports numpy, which the names of devices do not need
    from ctxbench.plugins.predict.rates import HOPPER_CARD, calibration

    found: dict[str, list[str]] = defaultdict(list)
    for title, dtype, era in sorted(calibration().devices):
        found[title].append(f"{dtype} ({era})")
    for title in sorted(calibration().products.keys() - {"any"}):
        found[title].append("bfloat16 (products)")
    for dtype in sorted({each.partition("|")[2] for each in calibration().hopper}):
        found[HOPPER_CARD].append(f"{dtype} (some classes)")
    return {title: ", ".join(own) for title, own in found.items()}


def device_table() -> Table:
    """A row a device: peaks in TFLOP/s, GB/s, GiB, and the dtypes that were measured on it."""
    measured = measured_dtypes()
    rows = [
        (
            name,
            *(f"{each.peak_tflops[dtype]:g}" if dtype in each.peak_tflops else "" for dtype in PEAKS),
            f"{each.bandwidth_gb_s:g}",
            f"{each.memory_gib:g}" if each.memory_gib else "",
            measured.get(each.title, "none"),
            each.title,
        )
        for name, each in sheets().items()
    ]
    figures: dict[str, Origin] = dict.fromkeys((*PEAKS, "GB/s", "GiB"), "published")
    table = plain_table({"device": "label", **figures, "measured in": "text", "product": "text"}, rows)
    caption = (
        "Peaks in TFLOP/s, bandwidth in GB/s and memory in GiB are those of data sheets. Measured in: the dtypes of "
        "what was timed on cards of this model, with today's software (cuda) or that of 2020. In all others other "
        "devices stand for it, with a wider band.",
        "A device of your own: ctxbench calibrate --out mine.toml, or a data sheet in the same form.",
    )
    return replace(table, caption=caption)


class _Sheets:
    """The devices that data sheets describe."""

    def names(self) -> Iterable[str]:
        return sheets()

    def device(self, name: str) -> DeviceSpec:
        return sheet(name)

    def table(self) -> Table:
        return device_table()


DEVICES = _Sheets()
