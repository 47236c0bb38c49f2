"""Claims of the suite `precision` about the dtypes."""

from collections.abc import Mapping

import pandas as pd

from ctxbench_science.claims.findings import Claim, Finding, Missing, Outcome, Rows, decided, faster, for_each, tally

EXACT = 1e-5
NEAR = 0.01
# The largest ratio of memory that counts as a half.
HALF = 0.55
# bfloat16 has three bits less than float16: 8 times the error, within these bounds.
EIGHT = (6, 10)


def ratios(rows: Rows, column: str, above: str, below: str) -> Mapping[str, float]:
    """A number in one dtype over that in another, by module that has both. Missing if none has."""
    found = {}
    for module in rows.modules():
        try:
            first, second = (rows.number(column, module=module, dtype=dtype) for dtype in (above, below))
        except Missing:
            continue
        found[module] = first / second
    if not found:
        raise Missing(f"no module has {column} in {above} and {below}")
    return found


def error(rows: Rows, mode: str, dtype: str, limit: float) -> Finding:
    def is_near(module: str) -> Outcome:
        value = rows.number(f"error_{mode}", module=module, dtype=dtype)
        return value < limit, "" if value < limit else f"{value:.2g}"

    return tally(rows.modules(), is_near)


def bits(rows: Rows) -> Finding:
    found = pd.Series(ratios(rows, "error_infer", "bfloat16", "float16"))
    median = found.median()
    text = f"median {median:.2f} of {len(found)} modules, from {found.min():.2f} ({found.idxmin()}) to "
    return decided(EIGHT[0] < median < EIGHT[1], f"{text}{found.max():.2f} ({found.idxmax()})")


def memory(rows: Rows) -> Finding:
    def halves(module: str) -> Outcome:
        half, whole = (
            rows.number("memory_train_predicted_bytes", module=module, dtype=dtype) for dtype in ("bfloat16", "float32")
        )
        ratio = half / whole
        return ratio < HALF, "" if ratio < HALF else f"{ratio:.2f}"

    return tally(rows.modules(), halves)


def speed(rows: Rows, dtype: str) -> Finding:
    def gain(module: str) -> Outcome:
        return faster(*(rows.time("train", module=module, dtype=each) for each in (dtype, "float32")))

    return tally(rows.modules(), gain, ("faster", "slower"))


def finite(rows: Rows) -> Finding:
    def is_finite(dtype: str) -> Outcome:
        own = rows.of(dtype=dtype)
        if failed := own.failed():
            return False, "; ".join(f"{row['module']}: {row['message']}" for row in failed)
        for module in own.modules():
            own.number("error_train", module=module)
        return True, f"all {len(own.modules())} modules"

    return for_each(rows.split("dtype"), is_finite)


def faster_claim(dtype: str) -> Claim:
    return Claim(
        f"{dtype} trains faster than float32 on this device",
        "the 95 % intervals of the two, over three or more processes each, do not overlap; times as fast",
        lambda rows: speed(rows, dtype),
    )


CLAIMS = (
    Claim(
        "The output in float32 is as good as that in float64",
        f"its relative error is below {EXACT:g}",
        lambda rows: error(rows, "infer", "float32", EXACT),
    ),
    Claim(
        "The output's error in bfloat16, which has three bits less than float16, is 8 times as large",
        f"the median of the ratio over modules is between {EIGHT[0]} and {EIGHT[1]}",
        bits,
    ),
    Claim(
        "The output in bfloat16 is near that in float64",
        f"its relative error is below {100 * NEAR:g} %",
        lambda rows: error(rows, "infer", "bfloat16", NEAR),
    ),
    Claim(
        "The gradient in bfloat16 is near that in float64",
        f"its relative error is below {100 * NEAR:g} %",
        lambda rows: error(rows, "train", "bfloat16", NEAR),
    ),
    Claim(
        "bfloat16 halves the memory of training",
        f"the memory predicted for CUDA is below {HALF} of that of float32",
        memory,
    ),
    *map(faster_claim, ("bfloat16", "float16", "autocast-bfloat16")),
    Claim("Every module runs in every dtype with finite output and gradients", "no row of this run failed", finite),
)
