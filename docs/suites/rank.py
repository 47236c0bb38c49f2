"""What a run of the suite `rank` says of the latent dimension of Geng et al., ICLR 2021."""

from collections.abc import Iterator

import pandas as pd

HAMS = ("ham_nmf", "ham_cd", "ham_vq")
Claim = tuple[str, str, str | bool]


def claims(frame: pd.DataFrame) -> Iterator[Claim]:
    """Claim, what was measured, whether it holds."""
    middle = frame[frame["hparams.d"] == 64]
    table = middle.pivot(index="hparams.rank", columns="module", values="reconstruction_error")
    texts = [f"{m}: {table[m][8]:.3f} at r = 8, {table[m][32]:.3f} at r = 32" for m in HAMS]
    close = [m for m in HAMS if table[m][8] < 1.1 * table[m][32]]
    verdict = "yes" if len(close) == len(HAMS) else f"for {', '.join(close)} only" if close else "no"
    claim = "r = 8 performs well: its reconstruction error is within 10 % of that of r = 32 (d = 64)"
    yield claim, "; ".join(texts), verdict
    macs = middle.pivot(index="hparams.rank", columns="module", values="macs")
    texts = [f"{m}: {macs[m][32] / macs[m][8]:.2f} times" for m in HAMS]
    claim = "The cost grows more slowly than the rank: MACs of r = 32 against r = 8, of which the breads are a part"
    yield claim, "; ".join(texts), all(macs[m][32] < 4 * macs[m][8] for m in HAMS)
    gaps = middle.assign(gap=middle["reconstruction_error"] / middle["reconstruction_least"])
    table = gaps.pivot(index="hparams.rank", columns="module", values="gap")
    texts = [f"{m}: {table[m][4]:.2f} at r = 4, {table[m][32]:.2f} at r = 32" for m in HAMS]
    yield "Error over the least error of any matrix of the rank (d = 64)", "; ".join(texts), "no claim"
