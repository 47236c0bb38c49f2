"""Writes the generated tables of README.md and docs/, between `<!-- table: NAME -->` and `<!-- /table -->`.

NAME is one of `LISTS`, which are tables of what ctxbench.metrics declares, or the folder of a committed run. After the
folder may stand the name of a figure of the run's suite, for the tables of its numbers; or `claims`, for what
`docs/suites/<suite>.py` finds in the run: rows of claim, what was measured, and whether the claim holds.
Run: python docs/update.py
"""

import re
import runpy
from collections.abc import Callable, Sequence
from pathlib import Path

import pandas as pd

import ctxbench
from ctxbench.metrics import metrics
from ctxbench.metrics.base import Column, Metric, Quantity, Unit
from ctxbench.mode import MODES
from ctxbench.report.curve_table import curve_tables
from ctxbench.report.curves import figures_of
from ctxbench.report.markdown import render_markdown
from ctxbench.report.panels import panels_of
from ctxbench.report.runs import open_run
from ctxbench.report.tables import comparison_table
from ctxbench.results import RunFolder

ROOT = Path(__file__).resolve().parents[1]
BLOCK = re.compile(r"(<!-- table: (.+?) -->\n).*?(<!-- /table -->)", re.DOTALL)


def metric_list() -> str:
    """The metrics: what each is, and when it is measured."""
    rows = [(f"`{metric.name}`", metric.about, _when(metric)) for metric in metrics().values()]
    return _markdown(("metric", "what", "when it is measured"), rows)


def quantity_list() -> str:
    """The quantities that tables show, `compare --rank-by` takes and suites publish."""
    rows = [
        (f"`{each.key}`", each.title, _unit(each.unit), each.origin, metric.name, _own_columns(each))
        for metric in metrics().values()
        for each in metric.quantities
    ]
    return _markdown(("quantity", "title", "unit", "origin", "metric", "columns"), rows)


def column_list() -> str:
    """All columns that metrics fill, with the schema that brought them."""
    rows = [(metric.name, _every_column(metric.columns)) for metric in metrics().values()]
    return _markdown(("metric", "columns of `records.csv`"), rows)


def speed_list() -> str:
    """How many times as long as each module the plain statement of its equations takes."""
    rows = pd.read_csv(ROOT / "results" / "plain-statement-cpu.csv")
    rows["ratio"] = rows["plain_ms"] / rows["module_ms"]
    wide = rows.pivot(index="module", columns=["shape", "threads", "mode"], values="ratio")
    header = [f"{shape}<br>{mode}, {threads} thread{'s' * (threads > 1)}" for shape, threads, mode in wide.columns]
    body = [
        (f"`{key}`", *(f"{ratio:.3g}" for ratio in ratios)) for key, ratios in zip(wide.index, wide.values, strict=True)
    ]
    return _markdown(("module", *header), body)


LISTS: dict[str, Callable[[], str]] = {
    "metrics": metric_list,
    "quantities": quantity_list,
    "columns": column_list,
    "speed": speed_list,
}


def run_table(folder: str) -> str:
    """The table of a committed run."""
    return render_markdown(comparison_table([RunFolder.open(ROOT / folder)]))


def figure_tables(folder: str, name: str) -> str:
    """The tables of a figure of a committed run."""
    panels = panels_of([open_run(ROOT / folder)])
    (figure,) = [each for each in figures_of(panels[0]) if each.name == name]
    return "\n".join(render_markdown(table) for table in curve_tables(panels, figure))


def claim_list(folder: str) -> str:
    """What a committed run says of its suite's claims."""
    run = ctxbench.load(ROOT / folder)
    path = ROOT / "docs" / "suites" / f"{run.folder.meta['suite']}.py"
    claims = runpy.run_path(str(path))["claims"]
    return _markdown(("claim", "measured", "holds"), claims(run.frame))


def updated(text: str) -> str:
    """The text with each block's table made anew."""

    def table(block: re.Match[str]) -> str:
        name, _, part = block[2].partition(" ")
        if name in LISTS:
            made = LISTS[name]()
        elif part == "claims":
            made = claim_list(name)
        else:
            made = figure_tables(name, part) if part else run_table(name)
        return f"{block[1]}{made.strip()}\n{block[3]}"

    return BLOCK.sub(table, text)


def pages() -> list[Path]:
    """The files that may hold such blocks."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "docs" / "suites").glob("*.md"))]


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
    names = {_both_modes(each.name): f" (schema {each.since})" * (each.since > 1) for each in columns}
    return ", ".join(f"`{name}`{note}" for name, note in names.items())


def _both_modes(name: str) -> str:
    """`latency_train_ms` as `latency_*_ms`."""
    return "_".join("*" if part in MODES else part for part in name.split("_"))


def _markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (header, ["---"] * len(header), *rows))


if __name__ == "__main__":
    for page in pages():
        page.write_text(updated(page.read_text(encoding="utf-8")), encoding="utf-8")
