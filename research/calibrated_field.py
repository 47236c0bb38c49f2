"""Calibrates this processor, measures blocks of the suite `field` on it, and writes both beside each other.

Half of the blocks are of half A, which the kernels of `calibrate` were chosen on. Of half B (prediction_splits.toml)
the times of `se` and `ham_nmf` were looked at then, and no others. Writes results/prediction/calibrated-xeon.csv, from
which `make report` writes predict.md. It takes six minutes, with nothing else at work; a machine that is not idle is
refused, and nothing is written.
Run: python research/calibrated_field.py
"""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
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

TARGET = Path(__file__).resolve().parents[1] / "results" / "prediction" / "calibrated-xeon.csv"
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


def main() -> None:
    evidence = stamp()
    with TemporaryDirectory() as folder:
        device, run = Path(folder) / "cpu.toml", Path(folder) / "run"
        command = [sys.executable, "-m", "ctxbench"]
        subprocess.run([*command, "calibrate", "--device", "cpu", "--threads", "1", "--out", device], check=True)
        subprocess.run([*command, "run", "--suite", "field", "--modules", ",".join(BLOCKS), "--out", run], check=True)
        calibrated = sheet(str(device))
        frame = pd.DataFrame(beside_each_other(run, calibrated)).assign(
            processor=calibrated.title.replace("(R)", ""), **evidence
        )
    frame.to_csv(TARGET, index=False, lineterminator="\n")
    near = (frame["predicted_ms"].astype(float) / frame["measured_ms"].astype(float) - 1).abs()
    print(f"{len(frame)} times, median error {near.median():.0%}; wrote {TARGET}")


if __name__ == "__main__":
    main()
