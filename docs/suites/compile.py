"""What a run of the suite `compile` says of torch.compile."""

from collections.abc import Iterator

import pandas as pd

Claim = tuple[str, str, str | bool]
# By how often the error of a compiled module may be that of the eager one: the order of sums differs.
ROUNDING = 10


def claims(frame: pd.DataFrame) -> Iterator[Claim]:
    """Claim, what was measured, whether it holds."""
    yield runs(frame)
    for mode in ("train", "infer"):
        yield faster(frame, mode)
    yield exact(frame)
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
    return claim, text, f"for {(gains > 1).sum()} of {len(gains)} modules"


def exact(frame: pd.DataFrame) -> Claim:
    errors = by_execution(frame, "error_infer")
    ratios = (errors["compile"] / errors["eager"]).sort_values(ascending=False)
    text = f"median {ratios.median():.2f}, largest {ratios.max():.2f} ({ratios.index[0]})"
    claim = (
        f"Compiling has no numeric price: the error against float64 is at most {ROUNDING} times that of eager execution"
    )
    return claim, text, "yes" if (ratios <= ROUNDING).all() else "not for all"


def repays(frame: pd.DataFrame) -> Claim:
    compiled = frame[(frame["execution"] == "compile") & (frame["status"] == "ok")].set_index("module")
    times, seconds = by_execution(frame, "latency_train_ms"), compiled["compile_train_s"].astype(float)
    passes = (1000 * seconds / (times["eager"] - times["compile"])).dropna()
    passes = passes[passes > 0].sort_values()
    text = ", ".join(f"{name} {value:,.0f}" for name, value in passes.items())
    return "Training passes after which compiling them has paid off, where it does", text or "none", "no claim"
