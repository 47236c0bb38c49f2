"""The generated tables of what runs found: Table 3 in short, which module to take, ability beside cost."""

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import permutations

import numpy as np
import pandas as pd
from headlines import RECALLED, audits, is_printed, recalled, row_name
from lists import POSITIONS, built_in, markdown, peaks, reach, stored_run
from scipy.stats import rankdata

from ctxbench.base.mode import MODES
from ctxbench.base.number import significant
from ctxbench.base.texts import listed
from ctxbench.model.metric import RecordRow
from ctxbench.model.metrics import quantity
from ctxbench.model.read_suite import read_published
from ctxbench.plugins.audit.finding import Verdict
from ctxbench.plugins.audit.table import audit_table
from ctxbench.plugins.networks.table import network_tables
from ctxbench.plugins.recall.metric import SEGMENT_BOUNDS, accuracy_of, first_of, learned_of
from ctxbench.report.published import with_published
from ctxbench.report.run_data import RunData
from ctxbench.report.tables.caption import setup
from ctxbench.report.tables.cells import amount
from ctxbench.results.rows import rows_of
from ctxbench.table.markdown import escape, render_markdown
from ctxbench.table.table import Origin

# The accuracies of recall, a column each.
PERCENT = dict.fromkeys((f"{kind}, %" for kind in RECALLED), "measured")
# Of a list of the cheapest, so many are named, and those that cost the same as the last.
MOST_NAMED = 5
# An input this many times as large as a standard normal one, a training step should survive.
SURVIVED = 16
# Whole networks are compared at this input.
LARGE_IMAGE = "1x3x512x512"
# GB: what counts as near mmsegmentation's figure, and near what a head adds by two of its figures.
NEAR, NEAR_ADDED = 0.2, 0.1


def table3_short() -> str:
    """The rows of the paper's Table 3 in six columns, and two lines of notes."""
    run = stored_run("table3-cpu")
    printed = [row for row in rows_of(with_published(run)) if row["params_published"] is not None]
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


def choices() -> str:
    """Choice of a module, by need."""
    field = stored_run("field-cpu").frame
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
    controls = [entry for entry in built_in() if entry.key not in mixing]
    for need, is_local in (
        ("one context for all positions (`aspp`: beside what lies near)", False),
        ("a window, or the own row and column (`coord`), and nothing from elsewhere", True),
    ):
        rows.append((need, ", ".join(f"`{each.key}`" for each in controls if (reach(each) < POSITIONS) == is_local)))
    free = [entry.key for entry in built_in() if entry.public_code and "no licence" not in entry.public_code]
    rows.append(
        ("public code under a licence, where trained weights may be found", ", ".join(f"`{key}`" for key in free))
    )
    return markdown({"you need": "label", "take": "text"}, rows)


def _least(values: "pd.Series[float]", among: Iterable[str], unit: str) -> str:
    ordered = values[values.index.isin([*among])].sort_values()
    chosen = ordered[ordered <= ordered.iloc[MOST_NAMED - 1]]
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
    """Accuracy of each block on each task, its gradient's reach to other positions, and its costs."""
    memory = "memory_train_predicted_bytes"
    found = sorted(recalled(), key=lambda row: -row["recall_segment"])
    rows = []
    for row in found:
        ahead = any(
            other["recall_segment"] > row["recall_segment"]
            and other["macs"] < row["macs"]
            and (other[memory] or 0) < (row[memory] or 0)
            for other in found
        )
        costs = (f"{row['macs'] / 1e9:.2f}", f"{row[memory] / 2**20:.0f}" if row[memory] else "")
        reaches = row["recall_gradient"] or "local"
        rows.append((row_name(row), *abilities(row), reaches, *costs, "" if ahead else "yes"))
    costs = {"MACs, G": "counted", "training, MiB": "predicted"}
    return markdown({"module": "label", **PERCENT, "gradient reaches others": "text", **costs, "front": "text"}, rows)


def recall_bounds() -> str:
    """Accuracy of Bayes's decision in the task `segment`, by the context that it is given."""
    rows = [(what, f"{value:.0f}") for what, value in SEGMENT_BOUNDS.items()]
    return markdown({"known": "label", "segment, %": "counted"}, rows)


def recall_published() -> str:
    """Published mIoU of networks beside the recall of their module, and the rank correlation of both."""
    every = [row for row in recalled() if row["module"] in PUBLISHED_MIOU]
    found = {row["module"]: row for row in every if not row["changed"]}
    exact = found | {row["module"]: row for row in every if row["changed"]}
    rows = [
        (f"`{key}`", *(f"{each:g}" if each else "" for each in PUBLISHED_MIOU[key]), *abilities(row))
        for key, row in sorted(found.items(), key=lambda item: -(PUBLISHED_MIOU[item[0]][0] or 0))
    ]
    printed = dict.fromkeys(("PASCAL Context, mIoU", "PASCAL VOC, mIoU"), "published")
    table = markdown({"module": "label", **printed, **PERCENT}, rows)
    published = [PUBLISHED_MIOU[key][0] for key in found]

    def ranks(rows: Mapping[str, RecordRow]) -> str:
        values = {kind: [row[f"recall_{kind}"] for row in rows.values()] for kind in RECALLED}
        parts = [(kind, *rank_correlation(published, own)) for kind, own in values.items()]
        return ", ".join(f"{kind} {value:+.2f} (p = {chance:.3f})" for kind, value, chance in parts)

    looked_at = 2 * len(RECALLED)
    return (
        f"{table}\n\nRank correlation with the mIoU on PASCAL Context, {len(found)} modules: {ranks(found)}; "
        f"with the gradient of Ham (NMF) through all steps: {ranks(exact)}. p is the share of all orders of the "
        f"modules that correlate as strongly or more. Of {looked_at} correlations, one shows something from "
        f"p = {0.05 / looked_at:.3f} on (Bonferroni, at 5 %)."
    )


def rank_correlation(first: Sequence[float | None], second: Sequence[float]) -> tuple[float, float]:
    """Spearman's rank correlation, and the share of all orders that have as strong a one, with either sign."""
    one, other = (rankdata(values) - (len(second) + 1) / 2 for values in (first, second))
    every = np.array(list(permutations(other))) @ one / math.sqrt((one @ one) * (other @ other))
    return float(every[0]), float(np.mean(abs(every) >= abs(every[0]) - 1e-9))


def abilities(row: RecordRow) -> list[str]:
    """`94 [92, 96]` of segment; `83, 5 of 8 [24, 91]` elsewhere: the median, and how many seeds learned."""
    texts = []
    for kind in RECALLED:
        name, found = first_of(kind, row["recall_curve"])
        text = accuracy_of(name, found).text(decimals=0)
        if kind != "segment":
            share = learned_of(found)
            text += f", {found['learned']} of {len(found['accuracies'])} [{share.low:.0f}, {share.high:.0f}]"
        texts.append(text)
    return texts


def survival() -> str:
    """Blocks whose training step under AMP is not finite at inputs SURVIVED times as large, and what ends it."""
    frame = stored_run("precision-cpu").frame
    scales = frame.pivot(index="module", columns="dtype", values=["finite_forward", "finite_gradient"])
    largest = scales.max().max()
    always = [
        dtype for dtype in frame["dtype"].unique() if (scales.xs(dtype, axis=1, level=1) == largest).all(axis=None)
    ]
    ending = [dtype for dtype in frame["dtype"].unique() if dtype not in ("float32", *always)]
    whole = scales.index[(scales == largest).all(axis=1)]
    early = scales["finite_gradient"]["autocast-float16"].sort_values(kind="stable")
    rows = []
    for key in early.index[early < SURVIVED]:
        own = {row["dtype"]: row for row in rows_of(frame[frame["module"] == key])}
        amp = own["autocast-float16"]
        ends = str(amp["overflow_gradient"] or amp["overflow_forward"] or "").partition(" gives ")[0]
        gap = "" if amp["loss_gap"] is None else significant(100 * amp["loss_gap"], 2)
        rows.append((f"`{key}`", *(_scales(own[dtype]) for dtype in ending), escape(ends), gap))
    measured = dict.fromkeys((*ending, "ends it under autocast-float16", "loss, autocast-float16, %"), "measured")
    return (
        f"In {_code(always)} all {len(scales)} blocks are finite up to a scale of "
        f"{largest:g}, the largest that was tried. {len(whole)} are in each dtype: "
        f"{_code(whole)}. {len(rows)} have gradients under autocast to float16 that end "
        f"below a scale of {SURVIVED}:\n\n{markdown({'module': 'label', **measured}, rows)}"
    )


def _code(names: Iterable[str]) -> str:
    return listed([f"`{name}`" for name in names])


def _scales(row: RecordRow) -> str:
    """`4096, 64`: the largest scales of the input at which forward pass and gradients are finite."""
    scales = (row["finite_forward"], row["finite_gradient"])
    return ", ".join("?" if scale is None else f"{scale:g}" for scale in scales)


def audit_summary() -> str:
    """By published table: how many of its figures have which verdict."""
    rows = []
    for name, found in audits().items():
        table = read_published(name)
        verdicts = [each.verdict for each in found]
        link, source = f"[`{name}`](#{name.replace('_', '-')})", f"{table.authors}, {table.venue} {table.year}"
        counts = [str(verdicts.count(each)) for each in Verdict]
        rows.append((link, source, table.seen, str(len(found)), *counts))
    headings = dict.fromkeys(("figures", *Verdict), "counted")
    return markdown({"table": "label", "source": "label", "seen": "text", **headings}, rows)


def audit_of(name: str) -> str:
    """The findings about a published table."""
    return render_markdown(audit_table(read_published(name), audits()[name]))


def mmsegmentation_near() -> str:
    """Number of mmsegmentation's figures near the count, as printed and as additions to the FCN of the same column."""
    off: dict[tuple[str, ...], float] = {}
    for each in audits()["mmsegmentation"]:
        head, _, column = each.row.partition(" ")
        off[head, column] = float(each.printed) - float(each.counted)
    near = sum(abs(each) <= NEAR for each in off.values())
    added = [
        own - off["fcn", column] for (head, column), own in off.items() if head != "fcn" and ("fcn", column) in off
    ]
    near_added = sum(round(abs(each), 6) <= NEAR_ADDED for each in added)
    return (
        f"As printed, {near} of {len(off)} figures are within {NEAR:g} GB of the count, and of what a head adds "
        f"to the FCN of its column {near_added} of {len(added)} within {NEAR_ADDED:g} GB."
    )


def network_shares() -> str:
    """Share of MACs and of training memory that each module adds to each network, at the largest input."""
    run = stored_run("networks-cpu")
    found = pd.concat((table.data for table in network_tables(run)), ignore_index=True)
    found = found[found["shape"] == LARGE_IMAGE].assign(network=found["network"].str.rpartition(":")[2])
    shares = {"macs_share": "MACs", "memory_train_share": "memory, train"}
    wide = found.pivot(index="module", columns="network", values=list(shares)).swaplevel(axis=1)
    columns = [(network, key) for network in found["network"].unique() for key in shares]
    rows = [(f"`{key}`", *(f"{row[column]:+.1f}" for column in columns)) for key, row in wide.iterrows()]
    origins: dict[str, Origin] = {"macs_share": "counted", "memory_train_share": "predicted"}
    headings = {f"{network}: {shares[key]}, %": origins[key] for network, key in columns}
    return f"{markdown({'module': 'label', **headings}, rows)}\n\nhere: {setup(run)}."
