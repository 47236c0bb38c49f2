"""What a run of the suite `precision` says of the dtypes."""

from collections.abc import Iterator

import pandas as pd

Claim = tuple[str, str, str | bool]


def claims(frame: pd.DataFrame) -> Iterator[Claim]:
    """Claim, what was measured, whether it holds."""
    yield rounding(frame)
    yield bits(frame)
    yield from sensitive(frame)
    yield memory(frame)
    yield from speed(frame)
    yield failures(frame)


def by_dtype(frame: pd.DataFrame, column: str) -> pd.DataFrame:
    """A row a module, a column a dtype."""
    return frame.pivot(index="module", columns="dtype", values=column).astype(float)


def spread(ratios: "pd.Series[float]") -> str:
    """Median and range."""
    known = ratios.dropna()
    least, most = known.idxmin(), known.idxmax()
    return f"median {known.median():.2f}, from {known.min():.2f} ({least}) to {known.max():.2f} ({most})"


def rounding(frame: pd.DataFrame) -> Claim:
    errors = by_dtype(frame, "error_infer")["float32"].dropna()
    text = f"{(errors < 1e-5).sum()} of {len(errors)} modules; largest {errors.max():.1e} ({errors.idxmax()})"
    return "The output in float32 is within 1e-5 of float64", text, "yes" if (errors < 1e-5).all() else "not for all"


def bits(frame: pd.DataFrame) -> Claim:
    errors = by_dtype(frame, "error_infer")
    ratios = errors["bfloat16"] / errors["float16"]
    claim = "bfloat16 has three bits less than float16, so its output's error is 8 times as large"
    return claim, spread(ratios), 6 < ratios.median() < 10


def sensitive(frame: pd.DataFrame) -> Iterator[Claim]:
    for mode, what in (("infer", "output"), ("train", "gradient")):
        errors = by_dtype(frame, f"error_{mode}")["bfloat16"].dropna().sort_values(ascending=False)
        text = f"{(errors < 0.01).sum()} of {len(errors)} modules; largest: " + ", ".join(
            f"{module} {value:.2g}" for module, value in errors.head(4).items()
        )
        claim = f"The {what} in bfloat16 is within 1 % of float64"
        yield claim, text, "yes" if (errors < 0.01).all() else "not for all"


def memory(frame: pd.DataFrame) -> Claim:
    bytes_ = by_dtype(frame, "memory_train_predicted_bytes")
    ratios = bytes_["bfloat16"] / bytes_["float32"]
    claim = "bfloat16 halves the memory of training (ratio to float32, predicted for CUDA)"
    return claim, spread(ratios), "yes" if ratios.max() < 0.55 else "not for all"


def speed(frame: pd.DataFrame) -> Iterator[Claim]:
    times = by_dtype(frame, "latency_train_ms")
    for dtype in ("bfloat16", "float16", "autocast-bfloat16"):
        claim = f"{dtype} is faster than float32 on this device (speed-up of training)"
        ratios = (times["float32"] / times[dtype]).dropna()
        if ratios.empty:
            yield claim, "no times in this run", "not measured"
        else:
            yield claim, spread(ratios), f"for {(ratios > 1).sum()} of {len(ratios)} modules"


def failures(frame: pd.DataFrame) -> Claim:
    failed = frame[frame["status"] != "ok"]
    text = "; ".join(f"{row['module']} in {row['dtype']}: {row['message']}" for row in failed.to_dict("records"))
    return "Every module runs in every dtype with finite output and gradients", text or "all rows", not text
