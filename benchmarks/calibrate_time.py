"""Fits the efficiencies behind predicted times to measured kernels, and tests them on devices that are left out.

Writes ctxbench/predict/efficiencies.csv and devices.csv, and results/prediction/left-out.csv for docs/prediction.md.
What the files of DATA hold is in prediction_data.py; which of their rows are used is in prediction_splits.toml.
No number of a paper that ctxbench reproduces is used.

Run: python benchmarks/calibrate_time.py DATA
"""

import argparse
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import fit_networks as networks
import numpy as np
import pandas as pd
from network_passes import FILE, passes
from numpy.typing import NDArray
from prediction_data import READERS, SPLITS, Measured
from scipy.optimize import least_squares, minimize
from scipy.stats import norm

from ctxbench.predict import effects, rates
from ctxbench.predict.rates import FACTOR_SD, conversion_s, itemsize, parts, sustained, unit_of

ROOT = Path(__file__).resolve().parents[1]
CONFIDENCE = 0.8
# Where the fits of each class begin, of which the best counts: shares of peak and of bandwidth, microseconds of a call
# that is measured alone.
STARTS = ((0.8, 0.7, 20.0), (0.02, 0.7, 20.0), (0.6, 0.2, 20.0))
LIMITS = ((1e-3, 1e-2, 1.0), (1.5, 1.5, 500.0))
START_WATTS, LIMIT_WATTS = 6.0, (0.5, 60.0)
# Logarithmic errors above this count linearly.
ROBUST = 0.2
# A class's differences between devices, in logarithms, before anything is known: 0.15, within a factor of 2.
PRIOR_BETWEEN, PRIOR_SPREAD = 0.15, 0.7
# The scatter of kernels of a class with few kernels on each device is at least this.
LEAST_WITHIN = 0.05
Array = NDArray[np.float64]
Group = tuple[str, str]
Fit = Mapping[str, float]


@dataclass
class Kernels:
    """The kernels of one class: `flops` and `moved` [kernels, ways], what the devices give, measured seconds.

    `unit` has the peak: float32's units or, as "float16", tensor cores. `converted` are seconds of conversions.
    """

    unit: str
    device: NDArray[np.str_]
    era: NDArray[np.str_]
    flops: Array
    moved: Array
    peak: Array
    memory: Array
    watts: Array
    alone: NDArray[np.bool_]
    converted: Array
    seconds: Array

    def of(self, wanted: NDArray[np.bool_]) -> "Kernels":
        _, *names = self.__dataclass_fields__
        return Kernels(self.unit, *(getattr(self, name)[wanted] for name in names))

    @property
    def units(self) -> NDArray[np.str_]:
        """A device with the software of an era: what has one factor."""
        return np.char.add(np.char.add(self.device, "|"), self.era)

    def predicted(self, fit: Fit) -> Array:
        """Seconds of a call, with its fixed time if it was measured alone."""
        peak = (self.peak * sustained(self.watts, fit["watts"]))[:, None]
        longer = np.maximum(
            *parts(self.flops, self.moved, fit["compute"], fit["bandwidth"], peak, self.memory[:, None])
        )
        return np.asarray(longer.min(axis=1) + self.converted + self.alone * fit["call_us"] * 1e-6)

    def errors(self, fit: Fit) -> Array:
        """The logarithm of measured over predicted."""
        return np.asarray(np.log(self.seconds / self.predicted(fit)))


def read(data: Path) -> list[Measured]:
    """The measurements that calibrate."""
    aside = SPLITS["validation"]["kernelbench_operators.csv"]
    found = [each for name, reader in READERS.items() if (data / name).exists() for each in reader(data / name)]
    return [each for each in found if not (each.source == "KernelBench" and each.sheet.title in aside)]


def kernels_of(measured: Iterable[Measured]) -> dict[Group, Kernels]:
    """By class and dtype."""
    rows: dict[Group, list[Measured]] = {}
    for each in measured:
        rows.setdefault((each.work.group, each.dtype), []).append(each)
    return {group: _table(own) for group, own in sorted(rows.items())}


def _table(measured: Sequence[Measured]) -> Kernels:
    ways = [list(each.work.ways(each.sheet, itemsize(each.dtype))) for each in measured]
    most = max(map(len, ways))
    # A kernel with fewer ways has its last one twice.
    table = np.array([own + own[-1:] * (most - len(own)) for own in ways])
    units = [unit_of(each.work, each.dtype) for each in measured]
    return Kernels(
        unit="float32" if units[0] == "float32" else "float16",
        device=np.array([each.sheet.title for each in measured]),
        era=np.array([each.era for each in measured]),
        flops=table[:, :, 0],
        moved=table[:, :, 1],
        peak=np.array([each.sheet.peak(unit) for each, unit in zip(measured, units, strict=True)]),
        memory=np.array([each.sheet.bandwidth for each in measured]),
        watts=np.array([each.sheet.watts_per_tflops(unit) for each, unit in zip(measured, units, strict=True)]),
        alone=np.array([each.alone for each in measured]),
        converted=np.array([conversion_s(each.work, each.sheet, each.dtype) for each in measured]),
        seconds=np.array([each.seconds for each in measured]),
    )


def fit(kernels: Kernels, watts: float | None = None) -> dict[str, float]:
    """The shares and the fixed time that fit best, robustly in logarithms; without `watts`, that as well."""
    names = ("compute", "bandwidth", "call_us", "watts")
    more = [] if watts is not None else [START_WATTS]
    limits = [
        np.log([*own, *([] if watts is not None else [each])]) for own, each in zip(LIMITS, LIMIT_WATTS, strict=True)
    ]

    def named(logarithms: Array) -> dict[str, float]:
        return {"watts": watts or 0.0} | dict(zip(names, np.exp(logarithms), strict=False))

    _, inverse, counts = np.unique(kernels.units, return_inverse=True, return_counts=True)
    loss = robust(1 / counts[inverse])
    found = [
        least_squares(
            lambda x: kernels.errors(named(x)), np.log([*start, *more]), loss=loss, f_scale=ROBUST, bounds=limits
        )
        for start in STARTS
    ]
    best = named(min(found, key=lambda each: each.cost).x)
    return best if kernels.flops.any() else best | {"compute": 1.0}


def robust(weights: Array) -> Callable[[Array], Array]:
    """scipy's soft_l1 with a weight for each kernel, so that each device counts the same."""
    return lambda z: np.stack(
        [weights * f for f in (2 * (np.sqrt(1 + z) - 1), (1 + z) ** -0.5, -0.5 * (1 + z) ** -1.5)]
    )


def fit_all(classes: Mapping[Group, Kernels]) -> dict[Group, dict[str, float]]:
    """Each class's fit. The power that sustains half of a unit's peak comes from its large products."""
    watts = {dtype: fit(each)["watts"] for (kind, dtype), each in classes.items() if kind == "large product"}
    return {group: fit(each, watts[each.unit]) for group, each in classes.items()}


@dataclass(frozen=True)
class Model:
    """Fits of all classes, and what devices and kernels differ by: standard deviations in logarithms.

    `passes`: how many a class was fitted to. `cards`: the logarithms of their factors, and how many networks tell each.
    """

    fits: Mapping[Group, Fit]
    device_sd: float
    between: Mapping[Group, float]
    within: Mapping[Group, float]
    passes: Mapping[Group, int] = field(default_factory=dict)
    cards: Mapping[Group, Mapping[str, tuple[float, int]]] = field(default_factory=dict)

    def sd(self, group: Group) -> float:
        """The error of one kernel on a device that was not measured."""
        return float(np.sqrt(self.device_sd**2 + self.between[group] ** 2 + self.within[group] ** 2))

    def with_networks(self, table: networks.Table, x: Array, errors: Array) -> "Model":
        """With the classes that were fitted to networks; `errors` of those that were left out."""
        found = networks.rates_of(table, x)
        shares, told = table.shares(x), np.isfinite(errors)
        spread = dict(zip(table.groups, map(float, networks.within(shares[told], errors[told])), strict=True))
        cards = networks.factors(table, x)
        told_by = {g: {c: (log, spread[g] / np.sqrt(n)) for c, (log, n) in own.items()} for g, own in cards.items()}
        fits = {g: {"watts": table.start[g].watts, "call_us": 0.0, "compute": c, "bandwidth": b} for g, (c, b) in found.items()}
        counts = {g: int((shares[:, i] > networks.TELLS).sum()) for i, g in enumerate(table.groups)}
        between = {g: PRIOR_BETWEEN for g in found} | spreads(told_by)[1]
        return Model({**self.fits, **fits}, self.device_sd, {**self.between, **between}, {**self.within, **spread}, counts, cards)

    def calibration(self) -> rates.Calibration:
        """As what the package reads from its files; of devices those cards alone that networks were measured on."""
        efficiencies = {
            group: rates.Efficiency(
                fit["compute"], fit["bandwidth"], self.between[group], self.within[group],
                of_networks=group in self.passes,
            )
            for group, fit in self.fits.items()
        }  # fmt: skip
        devices: dict[tuple[str, str], dict[str, rates.Factor]] = {}
        for (kind, dtype), cards in self.cards.items():
            for title, (log, count) in cards.items():
                factor = rates.factor_of(float(np.exp(log)), count, self.within[kind, dtype])
                devices.setdefault((title, "cuda"), {})[f"{kind}|{dtype}"] = factor
        return rates.Calibration(efficiencies, devices, self.device_sd, self.watts)

    @property
    def watts(self) -> dict[str, float]:
        """The power that sustains half of the peak, of each unit."""
        return {dtype: fit["watts"] for (kind, dtype), fit in self.fits.items() if kind == "large product" and dtype in ("float32", "float16")}


@dataclass(frozen=True)
class Folds:
    """The kernels, and for each device the fits to the other devices alone."""

    classes: Mapping[Group, Kernels]
    fits: Mapping[str, Mapping[Group, Fit]]

    def errors(self, group: Group, title: str) -> Array:
        """The errors on a device's kernels of the fit without it; none if no other device has the class."""
        own, found = self.classes[group], self.fits[title].get(group)
        own = own.of(own.device == title)
        return own.errors(found) if found else np.empty(0)

    def model(self, without: str = "") -> Model:
        """Fits to all devices, or to all but one, with the spreads that the devices have where they are left out."""
        kernels = {group: each.of(each.device != without) for group, each in self.classes.items()}
        kernels = {group: each for group, each in kernels.items() if len(each.seconds)}
        errors = {group: {t: self.errors(group, t) for t in np.unique(each.device)} for group, each in kernels.items()}
        within = {group: max(LEAST_WITHIN, scatter(own.values())) for group, own in errors.items()}
        factors = {
            group: {
                t: (float(np.median(own)), within[group] / np.sqrt(len(own))) for t, own in each.items() if len(own)
            }
            for group, each in errors.items()
        }
        device_sd, between = spreads(factors)
        return Model(self.fits[without] if without else fit_all(kernels), device_sd, between, within)


def fold(measured: Sequence[Measured]) -> Folds:
    """Leave each device out once."""
    titles = sorted({each.sheet.title for each in measured})
    rest = {title: [each for each in measured if each.sheet.title != title] for title in titles}
    return Folds(kernels_of(measured), {title: fit_all(kernels_of(own)) for title, own in rest.items()})


def spreads(factors: Mapping[Group, Mapping[str, tuple[float, float]]]) -> tuple[float, dict[Group, float]]:
    """What makes the devices' factors most likely: a random effect for the device, and one for each class on it.

    A factor is the logarithm of measured over predicted, and its error.
    """
    groups = list(factors)
    devices = []
    for title in sorted({title for own in factors.values() for title in own}):
        at = [i for i, group in enumerate(groups) if title in factors[group]]
        values, errors = np.array([factors[groups[i]][title] for i in at]).T
        devices.append((at, values, FACTOR_SD**2 + errors**2))

    def cost(x: Array) -> float:
        """Minus the logarithm of the likelihood, and of the prior of the spreads."""
        variances = np.exp(2 * x)
        total = float(np.sum((x[1:] - np.log(PRIOR_BETWEEN)) ** 2)) / (2 * PRIOR_SPREAD**2)
        for at, values, noise in devices:
            covariance = variances[0] + np.diag(variances[1:][at] + noise)
            total += 0.5 * float(np.linalg.slogdet(covariance)[1] + values @ np.linalg.solve(covariance, values))
        return total

    found = minimize(cost, np.log([0.2, *[PRIOR_BETWEEN] * len(groups)]), method="L-BFGS-B")
    device_sd, *between = map(float, np.exp(found.x))
    return device_sd, dict(zip(groups, between, strict=True))


def scatter(errors: Iterable[Array]) -> float:
    """Of kernels on one device around their median: robust, as the fit is; 0 if no device has two."""
    apart = np.concatenate([np.abs(own - np.median(own)) for own in errors if len(own) > 1] or [np.zeros(1)])
    return float(np.quantile(apart, CONFIDENCE) / norm.ppf((1 + CONFIDENCE) / 2))


def coverage(folds: Folds) -> list[dict[str, object]]:
    """By class, dtype and device: the errors on a device that was left out, and how many kernels the band holds."""
    half = norm.ppf((1 + CONFIDENCE) / 2)
    rows: list[dict[str, object]] = []
    for title in folds.fits:
        others = folds.model(title)
        for group in others.fits:
            errors = folds.errors(group, title)
            if not len(errors):
                continue
            band = float(np.exp(half * others.sd(group)))
            about: dict[str, object] = {"class": group[0], "dtype": group[1], "device": title, "kernels": len(errors)}
            about |= {"median_error": f"{np.median(np.abs(np.expm1(-errors))):.3f}"}
            about |= {"factor": f"{np.exp(np.median(errors)):.3f}", "band": f"{band:.3f}"}
            rows.append(about | {"covered": f"{np.mean(np.abs(errors) <= np.log(band)):.3f}"})
    return sorted(rows, key=lambda row: (str(row["class"]), str(row["dtype"]), str(row["device"])))


def use(calibration: rates.Calibration) -> None:
    """Predict with this from now on."""
    for module in (rates, effects):
        setattr(module, "calibration", lambda: calibration)  # noqa: B010  # mypy knows what it was


def network_table(data: Path, seen: Path, model: Model) -> networks.Table:
    """The passes of whole networks, whose rates begin with those of a model of kernels."""
    use(model.calibration())
    return networks.Table(passes(data / FILE, seen))


def left_out(table: networks.Table) -> tuple[list[Array], Array]:
    """For each fold of networks the parameters without it, and the errors of all passes where they were left out."""
    parts = networks.folds(table.passes)
    found = [networks.fit(table, ~part) for part in parts]
    errors = np.zeros(len(table.passes))
    for part, x in zip(parts, found, strict=True):
        errors[part] = table.errors(x)[part]
    return found, errors


def tables(classes: Mapping[Group, Kernels], found: Model) -> tuple[pd.DataFrame, pd.DataFrame]:
    """efficiencies.csv and devices.csv."""
    first = {"class": "any", "devices": "", "kernels": "", "passes": "", "compute": "", "bandwidth": ""}
    rows: list[dict[str, object]] = [
        {**first, "dtype": dtype, "between": f"{found.device_sd:.3g}", "watts": f"{watts:.4g}"}
        for dtype, watts in sorted(found.watts.items())
    ]
    devices: list[dict[str, object]] = []
    for group, own in sorted(found.fits.items()):
        kernels, named, cards = classes.get(group), {"class": group[0], "dtype": group[1]}, found.cards.get(group, {})
        titles = {*cards, *(np.unique(kernels.device) if kernels else ())}
        shares = {name: f"{own[name]:.4g}" for name in ("compute", "bandwidth")}
        call = {"call_us": f"{own['call_us']:.3g}"} if kernels and kernels.alone.any() else {}
        count = {"devices": len(titles), "kernels": len(kernels.seconds) if kernels else 0}
        spreads = {"between": f"{found.between[group]:.3g}", "within": f"{found.within[group]:.3g}"}
        rows.append({**named, **count, "passes": found.passes.get(group, ""), **shares, **spreads, **call})
        for unit in np.unique(kernels.units) if kernels else ():
            title, era = unit.split("|")
            errors = kernels.of(kernels.units == unit).errors(own)
            factor = {"kernels": len(errors), "factor": f"{np.exp(np.median(errors)):.3g}"}
            devices.append({**named, "device": title, "era": era, **factor})
        for title, (log, tell) in cards.items():
            devices.append({**named, "device": title, "era": "cuda", "kernels": tell, "factor": f"{np.exp(log):.3g}"})
    return pd.DataFrame(rows), pd.DataFrame(devices)


def provenance(data: Path) -> str:
    """What the first lines of both files say."""
    digests = ", ".join(
        f"{name} (SHA-256 {hashlib.sha256((data / name).read_bytes()).hexdigest()[:16]})"
        for name in (*READERS, FILE)
        if (data / name).exists()
    )
    return f"# Written by benchmarks/calibrate_time.py from {digests}.\n# Sources and licences: docs/prediction.md.\n"


def arguments(about: str) -> argparse.Namespace:
    """The folders of a command of this file or the next."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, metavar="DATA", help="folder with the files of prediction_data.py")
    parser.add_argument("--seen", type=Path, default=ROOT / ".seen", help="keeps what meta has seen of networks")
    return parser.parse_args()


def main() -> None:
    given = arguments(__doc__ or "")
    data = given.data
    folds = fold(read(data))
    table = network_table(data, given.seen, folds.model())
    found = folds.model().with_networks(table, networks.fit(table), left_out(table)[1])
    folder, left = ROOT / "ctxbench" / "predict", ROOT / "results" / "prediction" / "left-out.csv"
    for name, frame in zip(("efficiencies.csv", "devices.csv"), tables(folds.classes, found), strict=True):
        text = frame.to_csv(index=False, lineterminator="\n")
        (folder / name).write_text(provenance(data) + text, encoding="utf-8")
    pd.DataFrame(coverage(folds)).to_csv(left, index=False, lineterminator="\n")
    print(f"wrote efficiencies.csv and devices.csv in {folder.relative_to(ROOT)}, and {left.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
