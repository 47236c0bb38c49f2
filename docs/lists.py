"""The generated tables of what ctxbench declares and has stored: metrics, devices, modules, suites, committed runs."""

import ast
import json
import math
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import spearmanr

from ctxbench import registry
from ctxbench.case import Case
from ctxbench.claims import Rows, Verdict, claims_of
from ctxbench.devices.sheet import sheets
from ctxbench.macs.counter import count_macs
from ctxbench.memory import predict_peak
from ctxbench.metrics import metrics
from ctxbench.metrics.base import Column, Metric, Quantity, Unit
from ctxbench.metrics.params import count_params
from ctxbench.mode import MODES, Mode
from ctxbench.number import Number, ratio, significant
from ctxbench.predict.rates import calibration
from ctxbench.registry.entry import Entry
from ctxbench.report.formats.markdown import render_markdown
from ctxbench.report.published import with_published
from ctxbench.report.run_data import RunData, open_run
from ctxbench.report.tables.table import Origin, plain_table
from ctxbench.results.rows import rows_of
from ctxbench.results.run_folder import RunFolder
from ctxbench.suite.read import available, load

ROOT = Path(__file__).resolve().parents[1]
SHAPE = (1, 512, 128, 128)  # that of Table 3
POSITIONS = SHAPE[2] * SHAPE[3]
# What is counted of a selective scan of N states, for each route, position and channel.
ROUTES = 4
SCAN_CONVENTIONS: list[tuple[str, str, Callable[[int], float]]] = [
    ("ctxbench, and torchprofile's rules on a loop over the positions", "4 N + 1", lambda states: 4 * states + 1),
    ("the recurrence alone, as an einsum counts it", "2 N", lambda states: 2 * states),
    ("VMamba, FLOPs of a parallel scan, 9 B L D N and the skip", "9 N + 1", lambda states: 9 * states + 1),
    ("VMamba's older count, outer products halved", "3.5 N + 1", lambda states: 3.5 * states + 1),
    ("hooks on layers (thop, ptflops)", "0", lambda states: 0),
]
# A prediction within this factor of a published time is counted as near.
NEAR = 1.5


@cache
def stored_run(name: str) -> RunData:
    """A committed run by the name of its folder."""
    return open_run(ROOT / "results" / name)


def metric_list() -> str:
    """The metrics: what each is, and when it is measured."""
    rows = [(f"`{metric.name}`", metric.about, _when(metric)) for metric in metrics().values()]
    return markdown({"metric": "label", "what": "text", "when it is measured": "text"}, rows)


def quantity_list() -> str:
    """The quantities that tables show, `compare --rank-by` takes and suites publish."""
    rows = [
        (f"`{each.key}`", each.title, _unit(each.unit), each.origin, metric.name, _own_columns(each))
        for metric in metrics().values()
        for each in metric.quantities
    ]
    words = dict.fromkeys(("title", "unit", "origin", "metric", "columns"), "text")
    return markdown({"quantity": "label", **words}, rows)


def column_list() -> str:
    """All columns that metrics fill."""
    rows = [(metric.name, _every_column(metric.columns)) for metric in metrics().values()]
    return markdown({"metric": "label", "columns of `records.csv`": "text"}, rows)


def device_list() -> str:
    """The devices that times are predicted for, with the figures of their data sheets."""
    calibrated: dict[str, set[str]] = defaultdict(set)
    for (title, era), classes in calibration().devices.items():
        calibrated[title] |= {f"{len(classes)} ({era})"}
    rows = [
        (
            f"`{name}`",
            each.title,
            ", ".join(f"{dtype} {peak:g}" for dtype, peak in each.peak_tflops.items()),
            *(f"{figure:g}" for figure in (each.bandwidth_gb_s, each.l2_mib, each.power_w, each.processors)),
            ", ".join(sorted(calibrated[each.title])) or "none",
        )
        for name, each in sheets().items()
    ]
    figures = dict.fromkeys(("GB/s", "L2, MiB", "W", "processors"), "published")
    words = {"name": "label", "product": "text", "peak, TFLOP/s": "text"}
    return markdown({**words, **figures, "classes measured": "text"}, rows)


def left_out_list() -> str:
    """By class: how well kernels of a device are predicted from the other devices alone."""
    rows = []
    for (dtype, kind), part in _left_out().groupby(["dtype", "class"], sort=True):
        errors = part["median_error"]
        covered = np.average(part["covered"], weights=part["kernels"])
        spread = f"{errors.median():.0%} ({errors.min():.0%} to {errors.max():.0%})"
        band = f"/{part['band'].median():.2f} to x{part['band'].median():.2f}"
        rows.append((kind, dtype, str(len(part)), f"{part['kernels'].sum():,}", spread, f"{covered:.0%}", band))
    labels, counts = dict.fromkeys(("class", "dtype"), "label"), dict.fromkeys(("devices", "kernels"), "counted")
    ratios = ("median error of a device: median (range)", "kernels in their band", "band")
    return markdown({**labels, **counts, **dict.fromkeys(ratios, "ratio")}, rows)


def coverage_list() -> str:
    """For each class and device: how many of the kernels the band of the other devices holds."""
    names = {each.title: name for name, each in sheets().items()}
    rows = []
    for kind, part in _left_out("float32").groupby("class", sort=True):
        cells = [
            f"{names[device]} {covered:.0%} of {kernels}"
            for device, covered, kernels in zip(part["device"], part["covered"], part["kernels"], strict=True)
        ]
        rows.append((str(kind), "; ".join(cells)))
    return markdown({"class, float32": "label", "kernels in the band, device left out": "text"}, rows)


def _left_out(dtype: str = "") -> pd.DataFrame:
    frame = pd.read_csv(ROOT / "results" / "prediction" / "left-out.csv")
    return frame[frame["dtype"] == dtype] if dtype else frame


def validation(name: str = "validation") -> pd.DataFrame:
    """The measured passes that no prediction was fitted to, with ratio and whether the band holds; or `networks`."""
    frame = pd.read_csv(ROOT / "results" / "prediction" / f"{name}.csv")
    frame["ratio"] = frame["predicted_ms"] / frame["measured_ms"]
    frame["in_band"] = frame["measured_ms"].between(frame["low_ms"], frame["high_ms"])
    return frame


def validation_summary() -> str:
    """By source, what was known of the device, mode and device: errors, coverage and rank."""
    rows = []
    by = ["source", "known", "mode"]
    for key, part in validation().groupby(by, sort=False):
        rows.append((*map(str, key), "all", *_agreement(part)))
        if part["device"].nunique() > 1:
            rows += [(*map(str, key), str(device), *_agreement(own)) for device, own in part.groupby("device")]
    labels = dict.fromkeys(("source", "device is", "mode", "device"), "label")
    ratios = dict.fromkeys(("median error", "within 1.5", "in the band", "rank", "high / low"), "ratio")
    return markdown({**labels, "rows": "counted", **ratios}, rows)


def network_summary(*by: str) -> Callable[[], str]:
    """timm's networks under AMP by what was left out and `by`: errors, coverage and rank."""

    def table() -> str:
        rows = [(*map(str, key), *_agreement(part)) for key, part in validation("networks").groupby(["known", *by])]
        labels = dict.fromkeys(("left out", *by), "label")
        ratios = dict.fromkeys(("median error", "within 1.5", "in the band", "rank", "high / low"), "ratio")
        return markdown({**labels, "passes": "counted", **ratios}, rows)

    return table


def _agreement(part: pd.DataFrame) -> tuple[str, ...]:
    error = (part["ratio"] - 1).abs().median()
    near = part["ratio"].between(1 / NEAR, NEAR).mean()
    rank = spearmanr(part["predicted_ms"], part["measured_ms"])[0] if len(part) > 2 else math.nan
    wide = (part["high_ms"] / part["low_ms"]).median()
    texts = (f"{error:.0%}", f"{near:.0%}", f"{part['in_band'].mean():.0%}", "" if math.isnan(rank) else f"{rank:.2f}")
    return (str(len(part)), *texts, f"{wide:.2f}")


def validation_ratios() -> str:
    """Ratios of two passes on a device that was left out, by device: errors, and how many their band holds."""
    frame = validation()
    part = frame[(frame["source"] == "NeuSight passes") & (frame["known"] == "left out")]
    found = []
    for (device, mode), own in part.groupby(["device", "mode"]):
        for one, two in combinations(rows_of(own), 2):
            told = ratio(*(_predicted(row) for row in (one, two)))
            measured = one["measured_ms"] / two["measured_ms"]
            inside = told.low <= measured <= told.high
            right = (told.value > 1) == (measured > 1)
            found.append((str(device), str(mode), abs(told.value / measured - 1), inside, right, told.high / told.low))
    pairs = pd.DataFrame(found, columns=["device", "mode", "error", "inside", "right", "wide"])
    parts = [(("all", "both"), pairs), *pairs.groupby(["device", "mode"])]
    rows = []
    for key, own in parts:
        shares = (f"{own['error'].median():.0%}", f"{own['inside'].mean():.0%}", f"{own['right'].mean():.0%}")
        rows.append((*map(str, key), str(len(own)), *shares, f"{own['wide'].median():.2f}"))
    ratios = dict.fromkeys(("median error", "in the band", "order right", "high / low"), "ratio")
    return markdown({"device": "label", "mode": "label", "pairs": "counted", **ratios}, rows)


def _predicted(row: Mapping[Any, Any]) -> Number:
    errors = json.loads(row["errors"])
    return Number(row["predicted_ms"], row["low_ms"], row["high_ms"], origin="predicted", errors=errors)


def validation_rows(source: str, known: str) -> Callable[[], str]:
    """Each row of a source: measured, predicted, band, ratio."""

    def table() -> str:
        frame = validation()
        part = frame[(frame["source"] == source) & (frame["known"] == known)]
        rows = [
            (
                *(str(row[name]) for name in ("what", "mode", "device")),
                f"{row['measured_ms']:.4g}",
                _predicted(row).text(),
                f"{row['ratio']:.2f}",
                "yes" if row["in_band"] else "no",
            )
            for _, row in part.iterrows()
        ]
        labels = dict.fromkeys(("what", "mode", "device"), "label")
        times = {"measured, ms": "measured", "predicted, ms": "predicted", "ratio": "ratio"}
        return markdown({**labels, **times, "in the band": "text"}, rows)

    return table


def table3_predictions() -> str:
    """Predicted beside published times of Table 3, and how close they are.

    On the device that the paper measured on; a time that a footnote of the suite calls into question is left out.
    """
    run = open_run(ROOT / "results" / "prediction" / "table3")
    assert run.published is not None
    doubtful = {(name, key) for name, row in run.published.rows.items() for key in row.notes}
    rows, ratios, inside = [], [], []
    for row in rows_of(with_published(run)):
        for key in (
            f"latency_{mode}" for mode in reversed(MODES) if (row["published_row"], f"latency_{mode}") not in doubtful
        ):
            if row[f"{key}_published"] is None:
                continue
            paper, *ends = (float(row[f"{key}_{name}"]) for name in ("published", "ms", "low_ms", "high_ms"))
            time = Number(*ends)
            ratios.append(time.value / paper)
            inside.append(time.low <= paper <= time.high)
            text = time.text()
            mode = key.removeprefix("latency_")
            rows.append(
                (f"`{row['module']}`", mode, f"{paper:g}", text, f"{ratios[-1]:.2f}", "yes" if inside[-1] else "no")
            )
    times = {"paper, ms": "published", "predicted, ms": "predicted", "ratio": "ratio"}
    table = markdown({"module": "label", "mode": "label", **times, "in the band": "text"}, rows)
    ratio, paper = np.array(ratios), np.array([float(row[2]) for row in rows])
    error, near = np.median(np.abs(ratio - 1)), int((np.abs(np.log(ratio)) <= math.log(NEAR)).sum())
    correlation = spearmanr(ratio * paper, paper)[0]
    return (
        f"{table}\n\nMedian error {error:.0%}; {near} of {len(rows)} within a factor of {NEAR:g}; "
        f"rank correlation {correlation:.2f}; the band holds {sum(inside)} of {len(rows)}."
    )


def module_list() -> str:
    """The registry: what each module computes, and what it costs at SHAPE."""
    rows = []
    for entry in built_in():
        reached = "all" if reach(entry) == POSITIONS else f"{reach(entry):,}"
        rows.append((f"[`{entry.key}`](#{entry.key})", entry.about, reached, *_costs(entry)))
    counts = dict.fromkeys(("reach", "params, M", "MACs, G"), "counted")
    predicted = dict.fromkeys(("memory, train, MiB", "memory, infer, MiB"), "predicted")
    return markdown({"module": "label", "what it computes": "text", **counts, **predicted}, rows)


def scan_list() -> str:
    """The MACs that are said of one selective scan at SHAPE: four routes of D = C channels, by the convention."""
    numbers = ROUTES * math.prod(SHAPE)
    rows = []
    for name, term, per_number in SCAN_CONVENTIONS:
        counts = (f"{numbers * per_number(states) / 1e6:,.1f}" for states in (1, 16))
        rows.append((name, term, *counts))
    for states, text in zip((1, 16), rows[0][2:], strict=True):
        module, image = replace(_case(registry.get("ss2d")), hparams={"d_state": states}).on_meta()
        counted = count_macs(module, image).by_operator["ctxbench::selective_scan"]
        assert f"{counted / 1e6:,.1f}" == text, "the first row is what ctxbench counts"
    counted_of = {f"M, {states} state{'s' * (states > 1)}": "counted" for states in (1, 16)}
    return markdown({"convention": "label", "for each route, position and channel": "text", **counted_of}, rows)


def module_details() -> str:
    """For each module: family, growth, source, public code, and what is faithful or mended."""
    parts = []
    for entry in built_in():
        growth = entry.complexity.replace("**2", "²").replace("*", " ")
        mixes = {True: "yes", False: "no"}.get(entry.position_mixing, f"if `{entry.position_mixing}`")
        reached = "" if entry.reach == "n" else f" *Reach*: {entry.reach.replace('*', ' ')}."
        facts = [
            f"*Family*: {entry.family}. *Growth*: {growth}. *Mixes positions*: {mixes}.{reached}",
            f"*Source*: {entry.paper}.",
        ]
        facts += [f"*Public code*: {entry.public_code}."] if entry.public_code else []
        parts.append(f"### {entry.key}\n\n{' '.join(facts)} {_mended(entry)}\n")
    return "\n".join(parts)


def reach(entry: Entry) -> int:
    """How many positions at SHAPE the one in the centre reaches, as declared."""
    found = entry.closed_form("reach", SHAPE)
    assert found is not None
    return found


def built_in() -> list[Entry]:
    """The modules of ctxbench itself."""
    return [each for each in registry.entries() if each.reference.startswith(f"{registry.BUILT_IN}.")]


def _mended(entry: Entry) -> str:
    """The second paragraph of a module's file without the source."""
    text = ast.get_docstring(ast.parse(Path(entry.file).read_text(encoding="utf-8"))) or ""
    return " ".join(text.split("\n\n")[1].split()).partition(". ")[2]


def _case(entry: Entry) -> Case:
    return Case(entry.key, entry.reference, {}, SHAPE)


@cache
def peaks(mode: Mode) -> dict[str, float]:
    """The predicted peak of each module at SHAPE in MiB, without a device."""
    found = {}
    for entry in built_in():
        found[entry.key] = predict_peak(*_case(entry).on_meta(), mode=mode).peak_bytes / 2**20
    return found


def _costs(entry: Entry) -> Iterator[str]:
    """Parameters, MACs and the predicted peaks of a training and an inference pass at SHAPE, without a device."""
    module, image = _case(entry).on_meta()
    yield significant(count_params(module) / 1e6)
    yield significant(count_macs(module, image).macs / 1e9)
    for mode in reversed(MODES):
        yield f"{peaks(mode)[entry.key]:.0f}"


def sweep_list() -> str:
    """What the driver of a simulated sweep costs."""
    rows = rows_of(pd.read_csv(ROOT / "results" / "sweep-simulation.csv"))
    body = [
        (f"{r['slots']}", f"{r['cases']:,}", f"{r['processes']:,}", f"{r['wall_s']:.0f}",
         f"{r['driver_ms_per_case']:.1f}", f"{r['waiting_share']:.1%}")
        for r in rows
    ]  # fmt: skip
    times = dict.fromkeys(("seconds", "driver, ms of processor time a case", "waiting"), "measured")
    return markdown({**dict.fromkeys(("slots", "cases", "processes"), "counted"), **times}, body)


def suite_list() -> str:
    """The suites: question, size, duration and what the committed run says of the claims."""
    rows = []
    for name in available():
        suite = load(name)
        page = ROOT / "docs" / "suites" / f"{name}.md"
        title = f"[{name}](suites/{name}.md)" if page.exists() else f"`{name}`"
        run = ROOT / "results" / f"{name}-cpu"
        verdicts = _verdicts(run) if (run / "run.json").exists() else ""
        own = [case for case in suite.cases() if case.reference.startswith(f"{registry.BUILT_IN}.")]
        rows.append((title, suite.file.question, str(len(own)), f"{suite.file.minutes:g}", verdicts))
    sizes = {"cases": "counted", "minutes on two cores": "measured"}
    return markdown({"suite": "label", "question": "text", **sizes, "claims of the committed run": "text"}, rows)


def judged(path: Path) -> dict[Verdict, list[str]]:
    """The claims of a committed run by their verdict."""
    run = open_run(path)
    rows = Rows.of_frame(run.frame)
    found: dict[Verdict, list[str]] = {verdict: [] for verdict in Verdict}
    for claim in claims_of(run.suite, str(run.definition.get("title", ""))):
        found[claim.judge(rows).verdict].append(claim.text + (" (proxy)" if claim.proxy else ""))
    return {verdict: claims for verdict, claims in found.items() if claims}


def _verdicts(path: Path) -> str:
    """`3 supported, 1 not supported`."""
    return ", ".join(f"{len(claims)} {verdict}" for verdict, claims in judged(path).items())


def verdict_list(path: Path) -> str:
    """A line for each verdict, with the claims that a committed run gives it; measured ones are none."""
    lines = [
        f"- **{str(verdict).capitalize()}**: {'; '.join(claims)}."
        for verdict, claims in judged(path).items()
        if verdict is not Verdict.MEASURED
    ]
    return "\n".join(lines)


def result_list() -> str:
    """The committed runs: the pages that show them, and the command that makes them again."""
    rows = []
    for path in sorted((ROOT / "results").glob("*/run.json")):
        folder = f"results/{path.parent.name}"
        shown = [page for page in doc_pages() if re.search(rf"\b{folder}\b", page.read_text(encoding="utf-8"))]
        links = ", ".join(f"[{page.stem}](../{page.relative_to(ROOT)})" for page in shown)
        rows.append((f"`{path.parent.name}`", links, f"`{RunFolder.open(path.parent).meta['command']}`"))
    return markdown({"folder": "label", "pages": "text", "command": "text"}, rows)


def doc_pages() -> list[Path]:
    """The pages of the documentation."""
    return [*sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "docs" / "suites").glob("*.md"))]


def family_list() -> str:
    """The modules of the registry by family, a line each."""
    entries = built_in()
    first = {family: min(e.year or 0 for e in entries if e.family == family) for family in {e.family for e in entries}}
    families = sorted(first, key=lambda family: (first[family], family))
    lines = []
    for family in families:
        own = sorted((each for each in entries if each.family == family), key=lambda each: (each.year or 0, each.key))
        lines.append(f"- **{family}**: " + ", ".join(f"`{each.key}`" for each in own))
    return "\n".join(lines)


def _when(metric: Metric) -> str:
    if not metric.asked_for:
        return "in every run where it applies; `metrics` cannot name it"
    return "by default, or if `metrics` names it" if metric.default else "if `metrics` names it"


def _unit(unit: Unit) -> str:
    return str(unit) if unit.factor > 1 else unit.symbol or "none"


def _own_columns(each: Quantity) -> str:
    names = [each.column, each.measured_column]
    names += [each.detail("low_ms"), each.detail("high_ms")] if each.has_interval else []
    return ", ".join(f"`{name}`" for name in names if name)


def _every_column(columns: Sequence[Column]) -> str:
    own = {each.name for each in columns}
    return ", ".join(f"`{name}`" for name in dict.fromkeys(_both_modes(each.name, own) for each in columns))


def _both_modes(name: str, names: Collection[str]) -> str:
    """`latency_train_ms` as `latency_*_ms` if there is one for each mode."""
    short = "_".join("*" if part in MODES else part for part in name.split("_"))
    return short if all(short.replace("*", mode) in names for mode in MODES) else name


def markdown(headings: Mapping[str, Origin], rows: Sequence[Sequence[str]]) -> str:
    """A table whose texts are Markdown: what stands over each column, and how its cells were obtained."""
    return render_markdown(plain_table(headings, rows), trusted=True).rstrip("\n")


def command_list() -> str:
    """What `benchmarks/commands.py` found: processor time of commands."""
    frame = pd.read_csv(ROOT / "results" / "commands.csv")
    rows = [(f"`{row['command']}`", *(f"{row[name]:.2f}" for name in ("again", "anew"))) for row in rows_of(frame)]
    unit = f"In units of `python -c 'import torch'`, which took {frame['import_torch_s'][0]:.1f} s of processor time."
    return markdown({"command": "label", "again": "measured", "counted anew": "measured"}, rows) + f"\n\n{unit}"


LISTS: dict[str, Callable[[], str]] = {
    "metrics": metric_list,
    "quantities": quantity_list,
    "columns": column_list,
    "sweep": sweep_list,
    "devices": device_list,
    "left-out": left_out_list,
    "left-out-coverage": coverage_list,
    "validation": validation_summary,
    "validation-ratios": validation_ratios,
    "networks-cards": network_summary("device", "mode", "layout"),
    "networks-families": network_summary("family", "mode", "layout"),
    "validation-passes": validation_rows("NeuSight passes", "left out"),
    "validation-cpu": validation_rows("suite field", "calibrated"),
    "validation-operators": validation_rows("KernelBench", "left out"),
    "table3-predictions": table3_predictions,
    "modules": module_list,
    "module-details": module_details,
    "scans": scan_list,
    "suites": suite_list,
    "results": result_list,
    "families": family_list,
    "commands": command_list,
}
