"""What a run of the suite `steps` says of the iterations of Geng et al., ICLR 2021."""

from collections.abc import Iterator

import pandas as pd

from ctxbench.statistics import fit_line

HAMS = ("ham_nmf", "ham_cd", "ham_vq")
Claim = tuple[str, str, str | bool]


def claims(frame: pd.DataFrame) -> Iterator[Claim]:
    """Claim, what was measured, whether it holds."""
    frame = frame.sort_values("hparams.steps")
    yield time(frame)
    errors = {m: frame[frame["module"] == m].set_index("hparams.steps")["reconstruction_error"] for m in HAMS}
    changes = {m: abs(each[24] - each[6]) / each[6] for m, each in errors.items()}
    text = "; ".join(f"{m}: {e[6]:.3f} at K = 6, {e[24]:.3f} at K = 24 ({changes[m]:.1%})" for m, e in errors.items())
    settled = [m for m in HAMS if changes[m] < 0.02]
    verdict = "yes" if len(settled) == len(HAMS) else f"for {', '.join(settled)} only" if settled else "no"
    yield "3 to 6 steps are enough: the reconstruction changes by less than 2 % after K = 6", text, verdict
    vq = errors["ham_vq"]
    change = abs(vq[1] - vq[6]) / vq[6]
    text = f"ham_vq: {vq[1]:.3f} at K = 1, {vq[6]:.3f} at K = 6 ({change:.1%})"
    yield "K = 1 is acceptable for VQ: its reconstruction is within 2 % of that of K = 6", text, change < 0.02
    rising = [m for m in HAMS if errors[m].diff().max() > 0]
    text = f"the error rises between some K for {', '.join(rising) or 'none'}"
    yield "More steps lower the reconstruction error", text, not rising


def time(frame: pd.DataFrame) -> Claim:
    claim = "The time of a pass grows with K (slope of a straight line)"
    if frame["latency_infer_ms"].isna().all():
        return claim, "no times in this run", "not measured"
    texts, holds = [], True
    for module in HAMS:
        rows = frame[frame["module"] == module]
        line = fit_line(rows["hparams.steps"], rows["latency_infer_ms"])
        texts.append(f"{module}: {line.slope:.3f} [{line.low:.3f}, {line.high:.3f}] ms a step")
        holds &= line.low > 0
    return claim, "; ".join(texts), holds
