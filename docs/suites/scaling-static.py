"""What a run of the suite `scaling-static` says of the orders of cost in n = H x W, the batch and the channels."""

import json
import math
from collections.abc import Iterator

import pandas as pd

from ctxbench import registry
from ctxbench.statistics import Line, fit_line
from ctxbench.suite.case import Shape

Claim = tuple[str, str, str | bool]
# Large enough for the term of highest order to be the whole.
FAR = 2**20
# By how much an exponent at the sizes measured may miss the order, since terms of lower order are still there.
NEAR = 0.1
# In the order of a shape, how often the number of elements grows when a size doubles.
AXES = {"H x W": ((2, 3), 2), "batch": ((0,), 1), "channels": ((1,), 1)}


def claims(frame: pd.DataFrame) -> Iterator[Claim]:
    """Claim, what was measured, whether it holds."""
    large = frame[(frame["batch"] == 1) & (frame["channels"] == frame["channels"].min())]
    large = large.assign(size=large["height"] * large["width"])
    large = large[large["size"] >= large["size"].max() / 16]
    yield grows(large, "macs", "H x W")
    for column in ("memory_train_predicted_bytes", "memory_infer_predicted_bytes"):
        yield memory(large, column)
    small = frame[frame["height"] == frame["height"].min()]
    yield grows(small[small["channels"] == small["channels"].min()].assign(size=lambda f: f["batch"]), "macs", "batch")
    wide = small[small["batch"] == 1]
    wide = wide.assign(size=wide["channels"])
    yield grows(wide[wide["size"] >= wide["size"].max() / 4], "macs", "channels")


def order(row: "pd.Series[float]", axis: str) -> float:
    """The exponent of the module's closed form of MACs as a size becomes very large."""
    entry = registry.get(str(row["module"]))
    places, doublings = AXES[axis]
    shapes: list[Shape] = []
    for times in (FAR, 2 * FAR):
        shape = [int(row[name]) for name in ("batch", "channels", "height", "width")]
        shapes.append(tuple(size * times if at in places else size for at, size in enumerate(shape)))  # type: ignore[arg-type]  # four numbers
    less, more = (entry.closed_form("macs", shape, json.loads(str(row["hparams"]))) for shape in shapes)
    return math.log2(more / less) / doublings


def exponents(frame: pd.DataFrame, column: str) -> dict[str, Line]:
    """The exponent of a column over `size`, with its 95 % interval, by module."""
    found: dict[str, Line] = {}
    for module, rows in frame[frame[column] > 0].groupby("module"):
        if rows["size"].nunique() > 2:
            found[str(module)] = fit_line(rows["size"].map(math.log), rows[column].map(math.log))
    return found


def grouped(values: dict[str, float]) -> str:
    """Modules by exponent, rounded to one place: `2.0: da, sa; 1.0: ...`."""
    groups: dict[float, list[str]] = {}
    for module, value in values.items():
        groups.setdefault(round(value, 1), []).append(module)
    return "; ".join(f"{value}: {', '.join(groups[value])}" for value in sorted(groups, reverse=True))


def grows(frame: pd.DataFrame, column: str, axis: str) -> Claim:
    theory = {str(row["module"]): order(row, axis) for _, row in frame.drop_duplicates("module").iterrows()}
    found = exponents(frame, column)
    missed = [
        f"{module} {line.slope:.2f} [{line.low:.2f}, {line.high:.2f}] for {theory[module]:.2f}"
        for module, line in found.items()
        if abs(line.slope - theory[module]) > NEAR
    ]
    text = f"theory {grouped(theory)}. Further than {NEAR} from it: {', '.join(missed) or 'none'}"
    claim = f"MACs grow with {axis} in the order of the closed form ({len(found)} modules)"
    return claim, text, "yes" if not missed else f"for {len(found) - len(missed)} of {len(found)}"


def memory(frame: pd.DataFrame, column: str) -> Claim:
    mode = "training" if "train" in column else "inference"
    found = {module: line.slope for module, line in exponents(frame, column).items()}
    text = grouped(found)
    macs = {module: line.slope for module, line in exponents(frame, "macs").items()}
    less = [module for module, value in found.items() if value < macs[module] - 0.25]
    claim = f"Memory of {mode} grows with H x W as the MACs do"
    return claim, text, "yes" if not less else f"no: more slowly for {', '.join(less)}"
