"""What the README says in numbers, and which module to take: all of it made from the committed runs."""

import json
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import cache

import pandas as pd
from lists import ROOT, built_in, markdown, peaks

from ctxbench.metrics import quantity
from ctxbench.metrics.base import RecordRow
from ctxbench.metrics.recall import KINDS, accuracy_of, first_of
from ctxbench.mode import MODES
from ctxbench.number import fixed, significant
from ctxbench.report.published import decimals_of, unit_of, with_published
from ctxbench.report.run_data import RunData, open_run
from ctxbench.report.tables.cells import amount
from ctxbench.report.tables.crossover import crossover_table
from ctxbench.report.tables.network import network_tables
from ctxbench.results.rows import rows_of

sys.path.insert(0, str(ROOT / "benchmarks"))

from gate_on_this_machine import verdicts
from scipy.stats import spearmanr

# The accuracies of recall, a column each.
PERCENT = dict.fromkeys((f"{kind}, %" for kind in KINDS), "measured")
# Of a list of the cheapest, so many are named.
MOST_NAMED = 5


def facts() -> str:
    """Three reasons to use it, with a number each."""
    run = _run("table3-cpu")
    params, memory = _equal(run, ("params",)), _equal(run, _memory(run))
    years = [entry.year for entry in built_in() if entry.year]
    gates = [json.loads(path.read_text()) for path in sorted((ROOT / "results" / "gate-cpu").glob("[iu]n*ed-*.json"))]
    plain, slowed = verdicts(gates, slowed=False), verdicts(gates, slowed=True)
    return "\n".join(
        [
            f"- **Right without a GPU**: {sum(memory)} of the {len(memory)} GPU-memory figures that the Hamburger "
            f"paper prints, to the MiB, and {sum(params)} of {len(params)} parameter counts; the other memory figure "
            "cannot be right ([why](docs/table3.md)).",
            f"- **{len(built_in())} blocks** from {min(years)} to {max(years)} ([list](docs/modules.md)), and yours "
            "beside them with one command.",
            f'- **A gate for CI** that can say "I don\'t know": {plain.count("regressed")} false alarms in '
            f"{len(plain)} verdicts on unchanged code, {slowed.count('regressed')} of {len(slowed)} "
            f"slowdowns by 10 % found "
            "([how often it is wrong](docs/gate-error-rates.md)).",
        ]
    )


def table3_short() -> str:
    """Table 3 in six columns, and two lines of notes."""
    run = _run("table3-cpu")
    frame = with_published(run)
    memory = _memory(run)
    keys = ("params", "macs", *memory, "latency_infer")
    counts = dict.fromkeys(("Params (M)", "MACs (G)"), "counted")
    predicted = dict.fromkeys(("Memory, train (MiB)", "Memory, infer (MiB)"), "predicted")
    rows = []
    for row in rows_of(frame):
        cells = []
        for key in keys:
            each = quantity(key)
            equal = " ✓" if key in memory and _is_printed(run, frame, row, key) else ""
            cells.append(amount(row, each, each.unit) + equal)
        rows.append((f"`{row['module']}` {row['title']}", *cells))
    environment = run.environment
    return (
        f"{markdown({'module': 'label', **counts, **predicted, 'Time, infer (ms)': 'measured'}, rows)}\n\n"
        "Memory is predicted for CUDA under the PyTorch of 2020, without a device; ✓: equal to the paper's figure, to "
        "the MiB. Time: the median of "
        f"fresh processes [95 % interval] on {environment['cpu']}, {environment['torch_threads']} threads. "
        "[All columns, the paper's numbers and how to read them](docs/table3.md)."
    )


def _memory(run: RunData) -> list[str]:
    """The quantities that hold a run's memory under the PyTorch of 2020, which the paper's figures are of."""
    stated = set(run.frame["memory_predicted_for"]) == {"cuda-2020"}
    return [f"memory_{mode}" if stated else f"memory_{mode}_2020" for mode in reversed(MODES)]


def findings() -> str:
    """What was found, a line each, with the page that shows it."""
    compiled, precision, gradient = (_run(f"{name}-cpu").frame for name in ("compile", "precision", "gradient"))
    vq = compiled[(compiled["module"] == "ham_vq") & (compiled["execution"] == "compile")]["error_train"].iloc[0]
    bfloat = precision[precision["dtype"] == "bfloat16"]["error_train"].dropna()
    moved = int((bfloat > 0.01).sum())
    pairs = {row.cells[0].short or row.cells[0].text: row for row in crossover_table(_run("crossover-cpu")).rows}
    crossing = pairs["ham_nmf"].cells
    cosine = gradient[gradient["shape"] == "1x64x32x32"]["gradient_cosine_input"].dropna()
    cosine = cosine[cosine < 1 - 1e-9]
    return "\n".join(
        [
            f"- `torch.compile` gives a wrong gradient for `ham_vq` on the CPU: its error is {vq:.0f} times the "
            "gradient, "
            "and nothing fails ([compile](docs/suites/compile.md)).",
            f"- bfloat16 moves the gradients of {moved} of {len(bfloat)} blocks by more than 1 % "
            "([precision](docs/suites/precision.md)).",
            f"- Matrix decomposition (`ham_nmf`) is faster than fused attention from {crossing[-2].text} positions on "
            "in "
            f"training, and from {crossing[-1].text} in inference, on this CPU ([crossovers](docs/crossovers.md)).",
            "- The hams' one-step gradient costs constant memory, but is not the exact one: the cosine of the two is "
            f"{significant(cosine.min(), 2)} to {significant(cosine.max(), 2)} ([gradient](docs/suites/gradient.md)).",
            f"- In ONNX Runtime blocks run {_speed_up('onnxruntime'):.1f} times as fast as in PyTorch in the median, "
            f"and `spectral` {1 / _speed_up('onnxruntime', 'spectral'):.0f} times as slow "
            "([deploy](docs/suites/deploy.md)).",
            f"- Inside a dilated ResNet-50, `ham_nmf` adds {_added('ham_nmf'):.0f} MiB to the training memory, of the "
            f"{_added('ham_nmf', 'alone'):.0f} that it takes alone; `sa` adds {_added('sa'):.0f} of "
            f"{_added('sa', 'alone'):.0f} ([networks](docs/suites/networks.md)).",
            "- Two figures that the paper prints for dual attention cannot be right ([Table 3](docs/table3.md)).",
        ]
    )


def _speed_up(execution: str, module: str = "") -> float:
    """Eager time over that of an execution at the larger input of `deploy`: of a module, or the median."""
    frame = _run("deploy-cpu").frame
    times = frame[frame["height"] == frame["height"].max()].pivot(
        index="module", columns="execution", values="latency_infer_ms"
    )
    found = times["eager"] / times[execution]
    return float(found[module] if module else found.median())


def _added(module: str, what: str = "added") -> float:
    """MiB of training memory of a module in `resnet50_d8` at 512 x 512: added, or alone."""
    (table,) = [each for each in network_tables(_run("networks-cpu")) if "resnet50_d8 at [1, 3, 512" in each.title]
    return float(table.data.set_index("module").loc[module, f"memory_train_{what}"]) / 2**20


def choices() -> str:
    """Which module to take, by need."""
    field = _run("field-cpu").frame
    mixing = {entry.key for entry in built_in() if entry.position_mixing is not False and entry.family != "pooling"}
    rows = [
        (
            f"the least memory in {'training' if mode == 'train' else 'inference'} at 128 x 128, 512 channels",
            _least(pd.Series(peaks(mode)), mixing, "MiB"),
        )
        for mode in reversed(MODES)
    ]
    for shape in field["shape"].unique():
        part = field[field["shape"] == shape].set_index("module")
        size = f"{part['height'].iloc[0]} x {part['width'].iloc[0]}, {part['channels'].iloc[0]} channels"
        for mode, what in (("train", "training pass"), ("infer", "inference")):
            rows.append((f"the fastest {what} at {size}", _fastest(part, mode, mixing)))
    params = field.drop_duplicates("module").set_index("module")["params"] / 1e6
    rows.append(("the fewest parameters at 512 channels", _least(params[params.index.isin(mixing)], mixing, "M")))
    controls = ", ".join(f"`{entry.key}`" for entry in built_in() if entry.key not in mixing)
    rows.append(("no mixing of positions: the mean over the map is enough", controls))
    free = [entry.key for entry in built_in() if entry.public_code and "no licence" not in entry.public_code]
    rows.append(
        ("public code under a licence, where trained weights may be found", ", ".join(f"`{key}`" for key in free))
    )
    return markdown({"you need": "label", "take": "text"}, rows)


@cache
def _run(name: str) -> RunData:
    return open_run(ROOT / "results" / name)


def _equal(run: RunData, keys: Iterable[str]) -> list[bool]:
    """For each number that the paper prints: whether ours, rounded to its digits, is equal."""
    frame = with_published(run)
    return [
        _is_printed(run, frame, row, key) for key in keys for row in rows_of(frame[frame[f"{key}_published"].notna()])
    ]


def _is_printed(run: RunData, frame: pd.DataFrame, row: RecordRow, key: str) -> bool:
    printed = row[f"{key}_published"]
    if printed is None:
        return False
    each = quantity(key)
    return fixed(row[each.column] / unit_of(run, each, frame).factor, decimals_of(printed)) == printed


def _least(values: "pd.Series[float]", among: Iterable[str], unit: str) -> str:
    chosen = values[values.index.isin([*among])].sort_values().head(MOST_NAMED)
    return ", ".join(f"`{key}` {significant(value)}" for key, value in chosen.items()) + f" {unit}"


def _fastest(part: pd.DataFrame, mode: str, among: Iterable[str]) -> str:
    """The modules whose interval reaches that of the smallest median, the fastest first."""
    own = part[part.index.isin([*among])].sort_values(f"latency_{mode}_ms")
    tied = own[own[f"latency_{mode}_low_ms"] <= own[f"latency_{mode}_high_ms"].iloc[0]]
    each = quantity(f"latency_{mode}")
    return ", ".join(f"`{row['module']}` {amount(row, each, each.unit)}" for row in rows_of(tied.reset_index())) + " ms"


# mIoU in percent of whole networks with a ResNet-101, as Geng et al. (ICLR 2021, section 3.4) print them: PASCAL
# Context, PASCAL VOC.
PUBLISHED_MIOU = {
    "ppm": (47.8, 82.6),
    "da": (52.6, 82.6),
    "ema": (53.1, None),
    "dm": (54.4, 84.4),
    "apc": (54.7, 84.2),
    "acf": (54.0, 84.2),
    "ham_nmf": (55.2, 85.9),
}


def recall_cost() -> str:
    """Ability beside cost: accuracy on the three tasks, and what the block costs at a segmentation head."""
    memory = "memory_train_predicted_bytes"
    found = sorted((row for row in _recall() if row[memory] is not None), key=lambda row: -_mean(row))
    rows = []
    for row in found:
        ahead = any(
            _mean(other) > _mean(row)
            and other["latency_infer_ms"] < row["latency_infer_ms"]
            and other[memory] < row[memory]
            for other in found
        )
        costs = (amount(row, quantity("latency_infer"), quantity("latency_infer").unit), f"{row[memory] / 2**20:.0f}")
        rows.append((_name(row), *_accuracies(row), *costs, "" if ahead else "yes"))
    costs = {"inference, ms": "measured", "training, MiB": "predicted"}
    return markdown({"module": "label", **PERCENT, **costs, "front": "text"}, rows)


def recall_marks() -> str:
    """Accuracy in looking up, by the number of marks, and the learning rates that were chosen."""
    rows = rows_of(open_run(ROOT / "results" / "recall_marks-cpu").frame)
    found = [json.loads(row["recall_curve"]) for row in rows]
    cells = [
        (_name(row), *map(_interval, curve.values()), ", ".join(f"{each['rate']:g}" for each in curve.values()))
        for row, curve in zip(rows, found, strict=True)
    ]
    shares = dict.fromkeys((f"{name}, %" for name in found[0]), "measured")
    return markdown({"module": "label", **shares, "learning rates": "text"}, cells)


def recall_published() -> str:
    """Published mIoU of networks beside the recall of their module, and the rank correlation of both."""
    every = [row for row in _recall() if row["module"] in PUBLISHED_MIOU]
    found = {row["module"]: row for row in every if not row["changed"]}
    exact = found | {row["module"]: row for row in every if row["changed"]}
    rows = [
        (f"`{key}`", *(f"{each:g}" if each else "" for each in PUBLISHED_MIOU[key]), *_accuracies(row))
        for key, row in sorted(found.items(), key=lambda item: -(PUBLISHED_MIOU[item[0]][0] or 0))
    ]
    printed = dict.fromkeys(("PASCAL Context, mIoU", "PASCAL VOC, mIoU"), "published")
    table = markdown({"module": "label", **printed, **PERCENT}, rows)
    published = [PUBLISHED_MIOU[key][0] for key in found]

    def ranks(rows: Mapping[str, RecordRow]) -> str:
        values = {kind: [row[f"recall_{kind}"] for row in rows.values()] for kind in KINDS}
        return ", ".join(f"{kind} {spearmanr(published, own)[0]:+.2f}" for kind, own in values.items())

    return (
        f"{table}\n\nRank correlation with the mIoU on PASCAL Context, {len(found)} modules: {ranks(found)}; "
        f"with the gradient of Ham (NMF) through all steps: {ranks(exact)}."
    )


def _recall() -> list[RecordRow]:
    return [row for row in rows_of(open_run(ROOT / "results" / "recall-cpu").frame) if row["recall_curve"]]


def _mean(row: RecordRow) -> float:
    return sum(row[f"recall_{kind}"] for kind in KINDS) / len(KINDS)


def _name(row: RecordRow) -> str:
    return f"`{row['module']}`" + (f" ({row['settings']})" if row["changed"] else "")


def _accuracies(row: RecordRow) -> list[str]:
    """`94 [92, 96]` for each task."""
    return [_interval(first_of(kind, row["recall_curve"])) for kind in KINDS]


def _interval(found: Mapping[str, float]) -> str:
    return accuracy_of(found).text(decimals=0)


FINDINGS: dict[str, Callable[[], str]] = {
    "facts": facts,
    "table3-short": table3_short,
    "findings": findings,
    "choices": choices,
    "recall-cost": recall_cost,
    "recall-marks": recall_marks,
    "recall-published": recall_published,
}
