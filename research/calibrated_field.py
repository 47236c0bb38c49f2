"""Calibrates this processor, measures blocks of the suite `field` on it, and writes both beside each other.

Earlier times of all these blocks were looked at when the kernels of `calibrate` were chosen. Writes the rows of this
processor in results/prediction/calibrated-cpus.csv, from which `make report` writes predict.md. It takes five minutes,
with nothing else at work; a machine that is not idle is refused, and so is one on which the kernels take another time
after the blocks than before. Nothing is written then.
Run: python research/calibrated_field.py
"""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import pandas as pd
from fit_hopper import in_half_a
from stamp import stamp

from ctxbench.base.mode import MODES
from ctxbench.model.case import Case
from ctxbench.model.conditions import SHAPE, parse_shape
from ctxbench.plugins.predict.operators import operators_of
from ctxbench.plugins.predict.passes import time_of
from ctxbench.plugins.predict.sheet import DeviceSpec, sheet
from ctxbench.report.run_data import open_run

TARGET = Path(__file__).resolve().parents[1] / "results" / "prediction" / "calibrated-cpus.csv"
COMMAND = (sys.executable, "-m", "ctxbench")
# The largest change of speed with which a trial counts, set before the first trial that asked for it.
MOST_CHANGE = 1.1
BLOCKS = (
    "linear",
    "dwconv",
    "swin",
    "gc",
    "external",
    "lka",
    "se",
    "ham_nmf",
    "coord",
    "msca",
    "gated_cnn",
    "lite_mla",
)


def beside_each_other(run: Path, calibrated: DeviceSpec) -> Iterator[dict[str, object]]:
    """Each measured time of a run and what is predicted for the processor, milliseconds."""
    for row in open_run(run).rows:
        shape = parse_shape([int(row[name]) for name in SHAPE.columns])
        model, x = Case(row["module"], row["reference"], {}, shape).on_meta()
        for mode in MODES:
            time = time_of(operators_of(model, x, mode=mode, device="cpu"), calibrated).time
            ends = {"measured": float(row[f"latency_{mode}_ms"]), "predicted": time.value, "low": time.low}
            yield {
                **{"module": row["module"], "half": "A" if in_half_a(row["module"]) else "B"},
                **dict(zip(("channels", "height", "width"), shape[1:], strict=True)),
                "mode": mode,
                **{f"{name}_ms": f"{ms:.5g}" for name, ms in {**ends, "high": time.high}.items()},
                "unknown": time.unknown,
            }


def calibrate(out: Path) -> DeviceSpec:
    subprocess.run([*COMMAND, "calibrate", "--device", "cpu", "--threads", "1", "--out", out], check=True)
    return sheet(str(out))


def main() -> None:
    evidence = stamp()
    with TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        calibrated = calibrate(Path(folder) / "before.toml")
        subprocess.run([*COMMAND, "run", "--suite", "field", "--modules", ",".join(BLOCKS), "--out", run], check=True)
        after = calibrate(Path(folder) / "after.toml").kernels_ms
        change = median(after[name] / ms for name, ms in calibrated.kernels_ms.items() if name in after)
        print(f"after the blocks the kernels took {change:.2f} times as long as before, in the median")
        if not 1 / MOST_CHANGE < change < MOST_CHANGE:
            sys.exit(f"The machine's speed changed by more than {MOST_CHANGE} times meanwhile, so nothing was written.")
        frame = pd.DataFrame(beside_each_other(run, calibrated)).assign(
            processor=calibrated.title.replace("(R)", ""), **evidence
        )
    every = pd.read_csv(TARGET)
    others = every[every["processor"] != frame["processor"].iloc[0]]
    pd.concat([others, frame]).to_csv(TARGET, index=False, lineterminator="\n")
    near = (frame["predicted_ms"].astype(float) / frame["measured_ms"].astype(float) - 1).abs()
    print(f"{len(frame)} times, median error {near.median():.0%}; wrote {TARGET}")


if __name__ == "__main__":
    main()
