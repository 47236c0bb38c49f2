"""Singular values of a feature map of low rank with noise before and after a module, and how well a ham denoises it."""

import json
import math
from statistics import median
from typing import TYPE_CHECKING

from ctxbench.model.metric import Column, Measurement, Metric, diagnostic
from ctxbench_science.numerics.decomposition import (
    NO_DECOMPOSITION,
    NOISE,
    RANK,
    decomposition,
    elements_in,
    low_rank_map,
)
from ctxbench_science.numerics.jacobian import effective_rank

if TYPE_CHECKING:
    from torch import Tensor

LARGEST = 2**20
# Of weights, maps and initial bases; the medians are reported.
SEEDS = 5
MAPS = ("clean", "in", "out")


def compute(measurement: Measurement) -> None:
    """Report effective ranks, energies and, of a ham, the gain in signal to noise, or why there are none."""
    if elements_in(measurement) > LARGEST:
        reason = f"the input has more than {LARGEST:,} elements"
        measurement.report({"spectrum_reason": reason, "gain_reason": reason})
        return
    found, curves = zip(*(_of_module(measurement, seed) for seed in range(SEEDS)), strict=True)
    if decomposition(measurement) is None:
        measurement.report({"gain_reason": NO_DECOMPOSITION})
    else:
        found = tuple({**each, **_of_ham(measurement, seed)} for seed, each in enumerate(found))
    measurement.report({name: median(each[name] for each in found) for name in found[0]})
    medians = {of: [round(median(shares), 4) for shares in zip(*(c[of] for c in curves), strict=True)] for of in MAPS}
    measurement.report({"spectrum_energies": json.dumps(medians)})


def accumulated(values: "Tensor") -> list[float]:
    """The share of the first k singular values in the sum of all squares, for each k (accumulated energy)."""
    squares = values.square()
    shares: list[float] = (squares.cumsum(0) / squares.sum()).tolist()
    return shares


def gain(x: "Tensor", y: "Tensor", clean: "Tensor") -> float:
    """By how many dB the noise of Y is below that of X: 10 log10(|X - clean|^2 / |Y - clean|^2)."""
    return 20 * math.log10(((x - clean).norm() / (y - clean).norm()).item())


def truncated(x: "Tensor", rank: int) -> "Tensor":
    """The nearest matrices of this rank to `[batch, D, n]`, by their singular values (Eckart and Young, 1936)."""
    import torch

    u, values, v = torch.linalg.svd(x, full_matrices=False)
    nearest: Tensor = (u[..., :rank] * values[..., None, :rank]) @ v[..., :rank, :]
    return nearest


def _of_module(measurement: Measurement, seed: int) -> tuple[dict[str, float], dict[str, list[float]]]:
    """Effective rank, energy, and energy at each k of the first image: of signal, input and untrained output."""
    import torch

    torch.manual_seed(seed)
    model = measurement.entry.build(measurement.case.shape[1], measurement.case.hparams).double().eval()
    clean, noisy = low_rank_map(measurement.case.shape, seed)
    with torch.inference_mode():
        maps = dict(zip(MAPS, (clean, noisy, model(noisy)), strict=True))
    found: dict[str, float] = {}
    curves = {}
    for name, each in maps.items():
        values = torch.linalg.svdvals(each[0].flatten(1))
        curves[name] = accumulated(values)
        last = min(RANK, len(values)) - 1
        found |= {f"spectrum_rank_{name}": effective_rank(values), f"spectrum_energy_{name}": curves[name][last]}
    return found, curves


def _of_ham(measurement: Measurement, seed: int) -> dict[str, float]:
    """The gain of the ham alone, without the breads, and that of the best matrix of its rank."""
    import torch

    ham = decomposition(measurement, seed, without="breads", d=None)
    assert ham is not None
    batch = measurement.case.shape[0]
    with torch.no_grad():
        clean, x = (ham.matrix(each) for each in low_rank_map(measurement.case.shape, seed))
        rank = ham.initial_bases(x, batch).shape[2]
        return {
            "spectrum_gain": gain(x, ham.solve(x, batch), clean),
            "spectrum_gain_best": gain(x, truncated(x, rank), clean),
        }


METRIC = Metric(
    name="spectrum",
    order=83,
    about="singular values before and after a module, and the signal-to-noise gain of a ham",
    columns=[
        *(Column(f"spectrum_{what}_{of}", float) for what in ("rank", "energy") for of in MAPS),
        *(Column(name, float, least=-math.inf) for name in ("spectrum_gain", "spectrum_gain_best")),
        *(Column(name, str) for name in ("spectrum_reason", "gain_reason")),
        Column("spectrum_energies", str, json=dict),
    ],
    quantities=[
        diagnostic("spectrum_rank_in", "Effective rank, input", "spectrum", decimals=2),
        diagnostic("spectrum_rank_out", "Effective rank, output", "spectrum", decimals=2),
        diagnostic("spectrum_energy_in", f"Energy of the first {RANK} singular values, input", "spectrum"),
        diagnostic("spectrum_energy_out", f"Energy of the first {RANK} singular values, output", "spectrum"),
        diagnostic(
            "spectrum_gain", "Signal-to-noise gain of the ham", "spectrum", reason="gain_reason", unit="dB", decimals=2
        ),
        diagnostic(
            "spectrum_gain_best", "Gain of the truncated SVD", "spectrum", reason="gain_reason", unit="dB", decimals=2
        ),
    ],
    convention=(
        f"Spectrum: of the first image, a non-negative map of rank {RANK} with noise ({NOISE:g} of the signal), "
        f"float64, untrained, in eval, medians over {SEEDS} seeds; effective rank: exponential of the entropy of the "
        "singular values; gain: of the ham without its breads and of the best matrix of its rank, against the clean map"
    ),
    default=False,
    compute=compute,
)
