"""Fits the efficiencies behind predicted times to measured kernels, and tests them on devices that are left out.

Writes ctxbench/predict/calibration.csv, and results/prediction/left-out.csv for docs/prediction.md. A measurement is a
line `device,operator,d1,...,d7,ms` as in the data of NeuSight (Lee et al., ASPLOS 2025); `work_of` reads the columns.
No number of a paper that ctxbench reproduces is used.

Run: python benchmarks/calibrate_time.py KERNELS.csv...
"""

import argparse
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.optimize import least_squares
from scipy.stats import t as student

from ctxbench.devices.sheet import by_title
from ctxbench.predict.rates import ANY, parts, sustained
from ctxbench.predict.work import Product, Work, winograd_of

ROOT = Path(__file__).resolve().parents[1]
CONFIDENCE = 0.8
BINARY = {"add", "mul", "div", "pow"}
# Where the fit of each class begins: shares of peak and of bandwidth, microseconds of a call that is measured alone.
START = (0.8, 0.7, 20.0)
START_WATTS = 6.0
# Logarithmic errors above this count linearly.
ROBUST = 0.2
Array = NDArray[np.float64]


def work_of(operator: str, d: Sequence[int]) -> Work:
    """What a measured kernel had to do, in float32."""
    if operator in ("bmm", "linear"):
        product = Product(*d[:4])
        return Work(product.kind, 4 * product.elements, product)
    if operator == "conv":
        images, inputs, outputs, kernel, size, stride, padding = d
        out = (size + 2 * padding - kernel) // stride + 1
        if (kernel, stride) != (3, 1):
            raise ValueError(f"no class is fitted to a convolution with kernel {kernel} and stride {stride}")
        moved = images * (inputs * size**2 + outputs * out**2) + outputs * inputs * kernel**2
        unfolded = Product(1, images * out**2, outputs, inputs * kernel**2)
        return Work("convolution 3x3", 4 * moved, unfolded, winograd_of(images, out, out, inputs, outputs))
    rows, columns = d
    size = 4 * rows * columns
    if operator == "softmax":
        return Work("row reduction", 2 * size, row_bytes=4 * columns, again_bytes=size)
    return Work("norm" if operator == "ln" else "elementwise", (3 if operator in BINARY else 2) * size)


@dataclass
class Kernels:
    """The kernels of one class: `flops` and `moved` [kernels, ways], what the devices give, measured seconds."""

    device: NDArray[np.str_]
    flops: Array
    moved: Array
    peak: Array
    memory: Array
    watts: Array
    seconds: Array

    def of(self, wanted: NDArray[np.bool_]) -> "Kernels":
        return Kernels(*(getattr(self, name)[wanted] for name in self.__dataclass_fields__))

    def predicted(self, fit: Mapping[str, float]) -> Array:
        """Seconds of a call that is measured alone."""
        peak = (self.peak * sustained(self.watts, fit["watts"]))[:, None]
        memory = self.memory[:, None]
        longer = np.maximum(*parts(self.flops, self.moved, fit["compute"], fit["bandwidth"], peak, memory))
        return np.asarray(longer.min(axis=1) + fit["call_us"] * 1e-6)

    def errors(self, fit: Mapping[str, float]) -> Array:
        """The logarithm of measured over predicted."""
        return np.asarray(np.log(self.seconds / self.predicted(fit)))


def read(paths: Sequence[Path]) -> dict[str, Kernels]:
    """The measured kernels by class. ValueError for a device without a data sheet."""
    frame = pd.concat([pd.read_csv(path) for path in paths])
    rows: dict[str, list[tuple[object, ...]]] = {}
    for device, operator, *sizes, ms in frame.itertuples(index=False):
        sheet = by_title(device)
        if sheet is None:
            raise ValueError(f"there is no data sheet with the title {device!r}")
        work = work_of(operator, [int(size) for size in sizes if not pd.isna(size)])
        flops, moved = np.array(list(work.ways(sheet))).T
        about = (device, flops, moved, sheet.peak("float32"), sheet.bandwidth, sheet.watts_per_tflops, ms / 1e3)
        rows.setdefault(work.kind, []).append(about)
    return {kind: Kernels(*map(np.array, zip(*found, strict=True))) for kind, found in sorted(rows.items())}


def fit(kernels: Kernels, watts: float | None = None) -> dict[str, float]:
    """The shares and the fixed time that fit best, robustly in logarithms; without `watts`, that as well."""
    start = [*START, START_WATTS] if watts is None else [*START]

    def named(logarithms: Array) -> dict[str, float]:
        names = ("compute", "bandwidth", "call_us", "watts")
        known = dict(zip(names, np.exp(logarithms), strict=False))
        return {"watts": watts or 0.0, **known}

    counts = {device: np.sum(kernels.device == device) for device in np.unique(kernels.device)}
    weights = np.array([1 / counts[device] for device in kernels.device])
    loss = robust(weights)
    found = least_squares(lambda x: kernels.errors(named(x)), np.log(start), loss=loss, f_scale=ROBUST)
    return named(found.x)


def robust(weights: Array) -> Callable[[Array], Array]:
    """scipy's soft_l1 with a weight for each kernel, so that each device counts the same."""
    return lambda z: np.stack(
        [weights * f for f in (2 * (np.sqrt(1 + z) - 1), (1 + z) ** -0.5, -0.5 * (1 + z) ** -1.5)]
    )


def fit_all(classes: Mapping[str, Kernels], without: Sequence[str] = ()) -> dict[str, dict[str, float]]:
    """Each class's fit. The power that sustains half of the peak comes from the large products."""
    used = {kind: kernels.of(~np.isin(kernels.device, list(without))) for kind, kernels in classes.items()}
    large = fit(used["large product"])
    return {kind: large if kind == "large product" else fit(each, large["watts"]) for kind, each in used.items()}


def left_out(classes: Mapping[str, Kernels], without: Sequence[str] = ()) -> dict[str, dict[str, Array]]:
    """By class and device: the errors on the device's kernels of a fit to the other devices alone."""
    devices = sorted({device for each in classes.values() for device in each.device} - set(without))
    found: dict[str, dict[str, Array]] = {kind: {} for kind in classes}
    for device in devices:
        fits = fit_all(classes, [*without, device])
        for kind, kernels in classes.items():
            own = kernels.of(kernels.device == device)
            if len(own.seconds):
                found[kind][device] = own.errors(fits[kind])
    return found


def band(errors: Mapping[str, Array]) -> float:
    """The half width, in logarithms, of the prediction interval for a kernel of a device that was not measured.

    Devices differ from each other, kernels differ within one: a Student interval with the devices as the sample.
    """
    means = np.array([each.mean() for each in errors.values()])
    within = np.mean([each.var() for each in errors.values()])
    count = len(means)
    spread = np.sqrt((means**2).sum() / count * (1 + 1 / count) + within)
    return float(student.ppf((1 + CONFIDENCE) / 2, count - 1) * spread)


def rows_of(classes: Mapping[str, Kernels], errors: Mapping[str, Mapping[str, Array]]) -> list[dict[str, object]]:
    """The rows of calibration.csv: for each class one for any device, then those measured, with factor and band."""
    rows: list[dict[str, object]] = []
    for kind, own in fit_all(classes).items():
        half = band(errors[kind])
        shared = {name: f"{own[name]:.4g}" for name in ("compute", "bandwidth", "call_us", "watts")}
        everyone = {"factor": 1, "low": f"{np.exp(-half):.3g}", "high": f"{np.exp(half):.3g}"}
        rows.append({"class": kind, "device": ANY, "kernels": len(classes[kind].seconds), **shared, **everyone})
        for device in errors[kind]:
            kernels = classes[kind].of(classes[kind].device == device)
            low, middle, high = np.exp(
                np.quantile(kernels.errors(own), [(1 - CONFIDENCE) / 2, 0.5, (1 + CONFIDENCE) / 2])
            )
            about = {"factor": f"{middle:.3g}", "low": f"{low / middle:.3g}", "high": f"{high / middle:.3g}"}
            rows.append({"class": kind, "device": device, "kernels": len(kernels.seconds), **shared, **about})
    return rows


def coverage(classes: Mapping[str, Kernels], errors: Mapping[str, Mapping[str, Array]]) -> list[dict[str, object]]:
    """By class and device: the errors on the device that was left out, and how many the others' own band holds."""
    rows: list[dict[str, object]] = []
    for device in sorted({device for each in errors.values() for device in each}):
        others = left_out(classes, [device])
        for kind in classes:
            if device in errors[kind]:
                own = errors[kind][device]
                about = {"class": kind, "device": device, "kernels": len(own)}
                about |= {"median_error": f"{np.median(np.abs(np.expm1(-own))):.3f}"}
                about |= {"bias": f"{np.exp(np.median(own)):.3f}"}
                rows.append(about | {"covered": f"{np.mean(np.abs(own) <= band(others[kind])):.3f}"})
    return sorted(rows, key=lambda row: (str(row["class"]), str(row["device"])))


def provenance(paths: Sequence[Path]) -> str:
    """What the first lines of calibration.csv say."""
    digests = ", ".join(f"{path.name} (SHA-256 {hashlib.sha256(path.read_bytes()).hexdigest()[:16]})" for path in paths)
    return (
        f"# Written by benchmarks/calibrate_time.py from {digests}.\n"
        "# Measured by Lee, Phanishayee and Mahajan, Forecasting GPU Performance for Deep Learning Training and "
        "Inference (NeuSight), ASPLOS 2025;\n"
        "# github.com/sitar-lab/NeuSight, MIT licence: float32 without TF32, PyTorch 2.1.0, CUDA 12.1, cuDNN 8.9.2.\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kernels", type=Path, nargs="+", metavar="KERNELS.csv")
    paths = parser.parse_args().kernels
    classes = read(paths)
    errors = left_out(classes)
    target = ROOT / "ctxbench" / "predict" / "calibration.csv"
    text = pd.DataFrame(rows_of(classes, errors)).to_csv(index=False, lineterminator="\n")
    target.write_text(provenance(paths) + text, encoding="utf-8")
    table = ROOT / "results" / "prediction" / "left-out.csv"
    table.parent.mkdir(parents=True, exist_ok=True)
    pd.DataFrame(coverage(classes, errors)).to_csv(table, index=False, lineterminator="\n")
    print(f"wrote {target.relative_to(ROOT)} and {table.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
