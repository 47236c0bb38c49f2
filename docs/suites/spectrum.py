"""What a run of the suite `spectrum` says of Fig. 6 of Geng et al., ICLR 2021."""

from collections.abc import Iterator

import pandas as pd

Claim = tuple[str, str, str | bool]
HAMS = ("ham_nmf", "ham_cd", "ham_vq")
# The rank of the signal.
TRUE = 8
# Relative: a smaller change of the effective rank is none.
SAME = 1e-6


def claims(frame: pd.DataFrame) -> Iterator[Claim]:
    """Claim, what was measured, whether it holds."""
    alike = frame[~frame["module"].isin(HAMS) | (frame["hparams.rank"] == TRUE)].set_index("module")
    yield concentration(alike)
    yield from ordered(alike)
    yield recovery(alike)
    yield best(frame)
    yield forgiving(frame)


def concentration(alike: pd.DataFrame) -> Claim:
    hams = alike.loc[[each for each in HAMS if each in alike.index]]
    text = "; ".join(
        f"{name}: energy {row['spectrum_energy_in']:.3f} to {row['spectrum_energy_out']:.3f}, "
        f"effective rank {row['spectrum_rank_in']:.1f} to {row['spectrum_rank_out']:.1f}"
        for name, row in hams.iterrows()
    )
    holds = (hams["spectrum_energy_out"] > hams["spectrum_energy_in"]).all()
    claim = f"Hamburger concentrates the energy: the first {TRUE} singular values hold more of it after the block"
    return claim, text, holds


def ordered(alike: pd.DataFrame) -> Iterator[Claim]:
    change = alike["spectrum_rank_out"] / alike["spectrum_rank_in"]
    same = (change - 1).abs() < SAME
    for claim, chosen in (
        ("Others lower the effective rank, too (output over input)", change < 1 - SAME),
        ("Others raise it", change > 1 + SAME),
        ("Others are the identity at first and leave it", same),
    ):
        names = change[chosen & ~change.index.isin(HAMS)].sort_values()
        text = ", ".join(f"{name} {value:.2f}" for name, value in names.items())
        yield claim, text or "none", f"{len(names)} modules"


def recovery(alike: pd.DataFrame) -> Claim:
    gains = alike["spectrum_gain"].dropna().astype(float)
    text = ", ".join(f"{name} {value:.2f} dB" for name, value in gains.items())
    claim = f"The untrained ham recovers the clean signal: its gain at rank {TRUE} is above 0 dB"
    return claim, text, (gains > 0).all()


def best(frame: pd.DataFrame) -> Claim:
    texts = []
    for name, rows in frame[frame["module"].isin(HAMS)].groupby("module", sort=False):
        above = rows.loc[rows["spectrum_gain"] > rows["spectrum_gain_best"], "hparams.rank"]
        texts.append(f"{name}: at ranks {', '.join(f'{rank:g}' for rank in sorted(above)) or 'none'}")
    return "A ham denoises better than the truncated SVD of its rank", "; ".join(texts), "for these ranks"


def forgiving(frame: pd.DataFrame) -> Claim:
    texts, holds = [], True
    for name, rows in frame[frame["module"].isin(HAMS)].groupby("module", sort=False):
        gains = rows.set_index("hparams.rank")[["spectrum_gain", "spectrum_gain_best"]].astype(float)
        lost = gains.loc[TRUE] - gains.loc[gains.index.max()]
        texts.append(f"{name}: {lost['spectrum_gain']:.2f} dB lost, SVD {lost['spectrum_gain_best']:.2f}")
        holds &= bool(lost["spectrum_gain"] < 1)
    claim = "A rank far above that of the signal does little harm (the largest rank against the true one, below 1 dB)"
    return claim, "; ".join(texts), "yes" if holds else "not for all"
