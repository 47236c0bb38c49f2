"""The generated tables of what runs found: Table 3 in short, which module to take, ability beside cost."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pandas as pd
from headlines import is_printed, recalled, row_name
from lists import POSITIONS, SHAPE, built_in, markdown, peaks, reaches, stored_run, table

from ctxbench.base.mode import MODES
from ctxbench.base.mode import NOUNS as MODE_NOUNS
from ctxbench.base.number import significant
from ctxbench.model.metric import RecordRow
from ctxbench.model.metrics import quantity
from ctxbench.plugins.networks.table import network_tables
from ctxbench.registry.reference import Reference
from ctxbench.report.published import numbers_with_published, with_published
from ctxbench.report.run_data import RunData
from ctxbench.report.tables.cells import amount
from ctxbench.results.rows import by_values
from ctxbench_science.recall.metric import SOLVED

# Of a list of the cheapest, so many are named, and those that cost the same as the last.
MOST_NAMED = 5
# An input this many times as large as a standard normal one, a training step should survive.
SURVIVED = 16
# Whole networks are compared at this input.
LARGE_IMAGE = "1x3x512x512"
# What a module adds to a network, in percent; below LITTLE it is little.
SHARES = ("macs_share", "memory_train_share")
LITTLE = 10


def table3_short() -> str:
    """The rows of the paper's Table 3 in six columns."""
    run = stored_run("table3-cpu")
    printed = [row for row in with_published(run) if row["params_published"] is not None]
    memory = _memory(run)
    keys = ("params", "macs", *memory, "latency_infer")
    counts = dict.fromkeys(("Params (M)", "MACs (G)"), "counted")
    predicted = dict.fromkeys(("Memory, train (MiB)", "Memory, infer (MiB)"), "predicted")
    rows = []
    for row in printed:
        cells = []
        for key in keys:
            each = quantity(key)
            equal = " ✓" if key in memory and is_printed(run, printed, row, key, key) else ""
            cells.append(amount(row, each, each.unit) + equal)
        rows.append((f"`{row['module']}` {row['title']}", *cells))
    return markdown({"module": "label", **counts, **predicted, "Time, infer (ms)": "measured"}, rows)


def _memory(run: RunData) -> list[str]:
    """The quantities that hold a run's memory under the PyTorch of 2020, which the paper's figures are of."""
    stated = {row["memory_predicted_for"] for row in run.rows} == {"cuda-2020"}
    return [f"memory_{mode}" if stated else f"memory_{mode}_2020" for mode in reversed(MODES)]


def choices() -> str:
    """Choice of a module, by need."""
    field = stored_run("field-cpu").rows
    mixing = {entry.key for entry in built_in() if entry.mixes_positions() and entry.family != "pooling"}
    rows = [
        (
            f"the least memory in {'training' if mode == 'train' else 'inference'} at 128 x 128, 512 channels",
            _least(peaks(mode), mixing, "MiB"),
        )
        for mode in reversed(MODES)
    ]
    for (height, width, channels), own in by_values(field, "height", "width", "channels").items():
        for mode, what in (("train", "training pass"), ("infer", "inference")):
            need = f"the fastest {what} at {height} x {width}, {channels} channels"
            rows.append((need, _fastest([row for row in own if row["module"] in mixing], mode)))
    params = {each.key: (each.closed_form("params", SHAPE) or 0) / 1e6 for each in built_in()}
    rows.append(("the fewest parameters at 512 channels", _least(params, mixing, "M")))
    looks_up = sorted((row for row in recalled() if row["recall_lookup"] >= SOLVED), key=lambda row: row["macs"])
    names = ", ".join(f"{row_name(row)} {row['macs'] / 1e9:.2f}" for row in looks_up)
    rows.append(("a partner found by its content ([`lookup`](recall.md)); MACs at 64 x 64, 512 channels", f"{names} G"))
    controls = [entry for entry in built_in() if entry.key not in mixing]
    for need, is_local in (
        ("one context for all positions (`aspp`: beside what lies near)", False),
        ("a window, or the own row and column (`coord`, `triplet`), and nothing from elsewhere", True),
    ):
        known = [(each.key, found) for each in controls if (found := reaches()[each.key]) is not None]
        rows.append((need, ", ".join(f"`{key}`" for key, found in known if (found < POSITIONS) == is_local)))
    return markdown({"you need": "label", "take": "text"}, rows)


def _least(values: Mapping[str, float], among: Iterable[str], unit: str) -> str:
    ordered = sorted((values[key], key) for key in among)
    most = ordered[MOST_NAMED - 1][0]
    return ", ".join(f"`{key}` {significant(value)}" for value, key in ordered if value <= most) + f" {unit}"


def _fastest(rows: Sequence[RecordRow], mode: str) -> str:
    """The modules whose interval reaches that of the smallest median, the fastest first."""
    each = quantity(f"latency_{mode}")
    ordered = sorted(rows, key=lambda row: row[each.column])
    tied = [row for row in ordered if row[each.detail("low_ms")] <= ordered[0][each.detail("high_ms")]]
    return ", ".join(f"`{row['module']}` {amount(row, each, each.unit)}" for row in tied) + " ms"


def survival() -> dict[str, Any]:
    """Dtypes `always` finite up to the `largest` scale, blocks finite in each, `whole`, and blocks that end `early`.

    Early: gradients under AMP that are not finite at inputs SURVIVED times as large.
    """
    frame = stored_run("precision-cpu").frame
    scales = frame.pivot(index="module", columns="dtype", values=["finite_forward", "finite_gradient"])
    largest = scales.max().max()
    always = [
        dtype for dtype in frame["dtype"].unique() if (scales.xs(dtype, axis=1, level=1) == largest).all(axis=None)
    ]
    whole = scales.index[(scales == largest).all(axis=1)]
    gradients = scales["finite_gradient"]["autocast-float16"]
    early = scales.index[gradients < SURVIVED]
    return {"always": always, "blocks": len(scales), "largest": largest, "whole": whole, "early": early}


def tracked_peaks() -> Iterator[tuple[str, str, pd.DataFrame]]:
    """Peaks by MemTracker and by ctxbench beside the true ones: of what, what is true, and the peaks by block."""
    peaks = table("other-tools/memory.csv").set_index("block")
    paper = numbers_with_published(with_published(stored_run("table3-static"))).frame.set_index("module")
    for mode in reversed(MODES):
        own = peaks[(peaks["of"] == "table3") & (peaks["mode"] == mode)]
        printed = pd.to_numeric(paper.loc[own.index, f"memory_{mode}_2020_published"])
        shown = (own[["tracker", "ctxbench"]] / 2**20).round()
        yield f"Table 3, {MODE_NOUNS[mode]}", "the paper's MiB", shown.assign(truth=printed)
    for mode in reversed(MODES):
        own = peaks[(peaks["of"] == "cpu") & (peaks["mode"] == mode)]
        yield f"blocks, CPU, {MODE_NOUNS[mode]}", "the profiler's bytes", own.assign(truth=own["measured"])


def little(network: str) -> dict[str, int]:
    """Number of modules of a network, and of those that add little to its MACs and to its training memory."""
    own = _shares()[lambda found: found["network"] == network]
    return {"all": len(own), **{key: int((own[key] < LITTLE).sum()) for key in SHARES}}


def _shares() -> pd.DataFrame:
    """Percent that each module adds to each network at LARGE_IMAGE."""
    found = pd.concat((table.data for table in network_tables(stored_run("networks-cpu"))), ignore_index=True)
    found = found[found["shape"] == LARGE_IMAGE]
    return found.assign(network=[Reference.parse(each).name for each in found["network"]])
