"""What a run of the suite `initialisation` says of Appendix F of Geng et al., ICLR 2021."""

from collections.abc import Iterator

import pandas as pd

HAMS = ("ham_nmf", "ham_cd", "ham_vq")
Claim = tuple[str, str, str | bool]


def claims(frame: pd.DataFrame) -> Iterator[Claim]:
    """Claim, what was measured, whether it holds."""
    last = frame[frame["hparams.steps"] == frame["hparams.steps"].max()]
    memory = last.pivot(index="hparams.init", columns="module", values="memory_train_predicted_bytes") / 2**20
    texts = [f"{m}: {memory[m]['random']:.2f} MiB random, {memory[m]['learned']:.2f} MiB learned" for m in HAMS]
    more = all(memory[m]["learned"] > memory[m]["random"] for m in HAMS)
    yield "Learned bases need BPTT, and so its memory (K = 6)", "; ".join(texts), more
    errors = last.pivot(index="hparams.init", columns="module", values="reconstruction_error")
    texts = [f"{m}: {errors[m]['online']:.4f} online, {errors[m]['random']:.4f} random" for m in HAMS]
    better = [m for m in HAMS if errors[m]["online"] < errors[m]["random"]]
    verdict = "yes" if len(better) == len(HAMS) else f"for {', '.join(better)} only" if better else "no"
    claim = "The warm start helps: bases that are updated online reconstruct better than random ones (K = 6)"
    yield claim, "; ".join(texts), verdict
    spread = last.pivot(index="hparams.init", columns="module", values="reconstruction_spread")
    texts = [
        f"{m}: {spread[m].idxmax()} {spread[m].max():.4f}, {spread[m].idxmin()} {spread[m].min():.4f}" for m in HAMS
    ]
    yield "Largest and smallest spread of the error over seeds (K = 6)", "; ".join(texts), "no claim"
