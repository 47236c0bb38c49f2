"""What a run of the suite `attention_approximation` says of Li et al., 2020 and of Han et al., ICCV 2023."""

from collections.abc import Iterator

import pandas as pd

Claim = tuple[str, str, str | bool]


def claims(frame: pd.DataFrame) -> Iterator[Claim]:
    """Claim, what was measured, whether it holds."""
    frame = frame.assign(n=frame["height"] * frame["width"])
    linear = frame[frame["module"] == "linear"].sort_values("hparams.reduction")
    focused = frame[frame["module"] == "focused_linear"]
    yield first_order(linear)
    yield low_rank(linear, focused)
    for heads, rows in focused.groupby("hparams.heads"):
        yield sharper(rows.sort_values("hparams.focus"), int(heads))
    yield nearer(focused)
    yield restored(focused)
    yield cost(frame, linear, focused)


def first_order(linear: pd.DataFrame) -> Claim:
    errors = linear.set_index("hparams.reduction")["attention_error"]
    text = ", ".join(f"{value:.3f} at reduction {reduction:g}" for reduction, value in errors.items())
    claim = "Linear attention is softmax over unit queries and keys to first order: the error is below 0.1"
    return claim, text, (errors < 0.1).all()


def low_rank(linear: pd.DataFrame, focused: pd.DataFrame) -> Claim:
    widths = (linear["channels"] // linear["hparams.reduction"] + 1).clip(upper=linear["n"])
    heads = (focused["channels"] // focused["hparams.heads"]).clip(upper=focused["n"])
    exact = (linear["attention_rank"] == widths).all() and (focused["attention_rank"] == heads).all()
    text = f"linear {ranks(linear)}; focused {ranks(focused)}; n = {focused['n'].max():g}"
    claim = "The rank of a linear attention is the width of its queries (one more for linear), or n where that is less"
    return claim, text, exact


def ranks(rows: pd.DataFrame) -> str:
    return ", ".join(f"{rank:g}" for rank in sorted(rows["attention_rank"].unique()))


def sharper(rows: pd.DataFrame, heads: int) -> Claim:
    entropies = rows["attention_entropy"]
    text = ", ".join(f"{value:.3f} (p = {p:g})" for p, value in zip(rows["hparams.focus"], entropies, strict=True))
    claim = f"The focus p sharpens the weights: the entropy of the rows falls with p ({heads} heads)"
    return claim, text, (entropies.diff().dropna() < 0).all()


def nearer(focused: pd.DataFrame) -> Claim:
    best = focused.loc[focused.groupby("hparams.heads")["attention_error"].idxmin()]
    text = "; ".join(
        f"{row['hparams.heads']:g} heads: least error {row['attention_error']:.2f} at p = {row['hparams.focus']:g}, "
        f"entropy of softmax {row['attention_entropy_softmax']:.3f}"
        for _, row in best.iterrows()
    )
    claim = "The focus brings the untrained weights nearer to softmax's (p = 3 is the paper's)"
    return claim, text, "yes" if (best["hparams.focus"] > 1).all() else "no"


def restored(focused: pd.DataFrame) -> Claim:
    least = focused["attention_rank_convolution"].min()
    text = f"rank {ranks(focused)} without, at least {least:g} of {focused['n'].max():g} with it"
    claim = "The depthwise convolution restores the rank of the equivalent matrix"
    return claim, text, "yes" if (focused["attention_rank_convolution"] == focused["n"]).all() else "not to full rank"


def cost(frame: pd.DataFrame, linear: pd.DataFrame, focused: pd.DataFrame) -> Claim:
    sa = frame[frame["module"] == "sa"]["macs"]
    text = "; ".join(
        f"{name} {(rows['macs'] / sa.iloc[0]).min():.2f} to {(rows['macs'] / sa.iloc[0]).max():.2f}"
        for name, rows in (("linear", linear), ("focused_linear", focused))
    )
    claim = "MACs relative to self-attention at this n"
    return claim, text, "no claim"
