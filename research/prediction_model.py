"""Models behind predicted times: fits of classes to kernels and to networks, and each device left out once."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import fit_networks
import numpy as np
from fit_kernels import PRIOR_BETWEEN, Array, Fit, Group, Kernels, fit_all, kernels_of, scatter, spreads
from network_passes import FILE, passes
from numpy.typing import NDArray
from prediction_data import Measured

from ctxbench.plugins.predict import effects, rates
from ctxbench.plugins.predict.passes import PassTime, time_of

Row = dict[str, object]
# The scatter of kernels of a class with few kernels on each device is at least this.
LEAST_WITHIN = 0.05


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

    def with_networks(
        self,
        table: fit_networks.Table,
        x: Array,
        errors: Array,
        kernels: Mapping[Group, Kernels],
        without: NDArray[np.bool_] | None = None,
    ) -> "Model":
        """With the classes that tell in networks, but those `without`; `errors` where each was left out.

        How far devices are apart is told by the cards of the networks and by those of single `kernels`.
        """
        used = np.ones(len(errors), bool) if without is None else ~without
        shares = table.shares(x)
        counts = {g: int((shares[used, i] > fit_networks.TELLS).sum()) for i, g in enumerate(table.groups)}
        found = {g: rates for g, rates in fit_networks.rates_of(table, x).items() if counts[g]}
        within = zip(table.groups, map(float, fit_networks.within(shares[used], errors[used])), strict=True)
        spread = {group: sd for group, sd in within if counts[group]}
        cards = fit_networks.factors(table, x, used)
        fits = {
            g: {"watts": table.start[g].watts, "call_us": 0.0, "compute": c, "bandwidth": b}
            for g, (c, b) in found.items()
        }
        told = {g: {c: (log, spread[g] / np.sqrt(n)) for c, (log, n) in own.items()} for g, own in cards.items()}
        for group, own in ((group, kernels[group]) for group in found if group in kernels):
            for title in np.unique(own.device):
                of = own.of(own.device == title).errors(fits[group])
                told.setdefault(group, {})[str(title)] = (float(np.median(of)), spread[group] / np.sqrt(len(of)))
        between = dict.fromkeys(found, PRIOR_BETWEEN) | spreads(told)[1]
        return Model(
            {**self.fits, **fits},
            self.device_sd,
            {**self.between, **between},
            {**self.within, **spread},
            {group: counts[group] for group in found},
            cards,
        )

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
        errors = dict.fromkeys(("known", "unknown"), self.device_sd)  # until band_widths.py has found them
        return rates.Calibration(efficiencies, devices, self.device_sd, self.watts, errors)

    @property
    def watts(self) -> dict[str, float]:
        """The power that sustains half of the peak, of each unit."""
        return {
            dtype: fit["watts"]
            for (kind, dtype), fit in self.fits.items()
            if kind == "large product" and dtype in ("float32", "float16")
        }


@dataclass(frozen=True)
class Folds:
    """The kernels, and for each device the fits of its own classes to the other devices alone."""

    classes: Mapping[Group, Kernels]
    fits: Mapping[str, Mapping[Group, Fit]]

    def errors(self, group: Group, title: str) -> Array:
        """The errors on a device's kernels of the fit without it; none if no other device has the class."""
        own, found = self.classes[group], self.fits[title].get(group)
        own = own.of(own.device == title)
        return own.errors(found) if found else np.empty(0)

    def model(self, without: str = "") -> Model:
        """Fits to all devices, or to all but one, with the spreads that the devices have where they are left out."""
        kernels = _without(self.classes, without)
        errors = {group: {t: self.errors(group, t) for t in np.unique(each.device)} for group, each in kernels.items()}
        within = {group: max(LEAST_WITHIN, scatter(own.values())) for group, own in errors.items()}
        factors = {
            group: {
                t: (float(np.median(own)), within[group] / np.sqrt(len(own))) for t, own in each.items() if len(own)
            }
            for group, each in errors.items()
        }
        device_sd, between = spreads(factors)
        return Model(fit_all(kernels), device_sd, between, within)


def fold(measured: Sequence[Measured]) -> Folds:
    """Leave each device out once."""
    classes = kernels_of(measured)
    own = {title: _of(classes, title) for title in sorted({each.sheet.title for each in measured})}
    return Folds(classes, {title: fit_all(_without(classes, title), wanted) for title, wanted in own.items()})


def _of(classes: Mapping[Group, Kernels], title: str) -> set[Group]:
    return {group for group, each in classes.items() if (each.device == title).any()}


def _without(classes: Mapping[Group, Kernels], title: str) -> dict[Group, Kernels]:
    rest = {group: each.of(each.device != title) for group, each in classes.items()}
    return {group: each for group, each in rest.items() if len(each.seconds)}


def use(calibration: rates.Calibration) -> None:
    """Predict with this from now on."""
    for module in (rates, effects):
        setattr(module, "calibration", lambda: calibration)  # noqa: B010  # mypy knows what it was


def network_table(data: Path, seen: Path, model: Model) -> fit_networks.Table:
    """The passes of whole networks, whose rates begin with those of a model of kernels."""
    use(model.calibration())
    return fit_networks.Table(passes(data / FILE, seen))


def left_out(table: fit_networks.Table) -> tuple[list[Array], Array]:
    """For each fold of networks the parameters without it, and the errors of all passes where they were left out."""
    parts = fit_networks.folds(table.passes)
    found = [fit_networks.fit(table, ~part) for part in parts]
    errors = np.zeros(len(table.passes))
    for part, x in zip(parts, found, strict=True):
        errors[part] = table.errors(x)[part]
    return found, errors


def row_of(source: str, what: str, mode: str, on: str, known: str, measured_ms: float, found: PassTime) -> Row:
    about = {"source": source, "what": what, "mode": mode, "device": on, "known": known}
    time = found.time
    times = {"measured_ms": measured_ms, "predicted_ms": time.value, "low_ms": time.low, "high_ms": time.high}
    errors = json.dumps({source: float(f"{sd:.3g}") for source, sd in time.errors.items()})
    return {**about, **{name: f"{ms:.4g}" for name, ms in times.items()}, "errors": errors}


def network_rows(
    model: Model, table: fit_networks.Table, fits: Sequence[Array], errors: Array, kernels: Mapping[Group, Kernels]
) -> Iterator[Row]:
    """The passes of networks, each predicted by the fit without its kin, and again by one without its card."""
    parts = [(*each, "networks left out") for each in zip(fit_networks.folds(table.passes), fits, strict=True)]
    for card in range(len(table.cards)):
        parts.append((table.card == card, fit_networks.fit(table, table.card != card), "card left out"))
    for part, x, known in parts:
        use(model.with_networks(table, x, errors, kernels, part).calibration())  # the band, too, is of the others
        for i in np.flatnonzero(part):
            each = table.passes[int(i)]
            found = time_of(each.operators(), each.sheet, "autocast-float16")
            row = row_of("timm", each.network, each.mode, each.sheet.title, known, each.seconds * 1e3, found)
            yield {**row, "layout": each.layout, "family": each.family}
