"""What a run of the suite `temperature` says of Appendix F of Geng et al., ICLR 2021."""

from collections.abc import Iterator

import pandas as pd

KMEANS = ("ham_cd", "ham_vq")
Claim = tuple[str, str, str | bool]


def claims(frame: pd.DataFrame) -> Iterator[Claim]:
    """Claim, what was measured, whether it holds."""
    last = frame[frame["hparams.steps"] == frame["hparams.steps"].max()]
    errors = last.pivot(index="hparams.temperature", columns="module", values="reconstruction_error")
    texts = [f"{m}: {errors[m][1.0]:.4f} at T = 1, {errors[m][0.01]:.4f} at T = 0.01" for m in KMEANS]
    lower = all(errors[m][0.01] < errors[m][1.0] for m in KMEANS)
    yield "A low T solves VQ and CD better: it lowers the reconstruction error (K = 6)", "; ".join(texts), lower
    spread = last.pivot(index="hparams.temperature", columns="module", values="reconstruction_spread")
    texts = [f"{m}: {spread[m][1.0]:.1e} at T = 1, {spread[m][0.01]:.1e} at T = 0.01" for m in KMEANS]
    wider = all(spread[m][0.01] > spread[m][1.0] for m in KMEANS)
    claim = "A lower T increases the variance; here: the spread of the error over seeds (K = 6)"
    yield claim, "; ".join(texts), wider
    nmf = errors["ham_nmf"]
    text = f"ham_nmf: {nmf[1.0]:.4f} at T = 1, {nmf[0.01]:.4f} at T = 0.01"
    yield "NMF, whose codes start from this softmax, wants a high T", text, nmf[1.0] < nmf[0.01]
