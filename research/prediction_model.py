"""Models behind predicted times: fits of classes to kernels and to networks, with devices or networks left out."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import fit_networks
import network_passes
import numpy as np
from band_widths import FOR_BAND
from fit_kernels import Array, Fit, Group, Kernels, Unit, factors, fit_all, kernel_sd
from numpy.typing import NDArray

from ctxbench.base.number import TRAINING
from ctxbench.plugins.predict import effects, passes, rates
from ctxbench.plugins.predict.passes import PassTime, time_of

Row = dict[str, object]


@dataclass(frozen=True)
class Model:
    """Fits of all classes, the factor of each card as a logarithm with the number of kernels or passes that tell it,
    and the error of a class's kernels in one pass, a standard deviation in logarithms.

    `passes`: how many of networks a class has a part in.
    """

    kernels: Mapping[Group, Kernels]
    fits: Mapping[Group, Fit]
    cards: Mapping[Unit, tuple[float, int]]
    kernel_sd: float
    passes: Mapping[Group, int] = field(default_factory=dict)

    def with_networks(self, table: fit_networks.Table, x: Array, without: NDArray[np.bool_] | None = None) -> "Model":
        """With the rates `x` of networks, but those `without`."""
        used = np.ones(len(table.passes), bool) if without is None else ~without
        shares = table.shares(x)[used]
        counts = {g: int((shares[:, i] > fit_networks.TELLS).sum()) for i, g in enumerate(table.groups)}
        found = {
            (kind, dtype): {"watts": self.watts[dtype], "call_us": 0.0, "compute": c, "bandwidth": b}
            for (kind, dtype), (c, b) in fit_networks.rates_of(table, x).items()
        }
        fits = {**self.fits, **found}
        own = fit_networks.factors(table, x, used)
        cards = {(title, fit_networks.FLOAT16, "cuda"): told for title, told in own.items()}
        return Model(self.kernels, fits, factors(self.kernels, fits) | cards, self.kernel_sd, counts)

    def calibration(self) -> rates.Calibration:
        """As what the package reads from its files."""
        efficiencies = {group: rates.Efficiency(fit["compute"], fit["bandwidth"]) for group, fit in self.fits.items()}
        cards = {unit: log for unit, (log, _) in self.cards.items()}
        # until band_widths.py has found them
        errors = {"known": self.kernel_sd, "unknown": self.kernel_sd, TRAINING: 0.0, rates.TRAINING_HALF: 0.0}
        return rates.Calibration(efficiencies, cards, self.watts, errors, self.kernel_sd)

    @property
    def watts(self) -> dict[str, float]:
        """The power that sustains half of the peak, of each unit."""
        return {
            dtype: fit["watts"]
            for (kind, dtype), fit in self.fits.items()
            if kind == "large product" and dtype in ("float32", "float16")
        }


def model(classes: Mapping[Group, Kernels], without: str = "") -> Model:
    """Fits to the kernels of all devices, or of all but one."""
    rest = {group: each.of(each.device != without) for group, each in classes.items()}
    kernels = {group: each for group, each in rest.items() if len(each.seconds)}
    fits = fit_all(kernels)
    return Model(kernels, fits, factors(kernels, fits), kernel_sd(kernels, fits))


def use(calibration: rates.Calibration) -> None:
    """Predict with this from now on."""
    for module in (rates, effects, passes):
        setattr(module, "calibration", lambda: calibration)  # noqa: B010  # mypy knows what it was


def network_table(data: Path, seen: Path, model: Model) -> fit_networks.Table:
    """The passes of whole networks, whose rates begin with those of a model of kernels."""
    use(model.calibration())
    return fit_networks.Table(network_passes.passes(data / network_passes.FILE, seen))


def row_of(source: str, what: str, mode: str, on: str, known: str, measured_ms: float, found: PassTime) -> Row:
    about = {"source": source, "what": what, "mode": mode, "device": on, "known": known}
    time = found.time
    times = {"measured_ms": measured_ms, "predicted_ms": time.value, "low_ms": time.low, "high_ms": time.high}
    errors = json.dumps({source: float(f"{sd:.3g}") for source, sd in time.errors.items()})
    told = {name: f"{ms:.4g}" for name, ms in times.items()}
    return {**about, **told, "errors": errors, "unknown": time.unknown}


def network_rows(model: Model, table: fit_networks.Table) -> Iterator[Row]:
    """The passes of networks, each predicted by the fit without its kin, and again by one without its card."""
    parts = [(part, "networks left out") for part in fit_networks.folds(table.passes)]
    parts += [(table.card == card, "card left out") for card in range(len(table.cards))]
    for part, known in parts:
        use(model.with_networks(table, fit_networks.fit(table, ~part), part).calibration())
        yield from _predicted([table.passes[int(i)] for i in np.flatnonzero(part)], known)


def rows_for_band(model: Model, data: Path, seen: Path) -> Iterator[Row]:
    """Training passes of networks that no fit has, predicted by the fit to all others: they tell the band's width."""
    use(model.calibration())
    found = network_passes.passes(data / network_passes.FILE, seen, network_passes.BAND_PART, ["train"])
    yield from _predicted(found, FOR_BAND)


def _predicted(found: Iterable[network_passes.Pass], known: str) -> Iterator[Row]:
    for each in found:
        time = time_of(each.operators(), each.sheet, "autocast-float16")
        row = row_of("timm", each.network, each.mode, each.sheet.title, known, each.seconds * 1e3, time)
        yield {**row, "layout": each.layout, "family": each.family}
