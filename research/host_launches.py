"""Host time of an operator, and of a parameter's gradient, in a training step, from blocks on an H200.

The steps in bfloat16 that take about as long at both sizes of results/gpu-h200/times.csv: the host decides these. Their
times are fitted by the number of operators and of parameters, with relative errors.
Run: python research/host_launches.py
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from ctxbench import registry
from ctxbench.model.case import Case
from ctxbench.plugins.predict.operators import operators_of

TIMES = Path(__file__).resolve().parents[1] / "results" / "gpu-h200" / "times.csv"
# A step whose times at the two sizes are within these ratios is launch-bound.
ALIKE = (0.7, 1.35)
SIZE = (16, 256, 32, 32)


def launch_bound(dtype: str) -> Iterator[tuple[int, int, float]]:
    """Of each launch-bound training step: operators, parameters, microseconds."""
    times = pd.read_csv(TIMES)
    own = times[(times["mode"] == "train") & (times["dtype"] == dtype)]
    both = own.pivot(index="module", columns="shape", values="ms").dropna()
    for row in both[both.iloc[:, 0].div(both.iloc[:, 1]).between(*ALIKE)].itertuples():
        module, image = Case(row.Index, registry.get(row.Index).reference, {}, SIZE).on_meta()
        launched = [each for each in operators_of(module, image, mode="train") if each.works]
        yield len(launched), len([*module.parameters()]), 1e3 * min(row[1:])


def fitted(steps: list[tuple[int, int, float]]) -> tuple[float, float]:
    """Microseconds of an operator and of the gradient of a parameter."""
    counts, us = np.array([step[:2] for step in steps], float), np.array([step[2] for step in steps])
    operator, gradient = np.linalg.lstsq(counts / us[:, None], np.ones(len(us)), rcond=None)[0]
    return float(operator), float(gradient)


def main() -> None:
    steps = list(launch_bound("bfloat16"))
    operator, gradient = fitted(steps)
    print(f"{len(steps)} steps: {operator:.1f} us an operator, {gradient:.0f} us a gradient, {gradient / operator:.1f}")


if __name__ == "__main__":
    main()
