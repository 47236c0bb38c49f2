"""Texts of reports on recall: sentences at the top, the title of the table, the heading of figures."""

from collections.abc import Sequence

from ctxbench.base.texts import counted, listed
from ctxbench.model.metric import RecordRow
from ctxbench.model.suite_file import MeasureTable
from ctxbench.report.panels import label_of
from ctxbench.report.run_data import RunData
from ctxbench_science.recall.metric import KINDS, NOUNS, SOLVED, Recall, failed_up_to, first_of


def abilities(rows: Sequence[RecordRow]) -> list[str]:
    """Rows that solve each task of recall, and the number that do no better than without what it asks for."""
    found = []
    for kind in KINDS:
        known = [row for row in rows if row.get(f"recall_{kind}") is not None]
        values = {label_of(row): row[f"recall_{kind}"] for row in known}
        if known and kind == "segment":
            (least, low), *_, (most, high) = sorted([*values.items()] * 2, key=lambda each: each[1])
            found.append(f"Recall, {kind} ({NOUNS[kind]}): from {low:.0f} % ({least}) to {high:.0f} % ({most}).")
            continue
        solved = [name for name, value in sorted(values.items(), key=lambda each: -each[1]) if value >= SOLVED]
        tasks = [first_of(kind, row["recall_curve"]) for row in known]
        failed = sum(each["accuracy"] <= failed_up_to(name, each["cells"]) for name, each in tasks)
        if known:
            found.append(
                f"Recall, {kind} ({NOUNS[kind]}): {len(solved)} of {counted(len(known), 'row')} reach {SOLVED:.0f} %"
                f"{': ' * bool(solved)}{listed(solved) if solved else ''}; {failed} learned nothing of it."
            )
    return found


def title(run: RunData) -> str:
    """Training and test data of the networks, whatever the input of the case is; "" for a run without any."""
    return _scenes(_settings(run)) if any(row["recall_curve"] for row in run.rows) else ""


def heading(run: RunData) -> str:
    """Training data of the networks, with the number and length of their trainings."""
    own = _settings(run)
    steps = f"{own.recall_steps} steps (segment {own.recall_segment_steps})"
    return f"{_scenes(own)}, {own.recall_seeds} to 8 seeds, {steps}"


def _settings(run: RunData) -> Recall:
    return Recall.of(MeasureTable.model_validate(run.definition.get("measure") or {}))


def _scenes(own: Recall) -> str:
    return f"accuracy on scenes {own.recall_shape}"
