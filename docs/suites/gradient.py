"""What a run of the suite `gradient` says of section 2.3 of Geng et al., ICLR 2021."""

import json
from collections.abc import Iterator

import pandas as pd

from ctxbench.statistics import fit_line

HAMS = ("ham_nmf", "ham_cd", "ham_vq")
Claim = tuple[str, str, str | bool]


def claims(frame: pd.DataFrame) -> Iterator[Claim]:
    """Claim, what was measured, whether it holds."""
    large = frame[frame["height"] == frame["height"].max()]
    small = frame[frame["height"] == frame["height"].min()]
    yield memory(large)
    yield time(large)
    yield direction(large)
    yield parameters(large)
    yield vanishing(small)
    yield explosion(small)
    yield contraction(small)


def rows(frame: pd.DataFrame, module: str, gradient: str) -> pd.DataFrame:
    chosen = frame[(frame["module"] == module) & (frame["hparams.gradient"] == gradient)]
    return chosen.sort_values("hparams.steps")


def slope(found: pd.DataFrame, column: str) -> tuple[float, float, float]:
    line = fit_line(found["hparams.steps"], found[column].astype(float))
    return line.slope, line.low, line.high


def memory(frame: pd.DataFrame) -> Claim:
    texts, holds = [], True
    for module in HAMS:
        one, bptt = (rows(frame, module, gradient) for gradient in ("one_step", "bptt"))
        value, low, _ = slope(bptt, "memory_train_predicted_bytes")
        known = one["memory_train_predicted_bytes"]
        span = (known.max() - known.min()) / 1024
        texts.append(f"{module}: one step moves by {span:.0f} KiB over all K, all steps +{value / 1024:.0f} KiB a step")
        holds &= span == 0 and low > 0
    claim = "Training memory is constant in K with one step and linear with all steps (O(1) against O(K))"
    return claim, "; ".join(texts), holds


def time(frame: pd.DataFrame) -> Claim:
    claim = "So is the time of the backward pass (training less inference)"
    if frame["latency_train_ms"].isna().all():
        return claim, "no times in this run", "not measured"
    texts, holds = [], True
    for module in HAMS:
        found = {}
        for gradient in ("one_step", "bptt"):
            chosen = rows(frame, module, gradient)
            backward = chosen.assign(backward=chosen["latency_train_ms"] - chosen["latency_infer_ms"])
            found[gradient] = slope(backward, "backward")
        text = ", ".join(f"{name} {value:.3f} [{low:.3f}, {high:.3f}]" for name, (value, low, high) in found.items())
        texts.append(f"{module}: {text} ms a step")
        holds &= found["one_step"][1] <= 0.1 * found["bptt"][0] and found["bptt"][1] > 0
    return claim, "; ".join(texts), holds


def direction(frame: pd.DataFrame) -> Claim:
    texts, least = [], 1.0
    for module in HAMS:
        cosines = rows(frame, module, "one_step")["gradient_cosine_input"]
        texts.append(f"{module}: cosine at the input {cosines.min():.2f} to {cosines.max():.2f}")
        least = min(least, cosines.min())
    claim = "The one-step gradient's direction is approximately right"
    return claim, "; ".join(texts), "yes" if least > 0.9 else "in part: descent, not close" if least > 0 else "no"


def parameters(frame: pd.DataFrame) -> Claim:
    chosen = frame[(frame["hparams.steps"] == 6) & (frame["hparams.gradient"] == "one_step")]
    texts = []
    for row in chosen.to_dict("records"):
        found = json.loads(row["gradient_by_parameter"])
        pairs = ", ".join(f"{name} {cosine:.2f} ({ratio:.2f})" for name, (cosine, ratio) in found.items())
        texts.append(f"{row['module']}: {pairs}")
    claim = "Parameter by parameter, K = 6: cosine (ratio of lengths)"
    return claim, "; ".join(texts), "no claim"


def vanishing(frame: pd.DataFrame) -> Claim:
    texts, holding = [], []
    for module in HAMS:
        norms = rows(frame, module, "bptt")["jacobian_bases"]
        texts.append(f"{module}: {norms.iloc[0]:.3g} at K = 1, {norms.iloc[-1]:.3g} at K = 12")
        holding += [module] if norms.iloc[-1] < 0.1 * norms.iloc[0] else []
    claim = "Proposition 3: the gradient at the initial bases, dY/dM0, vanishes as K grows"
    verdict = "yes" if len(holding) == len(HAMS) else f"for {', '.join(holding)} only" if holding else "no"
    return claim, "; ".join(texts), verdict


def explosion(frame: pd.DataFrame) -> Claim:
    texts, holds = [], True
    for module in HAMS:
        one, bptt = (rows(frame, module, gradient)["jacobian_x"] for gradient in ("one_step", "bptt"))
        ratios = bptt.to_numpy() / one.to_numpy()
        texts.append(f"{module}: {ratios.min():.1f} to {ratios.max():.1f} times as large, {ratios[-1]:.1f} at K = 12")
        holds &= bool(ratios.min() > 1)
    claim = "All steps make the Jacobian at the input, dY/dX, larger than one step does"
    return claim, "; ".join(texts), holds


def contraction(frame: pd.DataFrame) -> Claim:
    texts, holds = [], True
    for module in ("ham_cd", "ham_vq"):
        found = rows(frame, module, "bptt")
        norms, radii = found["step_norm"], found["step_radius"]
        texts.append(
            f"{module}: norm {norms.iloc[0]:.3g} at K = 1, {norms.iloc[-1]:.3g} at K = 12; spectral radius "
            f"{radii.iloc[0]:.3g}, {radii.iloc[-1]:.3g}"
        )
        holds &= bool(norms.max() < 1)
    claim = "The assumption of the three propositions: a step is a contraction (L_h < 1) wherever it is taken"
    return claim, "; ".join(texts), holds
