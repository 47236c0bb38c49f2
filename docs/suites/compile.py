"""What a run of the suite `compile` says of torch.compile."""

from collections.abc import Iterator

import pandas as pd

Claim = tuple[str, str, str | bool]
# How many times as large as the eager one's a compiled module's error may be: the order of sums differs.
ROUNDING = 10
# Relative: a smaller change of a time is none, since there is one process and no interval.
SAME = 0.1
RESULTS = {"infer": "output", "train": "gradient"}


def claims(frame: pd.DataFrame) -> Iterator[Claim]:
    """Claim, what was measured, whether it holds."""
    yield runs(frame)
    for mode in ("train", "infer"):
        yield faster(frame, mode)
    for mode in RESULTS:
        yield exact(frame, mode)
    yield repays(frame)


def by_execution(frame: pd.DataFrame, column: str) -> pd.DataFrame:
    """A row a module that has both numbers, a column an execution."""
    return frame.pivot(index="module", columns="execution", values=column).astype(float).dropna()


def runs(frame: pd.DataFrame) -> Claim:
    compiled = frame[frame["execution"] == "compile"]
    failed = compiled[compiled["status"] != "ok"]
    text = "; ".join(f"{row['module']}: {row['message']}" for row in failed.to_dict("records"))
    text = text or f"all {len(compiled)} modules"
    return "Every module compiles", text, not len(failed)


def faster(frame: pd.DataFrame, mode: str) -> Claim:
    times = by_execution(frame, f"latency_{mode}_ms")
    claim = f"A compiled module is faster than an eager one ({mode}, speed-up)"
    if times.empty:
        return claim, "no times in this run", "not measured"
    gains = (times["eager"] / times["compile"]).sort_values(ascending=False)
    text = f"median {gains.median():.2f}; " + ", ".join(f"{name} {value:.2f}" for name, value in gains.items())
    faster, slower = (gains > 1 + SAME).sum(), (gains < 1 - SAME).sum()
    return claim, text, f"by over {SAME:.0%} for {faster} of {len(gains)}; {slower} are slower by over {SAME:.0%}"


def exact(frame: pd.DataFrame, mode: str) -> Claim:
    errors = by_execution(frame, f"error_{mode}")
    ratios = (errors["compile"] / errors["eager"]).sort_values(ascending=False)
    largest = (f"{name} {value:,.1f} (error {errors['compile'][name]:.1e})" for name, value in ratios.head(3).items())
    text = f"ratio of the errors: median {ratios.median():.2f}; largest: {', '.join(largest)}"
    claim = (
        f"Compiling keeps the {RESULTS[mode]}: its error against float64 is at most {ROUNDING} times the eager one's"
    )
    wrong = ratios.index[ratios > ROUNDING]
    return claim, text, f"not for {', '.join(wrong)}" if len(wrong) else "yes"


def repays(frame: pd.DataFrame) -> Claim:
    compiled = frame[(frame["execution"] == "compile") & (frame["status"] == "ok")].set_index("module")
    times, seconds = by_execution(frame, "latency_train_ms"), compiled["compile_train_s"].astype(float)
    passes = (1000 * seconds / (times["eager"] - times["compile"])).dropna()
    passes = passes[passes > 0].sort_values()
    text = ", ".join(f"{name} {value:,.0f}" for name, value in passes.items())
    return "Training passes after which compiling them has paid off, where it does", text or "none", "no claim"
